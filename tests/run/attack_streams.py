#!/usr/bin/env python3
"""Streams as other programs leave them: non-blocking. Nothing is lost."""
import array
import fcntl
import os
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from cli import check, finish, make_model, run, start  # noqa: E402

F_SETPIPE_SZ = 1031
MODEL = make_model()
WORDS = ("run", MODEL, "-p", "Hello", "--ignore-eos", "--seed", "1")


def pipe(end):
    """A pipe of one page whose end (0: to read, 1: to write) does not block."""
    ends = os.pipe()
    fcntl.fcntl(ends[end], fcntl.F_SETFL, os.O_NONBLOCK)
    fcntl.fcntl(ends[1], F_SETPIPE_SZ, 4096)
    return ends


plain = run(*WORDS)
check("more than a page is said", plain.code == 0 and len(plain.out) > 5000, plain)

r, w = pipe(1)
p = start(*WORDS, stdout=w)
os.close(w)
waiting = array.array("i", [0])
for _ in range(1000):  # until the pipe is full; with right code the result does not depend on it
    fcntl.ioctl(r, termios.FIONREAD, waiting)
    if waiting[0] > 4000 or p.poll() is not None:
        break
    time.sleep(0.01)
time.sleep(0.1)
out = b""
while data := os.read(r, 4096):
    out += data
err = p.communicate()[1]
check("a non-blocking stdout gets all of it", p.returncode == 0 and out == plain.out, p.returncode, len(out), err)
os.close(r)

r, w = pipe(0)
p = start("tokenize", MODEL, "--jsonl", stdin=r)
os.close(r)
os.write(w, b'"a"\n')
first = p.stdout.readline()  # now it waits for the next one
time.sleep(0.3)
os.write(w, b'"b"\n')
os.close(w)
out, err = p.communicate()
check("a non-blocking stdin is waited for", p.returncode == 0 and first != b"" and out.count(b"\n") == 1, p.returncode, first, out, err)

finish()
