#!/usr/bin/env python3
"""Kimi's tokenizer in Python, slow and plain: makes test data from it, and compares programs with it.

usage: tiktoken_reference.py make                          writes tests/data/tokenizers/tiktoken/: a vocabulary trained on
                                                           the text of make_test_tokenizer.py, and what it makes of texts
       tiktoken_reference.py compare PROGRAM FOLDER [N]    N (10,000) random strings through PROGRAM and through PyPI's
                                                           tiktoken, with and without special tokens, and 60 long texts

Both need PyPI's `tiktoken`, `make` also `regex`. Both are deterministic. The stored files need neither to test.

Texts hold only characters of Unicode 14, which is what PCRE2 10.42 knows; run this with a Python whose tables are not
newer (3.11), or expect differences that are the tables'.
"""
import base64
import itertools
import json
import os
import random
import subprocess
import sys
import unicodedata

import make_test_tokenizer as tiny

FOLDER = os.path.join(tiny.ROOT, "tiktoken")
N_MERGES = 1100
N_SPECIAL = 256
NAMES = {0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>", 6: "[start_header_id]",
         7: "[end_header_id]", 9: "[EOT]", 18: "<|media_begin|>", 19: "<|media_content|>", 20: "<|media_end|>",
         21: "<|media_pad|>", 65: "<osagent_mode>", 254: "[UNK]", 255: "[PAD]"}  # fmt: skip

PATTERN = (
    r"[\p{Han}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# ---- the encoder ---------------------------------------------------------------------------------------------------


def pieces(text):
    import regex

    found = regex.findall(
        PATTERN.replace("[^\\s", "[^" + tiny.SPACE).replace("\\s", "[" + tiny.SPACE + "]").replace("\\S", "[^" + tiny.SPACE + "]"),
        text,
        regex.V1,
    )
    assert "".join(found) == text
    return found


def cuts(text, block=400_000, most=25_000):
    """The parts that are encoded by themselves: of each block of characters, runs of one class cut every `most`."""
    for begin in range(0, len(text), block):
        part, borders, at = text[begin : begin + block], [0], 0
        for _, run in itertools.groupby(part, str.isspace):
            n = sum(1 for _ in run)
            borders += range(at + most, at + n, most)
            at += n
        borders.append(len(part))
        yield from (part[a:b] for a, b in zip(borders, borders[1:]))


class Reference:
    """Looks at all neighbours for the best two until none makes a token."""

    def __init__(self, ranks, special):
        self.ranks, self.special = ranks, special  # bytes -> rank, text -> id
        self.known = {}
        self.library = None

    def merge(self, piece):
        if piece in self.ranks:
            return [self.ranks[piece]]
        parts = [piece[i : i + 1] for i in range(len(piece))]
        while True:
            best = min((self.ranks.get(a + b, len(self.ranks)), i) for i, (a, b) in enumerate(zip(parts, parts[1:] + [b"\0" * 999])))
            if best[0] == len(self.ranks):
                return [self.ranks[p] for p in parts]
            parts[best[1] : best[1] + 2] = [parts[best[1]] + parts[best[1] + 1]]

    def plain(self, text):
        ids = []
        for p in pieces(text):
            if p not in self.known:
                self.known[p] = self.merge(p.encode())
            ids += self.known[p]
        return ids

    def part(self, text, special):
        import regex

        if not special:
            return self.plain(text)
        names = sorted(self.special, key=len, reverse=True)
        ids = []
        for i, t in enumerate(regex.split("(" + "|".join(map(regex.escape, names)) + ")", text)):
            ids += [self.special[t]] if i % 2 else self.plain(t)
        return ids

    def encode(self, text, special):
        return [i for part in cuts(text) for i in self.part(part, special)]

    def encode_long(self, text, special):
        """The same with the library's merging: ours would take the square of 25,000 steps for some pieces."""
        allowed = {"allowed_special": "all"} if special else {"disallowed_special": ()}
        self.library = self.library or open_library(self.ranks, self.special)
        return [i for part in cuts(text) for i in self.library.encode(part, **allowed)]

    def decode(self, ids):
        texts = {i: t for t, i in self.ranks.items()} | {i: t.encode() for t, i in self.special.items()}
        return b"".join(texts[i] for i in ids).decode("utf-8", errors="replace")


def open_library(ranks, special):
    import tiktoken

    return tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)


def special_ids(n_ranks, named):
    return {named.get(i, "<|reserved_token_%d|>" % i): i for i in range(n_ranks, n_ranks + N_SPECIAL)}


# ---- test data -----------------------------------------------------------------------------------------------------


