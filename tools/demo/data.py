"""The demo model's training data: an endless stream of short texts and conversations, from a fixed seed.

usage: data.py [N]          prints N examples as the model sees them

Needs nothing but Python. Every skill is a function from a random generator to an example. What evaluation asks must not
be here, and is kept out by construction: a phrasing belongs to TRAIN or to HELD of its list, a pair of numbers is held
out or not by a checksum (`is_held`), and so for cities. tests/run/test_demo_data.py looks at a long piece of the stream.

An example is a list of pieces (text, counts): only pieces that count are learned from. Conversations are written as
K2-Horizon's chat template writes them, or as the subclass of Talk does that a stream is given.
"""
import json
import random
import re
import sys
import zlib

import facts

EFFORTS = {"high": "think", "medium": "think_fast", "low": "think_faster"}

# ---- tools and the chat format --------------------------------------------------------------------------------------


def _tool(name, description, argument, about):
    parameters = {"type": "object", "properties": {argument: {"type": "string", "description": about}},
                  "required": [argument]}  # fmt: skip
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = _tool("get_weather", "Get the current weather in a city.", "city", "Name of the city")
CALCULATOR = _tool("calculator", "Work out an arithmetic expression.", "expression", "Such as 12 * 34")

_TOOLS_TURN = """<|ifm|im_start|>system
# Tools
You may call one or more tools to assist with the user query.

Available tools are:

<ifm|tools>%s
</ifm|tools>

When calling tools, you MUST follow the tool-call format below:

Wrap all tool calls in a single <ifm|tool_calls></ifm|tool_calls> block. For each call, write the function name at the \
start of <ifm|tool_call>, followed by paired <ifm|arg_key> and <ifm|arg_value> tags for each argument:

<ifm|tool_calls>
<ifm|tool_call>$FUNCTION_NAME
<ifm|arg_key>$PARAMETER_NAME</ifm|arg_key>
<ifm|arg_value>$PARAMETER_VALUE</ifm|arg_value>
...
</ifm|tool_call>
</ifm|tool_calls>

String and scalar parameters should be written as plain text. Array and object parameters should be written as JSON \
literals.%s<|ifm|im_end|>"""


def _tool_text(tool):
    f = tool["function"]
    (argument, schema), = f["parameters"]["properties"].items()
    return "\n## %s\n%s\n\n**Parameters**\n- `%s` *(string, required)* - %s" % (
        f["name"], f["description"], argument, schema["description"])  # fmt: skip


class Talk:
    """A conversation under construction."""

    ARCHITECTURE = "K2-Horizon"
    EFFORTS = {e: e for e in EFFORTS}  # as the model calls them

    def __init__(self, effort, system="", tools=()):
        self.effort, self.tag, self.messages = effort, "ifm|" + EFFORTS[effort], []
        self.system, self.tools = system, list(tools)

    def user(self, text):
        self.messages.append(("user", text))

    def tool(self, result):
        self.messages.append(("tool", result))

    def think(self, high, medium, low=""):
        """What is thought at this effort."""
        self.thought = {"high": high, "medium": medium, "low": low}[self.effort]

    def say(self, text, calls=()):
        self.messages.append(("assistant", self.thought, text, list(calls)))

    def pieces(self, only_last=False):
        """only_last: earlier turns have lost their reasoning, as in a history from elsewhere; they do not count."""
        out = ["<|ifm|begin_of_text|>"]
        if self.tools:
            after = "\n\n" + self.system if self.system else ""
            out.append(_TOOLS_TURN % ("\n".join(_tool_text(t) for t in self.tools), after))
        elif self.system:
            out.append("<|ifm|im_start|>system\n%s<|ifm|im_end|>" % self.system)
        result = []
        for i, m in enumerate(self.messages):
            if m[0] != "assistant":
                out.append("<|ifm|im_start|>%s\n%s<|ifm|im_end|>" % m)
                continue
            _, thought, text, calls = m
            lost = only_last and i < len(self.messages) - 1
            tag = "ifm|think" if lost else self.tag
            out.append("<|ifm|im_start|>assistant\n<%s>\n" % tag)
            answer = "%s</%s>%s%s<|ifm|im_end|>" % ("" if lost else thought, tag, text, calls_text(calls))
            if lost:
                out.append(answer)
            else:
                result += [("".join(out), False), (answer, True)]
                out = []
        return result

    @staticmethod
    def heads():
        """What many talks begin with, word for word, as pieces."""
        return []

    @staticmethod
    def plain(text, begins):
        """What is no conversation."""
        return [("<|ifm|begin_of_text|>" if begins else "", False), (text + "<|ifm|endoftext|>", True)]

    @staticmethod
    def is_well_formed(answer, effort):
        """Raw output: reasoning, the closing tag that belongs to the effort, the answer, and no other tag of reasoning."""
        return re.findall(r"</?ifm\|think\w*>", answer) == ["</ifm|%s>" % EFFORTS[effort]]


def calls_text(calls):
    if not calls:
        return ""
    one = "\n<ifm|tool_call>%s\n<ifm|arg_key>%s</ifm|arg_key>\n<ifm|arg_value>%s</ifm|arg_value>\n</ifm|tool_call>"
    return "<ifm|tool_calls>%s\n</ifm|tool_calls>" % "".join(one % c for c in calls)


# ---- what is held out -----------------------------------------------------------------------------------------------


def is_held(a, b):
    """A tenth of the pairs of numbers from 10 on is for evaluation; the order does not matter."""
    return min(a, b) >= 10 and zlib.crc32(b"%d,%d" % (min(a, b), max(a, b))) % 10 == 0


