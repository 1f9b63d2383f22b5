#!/usr/bin/env python3
"""Makes the tokenizer test data under tests/data/tokenizers/. The files are stored; this need not run to test.

usage: make_test_tokenizer.py tiny        trains tiny/: a byte-level BPE vocabulary in K2-Horizon's format on the text
                                          below, and expected.json with ids by the slow reference encoder in this file
       make_test_tokenizer.py confirmed   confirmed.json (small random tokenizers: ids and decodings) and splits.json
                                          (patterns and behaviours: pieces), by Hugging Face's library

`tiny` needs PyPI's `regex`; `confirmed` needs `tokenizers`. Both are deterministic. Test texts use no character that
Unicode gained after version 14, which is what the tables of PCRE2 10.42 know.
"""
import json
import os
import random
import sys
import unicodedata

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "data", "tokenizers")

# ---- the tiny vocabulary -------------------------------------------------------------------------------------------

TEXT = """
The Baltoro is a glacier in the high mountains, more than sixty kilometres long. Snow falls on the peaks above it, is
pressed to ice by the snow that falls later, and begins to flow: slowly, a few centimetres a day near the rocks, more
than half a metre a day in the middle. What falls at the head of the valley today will melt at its mouth in a hundred
and fifty years. Nobody sees a glacier move, and yet it carries rocks as large as houses, grinds the valley floor to
flour, and leaves its stones in long dark lines from which its history can be read.

Two mountains stand at its upper end. Climbers who want to see them walk for a week: first along a river that is brown
with the flour of the rocks, then over the stones, then over the ice itself. They sleep in tents, they cook rice and
lentils, they carry what they need, and they wait for the weather. It's not the height alone that makes it hard; it's
the cold, the wind, the thin air, and the long way back. "Don't hurry," the porters say, "you'll be there when you're
there. We've seen many who didn't wait." I'd say they're right.

A program that reads a large model is a little like that walk. There is no trick that makes the way short. The weights
lie on the disk as they were written; they are mapped, checked, and read in order. The tokens of the prompt are the
steps: each one is looked up, normalised, multiplied, added, and the last one gives the numbers from which the next
token is chosen. If one number is wrong then the text is wrong, and it will not look wrong: it will look like a text.
That is why every part of it is tested against something that was computed in another way.

    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= n_vocab) {
            return fail(error, "the id %d is not in the vocabulary", ids[i]);
        }
        sum += weights[ids[i]] * scale;
    }

    def merge(symbols, ranks):
        while True:
            best = min(pairs(symbols), key=lambda pair: ranks.get(pair, len(ranks)))
            if best not in ranks:
                return symbols
            symbols = join(symbols, best)

In 1856 the height of the mountain was measured as 8611 metres; in 2026, 170 years later, it is still 8611 metres. The
tent weighs 2.75 kg, the rope 3.10 kg, the stove 0.45 kg: 6.30 kg together. On day 12 they were at 5,150 metres, on day
13 at 5,650 metres, on day 14 at 6,100 metres; 100 + 200 = 300, 1000 + 2000 = 3000.

Der Gletscher ist ein Strom aus Eis. Er fließt so langsam, dass niemand es sieht, und doch trägt er Steine, die größer
sind als Häuser. Über dem Tal stehen die Berge; die Träger gehen früh, bevor die Sonne den Schnee weich macht.

Le glacier est un fleuve de glace. Il coule si lentement que personne ne le voit, et pourtant il porte des pierres plus
grandes que des maisons. L'été, l'eau coule à travers la glace; le soir, elle gèle de nouveau.

冰川是一条冰的河流。它流得很慢，没有人看见它在动。山上的雪变成冰，冰慢慢地流下山谷。我们走了七天，第八天看见了那座山。

氷河は氷の川です。とてもゆっくり流れるので、だれも動くのを見ません。山の上の雪が氷になり、氷が谷を下ります。

Ледник — это река изо льда. Он течёт так медленно, что никто этого не видит, и всё же он несёт камни больше дома.

यह नदी बर्फ़ की है। यह बहुत धीरे चलती है, कोई इसे चलते नहीं देखता। पहाड़ पर बर्फ़ गिरती है।

یخچال رودی از یخ است. آن\u200cقدر آهسته می\u200cرود که هیچ\u200cکس رفتنش را نمی\u200cبیند. کوه\u200cها بلند می\u200cشوند.
"""

N_MERGES = 700

