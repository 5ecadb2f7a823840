"""Random calls on arrays in parts of random lengths, on emulated devices: what one device computes, or a typed error
that names what is not done along the sharded axis."""

from __future__ import annotations

import ctypes
import functools
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group, Sharded
from cutesync.dist.select import Ragged
from cutesync.errors import CutesyncError

from .draw import EMULATOR, draw
from .libraries import Library
from .play import Tally, draw_seeds, play

PLACE = replace(EMULATOR, calls=4, most=300)
CALLS, SEED = 56, 7_000_000  # all families once
SHARDED_OUT = re.compile(r"cs\.(scan|flag_|adjacent|ffill|cum|linear)")  # others have a result on every device
REFUSED = re.compile(r"[Ss]harded|on each device|one device")
pytestmark = pytest.mark.slow


def pytest_generate_tests(metafunc) -> None:
    draw_seeds(metafunc, CALLS, SEED, PLACE.themes)


@dataclass(eq=False)
class Memory:
    """The same piece of memory on each device, and what it holds on the host. ``cuts`` say which elements of it are
    those of each device's part."""

    pieces: list[cs.DeviceArray]
    flat: np.ndarray
    cuts: list[int]


class Parts(Library):
    """Sharded arrays, along their first axis; those of one length in parts of the same lengths."""

    name, strided, contiguous_only, on_device = "parts", False, True, True

    def __init__(self, group: Group, rng: np.random.Generator) -> None:
        self.group = group
        self.shares = np.sort(rng.choice([0.0, *rng.random(3), 1.0], group.size - 1))

    def memory(self, flat):
        return Memory([self.group.put(flat, rank) for rank in range(self.group.size)], flat.copy(), [])

    def view(self, memory, start, shape, steps):
        rows, inner = (shape[0], int(np.prod(shape[1:], dtype=np.int64))) if shape else (1, 1)
        edges = [0, *(self.shares * rows).astype(int).tolist(), rows]
        if not shape:
            edges = [0, *[1] * self.group.size]
        memory.cuts = [start + edge * inner for edge in edges]
        pieces = zip(memory.pieces, memory.cuts, memory.cuts[1:], edges, edges[1:])
        parts = [
            piece[first:last].reshape(b - a, *shape[1:]) if shape else piece[start : start + 1].reshape(())
            for piece, first, last, a, b in pieces
        ]
        return Sharded(self.group, parts, 0 if shape else None)

    def numpy(self, array) -> np.ndarray:
        """Of memory: its elements, each from the device that has it, and what has changed on any other."""
        if not isinstance(array, Memory):
            return np.asarray(array)
        found = array.flat.copy()
        for piece, first, last in zip(array.pieces, array.cuts, array.cuts[1:]):
            now = np.asarray(piece)
            changed = (now.view(np.uint8) != array.flat.view(np.uint8)).reshape(len(now), -1).any(1)
            changed[first:last] = True
            found[changed] = now[changed]
        return found

    def write(self, memory, flat) -> None:
        memory.flat = np.ascontiguousarray(flat).copy()
        for piece in memory.pieces:
            ctypes.memmove(piece.ptr, memory.flat.ctypes.data, memory.flat.nbytes)

    def made(self, result) -> bool:
        return isinstance(result, (Sharded, Ragged))


def test_calls_agree_with_numpy(seeds, on_emulator, record_property):
    tally = Tally()

    def faults(case, library, rng) -> list[str]:
        try:
            return play(case, library, rng)
        except CutesyncError as error:
            if REFUSED.search(str(error)):
                return []
            raise

    for seed in seeds:
        case, rng = draw(seed, PLACE), np.random.default_rng([seed, 4])
        if case.name == "cs.matmul" or "patterns" in case.name:  # tests/dist has products
            continue
        case = replace(case, init_of=None, out=case.out if SHARDED_OUT.match(case.name) else "none")
        with cs.emulate(devices=int(rng.integers(2, 5))):
            library = Parts(Group.local(), rng)
            tally.one(seed, f"{library.group.size} parts: {case!r}", functools.partial(faults, case, library, rng))
    tally.finish(record_property, "test_sharded.py", seeds.start)
