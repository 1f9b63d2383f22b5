#!/usr/bin/env python3
"""Every rule of tools/check_* must be able to fail: a small tree that breaks none, then one fault planted for each rule.

run_tests: release (no part of the program takes part)

Each check must pass on the good tree, and on the tree with the fault must fail and name the rule.
"""
import os
import shutil
import subprocess
import sys
import tempfile

TOOLS = os.path.abspath("tools")

HEADER = """/* Good. */
#ifndef {guard}
#define {guard}

#include "baltoro.h"

int bt_{name}(int x);

#endif
"""
SOURCE = """/* Good: "getenv(" in a string or printf() in a comment is no call. */
#include "{folder}/{name}.h"

#include <string.h>

static const char *const words[] = {{"exit(1)", "\\"malloc("}};

int bt_{name}(int x)
{{
    return x + (int)strlen(words[0]);
}}
"""
PUBLIC = """/* Good. */
#ifndef BALTORO_H
#define BALTORO_H

#define BT_API __attribute__((visibility("default")))
BT_API int bt_one(int x);

#endif
"""
FOLDERS = ["base", "format", "kernel", "tape", "backend", "backend/cpu", "backend/other", "model", "session", "sample",
           "text", "tool", "app"]


def name_of(folder):
    return folder.replace("/", "_") + "_part"