# K2-Horizon's split pattern, as its tokenizer.json holds it (spec: ZWNJ and ZWJ stand in it as themselves).
PATTERN = (
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}|\\p{M}|\u200c|\u200d)+"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
# The same for Python's `regex`, whose \s is not Unicode's White_Space (it takes U+001C..U+001F).
SPACE = "\\t\\n\\x0b\\x0c\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
PATTERN_PYTHON = (
    PATTERN.replace("[^\\s", "[^" + SPACE).replace("\\s", "[" + SPACE + "]").replace("\\S", "[^" + SPACE + "]")
)

TAGS = [("<|ifm|im_start|>", True), ("<|ifm|im_end|>", True)] + [
    (t, False)
    for name in ("think", "think_fast", "think_faster", "tools", "tool_calls", "tool_call", "arg_key", "arg_type",
                 "arg_value")
    for t in ("<ifm|%s>" % name, "</ifm|%s>" % name)
]  # fmt: skip
FIRST = [("<|ifm|begin_of_text|>", True), ("<|ifm|endoftext|>", True)]


def byte_alphabet():
    """GPT-2's characters for bytes, in the order in which its vocabulary lists them."""
    plain = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(0x100 + i) for i, b in enumerate(rest)}}


ALPHABET = byte_alphabet()


def to_alphabet(text):
    return [ALPHABET[b] for b in text.encode("utf-8")]


def split(text):
    import regex

    return regex.findall(PATTERN_PYTHON, text)


def train(text, n_merges):
    words = {}
    for piece in split(unicodedata.normalize("NFC", text)):
        key = tuple(to_alphabet(piece))
        words[key] = words.get(key, 0) + 1
    merges = []
    while len(merges) < n_merges:
        counts = {}
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + n
        best = max(counts, key=lambda p: (counts[p], p))
        if counts[best] < 2:
            break
        merges.append(best)
        words = {tuple(merge_pair(list(w), best)): n for w, n in words.items()}
    return merges


