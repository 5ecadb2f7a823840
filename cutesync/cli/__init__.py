"""The command line: ``python -m cutesync demo | check | trace | info | warm | cache``. Exit codes: 0 success, 1
failure, 2 wrong usage."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from .. import __version__, env
from ..errors import ArgumentTypeError, ArgumentValueError, CutesyncError, explain
from ..script_arguments import SCRIPT_OPTIONS, split

_SAY_EVERY = 20  # kernels of ``warm`` between two estimates of the time left


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # the terminal's encoding may lack characters of a folder's name
    try:
        try:
            return _run(arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # reports a full disk here, not when the interpreter ends
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # the reader of the output has ended, as in "| head"
            print(f"python -m cutesync: {error}", file=sys.stderr)
        _drop_output()
        return 1
    except KeyboardInterrupt:
        return 130


def _drop_output() -> None:
    """Discard what is left in the output buffer: flushing it at exit would fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    script: str | None = None
    rest: list[str] = []
    if given[:1] == ["check"]:
        given, script, rest = split(given)
    options = parser.parse_args(given)
    options.script, options.script_arguments = script, rest
    try:
        return options.run(options)
    except CutesyncError as error:
        print(f"{parser.prog} {options.command}: {error}", file=sys.stderr)
        return 2 if isinstance(error, (ArgumentTypeError, ArgumentValueError)) else 1
    except ImportError as error:
        print(
            f"{parser.prog} {options.command}: {error}; python -m cutesync info says what is missing and how to get it",
            file=sys.stderr,
        )
        return 1


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line. Options cannot be abbreviated, as one of them deletes files."""

    def __init__(self, **options) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; see --help\n")

    def _print_message(self, message: str, file=None) -> None:  # that of argparse ignores a full disk
        print(message, end="", file=file or sys.stderr)


def _whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from ``low`` to ``high``."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            came = text if len(text) < 40 else text[:40] + "..."
            raise argparse.ArgumentTypeError(f"got {came!r}; needs a whole number from {low} to {high}")
        return value

    return parse


def _demo(options: argparse.Namespace) -> int:
    from .demo import run

    return run(options.families, seed=options.seed, compile_only=options.compile_only)


def _check(options: argparse.Namespace) -> int:
    from .check import run

    if options.script is not None:
        from ..emulator.script import command

        if options.families:
            came = f"{' '.join(options.families)} before {options.script}"
            raise ArgumentValueError(explain("check", came, "families or a script"))
        return command.run(options.script, options.script_arguments, options)
    for option in SCRIPT_OPTIONS:
        if getattr(options, option[2:].replace("-", "_")):
            raise ArgumentValueError(explain(option, "no script", "check [options] SCRIPT.py [arguments]"))

    return run(options.families, schedules=options.schedules, policy=options.policy, seed=options.seed)


def _trace(options: argparse.Namespace) -> int:
    from ..emulator import picture

    events = picture.read(options.file)
    errors = picture.errors(events)
    print("\n".join(errors or ["no error"]))
    if options.png:
        picture.save(options.png, picture.draw(events))
    return 0


def _info(options: argparse.Namespace) -> int:
    from .info import report

    print("\n".join(report()))
    return 0


def _warm(options: argparse.Namespace) -> int:
    from ..runtime import cache, compiler
    from .warm import DTYPES, OPS, jobs, part_of, ready

    number, count = part_of(options.part)
    given = options.families or ("reduce",), options.dtypes or DTYPES, options.ops or OPS, options.layouts or ("whole",)
    work = jobs(*given)[number - 1 :: count]
    if options.processes < 1:
        raise ArgumentValueError(explain("--processes", options.processes, "1 or more"))
    if options.processes > 1:
        return _warm_in_processes(options, given)
    started = time.perf_counter()

    def progress(done: int, total: int, label: str) -> None:
        """Print the kernel; every ``_SAY_EVERY`` kernels also how long the rest takes at the rate so far."""
        left = (time.perf_counter() - started) / done * (total - done)
        estimate = f"  (about {left:.0f} s left)" if done % _SAY_EVERY == 1 and done < total else ""
        print(f"[{done:{len(str(total))}}/{total}] {label}{estimate}", flush=True)

    found = ready(work, progress)
    counts = compiler.counts()
    reason = "CUTESYNC_CACHE=0" if env.CACHE.get() == "0" else cache.problem()
    kept = f"kept in memory only: {reason}" if reason else f"kept in {env.cache_dir()}"
    print(f"{found} kernels ready: {counts['compiled']} compiled, {counts['disk']} found on disk; {kept}")
    return 0


def _warm_in_processes(options: argparse.Namespace, given: tuple) -> int:
    """Compile in several processes, each a part of the kernels. The largest exit code of theirs."""
    if env.CACHE.get() == "0":
        advice = "the cache on disk; without it a process cannot give its kernels to others"
        raise ArgumentValueError(explain("--processes", options.processes, advice))
    words = [*given[0]]
    for name, values in zip(("--dtypes", "--ops", "--layouts"), given[1:]):
        words += [name, *values]
    command = [sys.executable, "-m", "cutesync", "warm", *words]
    parts = [[*command, "--part", f"{i + 1}/{options.processes}"] for i in range(options.processes)]
    return max(process.wait() for process in [subprocess.Popen(part) for part in parts])


def _cache(options: argparse.Namespace) -> int:
    from ..runtime import cache

    place = env.cache_dir()
    if options.clear:
        done = cache.clear()
        print(
            f"{place}: {done.kernels} kernels deleted, {done.notes} notes, {done.temporary} temporary files: "
            f"{done.size / 1e6:.1f} MB"
        )
        if done.others:
            print(f"{done.others} other files were not written by the cache and stay")
        if done.refused:
            print(
                f"python -m cutesync cache: {done.refused} files of the cache may not be deleted by this user",
                file=sys.stderr,
            )
        return 1 if done.refused else 0
    reason = cache.problem()
    print(
        f"{place}: {len(cache.entries())} kernels, {cache.size() / 1e6:.1f} MB"
        + (f"; not used: {reason}" if reason else "")
    )
    return 0


_SEED = {"type": _whole_number(0, 2**64 - 1), "default": 0}
_FAMILIES = {"nargs": "*", "metavar": "FAMILY", "help": "only these families (default: all)"}
_SCHEDULES = {"type": _whole_number(1, 10**6), "metavar": "N"}
_COMMANDS: dict[str, tuple[str, Callable, dict[str, dict]]] = {
    "demo": (
        "run every family on random data, compare with NumPy, show the rates",
        _demo,
        {
            "families": _FAMILIES,
            "--seed": {**_SEED, "help": "seed of the random data (default 0)"},
            "--compile-only": {"action": "store_true", "help": "compile every kernel of the demo and run nothing"},
        },
    ),
    "check": (
        "run every kernel, or all that SCRIPT.py launches, on the emulator, watched for races and deadlocks",
        _check,
        {
            "families": {**_FAMILIES, "help": "only these families (default: all); or SCRIPT.py with its arguments"},
            "--schedules": {**_SCHEDULES, "help": "schedules of each launch (default: one of each policy)"},
            "--policy": {"metavar": "POLICY", "help": "only this scheduling policy"},
            "--seed": {**_SEED, "help": "seed of data and schedules (default 0)"},
            **SCRIPT_OPTIONS,
        },
    ),
    "trace": (
        "the errors of a trace, one a line, and the trace as a picture",
        _trace,
        {
            "file": {"metavar": "FILE", "help": "what check --trace or emulate(trace=) wrote"},
            "--png": {"metavar": "PNG", "help": "draw it: the two accesses of a race are marked"},
        },
    ),
    "info": ("versions, driver, GPUs, cache, settings, and what is missing", _info, {}),
    "warm": (
        "compile kernels ahead of their first use (needs no GPU)",
        _warm,
        {
            "families": {**_FAMILIES, "help": "families (default: reduce)"},
            "--dtypes": {"nargs": "+", "metavar": "DTYPE", "help": "element types of the input"},
            "--ops": {
                "nargs": "+",
                "metavar": "OP",
                "help": "operators: names of reduce, and sum prod argmax mean cummax and others",
            },
            "--layouts": {"nargs": "+", "metavar": "LAYOUT", "help": "whole (default), rows, columns"},
            "--processes": {"type": int, "default": 1, "metavar": "N", "help": "compile in so many processes"},
            "--part": {"default": "1/1", "metavar": "I/N", "help": "every Nth kernel, from the Ith on (from 1)"},
        },
    ),
    "cache": (
        "where compiled kernels are kept, how many, how big",
        _cache,
        {"--clear": {"action": "store_true", "help": "delete them, and nothing else that may lie there"}},
    ),
}
"""The commands: what each is for, its function, and its arguments as ``add_argument`` takes them."""


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m cutesync", description="Hopper kernels in the CuTe Python DSL.")
    parser.add_argument("--version", action="version", version=f"cutesync {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (purpose, run, arguments) in _COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        for argument, details in arguments.items():
            command.add_argument(argument, **details)
        command.set_defaults(run=run)
    return parser