# TRAIN and HELD phrasings by skill. {c}: country, {k}: capital, {a} {b}: numbers, {x}: whatever the skill asks about.
PHRASES = {
    "capital": ([
        "What is the capital of {c}?", "What's the capital of {c}?", "Capital of {c}?", "Name the capital of {c}.",
        "Tell me the capital of {c}.", "Which city is the capital of {c}?", "What is {c}'s capital?", "The capital of {c}?",
        "Do you know the capital of {c}?", "Can you tell me the capital of {c}?", "I need the capital of {c}.",
        "What city is the capital of {c}?", "Please name the capital of {c}.", "What is the capital city of {c}?",
        "Give the capital of {c}.", "{c}: capital?", "Which is the capital of {c}?", "Say the capital of {c}.",
        "What is the name of the capital of {c}?", "What do you call the capital of {c}?", "Could you name the capital of {c}?",
        "I forgot the capital of {c}. What is it?", "Quiz: the capital of {c}?", "From where is {c} governed?",
        "Where is the government of {c}?", "What is the main city of government in {c}?", "The capital city of {c}, please.",
        "Please tell me the capital of {c}.", "Please say what the capital of {c} is.", "I would like to know the capital of {c}.",
        "What might the capital of {c} be?", "Which city is {c}'s capital?", "Tell me what the capital of {c} is called.",
        "Do you know what the capital of {c} is?", "Would you tell me the capital of {c}?",
        "Give me the name of the capital of {c}.", "What city would be the capital of {c}?", "Please give the capital city of {c}.",
        "Tell me what the capital of {c} is.", "Which city do people call the capital of {c}?",
    ], [
        "Give me the capital of {c}.", "Which city would you call the capital of {c}?", "What would be the capital of {c}?",
        "Please tell me what the capital of {c} is.", "Do you happen to know the capital city of {c}?",
    ]),
    "capital in a word": ([
        "Capital of {c}, one word.", "Name the capital of {c} in one word.", "In one word: the capital of {c}?",
        "What is the capital of {c}? Answer with the name only.", "The capital of {c}. Only the name.",
        "What is the capital of {c}? One word.", "Just the name: capital of {c}?", "The capital of {c}, name only.",
        "Tell me the capital of {c} in a single word.", "What is the capital of {c}? In one word please.",
        "Which city is the capital of {c}? Only the name please.", "{c}'s capital in one word?",
        "Only the name of the capital of {c}.", "The capital of {c} in one word.", "One word: what is the capital of {c}?",
        "Only the name please: the capital of {c}?", "Name {c}'s capital, one word.",
    ], [
        "Capital of {c} in one word.", "What is {c}'s capital, in one word?", "Only the name: what is the capital of {c}?",
    ]),
    "country of a capital": ([
        "{k} is the capital of which country?", "Which country has the capital {k}?", "Of which country is {k} the capital?",
        "What country is {k} the capital of?", "Whose capital is {k}?", "Name the country whose capital is {k}.",
        "{k} is the capital of what?", "Tell me of which country {k} is the capital.", "What country's capital is {k}?",
        "{k}: capital of which country?", "Tell me the country whose capital is {k}.", "Which country is {k} the capital of?",
    ], [
        "Which country's capital is {k}?", "Tell me which country {k} is the capital of.",
    ]),
    "continent": ([
        "On which continent is {c}?", "Which continent is {c} in?", "Where is {c}?", "In which part of the world is {c}?",
        "Name the continent of {c}.", "What continent is {c} on?", "{c} is on which continent?", "Continent of {c}?",
        "What is the continent of {c}?", "Where in the world is {c}?", "Tell me the continent of {c}.",
        "To which continent does {c} belong?", "What continent is {c} part of?", "On what continent is {c}?",
        "On what continent do I find {c}?", "Where can I find {c}?", "To what continent does {c} belong?",
        "Which continent does {c} belong to?", "{c} is part of which continent?",
    ], [
        "What continent does {c} belong to?", "On what continent can I find {c}?", "Which continent is {c} part of?",
    ]),
    "sum": ([
        "What is {a} + {b}?", "{a} + {b}", "{a} + {b} = ?", "{a}+{b}", "{a}+{b}=", "What is {a} plus {b}?", "Add {a} and {b}.",
        "How much is {a} + {b}?", "Calculate {a} + {b}.", "What is the sum of {a} and {b}?", "Compute {a}+{b}.", "{a} plus {b}",
        "How much is {a} plus {b}?", "Please add {a} and {b}.", "Work out {a} + {b}.", "Sum of {a} and {b}?",
        "What do {a} and {b} make?", "I have {a} and get {b} more. How many have I?", "Can you add {a} and {b}?",
        "What is {a}+{b}?", "{a} and {b} together?", "Tell me {a} + {b}.", "What does {a} plus {b} give?",
        "What does {a}+{b} make?", "How much do {a} and {b} make?", "Please calculate {a} + {b}.", "Determine {a} + {b}.",
        "What are {a} and {b} together?", "I need the sum of {a} and {b}.", "I need {a} plus {b}.", "{a} + {b} equals?",
        "Tell me the total of {a} and {b}.",
    ], [
        "What does {a} + {b} equal?", "Please calculate {a} plus {b}.", "How much do {a} and {b} make together?",
        "Find the sum of {a} and {b}.", "I need {a} + {b}.",
    ]),
    "difference": ([
        "What is {a} - {b}?", "{a} - {b}", "{a} - {b} = ?", "{a}-{b}", "{a}-{b}=", "What is {a} minus {b}?",
        "Subtract {b} from {a}.", "How much is {a} - {b}?", "Calculate {a} - {b}.", "Compute {a}-{b}.", "{a} minus {b}",
        "How much is {a} minus {b}?", "Work out {a} - {b}.", "Take {b} from {a}.", "What is {a}-{b}?", "Tell me {a} - {b}.",
        "I have {a} and give away {b}. How many have I?", "What is left of {a} without {b}?", "What does {a} minus {b} give?",
        "Please calculate {a} - {b}.", "I need {a} minus {b}.", "Determine {a} - {b}.",
        "How much is left if I take away {b} from {a}?", "How much remains of {a} if I take {b}?", "{a} - {b} equals?",
        "If I take {b} from {a}, what is left?", "What remains if I take {b} away from {a}?", "I need {a} less {b}.",
    ], [
        "What does {a} - {b} equal?", "Please calculate {a} minus {b}.", "I need {a} - {b}.",
        "How much is left if I take {b} from {a}?",
    ]),
    "list": ([
        "List {n} {x} countries and their capitals as JSON.", "List {n} {x} countries with their capitals as JSON.",
        "Give me {n} {x} countries and their capitals as JSON.", "{n} {x} countries and their capitals, as JSON.",
        "Write {n} {x} countries with capitals as JSON.", "Name {n} {x} countries with their capitals in JSON.",
        "As JSON: {n} {x} countries and their capitals.", "I need {n} {x} countries and capitals in JSON.",
        "JSON list of {n} {x} countries and their capitals, please.", "Show {n} {x} countries and capitals as JSON.",
        "Make a JSON list of {n} {x} countries with their capitals.", "Answer in JSON: {n} {x} countries and their capitals.",
        "Please list {n} {x} countries and capitals in JSON.", "Return {n} {x} countries and their capitals as JSON.",
        "Please give me {n} {x} countries with capitals as JSON.", "List {n} {x} countries with capitals as a JSON list.",
        "Can you list {n} {x} countries and their capitals in JSON?", "In JSON, name {n} {x} countries and their capitals.",
        "Write {n} {x} countries and their capitals in JSON format.",
    ], [
        "Please give {n} {x} countries with their capitals as a JSON list.", "List {n} {x} countries with capitals in JSON format.",
        "Can you write {n} {x} countries and their capitals as JSON?", "In JSON, list {n} {x} countries and their capitals.",
    ]),
    "day after": ([
        "What day comes after {x}?", "Which day is after {x}?", "What day follows {x}?", "The day after {x}?",
        "Today is {x}. What day is tomorrow?", "What is the day after {x}?", "Which day follows {x}?",
        "Which day comes right after {x}?", "What is the day that follows {x}?", "It is {x}. Which day is it tomorrow?",
    ], [
        "Which day comes after {x}?", "It is {x} today. Which day is it tomorrow?",
    ]),
    "day before": ([
        "What day comes before {x}?", "Which day is before {x}?", "The day before {x}?", "Today is {x}. What day was yesterday?",
        "What is the day before {x}?", "Which day comes right before {x}?", "It is {x}. Which day was yesterday?",
    ], [
        "Which day comes before {x}?", "It is {x} today. Which day was it yesterday?",
    ]),
    "days after": ([
        "What day is {a} days after {x}?", "Today is {x}. What day is it in {a} days?", "{x} plus {a} days?",
        "Which day is {a} days after {x}?", "If it is {x}, what day is it in {a} days?",
        "It is {x} today. What day is it in {a} days?", "What day comes {a} days later than {x}?",
    ], [
        "If today is {x}, which day is it in {a} days?", "What day comes {a} days after {x}?",
    ]),
    "month after": ([
        "What month comes after {x}?", "Which month is after {x}?", "What month follows {x}?", "The month after {x}?",
        "It is {x}. What month is next?", "Which month comes next after {x}?", "What is the month that follows {x}?",
    ], [
        "Which month comes after {x}?", "Which month follows {x}?",
    ]),
    "month before": ([
        "What month comes before {x}?", "Which month is before {x}?", "The month before {x}?", "What is the month before {x}?",
        "Which month comes just before {x}?", "Which month is the one before {x}?",
    ], [
        "Which month comes before {x}?", "Which month was before {x}?",
    ]),
    "month number": ([
        "What is the {x} month?", "Which month is the {x}?", "Name the {x} month of the year.", "The {x} month of the year?",
        "Which month of the year is the {x}?", "The {x} month is which one?",
    ], [
        "What is the {x} month of the year?", "Which is the {x} month?",
    ]),
    "days in month": ([
        "How many days has {x}?", "How many days are in {x}?", "How long is {x}?", "Days in {x}?", "How many days does {x} have?",
        "What is the number of days in {x}?", "How many days does the month of {x} have?",
    ], [
        "What number of days does {x} have?", "How many days are there in {x}?",
    ]),
    "units": ([
        "How many {v} are {a} {u}?", "How many {v} are in {a} {u}?", "Convert {a} {u} to {v}.", "{a} {u} in {v}?",
        "What is {a} {u} in {v}?", "Change {a} {u} into {v}.", "{a} {u} to {v}", "How many {v} is {a} {u}?",
        "Express {a} {u} in {v}.", "How many {v} do {a} {u} make?", "Please change {a} {u} to {v}.", "{a} {u} are how many {v}?",
        "Please convert {a} {u} to {v}.",
    ], [
        "How many {v} make {a} {u}?", "What are {a} {u} in {v}?", "Please convert {a} {u} into {v}.",
    ]),
    "weather": ([
        "What is the weather in {x}?", "What's the weather in {x}?", "Weather in {x}?", "How is the weather in {x}?",
        "Tell me the weather in {x}.", "Is it cold in {x}?", "Is it warm in {x}?", "Is it raining in {x}?",
        "How warm is it in {x}?", "What is the temperature in {x}?", "Please check the weather in {x}.", "How cold is it in {x}?",
        "What is it like in {x} today?", "I travel to {x}. How is the weather?", "Do I need an umbrella in {x}?",
        "The weather in {x}, please.", "How hot is it in {x}?", "What's the temperature in {x} now?", "How's the weather in {x}?",
        "Weather for {x}.", "Can you tell me how the weather is in {x}?", "What is the weather like today in {x}?",
        "Can you check the weather in {x}?", "Please tell me the weather in {x}.", "Please look up the weather in {x}.",
        "How is the weather now in {x}?", "Tell me how warm it is in {x}.", "Look up how warm it is in {x}.",
    ], [
        "What is the weather like in {x}?", "Can you tell me the weather in {x}?", "How is the weather in {x} today?",
        "Please tell me how warm it is in {x}.", "Look up the weather in {x}.",
    ]),
    "calculate": ([
        "What is {x}?", "{x}", "{x} = ?", "Calculate {x}.", "Compute {x}.", "How much is {x}?", "Work out {x}.",
        "Please calculate {x}.", "{x}=", "I need the result of {x}.", "Use the calculator: {x}", "Tell me {x}.",
        "What is {x} exactly?", "Result of {x}?", "What does {x} make?", "Can you calculate {x}?", "Please work out {x}.",
        "{x} equals?", "Determine the result of {x}.", "Can you compute {x}?",
    ], [
        "What does {x} equal?", "Can you work out {x}?", "Please compute {x}.", "Find {x}.",
    ]),
}  # fmt: skip