def merge_pair(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Reference:
    """The slow encoder: looks through all pairs for the best one until none is left. Shares no idea with the C code."""

    def __init__(self, vocab, merges, added):
        self.vocab, self.ranks = vocab, {}
        for i, m in enumerate(merges):
            self.ranks.setdefault(m, i)
        self.added = added  # text -> id
        self.special = {t for t, s in FIRST + TAGS if s}
        self.texts = {i: t for t, i in vocab.items()}
        self.texts.update({i: t for t, i in added.items()})

    def word(self, piece):
        symbols = to_alphabet(piece)
        while len(symbols) > 1:
            ranked = [(self.ranks[p], p) for p in zip(symbols, symbols[1:]) if p in self.ranks]
            if not ranked:
                break
            rank, (a, b) = min(ranked)
            i = next(i for i, p in enumerate(zip(symbols, symbols[1:])) if p == (a, b))
            symbols[i : i + 2] = [a + b]
        return [self.vocab[s] for s in symbols]

    def plain(self, text):
        return [i for piece in split(unicodedata.normalize("NFC", text)) for i in self.word(piece)]

    def encode(self, text, special=True):
        ids, start, i = [], 0, 0
        while special and i < len(text):
            found = [t for t in self.added if text.startswith(t, i)]
            if not found:
                i += 1
                continue
            longest = max(found, key=len)
            ids += self.plain(text[start:i]) + [self.added[longest]]
            i += len(longest)
            start = i
        return ids + self.plain(text[start:])

    def decode(self, ids, special=True):
        back = {c: b for b, c in ALPHABET.items()}
        data = b""
        for i in ids:
            text = self.texts[i]
            if text in self.added:
                data += b"" if text in self.special and not special else text.encode()
            else:
                data += bytes(back[c] for c in text)
        return data.decode("utf-8", errors="replace")


CASES = [
    "", " ", "a", "Hello, world!", "The glacier is a river of ice.", "  two  spaces  ", "\n", "\r\n\r\n \t x", "\x00", "a\x00b",
    "“Hello,” 世界世世世界世界——I'm ChatGPT. CAN'T wait 'til 2026.世界世界", "می\u200cخواهم", "क्षत्रिय", "👨\u200d👩\u200d👧\u200d👦", "e\u0301",
    "x1234567y", "a\u00a0b", "  \n \t\n  z", "DON'T don't", "ﬁ①ⅷ²", "\ufeff", "12345678", "1 22 333 4444 55555", "각 \u1112\u1161\u11ab",
    "\u212b \u00c5 A\u030a", "q\u0307\u0323", "\u01b0\u031b\u0323", "it's IT'S 'S 's'S we'Ll I'VE 'ſ", "a\u180eb \u3006\u4e16",
    "tab\tspace \u2003em\u3000wide\u0085nel",
    "😀😀 🇩🇪 👍🏽", "!!!???...---===", "^" * 40, "a" * 100, " " * 33 + "x", "\n" * 17, "字" * 20,
    "https://example.org/?q=a%20b&c=d#e",
    "    for (size_t i = 0; i < n; i++) {\n        sum += x[i];\n    }\n", "def f(x):\n\treturn x**2\n",
    "<|ifm|im_start|>user\nWhat is ice?<|ifm|im_end|>\n<|ifm|im_start|>assistant\n<ifm|think>\nWater.</ifm|think>Frozen "
    "water.<|ifm|im_end|>",
    "<ifm|tool_call>x</ifm|tool_call><ifm|tool_calls>", "<|ifm|im_start|", "<ifm|think_fast><ifm|think_faster><ifm|think>",
    "<|ifm|begin_of_text|><|ifm|endoftext|>", "<<ifm|think>>", "é<ifm|think>\u0301", "e<ifm|think>\u0301",
    "Größer als Häuser, früh über dem Tal", "氷河は氷の川です。冰川是一条冰的河流。",
    "Он течёт так медленно", "کوه\u200cها بلند می\u200cشوند", "पहाड़ पर बर्फ़",
]  # fmt: skip


def assigned(c):
    return unicodedata.category(chr(c)) not in ("Cn", "Cs")


def random_texts(n, seed):
    rnd = random.Random(seed)
    words = TEXT.split()
    alphabet = list("abcxyzABC '\t\n\r.,;-_<|>012789\u00e9\u0301\u200c\u200d\u00a0\u3000\u4e16\u754c\u3042\uac00\u1100\u1161\u11a7"
                    "\u11a8\u0915\u094d\u0e01\u0e48\U0001f600\U0001f3fd")  # fmt: skip
    blocks = [c for c in range(0xA0, 0x3100) if assigned(c)] + [c for c in range(0x1F300, 0x1F6FF) if assigned(c)]
    out = []
    for i in range(n):
        if i % 3 == 0:
            out.append("".join(rnd.choice(alphabet) for _ in range(rnd.randint(1, 40))))
        elif i % 3 == 1:
            out.append("".join(rnd.choice([" ", "  ", "\n", ""]) + rnd.choice(words) for _ in range(rnd.randint(1, 12))))
        else:
            out.append("".join(chr(rnd.choice(blocks)) for _ in range(rnd.randint(1, 16))))
    return out


def write(folder, name, value):
    """JSON with one line for each element of a list, or of a list in an object."""

    def dump(v):
        return json.dumps(v, ensure_ascii=False, separators=(",", ":"))

    def lines(v):
        return "[\n" + ",\n".join(map(dump, v)) + "\n]" if isinstance(v, list) else dump(v)

    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        if isinstance(value, list):
            f.write(lines(value) + "\n")
        else:
            f.write("{\n" + ",\n".join(dump(k) + ":" + lines(v) for k, v in value.items()) + "\n}\n")


def token(i, text, special):
    return {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special}  # fmt: skip


def make_tiny():
    merges = train(TEXT, N_MERGES)
    vocab = {t: i for i, (t, _) in enumerate(FIRST)}
    for c in ALPHABET.values():
        vocab[c] = len(vocab)
    for a, b in merges:
        vocab.setdefault(a + b, len(vocab))
    tags = [token(i, t, s) for i, (t, s) in enumerate(FIRST)]
    tags += [token(len(vocab) + i, t, s) for i, (t, s) in enumerate(TAGS)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    pattern = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    folder = os.path.join(ROOT, "tiny")
    write(folder, "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tags, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [pattern, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": [list(m) for m in merges]},
    })  # fmt: skip
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": FIRST[0][0], "eos_token": FIRST[1][0],
        "clean_up_tokenization_spaces": False, "model_max_length": 524288,
    })  # fmt: skip
    ref = Reference(vocab, merges, {t["content"]: t["id"] for t in tags})
    cases = []
    for text in CASES + random_texts(240, 20261129):
        ids, plain = ref.encode(text), ref.encode(text, special=False)
        decoded = ref.decode(ids)
        case = {"text": text, "ids": ids}
        if decoded != text:
            case["decoded"] = decoded
        if plain != ids:
            case["plain_ids"] = plain
            case["decoded_without_special"] = ref.decode(ids, special=False)
        cases.append(case)
    rnd, decodings = random.Random(7), []
    for _ in range(120):  # mostly broken UTF-8, with tags between
        ids = [rnd.choice([rnd.randrange(2, 258), rnd.randrange(2, 258), rnd.randrange(len(vocab) + len(TAGS))])
               for _ in range(rnd.randint(1, 9))]  # fmt: skip
        decodings.append({"ids": ids, "text": ref.decode(ids)})
    write(folder, "expected.json", {"cases": cases, "decodings": decodings})
    print("tiny: %d merges, %d ids, %d cases" % (len(merges), len(vocab) + len(TAGS), len(cases)))