# What is a piece of its own only to a pattern that is not quite Kimi's: with Han letters, o200k's tail, other digits.
ACROSS = ["a世", "A世", "世a", "世A", "1234", "x1", "!\n/", "?/", "\na", "\rA", "don'T", "Ab'LL", "a'D", "a'x", "  b", "世\u0301",
          "\u0301世", " 世", "a \n", "\n ", "aB", "ABc", "!a!", "\u01c5\u01c5", " 1", "世世世世世", "\u3006a", "\u2e80世"]  # fmt: skip


def train():
    """Tokens in the order of their ranks: the bytes, the best merges, and some that no merge leads to."""
    words = {}
    for piece in pieces(tiny.TEXT * 2 + " " * 40 + "\n" * 9 + "a" * 24 + "字" * 6):
        word = tuple(bytes([b]) for b in piece.encode())
        words[word] = words.get(word, 0) + 1
    tokens = [bytes([b]) for b in tiny.ALPHABET]
    while len(tokens) < 256 + N_MERGES:
        counts = {}
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + n
        best = max(counts, key=lambda p: (counts[p], p))
        if best[0] + best[1] not in tokens:
            tokens.append(best[0] + best[1])
        words = {tuple(tiny.merge_pair(list(w), best)): n for w, n in words.items()}
        if len(tokens) % 100 == 0:
            tokens += {300: [b"zqzqzq"], 700: [b" Qxj"], 1100: [b"\xf0\x9f\x92", b"\x00\x00\x00"]}.get(len(tokens), [])
        if len(tokens) == 900:
            tokens += [t.encode() for t in ACROSS]
    return tokens


CASES = [t for t in tiny.CASES if "ifm|" not in t] + [
    "zqzqzq zqzqzqz",
    " Qxj Qxjq", "\x00\x00\x00 \x00\x00", "💘💘", "HelloWorld helloWORLD iPhone XMLHttp ÀÉî ǅungla",
    "I'm I'M we'd WE'VE it'll THEIR'S don't DON'T 'tis x'sy '\u017f",
    "世界hello世界 a世b \u3006世 々〇世 \u2e80\u3021 世\u0301", "\u0301\u0301a \u0301",
    "don't/\n\n//\n x/\r\n", "!\n\n?\r\n\r\n..", "\x1c\x1d\x1e\x1f x\x1cy", "a\u200bb\u2028c\u2029d\u0085e\u180ef", "ʰʲ ˈa ʻokina ªº",
    *ACROSS, *("".join(p) for p in zip(ACROSS, ACROSS[5:] + ACROSS[:5])), *(".%s?" % p for p in ACROSS),
    "[BOS]a[EOS]", "<|open|>message role=\"user\"<|sep|>Hi<|close|>message<|sep|><|end_of_msg|>", "<|open|><|open|",
    "<|reserved_token_1364|>",
    "<|im_end|><|im_user|>", "<|open|>\u0301 <|sep|> \n<|sep|>", "a[PAD][UNK]b<osagent_mode>[EOT][start_header_id]",
]  # fmt: skip


