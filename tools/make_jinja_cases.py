#!/usr/bin/env python3
"""Writes tests/data/jinja/expected.json: what Jinja2 makes of the templates there, which are our own writing.

usage: make_jinja_cases.py            needs the Python package jinja2 3.1 (nothing that is built or tested does)

Inputs, all in tests/data/jinja:
  chat_*.jinja     whole chat templates, each rendered with every context of contexts.json
  expressions.txt  one expression a line, put between {{ and }}     | both rendered with variables.json; a leading "!"
  statements.json  a list of templates                              | marks what Jinja2 renders and we refuse
  grammar.json     templates that a grammar made at random, each with its own context
A case has `expected`, the text, or `error`, true: there it must fail. Jinja2 is set up as transformers' apply_chat_template
does it. Texts that no rendering repeats (addresses) are refused here, so that none gets into the file.
"""
import datetime
import glob
import json
import os
import re

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data", "jinja")
NOW = datetime.datetime(2026, 11, 29, 12, 0, 0)


class Generation(jinja2.ext.Extension):
    """{% generation %}: its body, as transformers has it when nobody asks for a mask."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_call"), [], [], body).set_lineno(line)

    def _call(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()


def outcome(template, context):
    try:
        text = ENV.from_string(template).render(**context)
        text.encode()
    except Exception:  # whatever it is, the template has failed
        return {"error": True}
    return {"expected": text}


def read(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8", newline="") as f:
        return f.read()


def snippet(text, variables):
    refused = text.startswith("!")
    template = text[1:] if refused else text
    result = {"error": True} if refused else outcome(template, variables)
    assert not re.search(r" at 0x[0-9a-f]+", result.get("expected", "")), text
    return {"template": template, **result}


def main():
    variables = json.loads(read("variables.json"))
    contexts = json.loads(read("contexts.json"))
    expressions = [("!{{ %s }}" % e[1:]) if e.startswith("!") else "{{ %s }}" % e for e in read("expressions.txt").splitlines()]
    cases = [snippet(t, variables) for t in expressions + json.loads(read("statements.json"))]
    cases += [{**case, **outcome(case["template"], case["context"])} for case in json.loads(read("grammar.json"))]
    for path in sorted(glob.glob(os.path.join(FOLDER, "chat_*.jinja"))):
        name = os.path.basename(path)
        cases += [{"file": name, "use": use, **outcome(read(name), context)} for use, context in contexts.items()]
    with open(os.path.join(FOLDER, "expected.json"), "w", encoding="utf-8", newline="\n") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
    print(f"{len(cases)} cases, {sum('error' in c for c in cases)} of them must fail, with Jinja2 {jinja2.__version__}")


if __name__ == "__main__":
    main()