# ---- cases that Hugging Face's library confirms --------------------------------------------------------------------

QWEN = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
        "|\\s+(?!\\S)|\\s+")  # fmt: skip
KIMI = (
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)
BEHAVIORS = {"Removed": "removed", "Isolated": "isolated", "MergedWithPrevious": "merged_with_previous",
             "MergedWithNext": "merged_with_next", "Contiguous": "contiguous"}  # fmt: skip
PATTERNS = [
    PATTERN, QWEN, KIMI, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "\\s", "\\S+", "\\d+",
    "\\w+", "\\W", "\\D+", "[^\\s]+", "[\\Sa]+", "\\p{Han}+", "\\P{Han}+", "\\p{^Han}", "[\\p{Hiragana}\\p{Katakana}ー]+", ".+", "a.*?b",
    "\\p{L}++\\s?+", "a{,2}b", "x{2,}y?", "\\u0041|\\x{42}|\\x43", "\\t|\\v|\\f|\\e|\\a|\\.|\\-", "(?>a|ab)c", "a(?=b)", "(?<=a)b",
    "(?<!a)b", "(a|b)+c", "a*", "(?=b)", "(?:ab|c|\\p{Lu})+", "[-a]+|[b-]", "(?i:'[sdmt]|ab|k)", "[\\p{L}\\p{Nd}&&[^\\p{Greek}a]]+",
    "[a&b]+", "[一-龥぀-ゟ゠-ヿ]+", "[^\\w\\s]", "(?:\\r?\\n)+",
]  # fmt: skip
LETTERS = list("aabbcxyAB'stSTrevmldLL  \n\r\t\v.,-_(){}[]0123459^&$/\\") + list(
    "\u200c\u200d\u0301\u00e9\u00df\u017f\u212a\u4e16\u754c\u3006\u3042\u30a2\uac00\u180e\u00a0\u0085\u2028\u3000\u200b\ufeff"
    "\U0001f468\U0001f3fd\u0e01\u0e48\u0915\u094d\u00b2\u2160\u0660\u01c5\u02b0\u0345\u24b6\ufb01\u03b1\x00")  # fmt: skip


