"""The demo model's tokenizer in Kimi's scheme: tiktoken.model by its split pattern and its 256 special ids, a small vocabulary.

usage: kimi_tokenizer.py FOLDER      trains it on the data and writes tiktoken.model and tokenizer_config.json

Ids: 0..255 bytes, then the merges in their order, which is their rank, then the special tokens. Digits stay single tokens
and a name is the same tokens wherever it stands, as in tokenizer.py. Wants PyPI's `regex`;
tools/tiktoken_reference.py compares the folder with PyPI's `tiktoken`.
"""
import base64
import itertools
import json
import os
import sys

import data
import kimi_chat
import tokenizer as k2

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import tiktoken_reference as scheme  # noqa: E402

N_MERGES = 1280
BYTES = {c: b for b, c in scheme.tiny.ALPHABET.items()}  # of the characters in which tokenizer.py counts
KNOWN_MAX = 200000


class Tokenizer:
    """Encodes with the folder's files; pieces are remembered, since texts repeat."""

    def __init__(self, folder):
        ranks, self.special = scheme.read_folder(folder)
        self.slow = scheme.Reference(ranks, self.special)
        self.size = len(ranks) + len(self.special)

    def encode(self, piece):
        """A piece of kimi_chat: a mark, or a text in which nothing is special."""
        if piece in kimi_chat.MARKS:
            return [self.special[piece]]
        if len(self.slow.known) > KNOWN_MAX:
            self.slow.known.clear()
        return self.slow.plain(piece)

    def example(self, pieces):
        """(ids, for each whether it counts)."""
        ids, counts = [], []
        for text, count in pieces:
            new = self.encode(text)
            ids += new
            counts += [count] * len(new)
        return ids, counts

    def decode(self, ids):
        return self.slow.decode(ids)


def words():
    """Pieces of the data without digits and how often they occur."""
    out = {}
    for example in itertools.islice(data.stream(k2.SEED, talk=kimi_chat.Talk), k2.N_EXAMPLES):
        for text, _ in example:
            for word in scheme.pieces(text) if text not in kimi_chat.MARKS else ():
                out[word] = out.get(word, 0) + 1
    return {w: n for w, n in out.items() if n > 2 and not any(c.isdigit() for c in w)}


def make(folder):
    merges = k2.train(words(), N_MERGES)
    tokens = [bytes([b]) for b in range(256)]
    for a, b in merges:
        token = bytes(BYTES[c] for c in a + b)
        if token not in tokens:
            tokens.append(token)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tiktoken.model"), "wb") as f:
        for rank, token in enumerate(tokens):
            f.write(base64.b64encode(token) + b" %d\n" % rank)
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    named = {str(len(tokens) + i): {"content": text, **flags} for i, text in scheme.NAMES.items()}
    config = {"added_tokens_decoder": named, "bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]", "unk_token": "[UNK]",
              "model_max_length": 4096, "tokenizer_class": "TikTokenTokenizer"}  # fmt: skip
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(config, indent=1) + "\n")
    print("%d merges, %d ranks, last ones %s" % (len(merges), len(tokens), tokens[-8:]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(sys.argv[1])
