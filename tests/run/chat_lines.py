#!/usr/bin/env python3
"""chat without a person: lines of stdin, commands that fail, conversations in files."""
import os
import stat
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import cli  # noqa: E402
from cli import check, refused, run  # noqa: E402

TEMPLATE = "{% for m in messages %}{{ '[' + m.role + ']' + m.content + '\n' }}{% endfor %}{{ '[assistant]' }}"
WORDS = ["--temperature", "0", "-n", "8"]


def make_model(template=TEMPLATE):
    return cli.make_model(template=template)


def chat(model, lines, *words, **more):
    return run("chat", model, *WORDS, *words, stdin=lines, **more)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def test_saved(model):
    """What was saved is not replaced by nothing, and nobody else reads it."""
    path = os.path.join(cli.folder(), "p.session")
    for how in ("/clear", "/undo"):
        r = chat(model, f"Hi\n/save {path}\n")
        if not check(f"{how}: saved", r.code == 0 and os.path.isfile(path), r):
            return
        before = content(path)
        r = chat(model, f"{how}\n/save\n", "--load", path)
        check(f"{how}, then a bare /save: the file stays", r.code != 0 and content(path) == before, r)
        r = chat(model, f"{how}\n/save {path}\n", "--load", path)
        check(f"{how}, then /save by name: the file stays", r.code == 1 and content(path) == before, r)
        os.remove(path)
    r = chat(model, f"Hi\n/save {path}\n/clear\nHello\n/save\n")
    check("/clear forgets the name", r.code == 2 and "usage: /save FILE" in r.err, r)
    check("a new file is for its owner alone", stat.S_IMODE(os.stat(path).st_mode) == 0o600, oct(os.stat(path).st_mode))
    os.chmod(path, 0o640)
    r = chat(model, "/save\n", "--load", path)
    check("a file saved again keeps its mode", r.code == 0 and stat.S_IMODE(os.stat(path).st_mode) == 0o640, r)
    check("and nothing lies beside it", os.listdir(os.path.dirname(path)) == ["p.session"])
    r = chat(model, "", "-q", "--load", path)
    check("-q --load says nothing", r.code == 0 and r.err == "", r)
    refused("--system and --load", 2, "--system and --load exclude each other", "chat", model, *WORDS, "--load", path, "--system", "x")


