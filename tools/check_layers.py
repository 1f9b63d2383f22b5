#!/usr/bin/env python3
"""Checks the include law: which folder of src/ may include which (ARCHITECTURE.md tells why).

usage: check_layers.py [ROOT]

Prints one line per violation, `path:line: rule: what`, and fails if there is one. The law is the data below.
"""
import os
import re
import sys

# Folder (the longest that fits a file counts): what it may include besides itself and baltoro.h; a folder, or one header.
LAW = {
    "base": [],
    "format": ["base"],
    "kernel": ["base", "format/dtype.h"],
    "tape": ["base", "format/dtype.h"],
    "backend": ["base", "tape", "format/dtype.h"],
    "backend/cpu": ["base", "tape", "format/dtype.h", "kernel", "backend"],
    "model": ["base", "format", "tape", "backend/backend.h"],
    "session": ["base", "model", "tape", "backend/backend.h"],
    "sample": ["base"],
    "text": ["base"],
    "tool": ["base", "format", "model", "session", "sample", "text", "backend/backend.h", "kernel/cpu.h"],
    "app": ["tool", "base"],
}

# Doors to the world: headers that not every folder may include, and the folders that may.
DOORS = [
    (r"pcre2\.h|utf8proc\.h", ["text"]),
    (r"jansson\.h", ["app", "tool", "text"]),
    (r"event2/.*|histedit\.h|editline/.*|curl/.*", ["app"]),
    (r"liburing\.h", ["base"]),
    (r"pthread\.h|sched\.h", ["base", "app"]),
    (r"[a-z0-9]*intrin\.h|arm_[a-z0-9]+\.h", ["kernel"]),
    (r"cpuid\.h", ["base", "kernel"]),
    (r"signal\.h", ["base", "app"]),  # base: pool threads block signals
    (r"termios\.h|sys/socket\.h|netinet/.*|arpa/inet\.h", ["app"]),
]

# Everything else in angle brackets must be C11, POSIX or Linux.
SYSTEM = r"""
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbool
stddef stdint stdio stdlib stdnoreturn string strings tgmath threads time uchar wchar wctype
dirent fcntl fnmatch ftw glob libgen poll pwd regex unistd
sys/file sys/ioctl sys/mman sys/random sys/resource sys/stat sys/statvfs sys/syscall sys/sysinfo sys/time sys/types sys/uio
sys/utsname sys/wait sys/prctl linux/futex linux/mman
""".split()

INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]*)"|<([^>]*)>|(.*))')


def folder_of(path, folders):
    """The longest of `folders` that holds `path`, or None."""
    fits = [f for f in folders if path.startswith(f + "/")]
    return max(fits, key=len) if fits else None


def law_for(folder):
    """What `folder` may include. A backend without an entry of its own gets those of backend/."""
    return LAW[folder] + [folder]


def judge_own(src, path, folder, target):
    """Why `path` must not include "target", or None."""
    if target == "baltoro.h":
        return None
    if not os.path.isfile(os.path.join(src, target)):
        return f'from-src: "{target}" is no header of src/ (includes are written from there)'
    allowed = any(target == a or (target.startswith(a + "/") and not a.endswith(".h")) for a in law_for(folder))
    if path.count("/") == 2 and target.count("/") == 2 and os.path.dirname(target) != os.path.dirname(path):
        allowed = False  # one backend knows nothing of another; backend.c, which lists them, knows all
    return None if allowed else f'law: {folder}/ must not include "{target}"'


def judge_system(folder, target):
    """Why a file of `folder` must not include <target>, or None."""
    for pattern, may in DOORS:
        if re.fullmatch(pattern, target):
            return None if folder.split("/")[0] in may else f"door: <{target}> is for {', '.join(may)} only"
    if target.removesuffix(".h") not in SYSTEM:
        return f"door: <{target}> is neither C11, POSIX nor Linux, and no door is written for it"
    return None


def check_file(src, path):
    """Violations in one file, as (line number, text)."""
    folder = folder_of(path, LAW)
    if folder is None:
        yield 1, "folder: no such folder in the law"
        return
    with open(os.path.join(src, path), encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            m = INCLUDE.match(line)
            if not m:
                continue
            if m[3] is not None:
                yield number, "plain: an include names its file plainly, not through a macro"
            elif m[1] is not None and (why := judge_own(src, path, folder, m[1])):
                yield number, why
            elif m[2] is not None and (why := judge_system(folder, m[2])):
                yield number, why


def main(argv):
    src = os.path.join(argv[1] if len(argv) > 1 else ".", "src")
    n_files, n_faults = 0, 0
    for folder, _, names in sorted(os.walk(src)):
        for name in sorted(n for n in names if n.endswith((".c", ".h", ".inc"))):
            path = os.path.relpath(os.path.join(folder, name), src)
            n_files += 1
            for number, why in check_file(src, path):
                print(f"src/{path}:{number}: {why}")
                n_faults += 1
    print(f"include law: {n_files} files, {n_faults} violations")
    return 1 if n_faults or not n_files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
