"""Calls of every family but products on arrays of any size, type and layout, in dry runs: each finds kernels that can
be made, and a block has room for their warps and shared memory."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import BY_NAME
from cutesync.runtime.kernel import collect

from .compiled import dry

MAX_SMEM = 227 << 10
NAMED = ("argmax", "count_nonzero", "logsumexp", "mean", "minmax", "var_mean", "cummax", "ffill")


class Draw:
    """One call. ``shape`` has up to 2**30 elements; ``n`` may be in memory."""

    def __init__(self, seed: int) -> None:
        self.rng, self.made = np.random.default_rng(seed), 0
        bits = self.rng.random() * self.rng.choice([16, 24, 30])
        cuts = np.diff([0, *np.sort(self.rng.random(self.rng.integers(0, 4))), 1]) * bits
        self.shape = tuple(int(2**cut) for cut in cuts)
        self.size, self.axis = int(np.prod(self.shape)), int(self.rng.integers(len(self.shape)))

    def one(self, *values):
        return values[self.rng.integers(len(values))]

    def some(self) -> bool:
        return self.one(True, False)

    def more(self, bits: int) -> int:
        return int(2 ** (self.rng.random() * bits))

    def array(self, shape=None, dtype=None):
        """An array of any layout: contiguous ones, transposed, stepped, reversed, broadcast, off by some elements."""
        shape, dtype = self.shape if shape is None else shape, dtype or self.one(*BY_NAME)
        self.made += 1
        base, step, axes = self.made << 44, int(self.rng.integers(2, 33)), len(shape)

        def made(extents, offset: int = 0):
            return dry(extents, dtype, offset * BY_NAME[dtype].size, base)

        layout = self.rng.integers(8)
        if layout == 0:
            return made(shape[::-1]).transpose(tuple(range(axes))[::-1])
        if layout == 1:
            return made(tuple(extent * step for extent in shape))[(slice(None, None, step),) * axes]
        if layout == 2:
            return made(shape)[(slice(None, None, -1),) * axes]
        if layout == 3:
            return made((1, *shape[1:])).broadcast_to(shape)
        if layout == 4:
            return made(tuple(extent + 3 for extent in shape))[tuple(slice(1, 1 + extent) for extent in shape)]
        return made(shape, self.one(0, 0, 1, 3))

    def condition(self):
        return self.one(
            self.array(dtype="bool"),
            self.array((-(-self.size // 32),), "uint32"),
            lambda v: v > 0,
            lambda v, i: i > 3,
        )

    def call(self) -> None:
        x, axis, indices = self.array(), self.axis, self.some()
        counted = {"n": dry((), "int64")} if self.rng.random() < 0.2 else {}
        asked = {name: self.some() for name in ("return_index", "return_inverse", "return_counts")}
        rows = {"axis": axis, "packed": self.some()}
        keys, segments = self.array(), self.more(22)
        by_key, by_segment = self.one((cs.reduce_by_key, cs.segmented_reduce), (cs.scan_by_key, cs.segmented_scan))
        where = self.one(
            {"offsets": self.array((segments,), "int64")},
            {"offsets": tuple(self.array((segments,), "int32") for _ in range(2))},
            {"lengths": self.array((segments,), "int32")},
            {"heads": self.array(dtype="bool")},
        )
        edges = {"range": (0, 5), "weights": self.array(dtype="float32") if indices else None, **counted}
        sorter = dry((segments,), "int64", base=1 << 60) if indices else None
        self.one(
            lambda: cs.reduce(x, self.one("add", "max", "any"), axis=axis, init=0, **counted),
            lambda: cs.reduce(x, self.one("add", "min", "all"), axis=self.one(None, (0, -1)[: len(self.shape)])),
            lambda: getattr(cs, self.one(*NAMED))(x, axis=axis),
            lambda: cs.scan(x, self.one("add", "max"), axis=axis, reverse=indices, **counted),
            lambda: cs.flag_heads(x, axis=axis, dtype=self.one("bits", "uint8", "int32"), **counted),
            lambda: cs.select((x, keys) if indices else x, self.array(dtype="uint8"), indices=self.some(), **counted),
            lambda: cs.select(x, self.condition(), indices=indices, size=self.one(None, self.size // 2), **counted),
            lambda: cs.select(x, lambda v: v > 0, indices=indices, **rows, **counted),
            lambda: cs.partition(x, self.condition(), indices=indices, **counted),
            lambda: cs.partition3(x, self.condition(), self.condition(), indices=indices, **counted),
            lambda: self.one(cs.nonzero, cs.argwhere, cs.flatnonzero)(x, **counted),
            lambda: cs.unique_consecutive(x, **asked, **self.one({}, rows), **counted),
            lambda: by_key(keys, x, **counted),
            lambda: by_segment(x, **where, **counted),
            lambda: cs.run_length_decode(x, self.one(3, self.array(dtype="int32")), size=self.size * 3, **counted),
            lambda: cs.searchsorted(self.array((segments,), str(x.dtype)), x, sorter=sorter, **counted),
            lambda: cs.bincount(self.array((self.size,), "int16"), length=segments, **counted),
            lambda: cs.histogram(self.array(dtype="float32"), self.more(16), **edges),
            lambda: cs.topk(x, min(self.shape[axis], self.more(12)), axis, largest=indices, **counted),
        )()


@pytest.mark.parametrize("seeds", [range(250), pytest.param(range(250, 5000), marks=pytest.mark.slow)])
def test_every_call_finds_kernels_that_can_be_made(seeds):
    seen = set()
    for seed in seeds:
        with collect() as found:
            Draw(seed).call()
        for key in found.keys() - seen:
            kernel = found[key].make()
            assert 0 < kernel.threads <= 1024 and getattr(kernel, "smem", 0) <= MAX_SMEM, found[key].label
        seen |= found.keys()
