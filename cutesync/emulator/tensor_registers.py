"""When threads may touch the registers of ``wgmma`` (PTX ISA 9.7.15, "Register Fragments", ``wgmma.fence``).

From ``wgmma.mma_async`` to the ``wgmma.wait_group`` that covers it, its accumulators and its A fragment belong to the
tensor cores. A ``wgmma.fence`` must stand before the first ``wgmma`` of a warp, and between accesses of threads to
these registers and a ``wgmma``; only accumulators handed from one ``wgmma`` to the next of the same shape need none. A
plain ``mov`` needs none here: compilers move copies and zeros behind a fence that follows them in the source, and the
assembler recognises them.

Accesses are checked a segment at a time: no ``wgmma`` instruction lies inside a segment.
"""

from __future__ import annotations

import numpy as np

from . import wgmma
from .clocks import Clock
from .syntax import Vec

KIND = "wgmma"


class Uses:
    """Registers that a segment reads or writes: slot -> the first instruction; ``computed``: not by plain moves."""

    def __init__(self):
        self.all: dict[int, int] = {}
        self.computed: dict[int, int] = {}

    def add(self, slots: list[int], site: int, instr) -> None:
        plain = instr.parts[0] == "mov" and not any(isinstance(a, Vec) for a in instr.args)
        for slot in slots:
            self.all.setdefault(slot, site)
            if not plain:
                self.computed.setdefault(slot, site)


class Product:
    """One ``wgmma.mma_async`` of one warp, until it has been waited for. ``d`` and ``a``: its register slots.

    ``event`` stands for the reads of all four warps; ``over`` knows it to be over.
    """

    def __init__(
        self, event: tuple[int, int], over: Clock, site: int, shape: tuple[int, int], d: frozenset, a: frozenset
    ):
        self.event, self.over, self.site, self.shape, self.d, self.a = event, over, site, shape, d, a
        self.fenced = False  # since it was started

    def disturbs(self, shape: tuple[int, int], d: frozenset, a: frozenset) -> frozenset:
        """Registers that a later ``wgmma`` must not use while this one is in flight."""
        if d is self.d and shape == self.shape and not a and not self.a:  # the usual case: the same accumulators
            return a
        shared = (d & self.a) | (a & self.d)
        return shared if shape == self.shape or self.fenced else shared | (d & self.d)


class Tile:
    """An f32 accumulator of a warpgroup, kept as a matrix (64, n) while one ``wgmma`` hands it to the next.

    The four warps' registers ``slots`` get it before anything else reads or writes one of their accumulators.
    """

    def __init__(self, slots: tuple[int, ...], values: np.ndarray):
        self.slots, self.values = slots, values
        self._registers: np.ndarray | None = None

    def spill(self, warp) -> None:
        """Write one warp's part to its registers."""
        if self._registers is None:
            self._registers = wgmma.single_registers(self.values)
        first = 32 * (warp.index % 4)
        for slot, register in zip(self.slots, np.ascontiguousarray(self._registers[:, first : first + 32])):
            warp.R[slot] = register


def spill(warp) -> None:
    """Write all accumulators of a warp that are kept as matrices to its registers."""
    for tile in warp.tiles.values():
        tile.spill(warp)
    warp.tiles.clear()


def before_use(f) -> None:
    """Lanes of a fragment are about to use accumulators."""
    if f.warp.tiles:
        spill(f.warp)


class TensorRegisters:
    """What one warp has done to the registers of its ``wgmma`` instructions."""

    def __init__(self, warp):
        self.warp = warp
        self.groups = warp.groups[KIND, 0]
        self.touched: dict[int, int] = {}  # register slot -> instruction that touched it since the last fence
        self.fenced = False

    def touch(self, uses: Uses) -> None:
        """A segment is about to read or write registers."""
        self.touched.update(uses.computed)
        for product in self.groups:
            for slots, role in ((product.d, "an accumulator"), (product.a, "part of the A fragment")):
                hit = slots & uses.all.keys()
                if hit:
                    slot = min(hit, key=lambda s: uses.all[s])
                    self.found(
                        "touches a register of a wgmma that it has not waited for",
                        uses.all[slot],
                        slot,
                        f"{role} of the wgmma",
                        product.site,
                        "wgmma.wait_group must come between them",
                    )

    def fence(self) -> None:
        self.fenced = True
        self.touched.clear()
        for product in self.groups:
            product.fenced = True

    def start(self, site: int, shape: tuple[int, int], d: frozenset, a: frozenset) -> None:
        """A ``wgmma`` is about to work on these registers."""
        if not self.fenced:
            self.warp.machine.found(
                "registers", "the first wgmma of a warp has no wgmma.fence before it", self.warp, range(32), site
            )
        for slot in sorted((d | a) & self.touched.keys()) if self.touched else ():
            self.found(
                "no wgmma.fence between an access to a register and the wgmma that works on it",
                site,
                slot,
                "used",
                self.touched[slot],
                "wgmma.fence must come between them",
            )
        for product in self.groups:
            for slot in sorted(product.disturbs(shape, d, a)):
                self.found(
                    "uses a register of another wgmma that it has not waited for",
                    site,
                    slot,
                    "used by the wgmma",
                    product.site,
                    "only accumulators may be handed on, from one wgmma to the next of the same shape",
                )

    def found(self, title: str, site: int, slot: int, role: str, other: int, advice: str) -> None:
        machine = self.warp.machine
        name = machine.program.register_name(slot)
        machine.found(
            "registers",
            title,
            self.warp,
            range(32),
            site,
            [f"{name} is {role}", f"  at {machine.program.sites[other - 1].where()}", advice],
        )


def touch(f, uses: Uses) -> None:
    """The lanes of a fragment are about to use these registers."""
    if f.warp.machine.sanitizer is not None:
        f.warp.tensor_registers.touch(uses)
