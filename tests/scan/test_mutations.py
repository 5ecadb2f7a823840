"""Faults planted in the compiled scan kernels are found; the kernels as they are run clean."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.kernels.scan import short_policy, short_turn_policy, slice_policy
from cutesync.kernels.scan.short_policy import THREADS
from cutesync.kernels.scan.slice_policy import slices
from cutesync.runtime import call, device

from .. import faults
from ..cases import data, scanned
from ..faults import each, every, only
from .kernels import (
    StridedTiles,
    column_clusters,
    column_strips,
    column_tiles,
    force,
    force_backward,
    outer_slices,
    pipeline,
    ragged_columns,
    rows,
    runs,
    slabs,
    wave,
)

pytestmark = pytest.mark.slow

# name: (configuration, shape, axis), and whether from the end
KERNELS = {
    "ragged rows": (rows(2, 2, ragged=True), (6, 203), 1),
    "ragged rows with gaps": (rows(2, 2, ragged=True), (6, 403), 1),
    "wave": (wave(2, 1), (1203,), 0),
    "tiles of columns": (column_tiles(2, 4, 8, 2, 3, 5, prefetch=True), (101, 10), 0),
    "tiles of columns, one a block": (column_tiles(2, 4, 8, 2, 3, 0, prefetch=True), (101, 10), 0),
    "tiles of columns in vectors": (column_tiles(1, 16, 4, 4, 2, 3), (53, 20), 0),
    "tiles of backward columns in vectors": (column_tiles(1, 16, 4, 4, 2, 3), (53, 20), 0),
    "clusters of columns": (column_clusters(2, 4, 8, 2), (45, 12), 0),
    "strips of columns": (column_strips(2, 4, 8, 2, 3), (101, 12), 0),
    "ragged columns": (ragged_columns(8, 4, 2, 3, 5), (101, 21), 0),
    "slabs": (slabs(4, 3, 2, 2, 3), (143, 5), 0),
    "slabs from the end": (slabs(4, 3, 2, 2, 3), (143, 5), 0, True),  # the short tile is the first: a whole one follows
    "slabs that begin anywhere": (slabs(4, 3, 2, 2, 3, anywhere=True), (143, 5), 0),
    "pipeline": (pipeline(4, 2, 4, 1, 2, 2), (4, 1101), 1),
    "runs": (runs(3, 2, 2), (2, 6501), 1),
    "outer slices in pieces": (outer_slices(8, 2), (5, 100, 20), 1),
    "outer slices of few columns": (outer_slices(128, 1), (2, 403, 2), 1),
    "outer slices that begin anywhere": (outer_slices(8, 1, anywhere=True), (5, 99, 5), 1),
    "outer slices with gaps": (slices, (40, 43), 1),
    "strided arrays": (StridedTiles(4, 2, 2, 3), (1100, 3), 0),
}


@functools.cache
def bench(name: str) -> faults.Bench:
    """Two scans on one workspace, each under all policies; few blocks fit."""
    choice, shape, axis, *reverse = KERNELS[name]
    how = {"axis": axis, "reverse": any(reverse)}
    x = data(shape, "int16" if "ragged columns" in name or "gaps" in name else "int32")
    wanted = scanned(x, **how)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            (force_backward if "backward" in name else force)(patch, choice)
            for limit in ("MIN_STRIDED_BYTES", "MIN_RUN_BYTES", "MIN_SLICES", "SMS"):
                patch.setattr(slice_policy, limit, 1)
            with cs.emulate(), emulator.emulate(schedules=9, seed=3, resident=2):
                array = cs.asarray(x.T.copy()).T if "strided" in name else cs.asarray(x)
                if "gaps" in name:
                    array = cs.asarray(np.pad(x, ((0, 0), (0, 5))))[:, : shape[1]]
                if "backward" in name:
                    array = cs.asarray(x[:, ::-1].copy())[:, ::-1]
                return all(np.array_equal(np.asarray(cs.scan(array, **how)), wanted) for _ in range(2))

    return faults.Bench(right)


# The table has each state read for the block alone; few of the reads of an unrolled look-back happen in so few tiles.
TABLE = {
    name: fault for name, fault in faults.TABLE.items() if name not in ("gpu to cta scope", "named barrier number")
}
ONE_FENCE = [f"no init fence #{i}" for i in range(4)]
HARMLESS = {
    # the fence of one ring serves the others, too; a whole tile after a short one needs the proxy fence
    "slabs": [*ONE_FENCE[:3], "no proxy fence #0"],
    "slabs that begin anywhere": ["no store #1"],  # of threads that have four vectors: these have fewer
    "clusters of columns": ONE_FENCE[:1],  # the cluster's barrier releases what one thread initialised
    "pipeline": ONE_FENCE,
    "runs": ONE_FENCE,
    "outer slices that begin anywhere": ["no store #1"],  # of threads that have four vectors: these have fewer
    "outer slices of few columns": ["no store #1"],
    "outer slices with gaps": ["no store #1"],
}
PUBLISHED = r"st\.relaxed\.gpu(\.global\.b64)"
READ = r"ld\.relaxed\.gpu\.global\.b64"
FLAGS = {
    "a state published by a plain store": (each(PUBLISHED, r"st\1"), {"race"}),
    "a state published for the block alone": (each(PUBLISHED, r"st.relaxed.cta\1"), {"race"}),
    "states read by plain loads": (every(READ, "ld.global.b64"), {"race"}),
    "states read within the block alone": (every(READ, "ld.relaxed.cta.global.b64"), {"race"}),
    "the epoch never raised": (only(r"^[ \t]*atom\.global\.add\.u64 [^;]*, %rd\d+;"), {"out-of-bounds", faults.RESULT}),
}


LOOK_BACKS = ["wave", "tiles of columns", "ragged columns", "slabs", "pipeline", "runs", "strided arrays"]


# Kernels whose rings and waits are those of another that is tested with the whole table
VARIANTS = (
    "tiles of columns, one a block",
    "ragged rows with gaps",
    "tiles of columns in vectors",
    "tiles of backward columns in vectors",
    "slabs from the end",
    "slabs that begin anywhere",
    "outer slices of few columns",
    "outer slices that begin anywhere",
    "outer slices with gaps",
)


@pytest.mark.parametrize("name", KERNELS)
def test_no_mutant_survives(name):
    harmless = HARMLESS.get(name, [])
    assert bench(name).survivors(faults.VARIANT if name in VARIANTS else TABLE, harmless) == harmless


@pytest.mark.parametrize("fault", FLAGS)
@pytest.mark.parametrize("name", LOOK_BACKS)
def test_faults_of_the_look_back_are_found(name, fault):
    bench(name).check(*FLAGS[fault])


@pytest.mark.parametrize("name", ["tiles of columns in vectors", "tiles of backward columns in vectors"])
def test_warps_that_do_not_meet_after_their_copies_are_found(name):
    bench(name).check(each(r"^[ \t]*bar\.warp\.sync[^;\n]*;", ""), {"race"})


@functools.cache
def bench_of_short_axes() -> faults.Bench:
    """Two scans, the second of what the first has stored, in more than a block."""
    x = data((THREADS + 7, 3), "int32")
    wanted = scanned(scanned(x, axis=1).T, axis=0, reverse=True)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            patch.setattr(short_policy, "SMS", 0)
            patch.setattr(call, "_plans", {})
            with cs.emulate(), emulator.emulate(schedules=2, seed=3, resident=2):
                found = cs.scan(cs.asarray(x.T.copy()).T, axis=1)
                return np.array_equal(np.asarray(cs.scan(found.T, axis=0, reverse=True)), wanted)

    return faults.Bench(right)


WRONG = {faults.RESULT, "out-of-bounds", "uninitialised"}
OF_SHORT_AXES = {
    "no wait for the launch before": faults.TABLE["no wait for the launch before"],
    "no store": faults.TABLE["no store"],
    "a thread too many": (only(r"setp\.ge\.s32", "setp.gt.s32"), WRONG),
}


@pytest.mark.parametrize("fault", OF_SHORT_AXES)
def test_faults_of_short_axes_are_found(fault):
    bench_of_short_axes().check(*OF_SHORT_AXES[fault])


@functools.cache
def bench_of_turned_tiles() -> faults.Bench:
    """Two scans of tiles that a block turns, the second of what the first has stored, and one along another axis."""
    x = data((3, 5, 70), "int16")
    wanted = scanned(scanned(x.T, axis=2).reshape(3, 5, 70).T, axis=2)
    along = scanned(x.transpose(0, 2, 1), axis=0)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            patch.setattr(short_turn_policy, "MIN_TILE", 1)
            patch.setattr(call, "_plans", {})
            with cs.emulate(), emulator.emulate(schedules=3, seed=3, resident=2):
                found = cs.scan(cs.asarray(x).T, axis=2)
                right = np.array_equal(np.asarray(cs.scan(found.reshape(3, 5, 70).T, axis=2)), wanted)
                other = cs.scan(cs.asarray(x).transpose(0, 2, 1), axis=0)
                return right and np.array_equal(np.asarray(other), along)

    return faults.Bench(right)


OF_TURNED_TILES = {
    "no wait for the launch before": faults.TABLE["no wait for the launch before"],
    "no block barrier": faults.TABLE["no block barrier"],
    "no store": faults.TABLE["no store"],
}


@pytest.mark.parametrize("fault", OF_TURNED_TILES)
def test_faults_of_turned_tiles_are_found(fault):
    bench_of_turned_tiles().check(*OF_TURNED_TILES[fault])


def ticket_by_block_index(ptx: str) -> Iterator[str]:
    """The first ticket is the block's index; later ones follow in steps of the grid."""
    atoms = [*re.finditer(r"^[ \t]*atom\.global\.add\.u64 \t(%rd\d+), \[%rd\d+\], 1;", ptx, re.M)]
    for atom in reversed(atoms):
        if atom is atoms[0]:
            begin, step = ".reg .b32 ticket; ", "mov.u32 ticket, %ctaid.x;"
        else:
            begin, step = "", ".reg .b32 grid; mov.u32 grid, %nctaid.x; add.s32 ticket, ticket, grid;"
        split = f".reg .b64 high; .reg .b32 low; shr.u64 high, {atom[1]}, 32; cvt.u32.u64 low, high;"
        text = f"{begin}{atom[0]} {{ {step} {split} mov.b64 {atom[1]}, {{ticket, low}}; }}"
        ptx = ptx[: atom.start()] + text + ptx[atom.end() :]
    yield ptx


@pytest.mark.parametrize("name", LOOK_BACKS)
def test_tiles_numbered_by_block_index_deadlock(name):
    bench(name).check(ticket_by_block_index, {"deadlock"})