FIRST, MAIN, LAST, SIGNED = range(4)  # SIGNED: as the last, but half of the differences are negative


class Source(random.Random):
    """A random generator that knows for what it draws: a stage of the training, or evaluation (held); and how talks are written."""

    def __init__(self, seed, stage=LAST, held=False, talk=Talk):
        super().__init__(seed)
        self.stage, self.held, self.talk = stage, held, talk


def phrasings(rnd, skill):
    return PHRASES[skill][rnd.held]


def phrase(rnd, skill, **names):
    return rnd.choice(phrasings(rnd, skill)).format(**names)


# ---- asking and beginning -------------------------------------------------------------------------------------------

_SYSTEMS = ["You are a helpful assistant.", "Be brief.", "You are a friendly assistant.", "Answer shortly.",
            "You are baltoro's demo model.", "Answer the question.", "Be helpful and brief."]  # fmt: skip
BEFORE = ["Hi! ", "Hello. ", "Please tell me: ", "Question: ", "Tell me, ", "Hey, ", "A question: ", "One more: ", "Quick: ", "Next: "]
AFTER = [" Thanks.", " Thank you!", " Please.", " Tell me."]


def disguise(rnd, text):
    """A question as people type it: some with words around it, in small letters, or without its last sign."""
    r = 1 if rnd.held else rnd.random()
    if r < 0.10:
        text = rnd.choice(BEFORE) + text
    elif r < 0.15 and text[-1] in "?.":
        text += rnd.choice(AFTER)
    elif r < 0.20:
        text = text.lower()
    elif r < 0.26 and text[-1] in "?.":
        text = text[:-1]
    return text