def make_splits():
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    rnd, out = random.Random(11), []
    for i, pattern in enumerate(PATTERNS):
        for k, (behavior, name) in enumerate(BEHAVIORS.items()):
            invert = (i + k) % 3 == 0
            cases = []
            for n in range(4 if i > 3 else 8):
                repeat = 90 if n == 1 else 1  # runs that outgrow the matcher's first window
                text = "".join(rnd.choice(LETTERS) * rnd.randint(1, repeat) for _ in range(rnd.randint(1, 30 // min(repeat, 4))))
                pieces = [p for p, _ in Split(Regex(pattern), name, invert).pre_tokenize_str(text)]
                cases.append({"text": text, "pieces": pieces})
            out.append({"pattern": pattern, "behavior": behavior, "invert": invert, "cases": cases})
    write(ROOT, "splits.json", out)
    print("splits: %d cases" % sum(len(o["cases"]) for o in out))


def random_merges(rnd, n):
    words = ["hello", "world", "  ", "   ", "the", "abc", " a", "'s", "\n\n", "世界", "é", "12", "123", "e\u0301", "한", "x y"]
    merges = []
    for _ in range(n):
        symbols = to_alphabet(rnd.choice(words + ["".join(rnd.choice("abcde x1'é世") for _ in range(4))]))
        for m in merges:
            symbols = merge_pair(symbols, m)
        pairs = [p for p in zip(symbols, symbols[1:]) if p not in merges]
        if pairs:
            merges.append(rnd.choice(pairs))
    return merges


def random_pre_tokenizer(rnd):
    parts = []
    for _ in range(rnd.choice([0, 1, 1, 1, 2])):
        if rnd.random() < 0.3:
            parts.append({"type": "Digits", "individual_digits": rnd.random() < 0.5})
            continue
        pattern = rnd.choice([{"Regex": PATTERN}, {"Regex": QWEN}, {"String": rnd.choice([" ", "a", "世", "ab"])},
                              {"Regex": rnd.choice(["\\s+", "[aeiou]", "\\p{N}{1,3}", "a*", "(?=b)", "\\p{Han}+"])}])  # fmt: skip
        parts.append({"type": "Split", "pattern": pattern, "behavior": rnd.choice(list(BEHAVIORS)), "invert": rnd.random() < 0.3})
    parts.append({"type": "ByteLevel", "add_prefix_space": rnd.random() < 0.3, "trim_offsets": True, "use_regex": rnd.random() < 0.4})
    return parts[0] if len(parts) == 1 and rnd.random() < 0.5 else {"type": "Sequence", "pretokenizers": parts}


def random_added(rnd, first_id, vocab):
    texts = ["<a>", "<a", "<|x|>", "ab", "abc", "hello", " ", "  ", "\n", "x y", "世", "E", "[T]", "a b", "<b> ", "12", "_"]
    texts = [t for t in rnd.sample(texts, rnd.randint(0, 6)) if t not in vocab]
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    chances = (0.3, 0.3, 0.3, 0.4, 0.5)
    return [{"id": first_id + i, "content": t, **{f: rnd.random() < p for f, p in zip(flags, chances)}} for i, t in enumerate(texts)]


def make_confirmed():
    from tokenizers import Tokenizer

    rnd, out = random.Random(12), []
    pool = list("aabbcxyAB'stehloLwrd  \n\r\t.,-_<|>[]T012") + [
        "<a>", "<a", "<|x|>", "hello", "世", "界", "é", "e\u0301", "\u0301", "[T]", "<b> ", "x y", "\u00a0", "\u200d", "한",
        "\u1112\u1161\u11ab", "😀", "²", "\x00", "the ", " world", "\u0323\u0307", "q\u0307\u0323"]  # fmt: skip
    while len(out) < 60:
        merges = random_merges(rnd, rnd.randint(0, 24))
        extra = rnd.sample(["Ġab", "abc", "hel", "ĠĠĠ"], 2)
        vocab = {ALPHABET[b]: b for b in range(256)}
        for key in [a + b for a, b in merges] + extra:
            vocab.setdefault(key, len(vocab))
        part = {"normalizer": rnd.choice([None, {"type": "NFC"}]), "pre_tokenizer": random_pre_tokenizer(rnd),
                "added_tokens": random_added(rnd, len(vocab), vocab)}  # fmt: skip
        ignore = rnd.random() < 0.25
        whole = {**part, "version": "1.0", "truncation": None, "padding": None, "post_processor": None,
                 "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                           "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": ignore,
                           "vocab": vocab, "merges": [list(m) for m in merges]}}  # fmt: skip
        t, cases = Tokenizer.from_str(json.dumps(whole)), []
        for _ in range(6):
            text = "".join(rnd.choice(pool) for _ in range(rnd.randint(1, 24)))
            try:
                ids = t.encode(text, add_special_tokens=False).ids
            except BaseException:  # the library panics where an lstrip token follows white space that rstrip took
                continue
            cases.append({"text": text, "ids": ids, "decoded": t.decode(ids, skip_special_tokens=False),
                          "decoded_without_special": t.decode(ids, skip_special_tokens=True)})  # fmt: skip
        parts = {k: json.dumps(v, ensure_ascii=False) for k, v in part.items()}
        out.append({**parts, "ignore_merges": ignore, "merges": merges, "extra": extra, "cases": cases})
    write(ROOT, "confirmed.json", out)
    print("confirmed: %d tokenizers, %d cases" % (len(out), sum(len(o["cases"]) for o in out)))


if __name__ == "__main__":
    if sys.argv[1:] == ["tiny"]:
        make_tiny()
    elif sys.argv[1:] == ["confirmed"]:
        make_splits()
        make_confirmed()
    else:
        sys.exit(__doc__)
