"""Asks the demo model what its training data hold out, through the program, and holds the answers against the truth.

usage: evaluate.py [MODEL] [--baltoro PROGRAM] [--jobs N] [--quick] [--beyond] [--wrong]

Greedy decoding. A row of the table is a skill; exit status 1 if one is below its threshold. --quick asks an eleventh of it, too
little to hold every row to its threshold: one is below it then if chance alone, at the threshold, would give so few right answers
less than once in a hundred times. --beyond asks also what has no threshold, --wrong prints the answers that were wrong. Needs
nothing but Python and the program.
"""
import argparse
import concurrent.futures
import json
import math
import os
import re
import subprocess
import sys
import tempfile

import data
import facts
import families

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EFFORTS = list(data.EFFORTS)
BOTH = [data.WEATHER, data.CALCULATOR]


class Question:
    """`good(message)` judges the answer, a message in OpenAI's form; `prompt` is a plain text where there is no conversation."""

    def __init__(self, skill, messages, good, effort="high", tools=(), prompt=None, raw=False):
        self.skill, self.messages, self.good, self.effort = skill, messages, good, effort
        self.tools, self.prompt, self.raw = list(tools), prompt, raw


def user(text):
    return [{"role": "user", "content": text}]


# ---- asking ---------------------------------------------------------------------------------------------------------


