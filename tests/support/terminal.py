#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a command on a pseudo-terminal and type into it.

    terminal.py ROWS COLUMNS TERM [STEP...] -- COMMAND...

A step is `wait TEXT`, until the terminal shows TEXT after the match of the last wait; `send TEXT`, with Python's escapes; `resize ROWS
COLUMNS`; or `signal NAME`, to the command. Prints the terminal's output and exits with the command's code, or 128 + the number of a signal. Fails if the command leaves the terminal in a different mode.
"""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

MOST_S = 120  # for output that comes at once on an idle machine


def text_of(word):
    return word.encode().decode("unicode_escape").encode("latin-1")


class Terminal:
    def __init__(self, rows, columns, kind, command):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.mode = termios.tcgetattr(self.slave)
        self.shown, self.seen = b"", 0
        self.process = subprocess.Popen(command, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0), env=dict(os.environ, TERM=kind))

    def resize(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def fail(self, what):
        self.process.kill()
        sys.exit(f"{what}; the terminal showed at the end:\n{self.shown[-2000:].decode(errors='replace')}")

    def read(self):
        if select.select([self.master], [], [], 0.05)[0]:
            self.shown += os.read(self.master, 65536)

    def until(self, condition, what):
        end = time.monotonic() + MOST_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"after {MOST_S} s still not: {what}")
            self.read()

    def wait(self, text):
        def there():
            at = self.shown.find(text, self.seen)
            self.seen = at + len(text) if at >= 0 else self.seen
            return at >= 0
        self.until(there, f"{text!r}")

    def send(self, text):
        os.write(self.master, text)

    def close(self):
        self.until(lambda: self.process.poll() is not None, "the end of the command")
        while select.select([self.master], [], [], 0)[0]:
            self.shown += os.read(self.master, 65536)
        if termios.tcgetattr(self.slave) != self.mode:
            self.fail("the terminal was left in another mode")
        sys.stdout.write(self.shown.decode(errors="replace").replace("\r", ""))
        return self.process.returncode if self.process.returncode >= 0 else 128 - self.process.returncode


def main():
    split = sys.argv.index("--")
    terminal = Terminal(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[split + 1:])
    for step in sys.argv[4:split]:
        verb, _, text = step.partition(" ")
        if verb == "wait":
            terminal.wait(text_of(text))
        elif verb == "send":
            terminal.send(text_of(text))
        elif verb == "resize":
            terminal.resize(*map(int, text.split()))
        elif verb == "signal":
            terminal.process.send_signal(signal.Signals["SIG" + text])
        else:
            terminal.fail(f"'{step}' is not a step")
    return terminal.close()


if __name__ == "__main__":
    sys.exit(main())
