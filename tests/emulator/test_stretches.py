"""One function runs through several segments: with the same results, and only where no other warp may run between."""

import numpy as np
import pytest

from cutesync.emulator import ptx, stretches
from cutesync.emulator.codegen import Program
from cutesync.emulator.schedule import Schedule
from cutesync.emulator.settings import Settings

from .support import kernel_text, launch, reported

THREADS, SLOTS = 96, 8
PREFIX = f"""
\tmov.u32 %r0, %tid.x;
\tmul.wide.u32 %rd1, %r0, {4 * SLOTS};
\tadd.u64 %rd2, %a0, %rd1;
\tadd.u64 %rd3, %a1, %rd1;
\tshr.u32 %r1, %r0, 5;
\tmov.b32 %r10, 0f3F800000;
\tmov.b32 %r11, 0fC0200000;
\tmov.u32 %r12, 17;
\tadd.u32 %r13, %r0, 5;
\tmov.u32 %r14, 1;
\tmov.u32 %r15, 2;"""


class RandomKernel:
    """Statements, and branches over them, on six registers of each thread: as PTX, and carried out by NumPy.

    %r10 and %r11 hold float32, the others integers, of which %r14 and %r15 follow from thread numbers alone. A branch
    depends on a part of the lanes, on the warp, or on what has been loaded."""

    def __init__(self, seed: int, x: np.ndarray):
        self.random, self.x, self.lines, self.labels = np.random.default_rng(seed), x, [PREFIX], 0
        thread = np.arange(THREADS, dtype=np.uint32)
        self.values = [np.float32([1.0]).repeat(THREADS), np.float32([-2.5]).repeat(THREADS)]
        self.values += [np.full(THREADS, 17, np.uint32), thread + np.uint32(5)]
        self.values += [np.full(THREADS, n, np.uint32) for n in (1, 2)]
        self.out, self.thread = np.zeros((THREADS, SLOTS), np.uint32), thread
        self.block(np.ones(THREADS, bool), 14, 0)

    def draw(self, n: int) -> int:
        return int(self.random.integers(n))

    def put(self, register: int, value: np.ndarray, active: np.ndarray) -> None:
        old = self.values[register]
        self.values[register] = np.where(active, value.astype(old.dtype), old)

    def block(self, active: np.ndarray, length: int, depth: int) -> None:
        for _ in range(length):
            self.skip(active, depth) if depth < 3 and self.draw(3) == 0 else self.statement(active)

    def statement(self, active: np.ndarray) -> None:
        kind, slot, a, b = self.draw(8), self.draw(SLOTS), self.draw(2), self.draw(2)
        if kind == 0:
            self.lines.append(f"\tadd.f32 %r1{a}, %r1{a}, %r1{b};")
            self.put(a, self.values[a] + self.values[b], active)
        elif kind == 1:
            self.lines.append(f"\tmad.lo.u32 %r1{2 + a}, %r1{2 + b}, 3, %r0;")
            self.put(2 + a, self.values[2 + b] * np.uint32(3) + self.thread, active)
        elif kind == 2:
            self.lines.append(f"\tld.global.b32 %r1{2 + a}, [%rd2+{4 * slot}];")
            self.put(2 + a, self.x[:, slot], active)
        elif kind == 3:
            self.lines.append(f"\tadd.u32 %r12, %r0, {slot};")
            self.put(2, self.thread + np.uint32(slot), active)
        elif kind == 4:
            self.lines.append(f"\tmov.b32 %r1{a}, 0f40{slot}00000;")
            self.put(a, np.array(0x40000000 + (slot << 20), np.uint32).view(np.float32), active)
        elif kind == 5:
            for register in (4, 5, 4):
                self.lines.append(f"\tmad.lo.u32 %r1{register}, %r14, 5, %r15;")
                self.put(register, self.values[4] * np.uint32(5) + self.values[5], active)
        else:
            register = self.draw(6)
            self.lines.append(f"\tst.global.b32 [%rd3+{4 * slot}], %r1{register};")
            self.out[active, slot] = self.values[register].view(np.uint32)[active]

    def skip(self, active: np.ndarray, depth: int) -> None:
        self.labels += 1
        label, (kind, register, value, limit) = f"L{self.labels}", self.condition()
        self.lines += [f"\tsetp.lt.{kind} %p1, {register}, {limit};", f"\t@%p1 bra {label};"]
        self.block(active & ~(value < limit), 1 + self.draw(4), depth + 1)
        self.lines.append(f"{label}:")

    def condition(self) -> tuple[str, str, np.ndarray, int]:
        choices = [
            ("u32", "%r0", self.thread, 11 * self.draw(9)),
            ("u32", "%r1", self.thread >> np.uint32(5), self.draw(4)),
            ("s32", "%r12", self.values[2].view(np.int32), 50 - self.draw(100)),
            ("s32", "%r14", self.values[4].view(np.int32), self.draw(200)),
        ]
        return choices[self.draw(4)]


