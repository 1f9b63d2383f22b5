"""A shell with one job, for tests of Ctrl-Z: runs a program in the foreground of the terminal on stdin. When it stops, says
how the terminal is then, waits for a line, and lets it go on. Ends with the program's exit code."""
import os
import signal
import sys
import termios


def foreground(group):
    os.tcsetpgrp(0, group)


def main():
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        foreground(os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.execv(sys.argv[1], sys.argv[1:])
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            sys.exit(os.waitstatus_to_exitcode(status) & 0xff)
        foreground(os.getpgrp())
        flags = termios.tcgetattr(0)[3]
        echoes, has_lines = bool(flags & termios.ECHO), bool(flags & termios.ICANON)
        os.write(1, f"[stopped; echo {echoes}, lines {has_lines}]\n".encode())
        os.read(0, 100)
        foreground(job)
        os.killpg(job, signal.SIGCONT)


main()
