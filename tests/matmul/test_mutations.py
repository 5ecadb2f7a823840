"""Faults planted in the compiled matmul: the emulator must find each of them. Those of source document 002 are among them."""

import re

import numpy as np
import pytest

import cutesync as cs
from cutesync.emulator import EmulationError
from cutesync.matmul import Config, config
from cutesync.runtime import compiler, device, workspace

from .support import operand

pytestmark = pytest.mark.slow

COOPERATIVE = Config((128, 64), "cooperative", (2, 1), stages=2)
PINGPONG = Config((64, 64), "pingpong", stages=2)
SPLIT = Config((64, 64), "pingpong", stages=2, splits=3)


def drop(pattern: str, which: int = 0):
    """Delete one instruction: the ``which``-th line that matches."""

    def edit(ptx: str) -> str:
        found = list(re.finditer(rf"^[^\n]*{pattern}[^\n]*\n", ptx, re.M))
        return ptx[: found[which].start()] + ptx[found[which].end() :]

    return edit


def swap(pattern: str, new: str):
    return lambda ptx: re.sub(pattern, new, ptx)


def every(pattern: str):
    return lambda ptx: re.sub(rf"^[^\n]*{pattern}[^\n]*\n", "", ptx, flags=re.M)


def empty_count(change: int):
    """Change the arrivals that the empty barriers expect: the second group of initialisations."""

    def edit(ptx: str) -> str:
        inits = list(re.finditer(r"mov\.b32 \t(%r\d+), (\d+);\s+mbarrier\.init", ptx))
        at = inits[1]
        return ptx[: at.start(2)] + str(int(at[2]) + change) + ptx[at.end(2) :]

    return edit


FAULTS = {
    "the empty barriers never initialised": (COOPERATIVE, lambda ptx: without_empty_barriers(ptx)),
    "the full barriers expect a warpgroup's arrivals": (COOPERATIVE, swap(r"mov\.b32 (\t%r\d+), 1;(\s+mbarrier\.init)", r"mov.b32 \1, 128;\2")),
    "a stage released before the tensor cores have read it": (COOPERATIVE, swap(r"wgmma\.wait_group\.sync\.aligned \t1;", "wgmma.wait_group.sync.aligned \t2;")),
    "the same, pingpong": (PINGPONG, swap(r"wgmma\.wait_group\.sync\.aligned \t1;", "wgmma.wait_group.sync.aligned \t2;")),
    "accumulators stored before the last multiplications": (COOPERATIVE, drop(r"wgmma\.wait_group\.sync\.aligned \t0")),
    "one arrival too many expected on an empty barrier": (COOPERATIVE, empty_count(+1)),
    "a whole warpgroup's arrivals not waited for": (COOPERATIVE, empty_count(-8)),
    "the arrivals of one consumer warpgroup, doubled": (PINGPONG, empty_count(+4)),
    "fewer bytes expected than a stage has": (COOPERATIVE, swap(r"mov\.b32 (\t%r\d+), 24576;", r"mov.b32 \1, 16384;")),
    "more bytes expected than a stage has": (COOPERATIVE, swap(r"mov\.b32 (\t%r\d+), 24576;", r"mov.b32 \1, 24592;")),
    "released on the own block's barrier alone": (COOPERATIVE, swap(r"mapa\.shared::cluster\.u32 (\t%r\d+), (%r\d+), %r\d+;", r"mapa.shared::cluster.u32 \1, \2, 0;")),
    "the slab stored without a proxy fence": (COOPERATIVE, every(r"fence\.proxy\.async")),
    "the slab stored before all threads have filled it": (COOPERATIVE, every(r"bar\.sync \t%r\d+, 128")),
    "a slab filled while TMA reads it": (PINGPONG, every(r"cp\.async\.bulk\.wait_group\.read")),
    "no cluster barrier after the barriers' initialisation": (COOPERATIVE, every(r"barrier\.cluster\.")),
    "shares counted before they are written": (SPLIT, drop(r"bar\.sync \t%r\d+, 128", 0)),
    "shares counted without a release": (SPLIT, swap(r"atom\.global\.acq_rel\.gpu\.inc", "atom.global.relaxed.gpu.inc")),
    "shares counted for the block alone": (SPLIT, swap(r"atom\.global\.acq_rel\.gpu\.inc", "atom.global.acq_rel.cta.inc")),
    "the notice read before it is written": (SPLIT, drop(r"bar\.sync \t%r\d+, 128", 1)),
    "a counter that does not wrap": (SPLIT, swap(r"(atom\.global\.acq_rel\.gpu)\.inc(\.u32 [^,]*, [^,]*), %r\d+;", r"\1.add\2, 1;")),
    "the producer leaves with loads of its peer in flight": (COOPERATIVE, lambda ptx: skip_tail(ptx)),
}


def without_empty_barriers(ptx: str) -> str:
    first, second = re.finditer(r"mov\.b32 \t%r\d+, \d+;\n(\tmbarrier\.init[^\n]*\n)+", ptx)
    return ptx[: second.start()] + ptx[second.end() :]


def skip_tail(ptx: str) -> str:
    """Make the waits of ``producer_tail``, the last that the producer does, fall through: one a stage."""
    begin = ptx.index("setmaxnreg.dec")
    end = ptx.find("setmaxnreg.inc", begin)
    waits = list(re.finditer(r"bra\.uni\s+LAB_WAIT;", ptx[begin : end if end > 0 else len(ptx)]))
    for wait in reversed(waits[-COOPERATIVE.stages :]):
        ptx = ptx[: begin + wait.start()] + ptx[begin + wait.end() :]
    return ptx


@pytest.fixture(autouse=True)
def _emulator(on_emulator, monkeypatch):
    monkeypatch.setattr(config, "SMS", 2)
    monkeypatch.setattr(compiler, "_kernels", {})
    yield
    workspace.forget(device.HOST, 0)  # a mutant may leave the counters anywhere


def plant(monkeypatch, edit) -> None:
    get, done = compiler.get, []

    def edited(*arguments, **options):
        kernel = get(*arguments, **options)
        if kernel in done:
            return kernel
        done.append(kernel)
        changed = edit(kernel.ptx)
        assert changed != kernel.ptx, "the fault was not planted: the kernel's PTX has changed its form"
        kernel.ptx = changed
        return kernel

    monkeypatch.setattr(compiler, "get", edited)


def run(chosen: Config):
    """Several tiles a block and k-tiles a tile."""
    a, b = operand(100 if chosen.splits > 1 else 264, 264, False), operand(264, 72, True)
    with cs.emulate(schedules=6, seed=4):
        results = [cs.matmul(a, b, config=chosen) for _ in range(2 if chosen.splits > 1 else 1)]
    return all(np.array_equal(got, cs.reference.matmul(a, b)) for got in results)


@pytest.mark.parametrize("chosen", [COOPERATIVE, PINGPONG, SPLIT], ids=["cooperative", "pingpong", "split"])
def test_the_kernels_as_they_are(chosen):
    assert run(chosen)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault, monkeypatch):
    chosen, edit = FAULTS[fault]
    plant(monkeypatch, edit)
    try:
        agreed = run(chosen)
    except EmulationError:
        return
    assert not agreed, "the mutant survived"
