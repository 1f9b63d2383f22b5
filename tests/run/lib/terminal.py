"""A terminal for tests: the program on a pseudo-terminal, and what a person would see on its screen.

The screen knows what the program and libedit send to an xterm: text, line ends, tabs, cursor movement, erasing, the
attributes dim and plain. Anything else is an error, so that nothing passes unseen.
"""
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import cli

LIMIT = float(os.environ.get("TERMINAL_LIMIT", "600"))  # seconds that anything may take


class Screen:
    def __init__(self, columns=100, rows=60):
        self.columns, self.rows = columns, rows
        self.lines = [[]]  # of (character, is_dim); those that scrolled out too
        self.y = self.x = self.top = 0
        self.is_dim = False
        self.modes = set()  # private modes that are on
        self.pending = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data):
        text = self.pending + (self.decoder.decode(data) if isinstance(data, bytes) else data)
        at = 0
        while at < len(text):
            if text[at] == "\033":
                match = re.compile(r"\033(\[[?]?[0-9;]*[@-~]|[=>78cM])").match(text, at)
                if not match:
                    if len(text) - at > 20 or (at + 1 < len(text) and text[at + 1] != "["):
                        raise ValueError(f"unknown escape sequence {text[at:at + 12]!r}")
                    break
                self.escape(match.group(1))
                at = match.end()
            else:
                self.put(text[at])
                at += 1
        self.pending = text[at:]

    def row(self, y):
        while len(self.lines) <= y:
            self.lines.append([])
        return self.lines[y]

    def newline(self):
        self.y += 1
        self.row(self.y)
        self.top = max(self.top, self.y - self.rows + 1)

    def put(self, c):
        if c == "\n":
            self.newline()
        elif c == "\r":
            self.x = 0
        elif c == "\b":
            self.x = max(0, self.x - 1)
        elif c == "\t":
            self.x = min(self.columns - 1, self.x // 8 * 8 + 8)
        elif c == "\a":
            pass
        elif ord(c) < 32 or 0x7f <= ord(c) < 0xa0:
            raise ValueError(f"control character {c!r} reached the terminal")
        else:
            if self.x == self.columns:
                self.x = 0
                self.newline()
            row = self.row(self.y)
            row.extend([(" ", False)] * (self.x + 1 - len(row)))
            row[self.x] = (c, self.is_dim)
            self.x += 1

    def escape(self, code):
        numbers = [int(n) for n in re.findall(r"\d+", code)]
        n, last = (numbers or [1])[0], code[-1]
        self.x = min(self.x, self.columns - 1) if last in "ABCDKJHP@" else self.x
        if last == "m":
            self.is_dim = 2 in numbers
        elif last in "hl" and code.startswith("[?"):
            (self.modes.update if last == "h" else self.modes.difference_update)(numbers)
        elif last == "A":
            self.y = max(self.top, self.y - n)
        elif last == "B":
            self.y += n
            self.row(self.y)
        elif last == "C":
            self.x = min(self.columns - 1, self.x + n)
        elif last == "D":
            self.x = max(0, self.x - n)
        elif last == "G":
            self.x = min(self.columns, n) - 1
        elif last == "K":
            del self.row(self.y)[self.x:]
        elif last == "J" and (not numbers or n == 0):
            del self.row(self.y)[self.x:]
            del self.lines[self.y + 1:]
        elif last == "P":
            del self.row(self.y)[self.x:self.x + n]
        elif last == "@":
            self.row(self.y)[self.x:self.x] = [(" ", False)] * n
        elif last == "H":
            self.y, self.x = self.top + (numbers[0] if numbers else 1) - 1, (numbers[1] if len(numbers) > 1 else 1) - 1
            self.row(self.y)
        elif last in "hl" or code in ("=", ">"):
            pass
        else:
            raise ValueError(f"unknown escape sequence {code!r}")

    def text(self):
        """The lines, without blanks at their ends."""
        return ["".join(c for c, _ in line).rstrip() for line in self.lines]

    def dim_text(self):
        return "".join(c for line in self.lines for c, is_dim in line if is_dim)


class Terminal:
    """The program with these words, on a terminal of its own; `under`: as the job of a program with those words."""

    def __init__(self, *words, columns=100, rows=60, under=(), **env):
        self.screen = Screen(columns, rows)
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave  # kept open: its attributes are looked at in the end
        values = cli.environment(**{"TERM": "xterm", "LC_ALL": "C.UTF-8", **env})
        if "NO_COLOR" not in env:
            values.pop("NO_COLOR", None)

        def begin():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.process = subprocess.Popen([*under, cli.PROGRAM, *map(str, words)], stdin=slave, stdout=slave, stderr=slave, env=values,
                                        preexec_fn=begin, close_fds=True)
        self.raw = b""
        self.line_sent = -1  # where the cursor was when a line was sent

    def read(self, seconds):
        """Reads what there is; False: nothing came."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        data = os.read(self.master, 65536)
        self.raw += data
        self.screen.feed(data)
        return True

    def until(self, done):
        """Reads until done(terminal) or the program's end."""
        end = time.monotonic() + LIMIT
        while not done(self):
            if not self.read(0.05):
                if self.process.poll() is not None and not self.read(0):
                    return done(self)
                if time.monotonic() > end:
                    return False
        return True

    def until_text(self, text):
        return self.until(lambda t: any(text in line for line in t.screen.text()))

    def until_prompt(self, mark="> "):
        """Until the cursor stands behind an empty prompt, below the line that was sent last."""
        return self.until(lambda t: t.screen.y > t.line_sent and t.screen.y == len(t.screen.lines) - 1
                          and t.screen.text()[-1] == mark.rstrip() and t.screen.x == len(mark))

    def send(self, data):
        data = data.encode() if isinstance(data, str) else data
        while data:
            self.read(0)  # a full terminal would block both
            if select.select([], [self.master], [], 0.05)[1]:
                data = data[os.write(self.master, data[:1024]):]

    def say(self, line):
        """A line as it is typed. What is on the screen must be all that there is: read up to the prompt before."""
        self.line_sent = self.screen.y
        self.send(line + "\r")

    def finish(self):
        """The exit code, once the program has ended."""
        end = time.monotonic() + LIMIT
        while self.process.poll() is None and time.monotonic() < end:
            self.read(0.05)
        while self.read(0):
            pass
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()

    def is_restored(self):
        """The terminal is as it was before, bracketed paste off."""
        return termios.tcgetattr(self.slave) == self.before and 2004 not in self.screen.modes

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