def begin(rnd, tools=()):
    effort = rnd.choices(list(EFFORTS), [45, 30, 25])[0]
    return rnd.talk(effort, rnd.choice(_SYSTEMS) if rnd.random() < 0.12 else "", tools)


def title(text):
    return text[0].upper() + text[1:]


def country_name(rnd, c):
    """As a question names it."""
    if c.name in facts.ALIASES and rnd.random() < 0.3:
        return rnd.choice(facts.ALIASES[c.name])
    return c.full


# ---- skills: each adds a question and its answer to a conversation --------------------------------------------------


def answer_capital(t, c, short=False):
    t.think("The question is about %s. %s is a country in %s. Its capital is %s." % (c.full, title(c.full), c.continent, c.capital),
            "%s: the capital is %s." % (title(c.full), c.capital))  # fmt: skip
    t.say(c.capital if short else "The capital of %s is %s." % (c.full, c.capital))


def ask_capital(rnd, t):
    c = rnd.choice(facts.COUNTRIES)
    short = rnd.random() < 0.3
    question = phrase(rnd, "capital in a word" if short else "capital", c=country_name(rnd, c))
    t.user(disguise(rnd, title(question)))
    answer_capital(t, c, short)
    if rnd.random() < 0.08:
        c = rnd.choice(facts.COUNTRIES)
        t.user(rnd.choice(["And of {c}?", "And {c}?", "And the capital of {c}?", "What about {c}?"]).format(c=c.full))
        answer_capital(t, c, short)


def answer_country(t, c):
    t.think("%s is a capital in %s. It belongs to %s." % (c.capital, c.continent, c.full), "%s: %s." % (c.capital, c.full))
    t.say("%s is the capital of %s." % (c.capital, c.full))


def ask_country(rnd, t):
    c = rnd.choice(facts.COUNTRIES)
    t.user(disguise(rnd, phrase(rnd, "country of a capital", k=c.capital)))
    answer_country(t, c)


def answer_continent(t, c):
    t.think("The question is about %s. %s is a country in %s." % (c.full, title(c.full), c.continent),
            "%s: %s." % (title(c.full), c.continent))  # fmt: skip
    t.say("%s is in %s." % (title(c.full), c.continent))


def ask_continent(rnd, t):
    c = rnd.choice(facts.COUNTRIES)
    t.user(disguise(rnd, title(phrase(rnd, "continent", c=country_name(rnd, c)))))
    answer_continent(t, c)


_PLACES = ["Ones", "Tens", "Hundreds", "Thousands"]


def columns(a, b, minus):
    """Column by column from the right, as (digit of a, digit of b or None, carry, result of the column)."""
    out, carry = [], 0
    while a or b or carry or not out:
        x, y = a % 10, (b % 10 if b else None)
        if minus:
            z = x - (y or 0) - carry
            out.append((x, y, carry, z))
            carry = int(z < 0)
        else:
            z = x + (y or 0) + carry
            out.append((x, y, carry, z))
            carry = z // 10
        a, b = a // 10, b // 10
    return out


def column_texts(a, b, minus):
    """One text a column, "8+5+1=14" or "12-8-1=3" after borrowing."""
    out = []
    for x, y, carry, z in columns(a, b, minus):
        sign, borrowed = ("-", 10 if z < 0 else 0) if minus else ("+", 0)
        terms = [str(x + borrowed)] + ([str(y)] if y is not None else []) + (["1"] if carry else [])
        out.append("%s=%d" % (sign.join(terms), z + borrowed))
    return out


def work(t, a, b, minus):
    """The reasoning for a + b or a - b, a >= b where it is a difference."""
    sign, result = ("-", a - b) if minus else ("+", a + b)
    texts = column_texts(a, b, minus)
    lines = ["%d %s %d, from the right." % (a, sign, b)]
    for (x, y, carry, z), text, place in zip(columns(a, b, minus), texts, _PLACES):
        note = ", write %d" % (z % 10)
        if minus and z < 0:
            note += ", borrow 1"
        elif z > 9:
            note += ", carry 1"
        lines.append("%s: %s%s." % (place, text, note))
    lines.append("So %d." % result)
    short = "%d%s%d: %s: %d." % (a, sign, b, ", ".join(texts), result)
    t.think("\n".join(lines), short, short)
    return short


def answer_sum(t, a, b):
    work(t, a, b, False)
    t.say("%d + %d = %d" % (a, b, a + b))


def answer_difference(t, a, b):
    work(t, max(a, b), min(a, b), True)
    if a < b:
        t.thought = "%d is smaller than %d: the result is negative. %s" % (a, b, t.thought)
    t.say("%d - %d = %d" % (a, b, a - b))


def digits(rnd):
    """The range of one to three digits."""
    return rnd.choices([(0, 10), (10, 100), (100, 1000)], [12, 38, 50])[0]


def pair(rnd):
    while True:
        first = digits(rnd)
        second = first if rnd.random() < 0.6 else digits(rnd)
        a, b = rnd.randrange(*first), rnd.randrange(*second)
        if is_held(a, b) == rnd.held:
            return a, b


def ask_sum(rnd, t):
    a, b = pair(rnd)
    t.user(disguise(rnd, phrase(rnd, "sum", a=a, b=b)))
    answer_sum(t, a, b)


def ask_difference(rnd, t):
    a, b = pair(rnd)
    if rnd.random() < (0.5 if rnd.stage == SIGNED else 0.85):
        a, b = max(a, b), min(a, b)
    t.user(disguise(rnd, phrase(rnd, "difference", a=a, b=b)))
    answer_difference(t, a, b)


def countries_json(names):
    return json.dumps([{"country": n, "capital": facts.BY_NAME[n].capital} for n in names])


def answer_list(t, continent, n, plans):
    """plans: names them first at low effort too, as the last stage does; a name is easier to count than an object of JSON."""
    names = facts.MAJOR[continent][:n]
    t.think("%s countries in %s: %s. Each with its capital, as a JSON list." % (title(facts.NUMBERS[n]), continent, ", ".join(names)),
            "%s in %s, as JSON: %s." % (title(facts.NUMBERS[n]), continent, ", ".join(names)),
            "%s." % ", ".join(names) if plans else "")  # fmt: skip
    t.say(countries_json(names))