def call(o, words, stdin=""):
    r = subprocess.run([o.baltoro, *words, "-q"], input=stdin.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if r.returncode != 0:
        sys.exit("evaluate.py: %s: %s" % (" ".join(words), r.stderr.decode("utf-8", "replace").strip()))
    return r.stdout.decode("utf-8", "replace")


def ask(o, q):
    """The answer: a message, or the text itself where the question is plain or raw."""
    greedy = ["--temperature", "0", "--threads", "1", "-n", "250"]
    if q.prompt is not None:
        return json.loads(call(o, ["run", o.model, *greedy, "--json"], q.prompt))["text"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({"messages": q.messages, **({"tools": q.tools} if q.tools else {})}, f)
        f.flush()
        chat = ["--messages", f.name, "--reasoning-effort", o.talk.EFFORTS[q.effort]]
        if q.raw:
            prompt = call(o, ["render", o.model, *chat])
            # `run` drops one newline at the end of stdin, and the prompt ends in one.
            ids = json.loads(call(o, ["run", o.model, *greedy, "--special", "--json"], prompt + "\n"))["ids"]
            return call(o, ["detokenize", o.model], json.dumps(ids))
        return json.loads(call(o, ["run", o.model, "--chat", *greedy, *chat, "--json"]))["message"]


# ---- the questions --------------------------------------------------------------------------------------------------


def said(*parts):
    """The content holds each of them, numbers whole."""
    patterns = [(r"(?<![\w-])" if p[0] in "-0123456789" else "") + re.escape(p) + (r"(?!\d)" if p[-1].isdigit() else "") for p in parts]
    return lambda m: all(re.search(p, m.get("content") or "") for p in patterns) and not m.get("tool_calls")


def answer_is(number):
    """The last number of the content."""
    return lambda m: re.findall(r"-?\d+", m.get("content") or "")[-1:] == [str(number)]


def is_exactly(text):
    return lambda m: m.get("content") == text


def capitals(rnd):
    for i, c in enumerate(facts.COUNTRIES):
        for k in range(2):
            text = data.title(data.phrase(rnd, "capital", c=c.full))
            yield Question("capitals, a sentence", user(text), said(c.capital), EFFORTS[(i + k) % 3])
        text = data.title(data.phrase(rnd, "capital in a word", c=c.full))
        yield Question("capitals, one word", user(text), is_exactly(c.capital), EFFORTS[i % 3])
        yield Question("capitals, plain text", None, lambda t, c=c: t.startswith(" " + c.capital), prompt="The capital of %s is" % c.full)
        text = data.title(data.phrase(rnd, "continent", c=c.full))
        yield Question("continents", user(text), said(" in %s." % c.continent), EFFORTS[i % 3])


def held_pair(rnd, low, high):
    while True:
        a, b = rnd.randrange(low, high), rnd.randrange(low, high)
        if data.is_held(a, b):
            return a, b


def sums(rnd):
    for n_digits, skill in ((2, "two digits"), (3, "three digits")):
        for i in range(400):
            a, b = held_pair(rnd, 10 ** (n_digits - 1), 10**n_digits)
            minus = i % 4 == 3
            a, b = (max(a, b), min(a, b)) if minus else (a, b)
            text = data.phrase(rnd, "difference" if minus else "sum", a=a, b=b)
            good = answer_is(a - b if minus else a + b)
            yield Question("%s, %s" % ("differences" if minus else "sums", skill), user(text), good, EFFORTS[i % 3])


def lists(rnd):
    def value_of(m):
        try:
            return json.loads(m["content"])
        except (ValueError, TypeError):
            return None

    def is_valid(value):
        return isinstance(value, list) and len(value) > 0 and all(isinstance(x, dict) and set(x) == {"country", "capital"} for x in value)

    for i in range(20):
        continent, n = facts.CONTINENTS[i % 6], [None, 3, 4, 5, 6, None, 2][i % 7]
        text = data.list_question(rnd, rnd.choice(data.PHRASES["list"][1]), continent, n)
        names = facts.MAJOR[continent][: n or 5]
        right = [{"country": n, "capital": facts.BY_NAME[n].capital} for n in names]
        yield Question("JSON lists, valid", user(text), lambda m: is_valid(value_of(m)), EFFORTS[i % 3])
        yield Question("JSON lists, as long as asked", user(text), lambda m, right=right: value_of(m) == right, EFFORTS[i % 3])


def calls(rnd):
    def is_call(m, name, arguments):
        found = m.get("tool_calls") or []
        return len(found) == 1 and found[0]["function"]["name"] == name and json.loads(found[0]["function"]["arguments"]) == arguments

    def after(question, thought, name, arguments, result):
        function = {"name": name, "arguments": json.dumps(arguments)}
        return [*user(question), {"role": "assistant", "content": "", "reasoning_content": thought,
                                  "tool_calls": [{"id": "1", "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": "1", "content": result}]  # fmt: skip

    for i in range(60):
        effort, city = EFFORTS[i % 3], rnd.choice(facts.HELD_CITIES)
        question = data.phrase(rnd, "weather", x=city)
        tools = [BOTH, BOTH[:1], BOTH[::-1]][i % 3]
        yield Question("tool calls", user(question), lambda m, a={"city": city}: is_call(m, "get_weather", a), effort, tools)
        result, degrees, sky = data.weather_result(rnd, city)
        yield Question("answers from tools", after(question, "", "get_weather", {"city": city}, result),
                       said("%d degrees" % degrees, sky, city), effort, tools)  # fmt: skip
        expression, value = data.calculation(rnd)
        question = data.phrase(rnd, "calculate", x=expression)
        tools = [BOTH, BOTH[1:], BOTH[::-1]][i % 3]
        yield Question("tool calls", user(question), lambda m, a={"expression": expression}: is_call(m, "calculator", a), effort, tools)
        yield Question("answers from tools", after(question, "", "calculator", {"expression": expression}, str(value)),
                       said(str(value)), effort, tools)  # fmt: skip


def others(rnd):
    for i in range(60):
        effort = EFFORTS[i % 3]
        skill, names, _, _, answer = data.calendar(rnd)
        yield Question("days and months", user(data.phrase(rnd, skill, **names)), is_exactly(answer), effort)
        a, big, factor, small = data.convert(rnd)
        text = data.phrase(rnd, "units", a=a, u=big[a != 1], v=small[1])
        yield Question("units", user(text), said(" %d %s" % (a * factor, small[1])), effort)
        text, _, answer, asked = data.context(rnd)
        yield Question("answers from a text", user("%s %s" % (" ".join(text), asked[1])), is_exactly(answer), effort)
        yield Question("does not know", user(data.unknown_question(rnd, data.HELD_UNKNOWN)), said("not know"), effort)
    for i, (text, part) in enumerate(data.HELD_SMALL_TALK * 3):
        yield Question("greetings", user(text), said(part), EFFORTS[i % 3])


def tags(rnd, talk):
    for i in range(60):
        effort = EFFORTS[i % 3]
        c, (a, b) = rnd.choice(facts.COUNTRIES), held_pair(rnd, 10, 100)
        text = [data.title(data.phrase(rnd, "capital", c=c.full)), data.phrase(rnd, "sum", a=a, b=b),
                data.list_question(rnd, rnd.choice(data.PHRASES["list"][1]), c.continent, None),
                data.phrase(rnd, "weather", x=c.capital)][i // 3 % 4]  # fmt: skip
        good = lambda t, e=effort: talk.is_well_formed(t, e)  # noqa: E731
        yield Question("tags of reasoning", user(text), good, effort, BOTH if i % 2 else [], raw=True)


def beyond():
    """What the models were less made for: the cards say how it goes."""
    rnd = data.Source(11, held=True)
    for n_digits, skill in enumerate(("one digit", "two digits", "three digits"), 1):
        for i in range(60):
            a = b = 0
            while a == b:
                a, b = sorted(held_pair(rnd, 10 ** (n_digits - 1), 10**n_digits) if n_digits > 1 else rnd.sample(range(10), 2))
            text = data.phrase(rnd, "difference", a=a, b=b)
            yield Question("negative differences, " + skill, user(text), answer_is(a - b), EFFORTS[i % 3])
    for text in data.HELD_UNKNOWN:
        for i in range(60):
            yield Question(text, user(data.unknown_question(rnd, [text])), said("not know"), EFFORTS[i % 3])
    for i, c in enumerate(facts.COUNTRIES[::3]):
        text = data.phrase(rnd, "capital", c=c.full).lower()
        yield Question("capitals, small letters", user(text), said(c.capital), EFFORTS[i % 3])
        yield Question("capital of x", user("capital of " + c.full.lower()), said(c.capital), EFFORTS[i % 3])


# skill: the least share of right answers, of which families.py says how much holds for a model. A list is valid if it is one of
# countries and capitals, whatever their number.
THRESHOLDS = {
    "capitals, a sentence": 0.97, "capitals, one word": 0.97, "capitals, plain text": 0.97, "continents": 0.97,
    "sums, two digits": 0.97, "sums, three digits": 0.90, "differences, two digits": 0.85, "differences, three digits": 0.80,
    "JSON lists, valid": 1.0, "JSON lists, as long as asked": 0.90, "tool calls": 0.95, "answers from tools": 0.90,
    "tags of reasoning": 1.0, "days and months": 0.90, "units": 0.80, "answers from a text": 0.80, "does not know": 0.75, "greetings": 0.80,
}  # fmt: skip


CHANCE = 0.01  # at which a row of --quick is below its threshold


def is_low(good, n, least, quick):
    """Whether `good` right answers of n are too few for a share of `least`; with --quick, too few to be chance."""
    if not quick or good >= least * n:
        return good < least * n
    return sum(math.comb(n, k) * least**k * (1 - least) ** (n - k) for k in range(good + 1)) < CHANCE


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model", nargs="?", default=os.path.join(ROOT, "models", "demo-k2"))
    p.add_argument("--baltoro", default=os.path.join(ROOT, "build", "baltoro"))
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--quick", action="store_true", help="ask an eleventh; a row is BELOW only where that is hardly chance")
    p.add_argument("--beyond", action="store_true", help="ask also what has no threshold")
    p.add_argument("--wrong", action="store_true", help="print the answers that were wrong")
    o = p.parse_args()
    rnd, family = data.Source(7, held=True), families.of(o.model)
    o.talk = family.talk
    questions = [q for part in (capitals, sums, lists, calls, others) for q in part(rnd)] + list(tags(rnd, o.talk))
    if o.beyond:
        questions += beyond()
    if o.quick:
        questions = questions[::11]
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        answers = list(pool.map(lambda q: ask(o, q), questions))
    table, failed = {}, False
    for q, answer in zip(questions, answers):
        counts = table.setdefault(q.skill, [{e: [0, 0] for e in EFFORTS}, 0, 0])
        good = bool(q.good(answer))
        counts[0][q.effort][0] += good
        counts[0][q.effort][1] += 1
        counts[1] += good
        counts[2] += 1
        if o.wrong and not good:
            print("%s, %s: %s\n    %s" % (q.skill, q.effort, q.prompt or q.messages[0]["content"], json.dumps(answer)))
    print("%-34s %7s %8s %7s   %s" % ("skill", "asked", "right", "least", "by effort: high, medium, low"))
    for skill, (efforts, good, n) in table.items():
        least = THRESHOLDS.get(skill, 0) * family.share
        low = is_low(good, n, least, o.quick)
        failed |= low
        shares = ", ".join("%.0f %%" % (100 * g / k) if k else "-" for g, k in efforts.values())
        print("%-34s %7d %6.1f %% %5.0f %%   %s%s" % (skill, n, 100 * good / n, 100 * least, shares, "   BELOW" if low else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
