#!/usr/bin/env python3
"""Checks those rules of CONTRIBUTING.md that a program can see, over src/, include/, tests/ and tools/.

usage: check_style.py [ROOT]

Prints one line per violation, `path:line: rule: what`, and fails if there is one. Comments and strings of C files do not
count where a rule is about code. A rule is broken only by an entry in EXCEPTIONS, with its reason.
"""
import os
import re
import sys

FILE_LINES_MAX = 1500
FUNCTION_LINES_MAX = 70
HEADER_LINES_MAX = 400  # include/baltoro.h
COLUMNS_MAX = {".c": 120, ".h": 120, ".inc": 120, ".py": 140, ".sh": 140}

# (rule, path or path:function): reason
EXCEPTIONS = {
}

LIBRARY = ("src/base/", "src/format/", "src/kernel/", "src/tape/", "src/backend/", "src/model/", "src/session/",
           "src/sample/", "src/text/")
NOT_APP = LIBRARY + ("src/tool/",)
OUTSIDE_KERNELS = tuple(f for f in NOT_APP if f != "src/kernel/") + ("src/app/", "include/")
ANYWHERE = ("src/", "include/", "tests/")

# rule, folders, what the code must not hold, files that may, what to do instead
CODE_RULES = [
    ("getenv", NOT_APP, r"\b(secure_)?getenv\s*\(|\benviron\b", (),
     "only src/app reads the environment: take an option"),
    ("print", LIBRARY, r"\b(printf|vprintf|puts|putchar|perror)\s*\(|\bstd(out|err)\b", (),
     "the library is silent: return an error"),
    ("exit", NOT_APP, r"\b(exit|_exit|_Exit|quick_exit)\s*\(", (), "only src/app ends the process: return an error"),
    ("abort", LIBRARY, r"\babort\s*\(", ("src/base/arena.c",), "assert() says why"),
    ("signal", NOT_APP, r"\b(signal|sigaction|raise)\s*\(", (), "only src/app has signal handlers"),
    ("shell", ("src/",), r"\b(system|popen)\s*\(", (), "no shell: what it runs depends on the machine"),
    ("malloc", NOT_APP, r"\b(malloc|calloc|realloc|strdup|strndup|posix_memalign|aligned_alloc)\s*\(",
     ("src/base/arena.c",), "use base/arena.h, whose products are checked and whose guard sees it"),
    ("unsafe", ANYWHERE, r"\b(gets|strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|alloca)\s*\(", (),
     "it cannot be told a bound, or cannot report a fault"),
    ("random", ("src/",), r"\b(rand|srand|random|srandom|drand48)\s*\(", (), "use base/rng.h: seeded and the same everywhere"),
    ("typename", ANYWHERE, r"^\s*typedef\b[^;{(]*\b\w+_t\s*;|^}\s*\w+_t\s*;", (), "names that end in _t belong to POSIX"),
    ("paste", OUTSIDE_KERNELS, r"^\s*#.*##", (), "a pasted name cannot be found by grep"),
    ("extension", OUTSIDE_KERNELS, r"\b(typeof|__typeof__|__auto_type|__int128|__label__)\b|\(\s*\{", (), "C11 only outside src/kernel"),
]

MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home/(?!user\b|me\b|you\b)\w+|Users/\w+)\b")
INVISIBLE = re.compile("[\u00a0\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]")