def long_cases():
    """(parts, with special tokens): a part is a text and how often it is repeated."""
    mark, close = "<|open|>", "<|close|>"
    for n in (24_999, 25_000, 25_001, 50_000, 50_001):
        for text in ("a", " ", "字", "\x1c", "\u0085", "😀"):
            yield [["b" if text.isspace() else " ", 1], [text, n], [".", 1], ["the glacier", 1]], False
        yield [["the ", 1], ["b", 1], ["a", n], ["aaa", 1]], False
        yield [["\u200b", n], [" ", n], ["x", 1]], False  # no white space to Python
    for at in range(24_990, 25_003):
        yield [["x", at], [mark, 1], ["y", 3]], True
        yield [[" ", at], ["\n", 4], [mark, 1]], True
    for at in range(24_999, 25_002):  # cut off at 25,000, and the count begins anew: 25,000 more may follow
        yield [["x", 25_000], ["y", at], [mark, 1]], True
    for before in ("\x1c\x1d\x1e\x1f\u0085\u00a0\u1680\u2003\u2028\u3000", "\u200b\u180e\ufeff\x00"):  # to Python space, and not
        for at in range(24_988, 25_002):
            yield [[before, 1], ["x", at], [mark, 1]], True
    for n in (399_999, 400_000, 400_001):
        yield [["ab ", 133_333], ["a", n - 399_999], ["bc", 1]], False
    for at in range(399_990, 400_002):
        yield [["é ", (at - 1) // 2], ["a", at - (at - 1) // 2 * 2], [mark, 1], ["z", 2]], True
    for at in (399_992, 799_992, 799_993):  # in the second block
        yield [["a ", at // 2], ["a", at % 2], [mark, 1], [close, 1]], True
    yield [["a ", 200_000 - 5_000], ["x", 10_000], ["y", 15_001], ["z", 9_999], [mark, 1]], True  # a block's end ends a run
    yield [["x", 400_001], ["<|close|>", 1]], True


def fnv1a(ids):
    h = 0xCBF29CE484222325
    for byte in b"".join(i.to_bytes(4, "little") for i in ids):
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def make():
    tokens = train()
    ranks = {t: i for i, t in enumerate(tokens)}
    n = len(tokens)
    named = {n + k: text for k, text in NAMES.items()}
    reference = Reference(ranks, special_ids(n, named))
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, "tiktoken.model"), "wb") as f:
        for t, i in ranks.items():
            f.write(base64.b64encode(t) + b" %d\n" % i)
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    config = {"added_tokens_decoder": {str(i): {"content": t, **flags} for i, t in named.items()},
              "additional_special_tokens": ["<|im_end|>", "<|im_user|>"], "bos_token": "[BOS]", "eos_token": "[EOS]",
              "pad_token": "[PAD]", "tokenizer_class": "TikTokenTokenizer", "unk_token": "[UNK]"}  # fmt: skip
    with open(os.path.join(FOLDER, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(config, indent=1) + "\n")
    cases = []
    for text in CASES + tiny.random_texts(240, 31):
        case = {"text": text, "ids": reference.encode(text, True)}
        plain = reference.encode(text, False)
        if plain != case["ids"]:
            case["plain_ids"] = plain
        assert (case["ids"], plain) == (reference.encode_long(text, True), reference.encode_long(text, False))
        assert reference.decode(plain) == reference.decode(case["ids"]) == text
        cases.append(case)
    long = []
    for parts, special in long_cases():
        ids = reference.encode_long("".join(t * k for t, k in parts), special)
        long.append({"special": special, "parts": parts, "n_ids": len(ids), "last": ids[-6:], "fnv1a": "%016x" % fnv1a(ids)})
    tiny.write(FOLDER, "expected.json", {"n_vocab": n + N_SPECIAL, "cases": cases})
    tiny.write(FOLDER, "expected_cuts.json", {"cases": long})
    print("tiktoken: %d ranks, %d cases, %d long ones" % (n, len(cases), len(long)))


# ---- comparing -----------------------------------------------------------------------------------------------------


def read_folder(folder):
    with open(os.path.join(folder, "tiktoken.model"), "rb") as f:
        ranks = {base64.b64decode(t): int(i) for t, i in (line.split() for line in f.read().splitlines() if line)}
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as f:
        named = {int(i): t["content"] for i, t in json.load(f)["added_tokens_decoder"].items()}
    return ranks, special_ids(len(ranks), named)


def random_strings(n, special, seed):
    """Words, odd mixtures, every script, and the special tokens, whole and broken."""
    rnd = random.Random(seed)
    known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    marks = sorted(special) + ["<|open", "|>", "[BOS", "<|", "\u0301", "'s", "'LL", " \n", "\r\n", "\t ", "\x1f", "  ", "\x00"]
    texts = tiny.random_texts(n // 2, seed)
    while len(texts) < n:
        if len(texts) % 2 == 0:
            texts.append("".join(rnd.choice(known) + rnd.choice(["", "", " ", "a", "A", "1", "世"]) for _ in range(rnd.randint(1, 30))))
        else:
            source = [rnd.choice(texts), rnd.choice(marks), rnd.choice(marks), rnd.choice(known), rnd.choice(texts)]
            texts.append("".join(rnd.sample(source, rnd.randint(1, 5))))
    return texts


def run_program(program, folder, texts, special):
    command = [program, "tokenize", folder, "--jsonl"] + (["--special"] if special else [])
    done = subprocess.run(command, input="".join(json.dumps(t) + "\n" for t in texts), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(program, folder, n):
    reference = Reference(*read_folder(folder))
    n_different = n_compared = 0
    for with_special in (False, True):
        texts = random_strings(n, reference.special, 7 + with_special)
        texts += ["".join(t * k for t, k in parts) for parts, s in long_cases() if s == with_special]
        for text, got in zip(texts, run_program(program, folder, texts, with_special), strict=True):
            expected = reference.encode_long(text, with_special)
            n_compared += 1
            if got != expected:
                n_different += 1
                print("DIFFERENT (special %s): %r" % (with_special, text[:80]))
    print("%s: %d texts, %d different" % (folder, n_compared, n_different))
    return 1 if n_different else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif sys.argv[1:2] == ["compare"] and len(sys.argv) in (4, 5):
        sys.exit(compare(sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) == 5 else 10_000))
    else:
        sys.exit(__doc__)
