"""Faults planted in the compiled scan kernels: the emulator must find each of them, and nothing in the kernels as they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.emulator import EmulationError
from cutesync.runtime import compiler, device, workspace

from ..cases import data, same, scanned
from .kernels import columns, force, pipeline, rows, slabs, wave

pytestmark = pytest.mark.slow

Edit = Callable[[str], Iterator[str]]

# name: (configuration, shape, axis), and whether from the end
KERNELS = {
    "rows": (rows(2, 2), (6, 101), 1),
    "ragged rows": (rows(2, 2, ragged=True), (6, 203), 1),
    "one tile": (wave(4, 1), (501,), 0),
    "wave": (wave(2, 1), (1203,), 0),
    "columns": (columns(2, 4, 8, 2, 3), (101, 12), 0),
    "slabs": (slabs(4, 3, 2, 2, 3), (143, 5), 0),
    "slabs from the end": (slabs(4, 3, 2, 2, 3), (143, 5), 0, True),  # the short tile is the first: a whole one follows
    "pipeline": (pipeline(4, 2, 4, 1, 2, 2), (4, 1101), 1),
}


@pytest.fixture(autouse=True)
def _clean_workspace():
    """A mutant may leave the counters anywhere: the tests that follow get a workspace of their own."""
    yield
    workspace.forget(device.HOST, 0)


class Bench:
    """One kernel, and the same with its PTX changed."""

    def __init__(self, name: str, monkeypatch) -> None:
        choice, shape, axis, *reverse = KERNELS[name]
        self.how = {"axis": axis, "reverse": any(reverse)}
        force(monkeypatch, choice)
        monkeypatch.setattr(compiler, "_kernels", {})
        get = compiler.get

        def edited(*arguments, **options):
            self.kernel = get(*arguments, **options)
            return self.kernel

        monkeypatch.setattr(compiler, "get", edited)
        self.x = data(shape, "int32")
        self.wanted = scanned(self.x, **self.how)
        self.run(1)
        self.ptx = self.kernel.ptx

    def run(self, schedules: int = 9) -> None:
        """Two scans on one workspace, each under all policies; few blocks fit."""
        with cs.emulate(), emulator.emulate(schedules=schedules, seed=3, resident=2):
            array = cs.asarray(self.x)
            for _ in range(2):
                same(np.asarray(cs.scan(array, **self.how)), self.wanted)

    def finds(self, ptx: str) -> str:
        """What goes wrong with that code: the kind of the report, "result", or nothing."""
        assert ptx != self.ptx, "the fault was not planted"
        workspace.forget(device.HOST, 0)
        self.kernel.ptx = ptx
        try:
            self.run()
        except EmulationError as error:
            return error.kind
        except AssertionError:
            return "result"
        return ""


def each(pattern: str, change: Callable[[re.Match], str]) -> Edit:
    """One mutant for each match."""

    def edit(ptx: str) -> Iterator[str]:
        for match in re.finditer(pattern, ptx, re.M):
            yield ptx[: match.start()] + change(match) + ptx[match.end() :]

    return edit


def drop(pattern: str) -> Edit:
    return each(rf"^[ \t]*{pattern}[^;\n]*;", lambda match: ";")


def swap(pattern: str, old: str, new: str) -> Edit:
    return each(pattern, lambda match: match[0].replace(old, new))


def shifted(instruction: str, by: int) -> Edit:
    """The last operand of an instruction, plus ``by``."""
    return each(
        rf"^([ \t]*{instruction}[^;\n]*, )(%r\d+);",
        lambda m: f"{{ .reg .b32 other; add.s32 other, {m[2]}, {by}; {m[1]}other; }}",
    )


def ticket_by_block_index(ptx: str) -> Iterator[str]:
    """The answer of the first atomic gets the block's index for its low half; later ones follow in steps of the grid."""
    atom = re.search(r"^[ \t]*atom\.global\.add\.u64 \t(%rd\d+), [^;]*;", ptx, re.M)
    index = "{ .reg .b64 high; .reg .b32 low; shr.u64 high, %s, 32; cvt.u32.u64 low, high; mov.b64 %s, {index, low}; }"
    text = f"{atom[0]} {{ .reg .b32 index; mov.u32 index, %ctaid.x; {index % (atom[1], atom[1])} }}"
    rest = ptx[atom.end() :]
    again = re.search(r"^[ \t]*atom\.global\.add\.u64 \t(%rd\d+), \[%rd\d+\], 1;", rest, re.M)
    if again:
        step = f"{{ .reg .b32 index, grid; cvt.u32.u64 index, {again[1]}; mov.u32 grid, %nctaid.x; add.s32 index, index, grid; "
        # what the register holds from the time before is this block's last number
        rest = f"{rest[: again.start()]} {step} {index % (again[1], again[1])} }} {rest[again.end() :]}"
    yield ptx[: atom.start()] + text + rest