def listed(root):
    """Paths of the files that are judged, relative to root."""
    for top in ("src", "include", "tests", "tools", ".ci"):
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = sorted(f for f in folders if f not in ("data", "corpus", "__pycache__"))
            for name in sorted(names):
                yield os.path.relpath(os.path.join(folder, name), root)
    for name in ("Makefile", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        if os.path.isfile(os.path.join(root, name)):
            yield name


TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def code_only(text):
    """C text with comments, strings and characters turned to spaces; every line and column stays where it was."""
    def blank(m):
        s = m[0]
        if s[0] == "/":
            return re.sub(r"[^\n]", " ", s)
        return s[0] + " " * (len(s) - 2) + s[0]
    return TOKEN.sub(blank, text)


def without_directives(code):
    """Without preprocessor lines; of #if ... #else only the first branch, so that braces stay in balance."""
    out, skipping, goes_on = [], [], False
    for line in code.split("\n"):
        m = re.match(r"\s*#\s*(\w*)", line)
        directive = goes_on or m is not None
        goes_on = directive and line.endswith("\\")
        if m:
            if m[1] in ("if", "ifdef", "ifndef"):
                skipping.append(False)
            elif m[1] in ("else", "elif") and skipping:
                skipping[-1] = True
            elif m[1] == "endif" and skipping:
                skipping.pop()
        out.append("" if directive or any(skipping) else line)
    return "\n".join(out)


def functions(code):
    """(name, first line, last line) of every function defined in C code without directives."""
    code = re.sub(r'extern\s*"\s*"\s*\{', lambda m: " " * len(m[0]), code)
    depth, begin, start = 0, 0, None
    for m in re.finditer(r"[{};]", code):
        at, c = m.start(), m[0]
        if c == "{":
            depth += 1
            head = code[begin:at].strip()
            if depth == 1 and head.endswith(")") and "=" not in head:
                first = begin + len(code[begin:at]) - len(code[begin:at].lstrip())
                start = (re.search(r"(\w+)\s*\(", head)[1], code.count("\n", 0, first) + 1)
        elif c == "}":
            depth = max(depth - 1, 0)
            if depth == 0:
                if start:
                    yield start[0], start[1], code.count("\n", 0, at) + 1
                begin, start = at + 1, None
        elif depth == 0:
            begin = at + 1


def check_text(path, text):
    """Rules about any text file."""
    columns_max = COLUMNS_MAX.get(os.path.splitext(path)[1], sys.maxsize)
    for number, line in enumerate(text.split("\n"), 1):
        if line.endswith((" ", "\t", "\r")) and not path.endswith(".md"):
            yield number, "space: the line ends in white space"
        if "\t" in line and path.endswith((".c", ".h", ".inc", ".py")):
            yield number, "tab: use spaces"
        if INVISIBLE.search(line):
            yield number, "invisible: a character that nobody sees"
        if len(line) > columns_max:
            yield number, f"columns: {len(line)}, at most {columns_max}"
        if m := MACHINE_PATH.search(line):
            yield number, f"machine: {m[0]} is a path of one machine"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "end: the last line has no newline"


def check_c(path, text):
    """Rules about C files."""
    n_lines = text.count("\n")
    if n_lines > FILE_LINES_MAX:
        yield n_lines, f"file-length: {n_lines} lines, at most {FILE_LINES_MAX}"
    if path == "include/baltoro.h" and n_lines >= HEADER_LINES_MAX:
        yield n_lines, f"header-length: {n_lines} lines, must stay under {HEADER_LINES_MAX}"
    if not text.startswith("/*"):
        yield 1, "opening: a file opens with a comment: what it owns, why this way, what it refuses"
    code = code_only(text)
    for rule, folders, pattern, may, what in CODE_RULES:
        if path.startswith(folders) and path not in may:
            for m in re.finditer(pattern, code, re.M):
                yield code.count("\n", 0, m.start()) + 1, f"{rule}: {m[0].strip()} {what}"
    for name, first, last in functions(without_directives(code)):
        if last - first + 1 > FUNCTION_LINES_MAX and ("function-length", f"{path}:{name}") not in EXCEPTIONS:
            yield first, f"function-length: {name} has {last - first + 1} lines, at most {FUNCTION_LINES_MAX}"


def check_python(path, text):
    """A Python file must at least compile."""
    try:
        compile(text, path, "exec")
    except SyntaxError as e:
        yield e.lineno or 1, f"python: {e.msg}"


def check_file(root, path):
    """Violations in one file, as (line number, text)."""
    try:
        with open(os.path.join(root, path), encoding="utf-8", newline="") as f:
            text = f.read()
    except UnicodeDecodeError as e:
        yield 1, f"utf8: not UTF-8 at byte {e.start}"
        return
    yield from check_text(path, text)
    if path.endswith((".c", ".h", ".inc")):
        yield from check_c(path, text)
    elif path.endswith(".py"):
        yield from check_python(path, text)


def main(argv):
    root = argv[1] if len(argv) > 1 else "."
    n_files, n_faults = 0, 0
    for path in listed(root):
        n_files += 1
        for number, why in check_file(root, path):
            if (why.split(":")[0], path) not in EXCEPTIONS:
                print(f"{path}:{number}: {why}")
                n_faults += 1
    print(f"style: {n_files} files, {n_faults} violations")
    return 1 if n_faults or not n_files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