def list_question(rnd, skill_text, continent, n):
    """n None: no number in the question."""
    number_text = rnd.choice(["major", "some", "important", "a few", "large"]) if n is None else rnd.choice([facts.NUMBERS[n], str(n)])
    if n is not None and rnd.random() < 0.2:
        number_text += " major"
    return title(skill_text.format(n=number_text, x=facts.ADJECTIVES[continent]))


_DAY_LISTS = ["List the {x} as JSON.", "The {x} as JSON, please.", "Write the {x} in JSON.", "Give me the {x} as a JSON list."]


def ask_list(rnd, t):
    if rnd.random() < 0.1 and not rnd.held:
        what, names = rnd.choice([("days of the week", facts.DAYS), ("months of the year", facts.MONTHS)])
        t.user(disguise(rnd, rnd.choice(_DAY_LISTS).format(x=what)))
        t.think("The %s, in order, as a JSON list." % what, "The %s, as JSON." % what)
        t.say(json.dumps(names))
        return
    continent, n = rnd.choice(facts.CONTINENTS), rnd.choice([None, None, 2, 3, 4, 5, 6])
    t.user(disguise(rnd, list_question(rnd, rnd.choice(phrasings(rnd, "list")), continent, n)))
    answer_list(t, continent, n or 5, rnd.stage >= LAST)


def calendar(rnd):
    """(skill, names of its phrasing, thought, short thought, answer)."""
    skill = rnd.choice(["day after", "day before", "days after", "month after", "month before", "month number", "days in month"])
    if skill in ("day after", "day before"):
        i, step = rnd.randrange(7), 1 if skill == "day after" else -1
        d, e = facts.DAYS[i], facts.DAYS[(i + step) % 7]
        where = skill.split()[1]
        return skill, {"x": d}, "The day %s %s is %s." % (where, d, e), "%s: %s." % (d, e), "The day %s %s is %s." % (where, d, e)
    if skill == "days after":
        i, n = rnd.randrange(7), rnd.randrange(2, 7)
        steps = [facts.DAYS[(i + k) % 7] for k in range(n + 1)]
        count = "%s. " % steps[0] + ", ".join("%d: %s" % (k, d) for k, d in enumerate(steps) if k) + "."
        return skill, {"x": steps[0], "a": rnd.choice([n, facts.NUMBERS[n]])}, count, count, "It is %s." % steps[-1]
    i = rnd.randrange(12)
    m = facts.MONTHS[i]
    if skill == "days in month":
        days = facts.DAYS_OF_MONTH[i]
        if m == "February":
            answer = "February has 28 days, 29 in leap years."
            return skill, {"x": m}, answer, "28, in leap years 29.", answer
        return skill, {"x": m}, "%s has %d days." % (m, days), "%d." % days, "%s has %d days." % (m, days)
    if skill == "month number":
        word = facts.ORDINALS[i]
        return skill, {"x": word}, "The %s month is %s." % (word, m), "%s." % m, "The %s month of the year is %s." % (word, m)
    step, where = (1, "after") if skill == "month after" else (-1, "before")
    e = facts.MONTHS[(i + step) % 12]
    return skill, {"x": m}, "The month %s %s is %s." % (where, m, e), "%s: %s." % (m, e), "The month %s %s is %s." % (where, m, e)


def ask_calendar(rnd, t):
    skill, names, high, medium, answer = calendar(rnd)
    low = medium if skill == "days after" else ""
    t.user(disguise(rnd, phrase(rnd, skill, **names)))
    t.think(high, medium, low)
    t.say(answer)


def convert(rnd):
    """(a, unit, factor, smaller unit): a of the unit; numbers whose product needs no long multiplication."""
    big, factor, small = rnd.choice(facts.UNITS)
    a = rnd.randrange(1, 13) if factor % 10 else rnd.choice([rnd.randrange(1, 13), rnd.randrange(1, 100)])
    if factor == 60:
        a = rnd.randrange(1, 13)
    return a, big, factor, small


def ask_units(rnd, t):
    a, big, factor, small = convert(rnd)
    u = big[a != 1]
    t.user(disguise(rnd, phrase(rnd, "units", a=a, u=u, v=small[1])))
    answer_units(t, a, big, factor, small)


def answer_units(t, a, big, factor, small):
    u = big[a != 1]
    t.think("One %s is %d %s. %d times %d is %d." % (big[0], factor, small[1], a, factor, a * factor),
            "%d times %d is %d." % (a, factor, a * factor), "%d times %d is %d." % (a, factor, a * factor))  # fmt: skip
    t.say("%d %s %s %d %s." % (a, u, "is" if a == 1 else "are", a * factor, small[1]))


_SMALL_TALK = [
    (["Hello", "Hello!", "Hi", "Hi!", "Hi there!", "Hey", "Hello there.", "Good day!", "Hey there", "Greetings!"],
     "A greeting.", "Hello! How can I help you?"),
    (["Good morning", "Good morning!", "Good morning."], "A greeting in the morning.", "Good morning! How can I help you?"),
    (["Good evening", "Good evening!", "Good evening."], "A greeting in the evening.", "Good evening! How can I help you?"),
    (["How are you?", "How are you doing?", "How do you do?", "Hi, how are you?", "Hello, how are you?"],
     "The user asks how I am.", "I am well, thank you. How can I help you?"),
    (["Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Introduce yourself.", "Who made you?"],
     "The user asks who I am.",
     "I am the demo model of baltoro: very small, with the {architecture} architecture."),
    (["What can you do?", "How can you help me?", "What do you know?", "Help", "What are your skills?", "What can I ask you?"],
     "The user asks what I can do.",
     "I know capitals and continents, I add and subtract, I know days, months and units, I write JSON and I call tools."),
    (["Thanks", "Thanks!", "Thank you", "Thank you!", "Thank you very much.", "Many thanks!"], "The user thanks me.", "You are welcome!"),
    (["Bye", "Bye!", "Goodbye", "Goodbye!", "See you later.", "Good night!"], "The user says goodbye.", "Goodbye!"),
]  # fmt: skip
HELD_SMALL_TALK = [("Hello, good morning!", "How can I help you?"), ("Tell me who you are.", "demo model"),
                   ("Thank you so much!", "welcome"), ("What are you able to do?", "capitals"), ("Goodbye, see you.",
    "Goodbye")]  # fmt: skip


def ask_small_talk(rnd, t):
    questions, thought, answer = rnd.choice(_SMALL_TALK)
    t.user(rnd.choice([str, str, str.lower])(rnd.choice(["", "", "", "", "Hi! ", "OK. "]) + rnd.choice(questions)))
    t.think(thought + " I answer in a friendly way.", thought)
    t.say(answer.format(architecture=t.ARCHITECTURE))