def make_tree(root):
    """A tree with one header and one source in every folder."""
    def write(path, text):
        path = os.path.join(root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    write("include/baltoro.h", PUBLIC)
    write("src/format/dtype.h", HEADER.format(guard="FORMAT_DTYPE_H", name="dtype"))
    write("src/backend/backend.h", HEADER.format(guard="BACKEND_BACKEND_H", name="backend"))
    for folder in FOLDERS:
        name = name_of(folder)
        write(f"src/{folder}/{name}.h", HEADER.format(guard=name.upper() + "_H", name=name))
        write(f"src/{folder}/{name}.c", SOURCE.format(folder=folder, name=name))
    write("tools/good.py", "print('good')\n")


def plant(root, path, text):
    """Appends text to a file of the tree (a new file holds text alone)."""
    with open(os.path.join(root, path), "a", encoding="utf-8") as f:
        f.write(text)


def include(folder, target):
    name = name_of(folder)
    line = f"#include {target}\n" if target[0] in "<" else f'#include "{target}"\n'
    return f"src/{folder}/{name}.c", line


LONG_FUNCTION = "\nint bt_long(int x)\n{\n" + "    x++;\n" * 68 + "    return x;\n}\n"
CLOSED = [  # the law: from, to
    ("base", "format/format_part.h"), ("format", "kernel/kernel_part.h"), ("kernel", "tape/tape_part.h"),
    ("kernel", "format/format_part.h"), ("tape", "kernel/kernel_part.h"), ("backend", "kernel/kernel_part.h"),
    ("backend/other", "kernel/kernel_part.h"), ("backend/other", "backend/cpu/backend_cpu_part.h"),
    ("model", "kernel/kernel_part.h"), ("model", "session/session_part.h"), ("model", "text/text_part.h"),
    ("model", "backend/backend_part.h"), ("session", "format/format_part.h"), ("session", "kernel/kernel_part.h"),
    ("sample", "model/model_part.h"), ("text", "model/model_part.h"), ("text", "format/format_part.h"),
    ("tool", "app/app_part.h"), ("tool", "tape/tape_part.h"), ("tool", "kernel/kernel_part.h"),
    ("app", "model/model_part.h"), ("app", "text/text_part.h"),
]
OPEN = [
    ("format", "base/base_part.h"), ("kernel", "format/dtype.h"), ("backend/cpu", "kernel/kernel_part.h"),
    ("model", "backend/backend.h"), ("tool", "session/session_part.h"), ("app", "tool/tool_part.h"),
    ("text", "<pcre2.h>"), ("app", "<jansson.h>"), ("kernel", "<immintrin.h>"), ("base", "<pthread.h>"),
]
DOORS = [
    ("app", "<pcre2.h>"), ("format", "<utf8proc.h>"), ("format", "<jansson.h>"), ("tool", "<event2/http.h>"),
    ("tool", "<histedit.h>"), ("tool", "<curl/curl.h>"), ("text", "<liburing.h>"), ("session", "<pthread.h>"),
    ("backend/cpu", "<immintrin.h>"), ("model", "<signal.h>"), ("base", "<openssl/ssl.h>"),
]
S = "src/model/model_part.c"
STYLE = [  # rule, path, text
    ("file-length", S, "int bt_x;\n" * 1500),
    ("function-length", S, LONG_FUNCTION),
    ("function-length", S, LONG_FUNCTION.replace("int bt_long(int x)", "int bt_long(\n    int x)")),
    ("header-length", "include/baltoro.h", "int bt_x;\n" * 400),
    ("opening", "src/base/new.c", "int bt_x(void);\n"),
    ("getenv", S, "char *bt_x(void) { return getenv(\"HOME\"); }\n"),
    ("getenv", "src/tool/tool_part.c", "char *bt_x(void) { return secure_getenv(\"HOME\"); }\n"),
    ("print", S, "void bt_x(void) { printf(\"x\"); }\n"),
    ("print", S, "void bt_x(void) { fprintf(stderr, \"x\"); }\n"),
    ("exit", S, "void bt_x(void) { exit(1); }\n"),
    ("abort", S, "void bt_x(void) { abort(); }\n"),
    ("signal", S, "void bt_x(void) { signal(2, 0); }\n"),
    ("shell", "src/app/app_part.c", "void bt_x(void) { system(\"ls\"); }\n"),
    ("malloc", S, "void *bt_x(void) { return malloc(1); }\n"),
    ("unsafe", "tests/unit/x.c", "/* x */\nvoid bt_x(char *a) { strcpy(a, a); }\n"),
    ("random", S, "int bt_x(void) { return rand(); }\n"),
    ("typename", S, "typedef int bt_x_t;\n"),
    ("typename", S, "typedef struct {\n    int a;\n} bt_x_t;\n"),
    ("paste", S, "#define JOIN(a, b) a##b\n"),
    ("extension", S, "int bt_x(int a) { return ({ a; }); }\n"),
    ("space", S, "int bt_x; \n"),
    ("tab", S, "\tint bt_x;\n"),
    ("invisible", S, "int bt_x; // \u200b\n"),
    ("columns", S, "// " + "x" * 118 + "\n"),
    ("machine", S, "// see /" + "root/file\n"),
    ("machine", "Makefile", "X = /" + "work/main\n"),
    ("end", S, "int bt_x;"),
    ("python", "tools/bad.py", "def f(:\n"),
]
OBJECTS = [  # rule, code
    ("mutable", "int bt_count = 1;\n"),
    ("mutable", "int bt_count;\n"),
    ("mutable", "int bt_count(void);\nint bt_count(void)\n{\n    static int n;\n    return ++n;\n}\n"),
    ("mutable", "const char *bt_names[] = {\"a\", \"b\"};\n"),
    ("per-thread", "_Thread_local int bt_depth;\n"),
    ("prefix", "int helper(int x);\nint helper(int x)\n{\n    return x;\n}\n"),
    ("exported", "__attribute__((visibility(\"default\"))) int bt_two(int x);\nint bt_two(int x)\n{\n    return x;\n}\n"),
]
OBJECT_GOOD = ("#include \"baltoro.h\"\nint bt_one(int x)\n{\n    return x;\n}\n"
               "extern const char *const bt_names[];\nconst char *const bt_names[] = {\"a\", \"b\"};\n")

passed, failed = 0, 0


def judge(what, command, cwd, rule):
    """Runs a check; rule None: it must pass, else it must fail and say the rule."""
    global passed, failed
    r = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    good = r.returncode == 0 if rule is None else r.returncode not in (0, 77) and f"{rule}:" in r.stdout
    if good:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {what}: exit status {r.returncode}, wanted {rule or 'success'}\n{r.stdout}")


def with_fault(good, scratch, path, text):
    """The good tree with one fault, in a fresh folder."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(good, scratch)
    os.makedirs(os.path.dirname(os.path.join(scratch, path)), exist_ok=True)
    plant(scratch, path, text)


def test_sources(good, scratch):
    layers, style = ([sys.executable, os.path.join(TOOLS, f"check_{c}.py")] for c in ("layers", "style"))
    judge("include law, good tree", layers, good, None)
    judge("style, good tree", style, good, None)
    cases = [("law", f, t) for f, t in CLOSED] + [("door", f, t) for f, t in DOORS] + [(None, f, t) for f, t in OPEN]
    cases += [("from-src", "model", "model_part.h"), ("from-src", "model", "../base/base_part.h")]
    for rule, folder, target in cases:
        with_fault(good, scratch, *include(folder, target))
        judge(f"{folder} includes {target}", layers, scratch, rule)
    with_fault(good, scratch, "src/misc/x.c", "/* x */\n")
    judge("a folder that is not in the law", layers, scratch, "folder")
    with_fault(good, scratch, S, "#include NAME\n")
    judge("an include through a macro", layers, scratch, "plain")
    for rule, path, text in STYLE:
        with_fault(good, scratch, path, text)
        judge(f"{rule} in {path}", style, scratch, rule)


def test_objects(scratch):
    """check_symbols.py, on one object made here."""
    def build(code):
        shutil.rmtree(scratch, ignore_errors=True)
        for folder in ("include", "src/base", "build/obj/base"):
            os.makedirs(os.path.join(scratch, folder))
        plant(scratch, "include/baltoro.h", PUBLIC)
        plant(scratch, "src/base/x.c", code)
        flags = ["-O1", "-fPIC", "-fno-common", "-fvisibility=hidden", "-Iinclude"]
        subprocess.run(["cc", *flags, "-c", "src/base/x.c", "-o", "build/obj/base/x.o"], cwd=scratch, check=True)
        subprocess.run(["cc", "-shared", "build/obj/base/x.o", "-o", "build/libbaltoro.so"], cwd=scratch, check=True)
    command = [sys.executable, os.path.join(TOOLS, "check_symbols.py"), "build"]
    build(OBJECT_GOOD)
    judge("symbols, good object", command, scratch, None)
    for rule, code in OBJECTS:
        build(OBJECT_GOOD.replace("extern const char *const bt_names[];\nconst char *const bt_names[] = {\"a\", \"b\"};\n", "") + code)
        judge(f"symbols: {code}", command, scratch, rule)
    build(OBJECT_GOOD.replace("bt_one", "bt_other"))
    judge("symbols: a promise not kept", command, scratch, "promised")


def test_compiled(good, scratch):
    """check_headers.sh and check_format.sh."""
    headers, layout = (["bash", os.path.join(TOOLS, f"check_{c}.sh")] for c in ("headers", "format"))
    judge("headers, good tree", headers, good, None)
    with_fault(good, scratch, "src/base/new.h", "/* x */\nsize_t bt_x(void);\n")
    judge("a header that needs another", headers, scratch, "header")
    with_fault(good, scratch, "include/baltoro.h", "int bt_x(int n, int a[static n]);\n__extension__ typedef int bt_class;\n"
                                                   "int class(void);\nstruct bt_empty {};\n")
    judge("a public header with extensions", headers, scratch, "header")
    for folder in (good, scratch):
        shutil.copy(".clang-format", folder)
    if subprocess.run(layout, cwd=good, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).returncode == 77:
        print("NOT RUN  format: clang-format 14 is not here")
        return 1
    judge("format, good tree", layout, good, None)
    with_fault(good, scratch, S, "int  bt_x( void );\n")
    judge("a badly laid out line", layout + ["."], scratch, "error")
    return 0


def main():
    with tempfile.TemporaryDirectory() as top:
        good, scratch = os.path.join(top, "good"), os.path.join(top, "scratch")
        make_tree(good)
        test_sources(good, scratch)
        test_objects(scratch)
        skipped = test_compiled(good, scratch)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
