"""The command line: ``python -m cutesync demo | check | info | warm | cache``. Exit codes: 0 it went well, 1 it did not, 2 wrong usage."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Sequence

from .. import __version__, env
from ..errors import ArgumentTypeError, ArgumentValueError, CutesyncError

_DESCRIPTION = "Hopper kernels in the CuTe Python DSL."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except (ArgumentTypeError, ArgumentValueError) as error:
        print(f"{parser.prog} {options.command}: {error}", file=sys.stderr)
        return 2
    except CutesyncError as error:
        print(f"{parser.prog} {options.command}: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        print(f"{parser.prog} {options.command}: {error}; python -m cutesync info says what is missing and how to get it", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has gone, as in "| head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cutesync", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"cutesync {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="run every family on random data, compare with NumPy, show the rates")
    demo.add_argument("families", nargs="*", metavar="FAMILY", help="only these families (default: all)")
    demo.add_argument("--seed", type=int, default=0, help="seed of the random data (default 0)")
    demo.add_argument("--compile-only", action="store_true", help="compile every kernel of the demo and run nothing")
    demo.set_defaults(run=_demo)
    check = commands.add_parser("check", help="run every kernel on the emulator under many schedules, watched for races and deadlocks")
    check.add_argument("families", nargs="*", metavar="FAMILY", help="only these families (default: all)")
    check.add_argument("--schedules", type=int, metavar="N", help="schedules of each launch (default: one of each policy)")
    check.add_argument("--policy", metavar="POLICY", help="only this scheduling policy")
    check.add_argument("--seed", type=int, default=0, help="seed of data and schedules (default 0)")
    check.set_defaults(run=_check)
    info = commands.add_parser("info", help="versions, driver, GPUs, cache, settings, and what is missing")
    info.set_defaults(run=_info)
    warm = commands.add_parser("warm", help="compile kernels ahead of their first use (needs no GPU)")
    warm.add_argument("families", nargs="*", metavar="FAMILY", help="families (default: reduce)")
    warm.add_argument("--dtypes", nargs="+", metavar="DTYPE", help="element types of the input")
    warm.add_argument("--ops", nargs="+", metavar="OP", help="operators: names of reduce, and sum prod argmin argmax")
    warm.add_argument("--layouts", nargs="+", metavar="LAYOUT", help="whole (default), rows, columns")
    warm.set_defaults(run=_warm)
    cache = commands.add_parser("cache", help="where compiled kernels are kept, how many, how big")
    cache.add_argument("--clear", action="store_true", help="delete them")
    cache.set_defaults(run=_cache)
    return parser


def _demo(options: argparse.Namespace) -> int:
    from .demo import run

    return run(options.families, seed=options.seed, compile_only=options.compile_only)


def _check(options: argparse.Namespace) -> int:
    from .check import run

    return run(options.families, schedules=options.schedules, policy=options.policy, seed=options.seed)


def _info(options: argparse.Namespace) -> int:
    from .info import report

    print("\n".join(report()))
    return 0


def _warm(options: argparse.Namespace) -> int:
    from ..runtime import compiler
    from ..warm import DTYPES, OPS, warm

    def progress(done: int, total: int, label: str) -> None:
        print(f"[{done:{len(str(total))}}/{total}] {label}", flush=True)

    ready = warm(options.families or ("reduce",), options.dtypes or DTYPES, options.ops or OPS, options.layouts or ("whole",), progress=progress)
    counts = compiler.counts()
    kept = "kept in memory only: CUTESYNC_CACHE=0" if env.CACHE.get() == "0" else f"kept in {env.cache_dir()}"
    print(f"{ready} kernels ready: {counts['compiled']} compiled, {counts['disk']} found on disk; {kept}")
    return 0


def _cache(options: argparse.Namespace) -> int:
    from ..runtime import cache

    if options.clear:
        print(f"{env.cache_dir()}: {cache.clear()} kernels deleted")
        return 0
    entries = cache.entries()
    size = sum(path.stat().st_size for path in entries)
    print(f"{env.cache_dir()}: {len(entries)} kernels, {size / 1e6:.1f} MB")
    return 0
