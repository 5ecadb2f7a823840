"""The command line of ``check SCRIPT.py``, without what it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SCRIPT_OPTIONS: dict[str, dict[str, Any]] = {
    "--sms": {"metavar": "N", "type": int, "help": "multiprocessors of the emulated device (default 8)"},
    "--allow": {"metavar": "KIND", "action": "append", "help": "findings of this kind are no failure; may be repeated"},
    "--trace": {"metavar": "FILE", "help": "write the first schedule of each launch as a Chrome trace"},
    "--json": {"metavar": "FILE", "help": "write everything that was found as JSON"},
    "--timeout": {"metavar": "S", "type": float, "help": "stop the script after so many seconds"},
    "--roles": {"metavar": "NAMES", "help": "names of warps in reports and traces: load=0,mma=4-11"},
    "--co-resident": {"action": "store_true", "help": "blocks of a grid that fits on the device run at the same time"},
    "--initcheck": {"action": "store_true", "help": "report reads of device memory that nobody has written"},
    "--jobs": {"metavar": "N", "type": int, "help": "processes that run the schedules of a launch (default 1)"},
    "--max-steps": {"metavar": "N", "type": int, "help": "the bound on a launch without end"},
}
"""The options of the command that scripts have and the kernels of the package have not."""


def split(arguments: Sequence[str]) -> tuple[list[str], str | None, list[str]]:
    """Split a command line at its script: the command's own arguments, the script, those of the script."""
    for i, word in enumerate(arguments):
        if word.endswith(".py"):
            return list(arguments[:i]), word, list(arguments[i + 1 :])
    return list(arguments), None, []
