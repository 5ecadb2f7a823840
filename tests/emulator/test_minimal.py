"""The shortest change of order that shows a fault."""

import random

import numpy as np
import pytest

from cutesync.emulator import POLICIES, EmulationError, Settings, minimal

from .support import kernel_text, launch

LOCKS = """
\tmov.u32 %r0, %tid.x;
\tand.b32 %r9, %r0, 31;
\tshr.u32 %r8, %r0, 5;
\tmov.u32 %r1, smem;
\tmad.lo.u32 %r2, %r0, 4, %r1;
\tsetp.lt.u32 %p9, %r0, 2;
\t@%p9 st.shared.b32 [%r2], 0;
\tbar.sync 0;
\tsetp.ne.u32 %p1, %r9, 0;
\t@%p1 bra OUT;
\tmad.lo.u32 %r3, %r8, 4, %r1;
\txor.b32 %r4, %r8, 1;
\tmad.lo.u32 %r4, %r4, 4, %r1;
\tmov.u32 %r20, 0;
FIRST:
\tatom.acquire.cta.shared.cas.b32 %r5, [%r3], 0, 1;
\tsetp.ne.u32 %p2, %r5, 0;
\t@%p2 bra FIRST;
SECOND:
\tatom.acquire.cta.shared.cas.b32 %r5, [%r4], 0, 1;
\tsetp.ne.u32 %p2, %r5, 0;
\t@%p2 bra SECOND;
\tatom.release.cta.shared.exch.b32 %r5, [%r4], 0;
\tatom.release.cta.shared.exch.b32 %r5, [%r3], 0;
\tadd.u32 %r20, %r20, 1;
\tsetp.lt.u32 %p5, %r20, 6;
\t@%p5 bra FIRST;
OUT:"""


def report(body: str, seed: int = 0, jobs: int = 1) -> list[str]:
    settings = Settings(schedules=2 * len(POLICIES), seed=seed, minimal=True, jobs=jobs)
    with pytest.raises(EmulationError) as found:
        launch(kernel_text(body, 1, shared=64), np.zeros(64, np.uint32), block=(64, 1, 1), settings=settings)
    assert str(found.value) == found.value.report.text()
    return found.value.report.lines


@pytest.mark.parametrize("seed", range(3))
def test_two_locks_in_opposite_orders_need_one_warp_between(seed):
    """Warp 1 is interrupted when it holds its first lock, or warp 0 is: one or two changes of the plain order."""
    lines = report(LOCKS, seed)
    (head,) = (i for i, line in enumerate(lines) if line.startswith("shortest order that shows it"))
    assert int(lines[head].split(": ")[1].split()[0]) <= 2 and "seed=" in lines[head]
    runs = lines[head + 1 :]
    assert runs and all("runs when" in who for who in runs[::2]) and any(".shared." in at for at in runs[1::2])
    assert report(LOCKS, seed, jobs=2) == lines


def test_a_race_shows_in_the_plain_order():
    assert report("\tmov.u32 %r0, %tid.x;\n\tst.global.b32 [%a0], %r0;")[-1] == minimal.PLAIN


def test_no_change_that_matters_is_left_out():
    draw = random.Random(5)
    for _ in range(20):
        every = [minimal.Change(None, i, "runs", (0, 0), 0) for i in range(draw.randrange(1, 60))]
        needed = draw.sample(every, draw.randrange(1, min(len(every), 5) + 1))
        found = minimal.shortest(every, lambda some, needed=needed: set(needed) <= set(some))
        assert sorted(found) == sorted(needed)
    assert minimal.shortest(every, lambda some: False) is None and minimal.shortest(every, lambda some: True) == []
