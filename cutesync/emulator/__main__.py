"""``python -m cutesync.emulator [options] SCRIPT.py [arguments]``: checks the kernels that a script launches, without a
GPU."""

from __future__ import annotations

import argparse
import sys

from ..errors import ArgumentTypeError, ArgumentValueError, CutesyncError
from ..script_arguments import SCRIPT_OPTIONS, split
from .script import command


def main() -> int:
    own, script, rest = split(sys.argv[1:])
    parser = argparse.ArgumentParser(prog="python -m cutesync.emulator", description=__doc__, allow_abbrev=False)
    parser.add_argument("--schedules", type=int, metavar="N", help="schedules of each launch (default: one a policy)")
    parser.add_argument("--policy", metavar="POLICY", help="only this scheduling policy")
    parser.add_argument("--seed", type=int, default=0, help="seed of the schedules (default 0)")
    for name, details in SCRIPT_OPTIONS.items():
        parser.add_argument(name, **details)
    options = parser.parse_args(own)
    if script is None:
        parser.error("no script given: its name ends in .py")
    try:
        return command.run(script, rest, options)
    except CutesyncError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2 if isinstance(error, (ArgumentTypeError, ArgumentValueError)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
