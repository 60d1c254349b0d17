"""A program that answers as the text on its standard input says.

hold[:S]      print `holding`, then wait until killed (or S seconds)
chunks:N[:B]  print N pieces of B bytes, each flushed
echo:X        print the text itself, as for anything else
"""

import signal
import sys
import threading


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def answer(text: str) -> None:
    kind, *rest = text.split(":")
    if kind == "hold":
        say("holding")
        threading.Event().wait(float(rest[0]) if rest else None)
    elif kind == "chunks":
        size = int(rest[1]) if len(rest) > 1 else 8
        for _ in range(int(rest[0])):
            say("x" * size)
    else:
        say(text)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    answer(sys.stdin.read().strip())
