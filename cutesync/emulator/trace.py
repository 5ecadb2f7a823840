"""The schedule of a run as a Chrome / Perfetto trace: which warp ran when, what warps waited for, what was in flight.

A block is a process. Its tracks: one a warp (slices named by the Python line they start at, waits by what they wait
for), one an mbarrier (its phases), and rows of copies and tensor-core work in flight. Time is the emulator's step
count, one step a microsecond: it orders events and says nothing about speed. Open the file at https://ui.perfetto.dev
or in chrome://tracing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import ArgumentTypeError, ArgumentValueError, explain, shown
from . import stuck
from .report import warp_name

_BARRIERS, _FLIGHTS = 1000, 2000


def _writable(path) -> Path:
    """The path of a writable file, which is created here, so that a bad path is reported before anything runs."""
    try:
        path = Path(path)
        path.open("a").close()
    except (OSError, TypeError, ValueError) as error:
        raise _refused(path, error) from error
    return path


def _refused(path, error: Exception) -> Exception:
    kind = ArgumentTypeError if isinstance(error, TypeError) else ArgumentValueError
    return kind(
        explain("trace", f"{shown(path)} ({type(error).__name__}: {error})", "the path of a file that can be written")
    )


class Trace:
    """Collects events of the launches of one ``emulate`` block and writes them at its end."""

    def __init__(self, path):
        self.path = _writable(path)
        self.events: list[dict] = []
        self.machine: Any = None
        self.offset = self.launch = 0
        self.waits: dict[int, tuple[int, str]] = {}
        self.phases: dict[int, int] = {}
        self.flights: dict[object, tuple] = {}
        self.rows: dict[int, set[int]] = {}
        self.named: dict[tuple[int, int], str] = {}
        self.roles: dict[tuple[int, int], str] = {}  # names of warps, with their roles as soon as these are known

    def begin(self, machine) -> None:
        """Events of a new launch follow."""
        self.machine = machine
        self.launch += 1
        self.waits, self.phases, self.flights, self.rows, self.roles = {}, {}, {}, {}, {}

    def end(self) -> None:
        for flight in list(self.flights):
            self.landed(flight)
        self.offset += self.machine.steps + 10

    def now(self) -> int:
        return self.offset + self.machine.steps

    def write(self) -> None:
        try:
            self.path.write_text(json.dumps({"traceEvents": self.events, "displayTimeUnit": "ms"}))
        except OSError as error:
            raise _refused(self.path, error) from error

    # --- tracks -------------------------------------------------------------------------------------------------------

    def label(self, block, thread: int, name: str) -> int:
        """Name the block's process and one of its tracks; a later name replaces the earlier one."""
        process = self.launch * 10000 + block.number
        for key, kind, text in (
            ((process, -1), "process_name", f"launch {self.launch} {self.machine.name} block {block.coordinates}"),
            ((process, thread), "thread_name", name),
        ):
            if self.named.get(key) != text:
                self.named[key] = text
                self.events.append(
                    {"ph": "M", "pid": process, "tid": max(key[1], 0), "name": kind, "args": {"name": text}}
                )
        return process

    def span(self, block, thread: int, track: str, name: str, start: int, stop: int, **details) -> None:
        process = self.label(block, thread, track)
        self.events.append(
            {
                "ph": "X",
                "pid": process,
                "tid": thread,
                "name": name,
                "ts": start,
                "dur": max(stop - start, 1),
                "args": details,
            }
        )

    def warp(self, warp, loc=None) -> str:
        """The name of a warp's track: its role is that of the first line that has one."""
        key = warp.block.number, warp.index
        if key not in self.roles or (loc is not None and "(" not in self.roles[key]):
            self.roles[key] = warp_name(self.machine, warp.index, loc)
        return self.roles[key]

    # --- what the machine tells ---------------------------------------------------------------------------------------

    def ran(self, fragment, start_steps: int, instr) -> None:
        warp = fragment.warp
        place = f"{Path(instr.loc.file).name}:{instr.loc.line}"
        self.span(
            warp.block,
            warp.index,
            self.warp(warp, instr.loc),
            place,
            self.offset + start_steps,
            self.now(),
            lanes=f"{fragment.bits:#010x}",
            at=instr.text[:120],
        )

    def blocked(self, fragment) -> None:
        self.waits[id(fragment)] = (self.now(), stuck.waiting(fragment))

    def resumed(self, fragment) -> None:
        began = self.waits.pop(id(fragment), None)
        if began is not None and self.now() > began[0]:
            warp = fragment.warp
            self.span(
                warp.block,
                warp.index,
                self.warp(warp),
                began[1],
                began[0],
                self.now(),
                lanes=f"{fragment.bits:#010x}",
            )

    def phase(self, barrier) -> None:
        """An mbarrier has just completed a phase."""
        start = self.phases.get(id(barrier), self.offset)
        self.phases[id(barrier)] = self.now()
        self.span(
            barrier.block,
            _BARRIERS + barrier.offset,
            barrier.name,
            f"phase {barrier.phase - 1}",
            start,
            self.now(),
            history="; ".join(barrier.told(*event) for event in barrier.history[-6:]),
        )

    def failed(self, kind: str, title: str, warp, site: int, earlier: tuple[int, int] | None) -> None:
        """An error ends the run: mark where, and the access before it, of a block's number and a warp's."""
        program = self.machine.program
        loc = program.sites[site - 1].loc if site else None
        place = loc.told() if loc is not None else ""
        who = warp or next((w for block in self.machine.resident.values() for w in block.warps), None)
        if who is None:
            return
        error = f"{kind}: {title}" + (f" at {place}" if place else "")
        self.label(who.block, who.index, self.warp(who, loc))
        short = f"{kind} at {Path(place.split(' ')[0]).name}" if place else kind
        self.mark(who.block.number, who.index, short, self.now(), error=error)
        if earlier is not None:
            track = self.launch * 10000 + earlier[0], earlier[1]
            spans = [e["ts"] for e in self.events if e["ph"] == "X" and (e["pid"], e["tid"]) == track]
            self.mark(*earlier, "the access before it", spans[-1] if spans else self.now())

    def mark(self, block: int, index: int, name: str, when: int, **details) -> None:
        process = self.launch * 10000 + block
        self.events.append(
            {"ph": "i", "s": "p", "pid": process, "tid": index, "name": name, "ts": when, "args": details}
        )

    def launched(self, key, block, name: str) -> None:
        """Something asynchronous has started."""
        used = self.rows.setdefault(block.number, set())
        row = next(i for i in range(len(used) + 1) if i not in used)
        used.add(row)
        self.flights[key] = (self.now(), block, row, name)

    def landed(self, key) -> None:
        flight = self.flights.pop(key, None)
        if flight is not None:
            start, block, row, name = flight
            self.rows[block.number].discard(row)
            self.span(block, _FLIGHTS + row, f"in flight {row}", name, start, self.now())
