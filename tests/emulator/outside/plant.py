"""The process of one kernel: runs its script on the emulator, and then each launch with faults planted in its PTX.

``python -m tests.emulator.outside.plant OUT KERNEL SCRIPT [arguments]``: one line of JSON a fault goes to OUT.
"""

from __future__ import annotations

import importlib
import json
import re
import runpy
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cutesync.emulator import POLICIES, EmulationError, Settings, chains, ptx
from cutesync.emulator.codegen import Program
from cutesync.emulator.script import child
from cutesync.emulator.script.session import Options, Session

from ...faults import Edit, each, op, plus, shifted

_IF = r"(?:@!?%p\d+\s+)?"
_PARITY = r"(mbarrier\.try_wait\.parity[^\n;]*\],\s*)(%r\d+|[01])((?:,\s*\w+)?;)"
FAULTS: dict[str, tuple[Edit, ...]] = {
    "dropped release": (each(op(_IF + r"mbarrier\.arrive\.(?!expect_tx|noinc)")),),
    "wrong bytes": (
        shifted(r"mbarrier\.(?:arrive\.)?expect_tx", -16),
        each(r"mbarrier\.(?:arrive\.)?expect_tx[^\n;]*\],\s*(?P<n>\d+);", plus(-16)),
    ),
    "no proxy fence": (each(op(_IF + r"fence\.proxy\.async")),),
    "no wait_group": (each(op(r"wgmma\.wait_group")), each(op(_IF + r"cp\.async\.bulk\.wait_group"))),
    "wrong phase": (each(_PARITY, r"{ .reg .b32 other; xor.b32 other, \2, 1; \1other\3 }"),),
    "no wait for cp.async": (each(op(r"cp\.async\.wait_(?:group|all)")),),
    "no block barrier": (each(op(r"(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?\s+0")),),
    "no named barrier": (each(op(r"(?:bar|barrier)(?:\.cta)?\.(?:sync|arrive)(?:\.aligned)?\s+(?:[1-9]|%r)")),),
    "no fence of tensor maps": (each(op(_IF + r"fence\.proxy\.tensormap")),),
}
PLACES = 3  # of each fault: the first, middle and last one
ORDER = "round_robin", "copies_late", *(name for name in POLICIES if name not in ("round_robin", "copies_late"))
texts: dict[int, str] = {}


def remember(parse: Any) -> Any:
    """``ptx.parse`` that keeps the text of each module."""
    modules = []

    def parsed(text: str) -> Any:
        module = parse(text)
        modules.append(module)
        texts[id(module)] = text
        return module

    return parsed


def verdict(launch: Any, run: Any, right: dict) -> tuple[str, str]:
    """``(kind, report)`` of a launch; "result" where it leaves other bytes than ``right``, if that has any."""
    for policy in ORDER:
        how = Settings(policy, 0, 1, unseen_launches=False, initcheck=False, max_steps=200_000)
        for region, (before, _) in right.items():
            region.data[:] = before
        try:
            run.run_launch(launch, run.DEVICE, how)
        except EmulationError as error:
            return error.kind, str(error)
        if any(after is not None and not np.array_equal(region.data, after) for region, (_, after) in right.items()):
            return "result", ""
    return "", ""


def reached(launch: Any, text: str, changed: str, run: Any, right: dict) -> bool:
    """Whether the launch comes to the place of a fault at all: a trap there ends it."""
    at = next(i for i, (a, b) in enumerate(zip(text, changed)) if a != b)
    start = text.rfind("\n", 0, at) + 1
    module = ptx.parse(text[:start] + "\ttrap;\n" + text[start:])
    trapped = replace(launch, program=Program(module.functions[launch.program.function.name], module))
    return verdict(trapped, run, right)[0] == "trap"


def lines_of(text: str, changed: str) -> list[str]:
    """The lines of source of the first difference between two texts: the kernel's, that of what it calls there, and so
    on."""
    at = next(i for i, (a, b) in enumerate(zip(text, changed)) if a != b)
    places = re.findall(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)", text[:at])
    number, line, column = places[-1] if places else ("0", "0", "0")
    path = re.search(rf'\.file\s+{number}\s+"([^"]+)"', text)
    file = path[1] if path else "?"
    calls = chains.of(file, int(line), int(column)).calls
    return [f"{Path(file).name}:{line}" for file, line in (*calls, (file, line))]


def plant(launch: Any, before: dict, out: Path) -> None:
    """Plant every fault in a launch that has just run, with the memory that it found."""
    run: Any = importlib.import_module("cutesync.emulator.run")
    text, name = texts[id(launch.program.module)], launch.program.function.name
    left = {region: region.data.copy() for region in before}
    right: dict[Any, tuple] = {region: (data, left[region]) for region, data in before.items()}
    if verdict(launch, run, right)[0] == "result":  # its sums follow the schedule: bytes tell nothing
        right = {region: (data, None) for region, data in before.items()}
    for fault, edits in FAULTS.items():
        for edit in edits:
            every = list(edit(text))
            for number in sorted({0, len(every) // 2, len(every) - 1} if every else ())[:PLACES]:
                start, module = time.perf_counter(), ptx.parse(every[number])
                wrong = replace(launch, program=Program(module.functions[name], module))
                kind, report = verdict(wrong, run, right)
                facts = {"fault": fault, "place": number, "of": len(every), "lines": lines_of(text, every[number])}
                facts["run"] = bool(kind) or reached(launch, text, every[number], run, right)
                facts |= {"kind": kind, "report": report, "seconds": round(time.perf_counter() - start, 2)}
                with out.open("a") as file:
                    file.write(json.dumps(facts) + "\n")
    for region, after in left.items():
        region.data[:] = after


def main(out: Path, kernel: str, script: str) -> None:
    calls: Any = importlib.import_module("cutesync.emulator.host_calls")
    run: Any = importlib.import_module("cutesync.emulator.run")
    calls.ptx.parse = remember(calls.ptx.parse)
    child.install(Options(schedules=1, policy="round_robin", sms=2))
    plain, planted = Session.launch, set()

    def launched(self: Session, launch: Any) -> None:
        before = {region: region.data.copy() for region in run.DEVICE.memory.regions if region.writable}
        plain(self, launch)
        name = launch.program.function.name
        if kernel in name and name not in planted:
            planted.add(name)
            plant(launch, before, out)

    Session.launch = launched  # type: ignore[method-assign]
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    _, output, wanted, *sys.argv = sys.argv
    main(Path(output), wanted, sys.argv[0])