@pytest.mark.parametrize("seed", range(6))
def test_random_branches_agree_with_numpy(seed):
    x = np.random.default_rng(seed).integers(0, 1 << 32, (THREADS, SLOTS), np.uint32)
    for number in range(4):
        kernel, out = RandomKernel(100 * seed + number, x), np.zeros((THREADS, SLOTS), np.uint32)
        launch(kernel_text("\n".join(kernel.lines), 2), x, out, block=(THREADS, 1, 1), settings=Settings(schedules=9))
        assert np.array_equal(out, kernel.out)


SKIPS = """
\tmov.u32 %r0, %tid.x;
\tmul.wide.u32 %rd1, %r0, 4;
\tadd.u64 %rd2, %a0, %rd1;
\tmov.u32 %r1, 3;
\tsetp.ge.u32 %p1, %r0, 64;
\t@%p1 bra A;
\tadd.u32 %r1, %r1, 1;
\tsetp.lt.u32 %p2, %r0, 32;
\t@%p2 bra B;
\tadd.u32 %r1, %r1, 10;
B:
\tadd.u32 %r1, %r1, 100;
A:
\tst.global.b32 [%rd2], %r1;"""


def program(body: str) -> Program:
    module = ptx.parse(kernel_text(body, 1, shared=64))
    (function,) = module.functions.values()
    return Program(function, module)


def shape_of(body: str) -> stretches.Shape:
    return program(body).shape


def test_warps_that_stay_together_take_one_step(monkeypatch):
    out, settings = np.zeros(96, np.uint32), Settings(policy="round_robin")
    assert launch(kernel_text(SKIPS, 1), out, block=(96, 1, 1), settings=settings).steps == 3 * 2  # and the exit
    assert out.tolist() == [104] * 32 + [114] * 32 + [3] * 32
    monkeypatch.setattr(stretches, "shape", lambda *_: stretches.NONE)
    single, settings = np.zeros(96, np.uint32), Settings(policy="round_robin")
    assert launch(kernel_text(SKIPS, 1), single, block=(96, 1, 1), settings=settings).steps > 3 * 3
    assert np.array_equal(out, single)


def test_a_schedule_decides_as_often_where_warps_take_long_steps(monkeypatch):
    """A schedule that let a warp run through more code between two decisions would find less."""
    body = "".join(
        SKIPS.replace("A:", f"A{i}:")
        .replace("B:", f"B{i}:")
        .replace("bra A", f"bra A{i}")
        .replace("bra B", f"bra B{i}")
        + "\n\tfence.acq_rel.gpu;"
        for i in range(40)
    )
    decided = []
    monkeypatch.setattr(Schedule, "quantum", counting(Schedule.quantum, decided))
    for shape in (stretches.shape, lambda *_: stretches.NONE):
        monkeypatch.setattr(stretches, "shape", shape)
        decided.append(0)
        out = np.zeros(96, np.uint32)
        launch(kernel_text(body, 1), out, block=(96, 1, 1), settings=Settings(policy="random"))
    assert 0.7 < decided[0] / decided[1] < 1.3


def counting(function, counts: list[int]):
    def count(*arguments):
        counts[-1] += 1
        return function(*arguments)

    return count


def test_nothing_that_synchronizes_or_repeats_is_run_through():
    assert shape_of(SKIPS).skips == {0: 4, 1: 3}
    for inside in ("bar.sync 0;", "atom.global.add.u32 %r1, [%rd2], 1;", "ld.acquire.gpu.global.b32 %r1, [%rd2];"):
        found = shape_of(SKIPS.replace("add.u32 %r1, %r1, 10;", inside))
        assert not found.skips and found.breaks
    loop = shape_of(SKIPS.replace("add.u32 %r1, %r1, 10;", "LOOP: add.u32 %r1, %r1, 1;\n\t@%p1 bra LOOP;"))
    assert not loop.skips and loop.breaks
    leaving = shape_of(SKIPS.replace("add.u32 %r1, %r1, 10;", "exit;"))
    assert not leaving.skips


def test_long_code_is_cut():
    body = SKIPS + "".join(f"\n\t@%p1 bra C{i};\n\tadd.u32 %r1, %r1, 1;\nC{i}:" for i in range(700))
    kernel = program(body)
    assert len(kernel.shape.starts) >= 4
    lines = [kernel.text(i, True).count("\n") for i in kernel.shape.starts]
    assert max(lines) < 0.4 * sum(lines)


def test_a_fault_inside_a_branch_has_its_line():
    body = SKIPS.replace("add.u32 %r1, %r1, 10;", "st.global.b32 [%rd2+4096], %r1;")
    out = np.zeros(96, np.uint32)
    report = reported("out-of-bounds", "", launch, kernel_text(body, 1), out, block=(96, 1, 1))
    assert "warp 1" in report and "st.global.b32 [%rd2+4096], %r1" in report
