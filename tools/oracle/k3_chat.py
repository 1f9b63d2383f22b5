"""Kimi K3's chat format, written from its description and not from baltoro's code: renderings for the tests.

usage: python3 tools/oracle/k3_chat.py tests/data/chat/k3_cases.json > tests/data/chat/k3_golden.json

For each case {"name", "messages", ...} it writes {"name", "pieces"}: the prompt in the pieces in which it is tokenised,
control tokens being the pieces that begin with "<|" and are one of the four marks; or {"name", "error"}.
"""
import json
import sys


class Refused(Exception):
    pass


def escape(value):
    return str(value).replace("&", "&amp;").replace('"', "&quot;")


def opened(tag, attributes=()):
    out = [{"mark": "<|open|>"}, tag]
    for key, value in attributes:
        out += [" " + key, '="', escape(value), '"']
    return out + [{"mark": "<|sep|>"}]


def closed(tag):
    return [{"mark": "<|close|>"}, tag, {"mark": "<|sep|>"}]


def message(attributes, body):
    return opened("message", attributes) + body + closed("message") + [{"mark": "<|end_of_msg|>"}]


def system(kind, text):
    return message([("role", "system"), ("type", kind)], [text])


def sorted_json(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def declaration(tools, later):
    head = ("## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\n"
            "You have access to all existing and extended tools.\nHere are the specs for the extended tools.\n\n"
            if later else "# Tools\nHere are the available tools, described in JSONSchema.\n\n")
    return system("tool-declare", head + "```json\n" + sorted_json(tools) + "\n```")


def kind_of(value):
    for types, name in (((bool,), "boolean"), ((int, float), "number"), ((str,), "string"), ((dict,), "object"),
                        ((list,), "array")):
        if isinstance(value, types):
            return name
    return "null"


def content(m):
    given = m.get("content")
    if given is None:
        return []
    parts = given if isinstance(given, list) else [given]
    return [p if isinstance(p, str) else p["text"] for p in parts]


def call(one, index):
    f = one.get("function", one)
    out = opened("call", [("tool", f["name"]), ("index", index)])
    arguments = f.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except ValueError:
            return out + opened("json", [("type", "object")]) + [arguments] + closed("json") + closed("call")
    for key, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        out += opened("argument", [("key", key), ("type", kind_of(value))]) + [text] + closed("argument")
    return out + closed("call")


def assistant(m, thinks):
    out = []
    if thinks:
        reasoning = m.get("reasoning_content") or m.get("reasoning") or ""
        out += opened("think") + ([reasoning] if reasoning.strip() else []) + closed("think")
    out += opened("response") + content(m) + closed("response")
    if m.get("tool_calls"):
        out += opened("tools")
        for i, one in enumerate(m["tool_calls"]):
            out += call(one, i + 1)
        out += closed("tools")
    return out


def results(run, calls, first_index):
    ids = [c.get("id") for c in calls]
    wanted = [m.get("tool_call_id", m.get("id")) for m in run]
    names = [c.get("function", c)["name"] for c in calls]
    pairs = [(m.get("tool", m.get("name")), m) for m in run]
    if all(w is not None and w in ids for w in wanted):
        order = sorted(range(len(run)), key=lambda i: ids.index(wanted[i]))
        pairs = [(names[ids.index(wanted[i])], run[i]) for i in order]
    out = []
    for i, (name, m) in enumerate(pairs):
        place = first_index + i
        if name is None and place < len(names):
            name = names[place]
        if name is None:
            raise Refused("is a result of no known call")
        out += message([("role", "tool"), ("tool", name), ("index", place + 1)], content(m))
    return out


def conversation(messages, thinks):
    out, calls, n_results, i = [], [], 0, 0
    while i < len(messages):
        m = messages[i]
        role = {"developer": "system", "function": "tool"}.get(m["role"], m["role"])
        if role == "tool":
            run = [m]
            while i + len(run) < len(messages) and messages[i + len(run)]["role"] in ("tool", "function"):
                run.append(messages[i + len(run)])
            out += results(run, calls, n_results)
            n_results += len(run)
            i += len(run)
            continue
        if role == "system" and m.get("tools"):
            out += declaration(m["tools"], True)
        else:
            attributes = [("role", role)] + ([("name", m["name"])] if m.get("name") else [])
            out += message(attributes, assistant(m, thinks) if role == "assistant" else content(m))
        if role == "assistant":
            calls, n_results = m.get("tool_calls") or [], 0
        i += 1
    return out


def wishes(request):
    out = []
    choice = request.get("tool_choice")
    if choice in ("required", "none"):
        must = "MUST" if choice == "required" else "MUST NOT"
        what = "tools" if choice == "required" else "any tools"
        out += system("tool-choice", f"The system is invoked with `tool_choice={choice}`.\n"
                                     f"You {must} call {what} in the next message.")
    wanted = request.get("response_format") or {}
    kind = wanted.get("type")
    if kind in ("json_object", "json_schema"):
        text = (f"The system is invoked with `response_format={kind}`.\nYour response must be raw JSON data without "
                "markdown code blocks (```json) or any additional formatting.")
        if kind == "json_schema":
            schema = wanted["json_schema"]
            schema = schema.get("schema", schema.get("json_schema", schema))
            text += ("\nThe JSON data must match the following schema:\n```json\n" + sorted_json(schema) + "\n```")
        out += system("response-format", text)
    return out


def render(request):
    thinks = request.get("thinking", True)
    effort = request.get("thinking_effort", "max")
    out = declaration(request["tools"], False) if request.get("tools") else []
    if thinks and effort is not None:
        if effort not in ("low", "high", "max"):
            raise Refused(f"Unsupported thinking_effort={effort}; supported values are low, high, and max.")
        out += system("thinking-effort",
                      "`thinking_effort` guides on how much to think in your thinking channel (not including the "
                      "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
                      f"Now the system is invoked with `thinking_effort={effort}`.")
    out += conversation(request["messages"], thinks) + wishes(request)
    if request.get("add_generation_prompt", True):
        out += opened("message", [("role", "assistant")]) + opened("think" if thinks else "response")
    return out


def main():
    golden = []
    with open(sys.argv[1], encoding="utf-8") as f:
        cases = json.load(f)
    for case in cases:
        try:
            pieces = [p for p in render(case) if p != ""]
            golden.append({"name": case["name"], "pieces": pieces})
        except Refused as refusal:
            golden.append({"name": case["name"], "error": str(refusal)})
    lines = ",\n".join(json.dumps(g, ensure_ascii=False) for g in golden)
    print("[\n" + lines + "\n]")


main()
