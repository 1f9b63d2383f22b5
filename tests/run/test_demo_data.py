#!/usr/bin/env python3
"""What the demo models were trained on: nothing that they are evaluated on is among it, and it is still the same data.

run_tests: release (it does not run the program)
"""
import itertools
import json
import os
import re
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(os.path.dirname(os.path.dirname(HERE)), "tools", "demo")]
import cli  # noqa: E402
import data  # noqa: E402
import facts  # noqa: E402
import kimi_chat  # noqa: E402
from cli import check  # noqa: E402

N_EXAMPLES = 20000
# Of the first 2000 examples of seed 1, by stage.
CHECKSUMS = {data.Talk: [1358742790, 3115011603, 153427982, 1838820845], kimi_chat.Talk: [1764927647, 1080434636, 98433625, 2540387290]}
USER = re.compile(r"<\|ifm\|im_start\|>user\n(.*?)<\|ifm\|im_end\|>", re.S)
WORKED = re.compile(r"\b(\d+) ?([-+]) ?(\d+)(?: = \d|: \d|, from)")  # 12 + 34 = 46; 12+34: 2+4=6; 12 + 34, from the right


def plain(text):
    """In small letters, without the signs that a question may lose or get."""
    return " ".join(re.sub(r"[.,:;!?]", " ", text.lower()).split())


FIELD = re.compile(r"\{(\w)\}")
VALUES = {"a": r"(?P<a>\d+)", "b": r"(?P<b>\d+)", "u": r"\w+", "v": r"\w+"}  # of a phrasing's fields; else anything


def pattern(phrasing):
    """Matches it with anything in its fields and with what data.disguise puts around it."""
    parts = FIELD.split(plain(phrasing))
    parts[::2] = map(re.escape, parts[::2])
    parts[1::2] = [VALUES.get(name, ".+") for name in parts[1::2]]
    before, after = ("|".join(re.escape(plain(x)) for x in words) for words in (data.BEFORE, data.AFTER))
    return re.compile("((%s) )?%s( (%s))?" % (before, "".join(parts), after))


SUMS = [pattern(p) for skill in ("sum", "difference") for p in data.PHRASES[skill][0]]


def held_patterns():
    held = {skill: held for skill, (_, held) in data.PHRASES.items()}
    held["greetings"], held["unknown"] = [text for text, _ in data.HELD_SMALL_TALK], data.HELD_UNKNOWN
    behind_a_text = [("from a text", pattern("{x} " + asked[1].replace("%s", "{y}"))) for asked in data.CONTEXT.values()]
    return [(skill, pattern(p)) for skill, phrasings in held.items() for p in phrasings] + behind_a_text


def test_tables():
    check("195 countries, each once", len(facts.COUNTRIES) == 195 == len(facts.BY_NAME))
    check("lists name countries of their continent",
          all(facts.BY_NAME[n].continent == c for c, names in facts.MAJOR.items() for n in names))
    for skill, (train, held) in data.PHRASES.items():
        same = {plain(p) for p in train} & {plain(p) for p in held}
        check(f"{skill}: a phrasing is on one side", not same and held, same)
    shared = set(facts.HELD_CITIES) & ({c.capital for c in facts.COUNTRIES} | set(facts.CITIES))
    check("held-out cities", not shared, shared)
    share = sum(data.is_held(a, b) for a in range(100, 400) for b in range(100, 400)) / 300**2
    check("a tenth of the pairs is held out", 0.09 < share < 0.11 and data.is_held(123, 45) == data.is_held(45, 123), share)


def test_stream(stage):
    texts = ["".join(text for text, _ in pieces) for pieces in itertools.islice(data.stream(2, stage), N_EXAMPLES)]
    questions = {plain(q) for t in texts for q in USER.findall(t)}
    check("the stream is long enough to mean something", len(questions) > N_EXAMPLES / 4, len(questions))
    for skill, pattern in held_patterns():
        found = next((q for q in questions if pattern.fullmatch(q)), None)
        check(f"{skill}: {pattern.pattern} is not asked", found is None, found)
    pairs = {(int(a), int(b)) for t in texts for a, _, b in WORKED.findall(t)}
    held = [p for p in pairs if data.is_held(*p)]
    check("no held-out pair is worked out", len(pairs) > (200 if stage == data.FIRST else 2000) and not held, held[:5])
    asked = [m for p in SUMS for m in map(p.fullmatch, questions) if m]
    held = [m.group() for m in asked if data.is_held(int(m["a"]), int(m["b"]))]
    check("no held-out pair is asked for", len(asked) > (20 if stage == data.FIRST else 2000) and not held, len(asked), held[:5])
    cities = [c for c in facts.HELD_CITIES if any(re.search(rf"\b{c}\b", t) for t in texts)]
    check("no held-out city", not cities, cities)


def test_trials():
    """The other side: what evaluation draws is held out."""
    asked = [USER.search(data.trial(data.ask_sum, i)[0][0]).group(1) for i in range(200)]
    check("sums on trial", all(data.is_held(*map(int, re.findall(r"\d+", q))) for q in asked))
    asked = [USER.search(data.trial(data.ask_weather, i)[0][0]).group(1) for i in range(100)]
    check("cities on trial", all(any(c in q for c in facts.HELD_CITIES) for q in asked))


def test_same(stage, talk):
    """Other data would need other weights: whoever changes the generator trains again, and says so here."""
    first, again = (["".join(text for text, _ in pieces) for pieces in itertools.islice(data.stream(1, stage, talk), 2000)]
                    for _ in range(2))  # fmt: skip
    check("a seed is a stream", first == again)
    sum_now = zlib.crc32("\0".join(first).encode())
    check(f"the data are those of the weights, {talk.ARCHITECTURE}, stage {stage}", sum_now == CHECKSUMS[talk][stage], sum_now)


def test_shown():
    """What make demo shows is what the model was taught."""
    with open(os.path.join(os.path.dirname(data.__file__), "tools.json"), encoding="utf-8") as f:
        check("tools.json has the tools of the data", json.load(f) == [data.WEATHER, data.CALCULATOR])


def main():
    test_tables()
    test_shown()
    test_trials()
    for stage in (data.FIRST, data.MAIN, data.LAST, data.SIGNED):
        test_stream(stage)
        for talk in CHECKSUMS:
            test_same(stage, talk)
    cli.finish()


main()