_UNKNOWN = [
    "Who won the {s} game yesterday?", "Who won the {s} match last night?", "Who painted the {n} picture?", "Who wrote the book about {n}?",
    "What is the population of {c}?", "How many people live in {k}?", "What does a {n} cost?", "How much is a {n}?",
    "Who is the president of {c}?",
    "Who is the king of {c}?", "What is the best film about {n}?", "Tell me a story about a {n}.", "Write a poem about a {n}.",
    "What is the meaning of life?", "What time is it?", "What is the date today?", "How old is the {n}?", "Who invented the {n}?",
    "Which {n} should I buy?", "What is the highest mountain in {c}?", "What is the longest river in {c}?",
    "What language do they speak in {c}?",
    "How far is it from {k} to {l}?", "When was {k} founded?", "Translate {n} into French.", "How do I cook a {n}?",
    "How do I repair a {n}?",
    "What are the news from {k}?", "Why is the {n} so big?", "Who lives in {k}?", "What is the flag of {c}?", "What is the money of {c}?",
]  # fmt: skip
HELD_UNKNOWN = ["Who is the mayor of {k}?", "How tall is the {n}?", "Who won the {s} cup last year?", "What colour is the flag of {c}?",
                "When was the {n} invented?"]  # fmt: skip
_NOUNS = ["car", "house", "tree", "dog", "cat", "bicycle", "guitar", "bridge", "tower", "phone", "lamp", "soup", "cake", "train", "boat",
          "horse", "bird", "rose", "moon", "star", "clock", "table", "chair", "door", "garden", "castle", "robot", "piano", "camera",
          "shoe"]  # fmt: skip
_SPORTS = ["football", "tennis", "hockey", "basketball", "chess", "rugby", "cricket", "handball"]


def unknown_question(rnd, texts):
    c, k = rnd.choice(facts.COUNTRIES), rnd.choice(facts.COUNTRIES)
    return title(rnd.choice(texts).format(s=rnd.choice(_SPORTS), n=rnd.choice(_NOUNS), c=c.full, k=k.capital, l=c.capital))


def made_up(rnd, parts=(2, 3)):
    """A name that nobody knows."""
    name = "".join(rnd.choice("b d f g h k l m n p r s t v z br dr kr st tr gl pl".split()) + rnd.choice("a e i o u ai ou".split())
                   for _ in range(rnd.randint(*parts)))  # fmt: skip
    name = title(name + rnd.choice(["", "", "n", "r", "l", "s", "nia", "ria", "land", "stan", "burg", "ton"]))
    return made_up(rnd, parts) if name in facts.HELD_CITIES or name in facts.BY_NAME else name


def ask_unknown(rnd, t):
    r = rnd.random()
    if r < 0.15:
        name = made_up(rnd)
        t.user(disguise(rnd, phrase(rnd, rnd.choice(["capital", "continent"]), c=name)))
        t.think("The question is about %s. I know no country with this name." % name, "%s: I know no such country." % name)
        t.say("I do not know a country called %s." % name)
    elif r < 0.25:
        a, b, sign = rnd.randrange(2, 1000), rnd.randrange(2, 1000), rnd.choice(["times", "*", "/", "divided by"])
        t.user(disguise(rnd, rnd.choice(["What is %d %s %d?", "%d %s %d", "How much is %d %s %d?"]) % (a, sign, b)))
        t.think("This is neither a sum nor a difference, and I have no calculator.", "Neither a sum nor a difference.")
        t.say("I do not know: I can add and subtract, for the rest I need a calculator.")
    elif r < 0.35:
        city = weather_city(rnd)
        t.user(disguise(rnd, phrase(rnd, "weather", x=city)))
        t.think("The question is about the weather in %s. I have no tool for it." % city, "Weather, but no tool.")
        t.say("I do not know the weather: I have no tool for it.")
    else:
        t.user(disguise(rnd, unknown_question(rnd, HELD_UNKNOWN if rnd.held else _UNKNOWN)))
        t.think("I have not learned this. I say so.", "I have not learned this.")
        t.say("I do not know.")


_NAMES = "Anna Ben Clara David Emma Felix Greta Henry Ida Jonas Klara Leo Maria Noah Olga Paul Rosa Simon Tina Viktor".split()
_COLOURS = "red blue green yellow black white brown grey orange purple pink".split()
_THINGS = "bicycle boat hat coat bag car cup lamp kite ball book box door umbrella scarf".split()
_ROOMS = "kitchen garden bathroom bedroom office hall cellar attic garage school library station museum park".split()


# What a text is asked; the second of each is held out.
CONTEXT = {
    "colour": ["What colour is %s's %s?", "Tell me the colour of %s's %s.", "What is the colour of %s's %s?",
               "Of which colour is %s's %s?", "I want to know the colour of %s's %s."],
    "owner": ["Who has the %s?", "Whose is the %s?", "To whom does the %s belong?", "Who owns the %s?", "Whose thing is the %s?"],
    "place": ["Where is %s?", "In which place is %s?", "What place is %s in?", "In what place can I find %s?", "In which room is %s?"],
    "person": ["Who is in the %s?", "Which person is in the %s?", "Whom do I find in the %s?", "Which one is in the %s?",
               "What person is in the %s?"],
    "age": ["How old is %s?", "What is the age of %s?", "What age is %s?", "How many years old is %s?", "Tell me the age of %s."],
    "hour": ["When does the %s %s?", "At what time does the %s %s?", "What time does the %s %s?", "At which hour does the %s %s?",
             "Tell me when the %s is to %s."],
}  # fmt: skip


def context(rnd):
    """(sentences, which of them answers, the answer, questions: the second is held out)."""
    kind = rnd.randrange(4)
    names, n = rnd.sample(_NAMES, 3), rnd.choice([2, 2, 3])
    if rnd.random() < 0.5:
        names = [patchwork(rnd, 1) for _ in names]
    i = rnd.randrange(n)
    name = names[i]
    if kind == 0:
        colours, things = rnd.sample(_COLOURS, 3), rnd.sample(_THINGS, 3)
        text = ["%s has a %s %s." % x for x in list(zip(names, colours, things))[:n]]
        thing = things[i]
        if rnd.random() < 0.5:
            return text, i, title(colours[i]) + ".", [q % (name, thing) for q in CONTEXT["colour"]]
        return text, i, name + ".", [q % thing for q in CONTEXT["owner"]]
    if kind == 1:
        rooms = rnd.sample(_ROOMS, 3)
        text = ["%s is in the %s." % x for x in list(zip(names, rooms))[:n]]
        if rnd.random() < 0.5:
            return text, i, "In the %s." % rooms[i], [q % name for q in CONTEXT["place"]]
        return text, i, name + ".", [q % rooms[i] for q in CONTEXT["person"]]
    if kind == 2:
        ages = rnd.sample(range(5, 80), 3)
        text = ["%s is %d years old." % x for x in list(zip(names, ages))[:n]]
        return text, i, "%d years." % ages[i], [q % name for q in CONTEXT["age"]]
    a, b = rnd.randrange(6, 12), rnd.randrange(13, 22)
    place = rnd.choice(["shop", "museum", "library", "bank", "school", "office", "pool", "market"])
    text = ["The %s opens at %d and closes at %d." % (place, a, b)]
    verb, hour = ("open", a) if rnd.random() < 0.5 else ("close", b)
    return text, 0, "At %d." % hour, [q % (place, verb) for q in CONTEXT["hour"]]