RAISES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
int fsync(int fd)
{
    raise(SIGTERM);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"""


def test_stopped(model):
    """A signal in the midst of a file: the file is whole before the program ends, and nothing else is left."""
    under, here = cli.library(RAISES), cli.folder()
    if under is None:
        cli.not_run("SIGTERM within /save", "no compiler here, or a sanitizer, which takes no library under it")
        return
    path = os.path.join(here, "p.session")
    r = chat(model, f"Hi\n/save {path}\nHello\n", env={"LD_PRELOAD": under})
    check("SIGTERM within /save", r.code == 130 and os.listdir(here) == ["p.session"], r, os.listdir(here))
    r = chat(model, "Hello\n", "--load", path)
    check("what it wrote is whole", r.code == 0, r)


def test_replaced(model):
    """What is no regular file any more is not this conversation's, and not waited for; a link stays a link."""
    here = cli.folder()
    path, link = os.path.join(here, "p.session"), os.path.join(here, "link")
    p = cli.start("chat", model, *WORDS)
    p.stdin.write(f"Hi\n/save {path}\n".encode())
    p.stdin.flush()
    while not os.path.exists(path) and p.poll() is None:
        time.sleep(0.01)
    while b"saved: " not in (line := p.stderr.readline()) and line != b"":
        pass
    os.remove(path)
    os.mkfifo(path)
    _, err = p.communicate(b"/save\n")
    check("a FIFO in the file's place", p.returncode == 1 and b"is there already" in err, p.returncode, err)
    os.symlink(os.path.join(here, "nothing"), link)
    r = chat(model, f"Hi\n/save {link}\n")
    check("a link that leads nowhere", r.code == 1 and "leads nowhere" in r.err and os.path.islink(link), r)


def test_system_alone(model):
    """A file in which nobody has spoken yet loses nothing by being saved again."""
    path = os.path.join(cli.folder(), "p.session")
    r = chat(model, f"/system A\n/save {path}\n/system B\n/save\n/clear\n")
    check("a system message alone is saved, and again", r.code == 0, r)
    r = chat(model, "/system C\n/save\n", "--load", path)
    check("and once more after it was loaded", r.code == 0, r)
    r = chat(model, "/system\n", "--load", path, env={"BALTORO_SYSTEM": "x"})
    check("it is the file's, whatever the environment says", r.code == 0 and "system message: C" in r.err, r)
    r = chat(model, "/system -\n/system -\n")
    check("no system message is no failure where none is wanted", r.code == 0, r)


def test_failures(model):
    """The first command that fails ends the program, with its code."""
    there = os.path.join(cli.folder(), "there")
    with open(there, "w") as f:
        f.write("mine")
    for line, code, part in ((f"/load {there}x", 1, "there"), (f"/load {there}", 1, "no session file"), ("/load", 2, "usage"),
                             ("/save", 2, "usage"), (f"/save {there}", 1, "there already"), ("/save /nowhere/x", 1, "/nowhere/x"),
                             ("/save -", 2, "not saved"), ("/nothing", 2, "there is no command /nothing"), ("/temp hot", 2, "a number"),
                             ("/effort huge", 2, "one of"), ("/regen", 1, "nothing to answer"), ("/undo", 1, "nothing to take back"),
                             ("/temp 1\\\n2", 2, "/temp takes one line")):
        r = chat(model, line + "\nHi\n")
        check(f"{line}: ends with {code}", r.code == code and part in r.err and r.out == b"", r)
    r = chat(model, "/stats\n/temp\n/effort\n/system\n/help\n/quit\n")
    check("what only asks is no failure", r.code == 0 and "/help" in r.err, r)
    r = chat(model, f"/load {there}\n", "-q")
    check("a failure is said with -q too", r.code == 1 and r.err.startswith("baltoro: "), r)


def test_lines(model):
    whole = chat(model, "Hi\n")
    r = chat(model, "Hi\\\n")
    check("a backslash at the end of the input continues nothing", r.code == 0 and r.out == whole.out and r.out != b"", r, whole)
    r = chat(model, "Hi\\")
    check("nor without a newline", r.code == 0 and r.out == whole.out, r, whole)
    r = chat(model, "\\\n")
    check("alone it is nothing", r.code == 0 and r.out == b"", r)
    r = chat(model, "/system one\\\ntwo\n/system\nHi\n")
    check("/system takes lines, and shows them", r.code == 0 and "system message: one\ntwo\n" in r.err, r)
    told = run("run", model, "--chat", *WORDS, "--system", "one\ntwo", "-p", "Hi")
    check("and the model gets them", told.code == 0 and r.out.rstrip(b"\n") == told.out.rstrip(b"\n"), r, told)
    long = "x" * 9000 + "\u00e9" * 3000
    r = chat(model, f"/system {long}\n/system\n")
    check("a long one is shown whole", r.code == 0 and f"system message: {long}\n" in r.err, len(r.err))
    r = chat(model, "/usr/bin\\\n/usr/lib\n")
    check("lines that begin like a path are a message", r.code == 0 and r.out != b"", r)


def test_reasoning():
    """stdout holds the answers alone, whatever is asked."""
    model = make_model(template=None)
    plain = chat(model, "Hi\n")
    r = chat(model, "Hi\n/think\n/think\n")
    check("/think shows nothing on a stdout that is no terminal", r.code == 0 and r.out == plain.out and "terminal" in r.err, r, plain)


def main():
    model = make_model()
    test_saved(model)
    test_stopped(model)
    test_replaced(model)
    test_system_alone(model)
    test_failures(model)
    test_lines(model)
    test_reasoning()
    cli.finish()


main()
