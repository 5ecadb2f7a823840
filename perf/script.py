"""What the scripts of this folder share: how they end, and how they read results.

An error that the user can mend is one line and exit code 1. SIGTERM ends a script like Ctrl-C: it keeps what it has.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn


def run(main: Callable[[], int | None]) -> NoReturn:
    """Run a script's ``main`` and exit."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        try:
            code = main() or 0
        finally:
            sys.stdout.flush()  # reports a full disk here, not when the interpreter ends
    except KeyboardInterrupt:
        code = 130
    except (OSError, ModuleNotFoundError) as error:
        advice = ": pip install 'cutesync[bench]'" if isinstance(error, ModuleNotFoundError) else ""
        if not isinstance(error, BrokenPipeError):  # the reader of our output has gone, as in "| head"
            print(f"{Path(sys.argv[0]).name}: {error}{advice}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left in the buffer goes nowhere
        code = 1
    sys.exit(code)


def parser(doc: str) -> argparse.ArgumentParser:
    """A parser that says in one line what is wrong and knows no abbreviations."""
    return _Parser(description=doc.splitlines()[0], allow_abbrev=False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; --help says what there is\n")

    def _print_message(self, message: str, file=None) -> None:  # argparse's own hides a full disk
        print(message, end="", file=file or sys.stderr)


def output(text: str) -> Path:
    """The path of a file to write, refused before an hour of measuring if it cannot be written."""
    path = Path(text)
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if path.is_dir() or not os.access(there, os.W_OK) or (there != path.absolute() and not there.is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written")
    return path


def gpu():
    """The GPU; without one the script ends."""
    from gpu import Gpu

    try:
        return Gpu()
    except Exception as error:
        sys.exit(f"{Path(sys.argv[0]).name} needs an NVIDIA GPU and its driver ({str(error).splitlines()[0]})")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[dict]:
    """A JSON file. If it lacks what the script looks for inside the block, the script ends with one line."""
    try:
        yield json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration) as error:  # no JSON, or another script's
        sys.exit(f"{path}: not what {Path(sys.argv[0]).name} reads ({type(error).__name__}: {error})")