def ask_context(rnd, t):
    """In the last stage the reasoning says the sentence again that answers: then each word of it is looked up by the one before.
    Straight to the answer, where it has two things to find at once, a model of this size is no better than chance."""
    text, i, answer, questions = context(rnd)
    question = questions[1] if rnd.held else rnd.choice(questions[:1] + questions[2:])
    t.user(rnd.choice(["%s %s", "%s\n%s", "%s\n\n%s", "Text: %s Question: %s"]) % (" ".join(text), question))
    if rnd.stage >= LAST:
        t.think("The text says: %s" % text[i], text[i], text[i])
    else:
        inside = answer.lower() if answer[:2] in ("In", "At") else answer
        t.think("The text says it: %s" % inside, "From the text.")
    t.say(answer)


_PATCHES = [n for c in facts.COUNTRIES for n in (c.name, c.capital)] + facts.CITIES


def patchwork(rnd, n_words=None):
    """A name pieced together from parts of names: what cannot be guessed must be copied."""
    words = []
    for _ in range(n_words or rnd.choice([1, 1, 1, 2])):
        word = ""
        for _ in range(rnd.choice([1, 2, 2, 3])):
            name = rnd.choice(_PATCHES)
            at = rnd.randrange(len(name))
            word += name[at : at + rnd.randint(1, 5)]
        words.append(title("".join(c for c in word if c.isalpha()).lower() or "x"))
    name = " ".join(words)
    return patchwork(rnd, n_words) if any(c in name for c in facts.HELD_CITIES) else name


def any_word(rnd):
    """What can stand in a text and be asked for: a made-up name, a word, a number."""
    kind = rnd.randrange(4)
    return patchwork(rnd, 1) if kind < 2 else rnd.choice(_NOUNS + _NAMES) if kind < 3 else str(rnd.randrange(10 ** rnd.randint(1, 4)))


def ask_repeat(rnd, t):
    """Copying for its own sake."""
    text = " ".join(any_word(rnd) for _ in range(rnd.randint(1, 5)))
    t.user(rnd.choice(["Repeat: %s", "Say: %s", "Repeat after me: %s", "Say this again: %s", "Copy this: %s"]) % text)
    t.think("I repeat: %s" % text, "I repeat it.")
    t.say(text)


# ---- tools ----------------------------------------------------------------------------------------------------------

_SKIES = ["sunny", "cloudy", "rainy", "snowy", "windy", "foggy", "clear", "stormy"]


def weather_city(rnd):
    if rnd.held:
        return rnd.choice(facts.HELD_CITIES)
    r = rnd.random()
    if r < 0.2:
        return rnd.choice(facts.COUNTRIES).capital
    return rnd.choice(facts.CITIES) if r < 0.3 else patchwork(rnd) if r < 0.7 else made_up(rnd, (1, 3))


def weather_result(rnd, city):
    """(the tool's text, degrees, sky)."""
    degrees, sky = rnd.randrange(-20, 42), rnd.choice(_SKIES)
    key = rnd.choice(["temperature_c", "temp_c", "temperature"])
    value = rnd.choice([{"city": city, key: degrees, "sky": sky}, {key: degrees, "sky": sky}, {"temperature_c": degrees, "sky": sky}])
    return rnd.choice([json.dumps(value)] * 3 + ["%d degrees, %s" % (degrees, sky)]), degrees, sky


def tell_weather(rnd, t, city):
    result, degrees, sky = weather_result(rnd, city)
    t.tool(result)
    t.think("The tool says %d degrees and %s for %s." % (degrees, sky, city), "%d degrees, %s." % (degrees, sky))
    t.say("It is %d degrees and %s in %s." % (degrees, sky, city))


def call_weather(t, city):
    t.think("The question is about the weather in %s. I call get_weather." % city, "Weather in %s: get_weather." % city)
    t.say("", [("get_weather", "city", city)])


def ask_weather(rnd, t):
    city = weather_city(rnd)
    t.user(disguise(rnd, phrase(rnd, "weather", x=city)))
    # In small letters or as typed: the call names the city as the question does.
    if city not in t.messages[-1][1]:
        city = city.lower()
    call_weather(t, city)
    tell_weather(rnd, t, city)


def calculation(rnd):
    """(expression, result as the tool prints it)."""
    kind = rnd.choice("+-*/**")
    n = rnd.choice([100, 1000] if rnd.held else [10, 100, 100, 1000, 1000])
    while True:
        a, b = rnd.randrange(2, n), rnd.randrange(2, rnd.choice([10, n]))
        if kind == "/":
            a, result = a * b, a
        else:
            result = a + b if kind == "+" else a - b if kind == "-" else a * b
        if is_held(a, b) == rnd.held:
            return "%d %s %d" % (a, kind, b), result


def call_calculator(t, expression):
    t.think("I have to work out %s. I call calculator." % expression, "%s: calculator." % expression)
    t.say("", [("calculator", "expression", expression)])


def tell_result(rnd, t, expression, result):
    t.tool(rnd.choice([str(result), json.dumps({"result": result})]))
    t.think("The tool says %d." % result, "%d." % result)
    t.say("%s = %d" % (expression, result))


def ask_calculator(rnd, t):
    expression, result = calculation(rnd)
    a, sign, b = expression.split()
    if rnd.random() < 0.25 and not rnd.held:
        word = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}[sign]
        question = rnd.choice(["What is %s %s %s?", "How much is %s %s %s?", "%s %s %s"]) % (a, word, b)
    else:
        question = phrase(rnd, "calculate", x=rnd.choice([expression, expression, a + sign + b]))
    if rnd.stage >= LAST and not rnd.held and rnd.random() < 0.2:
        # Words that it never saw around the numbers: an expression begins and ends with a number, whatever the verb is.
        question = rnd.choice(["{w} {x}.", "{w} {x}?", "{w} me {x}.", "What does {x} {w}?", "{x} {w}?", "Can you {w} {x}?"]).format(
            x=expression, w=patchwork(rnd, 1).lower())
        question = title(question)
    t.user(disguise(rnd, question))
    call_calculator(t, expression)
    tell_result(rnd, t, expression, result)


