"""The demo model's tokenizer: K2-Horizon's scheme (byte-level BPE, its split pattern, its ids and tags), a small vocabulary.

usage: tokenizer.py FOLDER      trains it on the data and writes tokenizer.json and tokenizer_config.json

Ids: 0 begin of text, 1 end of text, 2..257 bytes, then the merges, then the tags. Digits stay single tokens, since
numbers take no part in the training. Wants PyPI's `regex`.
"""
import itertools
import json
import os
import string
import sys
import unicodedata

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import data  # noqa: E402
import make_test_tokenizer as scheme  # noqa: E402

N_MERGES = 1250
N_EXAMPLES = 60000
SEED = 99
CAPITALS = set(string.ascii_uppercase)


def words_of(texts, added):
    """Pieces of the texts and how often they occur."""
    import regex

    tags = regex.compile("|".join(regex.escape(t) for t in added))
    words = {}
    for text in texts:
        for part in tags.split(text):
            for piece in scheme.split(part):
                words[piece] = words.get(piece, 0) + 1
    return words


def train(words, n_merges):
    """The merges of byte pairs, most frequent first; ties by the pair itself. None joins a capital letter to a space or a
    sign: a name is the same tokens wherever it stands, so that copying it is copying tokens."""
    symbols = [scheme.to_alphabet(w) for w in words]
    signs = {scheme.ALPHABET[b] for b in range(128) if not chr(b).isalpha()}
    weights = list(words.values())
    counts, where = {}, {}

    def count(i, sign):
        for pair in zip(symbols[i], symbols[i][1:]):
            if pair[0][0] in signs and pair[1][0] in CAPITALS:
                continue
            counts[pair] = counts.get(pair, 0) + sign * weights[i]
            if sign > 0:
                where.setdefault(pair, set()).add(i)

    for i in range(len(symbols)):
        count(i, 1)
    merges = []
    while len(merges) < n_merges:
        best = max(counts, key=lambda p: (counts[p], p))
        merges.append(best)
        for i in where.pop(best):
            count(i, -1)
            symbols[i] = scheme.merge_pair(symbols[i], best)
            count(i, 1)
        counts.pop(best, None)
    return merges


class Tokenizer:
    """Encodes with the folder's tokenizer.json; pieces are remembered, since texts repeat."""

    def __init__(self, folder):
        import regex

        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
            j = json.load(f)
        self.vocab = j["model"]["vocab"]
        self.added = {t["content"]: t["id"] for t in j["added_tokens"]}
        merges = [tuple(m) for m in j["model"]["merges"]]
        self.slow = scheme.Reference(self.vocab, merges, self.added)
        self.tags = regex.compile("(" + "|".join(regex.escape(t) for t in self.added) + ")")
        self.size = len(self.vocab) + sum(i not in self.vocab.values() for i in self.added.values())
        self.known = {}

    def encode(self, text):
        ids = []
        for part in self.tags.split(text):
            if part in self.added:
                ids.append(self.added[part])
                continue
            for piece in scheme.split(part):
                if piece not in self.known:
                    if len(self.known) > 200000:
                        self.known.clear()
                    self.known[piece] = self.slow.word(piece)
                ids += self.known[piece]
        return ids

    def example(self, pieces):
        """(ids, for each whether it counts)."""
        ids, counts = [], []
        for text, count in pieces:
            new = self.encode(unicodedata.normalize("NFC", text))
            ids += new
            counts += [count] * len(new)
        return ids, counts

    def decode(self, ids):
        return self.slow.decode(ids)


def make(folder):
    texts = ("".join(t for t, _ in pieces) for pieces in itertools.islice(data.stream(SEED), N_EXAMPLES))
    words = words_of(texts, [t for t, _ in scheme.FIRST + scheme.TAGS])
    words = {w: n for w, n in words.items() if n > 2 and not any(c.isdigit() for c in w)}
    merges = train(words, N_MERGES)
    vocab = {t: i for i, (t, _) in enumerate(scheme.FIRST)}
    for c in scheme.ALPHABET.values():
        vocab[c] = len(vocab)
    for a, b in merges:
        vocab.setdefault(a + b, len(vocab))
    tags = [scheme.token(i, t, s) for i, (t, s) in enumerate(scheme.FIRST)]
    tags += [scheme.token(len(vocab) + i, t, s) for i, (t, s) in enumerate(scheme.TAGS)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    pattern = {"type": "Split", "pattern": {"Regex": scheme.PATTERN}, "behavior": "Isolated", "invert": False}
    scheme.write(folder, "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tags, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [pattern, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": [list(m) for m in merges]},
    })  # fmt: skip
    scheme.write(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": scheme.FIRST[0][0], "eos_token": scheme.FIRST[1][0],
        "clean_up_tokenization_spaces": False, "model_max_length": 1024,
    })  # fmt: skip
    print("%d words, %d merges, last ones %s" % (len(words), len(merges), merges[-8:]))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make(sys.argv[1])