WAIT = r"^([ \t]*mbarrier\.try_wait\.parity\.shared\.b64 (\w+), [^\n]*\], )(%r\d+|0)(, \d+;)"

FLAGS = {
    "a state published by a plain store": swap(r"st\.relaxed\.gpu\.global\.b64", "st.relaxed.gpu", "st"),
    "a state published for the block alone": swap(r"st\.relaxed\.gpu\.global\.b64", "gpu", "cta"),
    "states read by plain loads": lambda ptx: iter([ptx.replace("ld.relaxed.gpu.global.b64", "ld.global.b64")]),
    "states read within the block alone": lambda ptx: iter(
        [ptx.replace("ld.relaxed.gpu.global.b64", "ld.relaxed.cta.global.b64")]
    ),
    "the epoch never raised": lambda ptx: iter([list(drop(r"(atom|red)\.global\.add")(ptx))[-1]]),
}
BARRIERS = {"a block barrier dropped": drop(r"bar\.sync")}
RING = {
    "no init": drop(r"mbarrier\.init"),
    "one arrival more": shifted(r"mbarrier\.init\.shared\.b64", 1),
    "one arrival fewer": shifted(r"mbarrier\.init\.shared\.b64", -1),
    "no init fence": lambda ptx: iter([re.sub(r"^[ \t]*fence\.mbarrier_init[^;\n]*;", ";", ptx, flags=re.M)]),
    "no block barrier after init": drop(r"bar\.sync"),
    "an arrival dropped": drop(r"mbarrier\.arrive\."),
    "an arrival doubled": each(r"^[ \t]*mbarrier\.arrive\.shared[^;\n]*;", lambda m: 2 * m[0]),
    "more bytes expected": shifted(r"mbarrier\.arrive\.expect_tx", 16),
    "fewer bytes expected": shifted(r"mbarrier\.arrive\.expect_tx", -16),
    "a wait dropped": each(WAIT, lambda m: f"setp.eq.b32 {m[2]}, 0, 0;"),
    "a wait for the other phase": each(
        WAIT, lambda m: f"{{ .reg .b32 flip; xor.b32 flip, {m[3]}, 1; {m[1]}flip{m[4]} }}"
    ),
    "no sync_warp before a release": drop(r"bar\.warp\.sync"),
}
RESULTS = {
    "a barrier of the workers dropped": drop(r"bar(rier)?\.sync"),
    "a stage loaded before its results are stored": drop(r"cp\.async\.bulk\.wait_group"),
}
FAULTS = [
    *(("rows", name, edit) for name, edit in BARRIERS.items()),
    *(("ragged rows", name, edit) for name, edit in BARRIERS.items()),
    *(("one tile", name, edit) for name, edit in BARRIERS.items()),
    *((kernel, name, edit) for kernel in ("wave", "columns") for name, edit in {**FLAGS, **BARRIERS}.items()),
    *(("slabs", name, edit) for name, edit in {**FLAGS, **RING, **RESULTS}.items()),
    *(("pipeline", name, edit) for name, edit in {**FLAGS, **RING}.items()),
]


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_as_they_are(name, monkeypatch):
    Bench(name, monkeypatch).run()


@pytest.mark.parametrize(
    ("kernel", "fault", "edit"), [pytest.param(*case, id=f"{case[0]}-{case[1]}") for case in FAULTS]
)
def test_every_planted_fault_is_found(kernel, fault, edit, monkeypatch):
    bench = Bench(kernel, monkeypatch)
    mutants = list(edit(bench.ptx))
    assert mutants, "nowhere to plant it: the kernel's PTX has changed its form"
    found = [bench.finds(ptx) for ptx in mutants]
    print(found)
    assert all(found), f"mutants {[i for i, kind in enumerate(found) if not kind]} of {len(found)} survived"


FENCES = [("pipeline", {"proxy-read"}), ("slabs from the end", {"proxy", "proxy-read"})]


@pytest.mark.parametrize(("kernel", "kinds"), FENCES)
def test_every_proxy_fence_is_needed(kernel, kinds, monkeypatch):
    """Threads read the pipeline's stages and copies fill them; those of slabs hold results, too, which copies store."""
    bench = Bench(kernel, monkeypatch)
    found = [bench.finds(ptx) for ptx in drop(r"fence\.proxy\.async")(bench.ptx)]
    assert set(found) == kinds


@pytest.mark.parametrize("kernel", ["wave", "columns", "slabs", "pipeline"])
def test_tiles_numbered_by_block_index_deadlock(kernel, monkeypatch):
    bench = Bench(kernel, monkeypatch)
    (ptx,) = ticket_by_block_index(bench.ptx)
    assert bench.finds(ptx) == "deadlock"