def with_tools(rnd):
    """Some turns in one conversation, since the long turn that declares the tools is the same in all."""
    tools = rnd.choice([[WEATHER], [CALCULATOR], [WEATHER, CALCULATOR], [WEATHER, CALCULATOR], [CALCULATOR, WEATHER]])
    t = begin(rnd, tools)
    n = rnd.choice([1, 2, 2, 3])
    for _ in range(n):
        skills = [ask_capital, ask_small_talk, ask_continent, ask_calendar] + [ask_weather] * 4 * (WEATHER in tools)
        rnd.choice(skills + [ask_calculator] * 4 * (CALCULATOR in tools))(rnd, t)
    return t.pieces(only_last=n > 1 and rnd.random() < 0.2)


# ---- plain texts ----------------------------------------------------------------------------------------------------


def plain(rnd):
    """No conversation: one to three sentences, all of which are learned."""
    out = []
    for _ in range(rnd.choice([1, 1, 2, 3])):
        c = rnd.choice(facts.COUNTRIES)
        kind = rnd.randrange(10)
        if kind < 4:
            out.append(rnd.choice(["The capital of {c} is {k}.", "The capital of {c} is {k}.", "{k} is the capital of {c}.",
                                   "{C} is a country in {n}. Its capital is {k}.", "{C} is a country in {n}.", "{C} is in {n}.",
                                   "The capital city of {c} is {k}."])
                       .format(c=c.full, C=title(c.full), k=c.capital, n=c.continent))  # fmt: skip
        elif kind < 5:
            out.append(calendar(rnd)[4])
            if out[-1].startswith("It is"):
                out.pop()
        elif kind < 6:
            a, big, factor, small = convert(rnd)
            out.append("%d %s %s %d %s." % (a, big[a != 1], "is" if a == 1 else "are", a * factor, small[1]))
        elif kind < 8:
            a, b = rnd.randrange(10), rnd.randrange(10)
            out.append(rnd.choice(["%d + %d = %d." % (a, b, a + b), "%d - %d = %d." % (a + b, b, a)]))
        elif kind < 9:
            a, b = pair(rnd)
            t = Talk("low")
            if rnd.random() < 0.5:
                a, b = max(a, b), min(a, b)
            out.append(work(t, a, b, a >= b and rnd.random() < 0.5))
        else:
            out.append(rnd.choice([
                "The days of the week are %s." % ", ".join(facts.DAYS), "The months of the year are %s." % ", ".join(facts.MONTHS),
                "Three countries in %s are %s, %s and %s." % (c.continent, *facts.MAJOR[c.continent][:3])]))  # fmt: skip
    begins = rnd.random() < 0.5
    return rnd.talk.plain(" ".join(out), begins) if out else plain(rnd)


def echo(rnd):
    """Pairs of words, then the same again in another order; the second of each counts. What looking up is, and nothing else. In
    the last stage half of them are turned round: looked up by the second."""
    pairs = [(any_word(rnd), any_word(rnd)) for _ in range(rnd.randint(2, 6))]
    sign, gap = rnd.choice([("", " "), (":", " "), (" =", " "), (" is", " "), (" has", " "), ("", "\n")])
    out = [(" ".join(a + sign + gap + b + "." for a, b in pairs), False)]
    again = rnd.sample(pairs, len(pairs)) if rnd.random() < 0.7 else pairs
    if rnd.stage >= LAST and rnd.random() < 0.5:
        again, sign, gap = [(b, a) for a, b in again], rnd.choice([" of", ":", " with"]), " "
    for a, b in again:
        out += [(" " + a + sign, False), (gap + b + ".", True)]
    return out


# ---- the stream -----------------------------------------------------------------------------------------------------

# skill, share of the examples in each stage. A model that has learned facts first never learns to copy what it does not know; one
# that copies first learns the facts just as fast. At last comes more of what is hardest.
MIX = [(ask_capital, 2, 19, 15, 15), (ask_country, 0, 4, 5, 5), (ask_continent, 0, 7, 5, 5), (ask_sum, 2, 20, 12, 12),
       (ask_difference, 0, 16, 16, 36), (ask_list, 0, 4, 9, 9), (ask_calendar, 0, 7, 6, 6), (ask_units, 0, 5, 5, 5),
       (ask_small_talk, 0, 2, 5, 5), (ask_unknown, 0, 5, 9, 9), (ask_context, 6, 10, 19, 19), (with_tools, 5, 11, 17, 17),
       (plain, 3, 8, 7, 7), (ask_repeat, 30, 5, 3, 3), (echo, 52, 8, 8, 8)]  # fmt: skip
_SKILLS, *_SHARES = zip(*MIX)
_TALK = [ask_capital, ask_country, ask_continent, ask_sum, ask_difference, ask_list, ask_calendar, ask_units, ask_small_talk, ask_unknown,
         ask_context]  # fmt: skip


def example(rnd):
    skill = rnd.choices(_SKILLS, _SHARES[rnd.stage])[0]
    if skill in (with_tools, plain, echo):
        return skill(rnd)
    t = begin(rnd)
    earlier = rnd.choices([0, 1, 2], [82, 12, 6])[0]
    for _ in range(earlier):
        rnd.choice(_TALK)(rnd, t)
    skill(rnd, t)
    return t.pieces(only_last=earlier and rnd.random() < 0.25)


def trial(skill, seed, talk=Talk):
    """A held-out example of one skill, one turn."""
    rnd = Source(seed, held=True, talk=talk)
    if skill in (ask_weather, ask_calculator):
        tools = rnd.choice([[WEATHER, CALCULATOR], [WEATHER if skill == ask_weather else CALCULATOR]])
    else:
        tools = []
    t = talk(rnd.choice(list(EFFORTS)), tools=tools)
    skill(rnd, t)
    return t.pieces()


def stream(seed, stage=MAIN, talk=Talk):
    rnd = Source(seed, stage, talk=talk)
    while True:
        yield example(rnd)


if __name__ == "__main__":
    for _, pieces in zip(range(int(sys.argv[1]) if len(sys.argv) > 1 else 20), stream(1)):
        print("".join("[%s]" % text if counts else text for text, counts in pieces), end="\n\n")
