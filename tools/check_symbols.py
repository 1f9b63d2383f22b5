#!/usr/bin/env python3
"""Checks what the library's objects define: no mutable globals, one prefix, and exactly the interface of baltoro.h.

usage: check_symbols.py BUILD [ROOT]

Reads BUILD/obj/**.o (not app/, which is the program) and BUILD/libbaltoro.so with objdump and nm. Prints one line per
violation and fails if there is one. Use a build without sanitizers: they add symbols of their own.
"""
import os
import re
import subprocess
import sys

# object:symbol -> why this one may change while the program runs; none does
MUTABLE = {}
# Per thread, so that no thread sees another's.
PER_THREAD = {
    "base/arena.o:guard_depth": "the step guard is on for the thread that runs the step",
}
FOREIGN = re.compile(r"^(_GLOBAL_OFFSET_TABLE_|__.*|_init|_fini|_end|_edata|_start|\.)")


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def symbols(path):
    """(is global, is an object, section, name) of every symbol that an object file defines."""
    for line in output_of("objdump", "-t", path).splitlines():
        m = re.match(r"[0-9a-f]+ (.{7}) (\S+)\s+[0-9a-f]+\s+(?:\.hidden |\.protected )?(\S+)$", line)
        if m and m[2] not in ("*UND*", "*ABS*") and m[3] != m[2]:
            yield m[1][0] in "gu", m[1][6] == "O", m[2], m[3]


def check_object(path, short):
    """Violations in one object file."""
    is_library = not short.startswith("tool/")
    for is_global, is_object, section, name in symbols(path):
        key = f"{short}:{re.sub(r'[.][0-9]+$', '', name)}"
        if re.match(r"\.t(data|bss)", section):
            if key not in PER_THREAD:
                yield f"per-thread: {key} is thread-local; if it must be, list it with its reason in check_symbols.py"
        elif re.match(r"\.(data(?!\.rel\.ro)|bss)", section) or section == "*COM*":
            if key not in MUTABLE:
                yield f"mutable: {key} is a global that can change ({section}); make it const or a parameter"
        if is_global and is_library and not name.startswith("bt_") and not FOREIGN.match(name):
            yield f"prefix: {key} is visible to other files and does not begin with bt_"


def check_interface(build, root):
    """baltoro.h and what libbaltoro.so exports must be the same set."""
    with open(os.path.join(root, "include", "baltoro.h"), encoding="utf-8") as f:
        code = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
    declared = set(re.findall(r"\bBT_API\b[^;{(]*?\b(bt_\w+)\s*\(", code))
    lines = output_of("nm", "-D", "--defined-only", os.path.join(build, "libbaltoro.so")).splitlines()
    exported = {line.split()[-1] for line in lines if not FOREIGN.match(line.split()[-1])}
    for name in sorted(declared - exported):
        yield f"promised: {name} is in baltoro.h and not in libbaltoro.so"
    for name in sorted(exported - declared):
        yield f"exported: {name} is in libbaltoro.so and not in baltoro.h"
    if not declared:
        yield "promised: no BT_API function found in baltoro.h"


def main(argv):
    if len(argv) < 2:
        sys.exit("usage: check_symbols.py BUILD [ROOT]")
    build, root = argv[1], argv[2] if len(argv) > 2 else "."
    if not os.path.exists(os.path.join(build, "libbaltoro.so")):
        sys.exit(f"check_symbols.py: {build} holds no libbaltoro.so: run make first")
    top = os.path.join(build, "obj")
    n_objects, faults = 0, []
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(f for f in folders if os.path.join(folder, f) != os.path.join(top, "app"))
        for name in sorted(n for n in names if n.endswith(".o")):
            path = os.path.join(folder, name)
            if os.path.isfile(os.path.join(root, "src", os.path.relpath(path, top)[:-2] + ".c")):
                n_objects += 1
                faults += check_object(path, os.path.relpath(path, top))
    faults += check_interface(build, root)
    for fault in faults:
        print(fault)
    print(f"symbols: {n_objects} objects, {len(faults)} violations")
    return 1 if faults or not n_objects else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
