"""Schedules in processes: the same verdict as one after the other, and a child that dies costs nothing."""

import os

import numpy as np
import pytest

from cutesync.emulator import EmulationError, Settings
from cutesync.emulator.parallel import in_processes

from .support import kernel_text, launch

BODY = """
\tmov.u32 %r0, %tid.x;
\tatom.global.add.u32 %r1, [%a0], 1;
\tsetp.lt.u32 %p1, %r0, 32;
\tmul.wide.u32 %rd1, %r0, 4;
\tadd.u64 %rd2, %a0, %rd1;
\t@%p1 st.global.b32 [%rd2+AT], VALUE;
\t@!%p1 st.global.b32 [%rd2+128], VALUE;"""


@pytest.mark.parametrize("jobs", (2, 3, 7))
def test_processes_do_all_the_work(jobs):
    parent = os.getpid()
    results = in_processes(jobs, range(3, 20), lambda number: (number * number, os.getpid()))
    assert list(results) == list(range(3, 20)) and all(results[n][0] == n * n for n in results)
    assert len({process for _, process in results.values()}) == jobs

    def dies(number: int) -> int:
        if os.getpid() != parent and number % 5 == 4:
            os._exit(3)
        return -number

    assert in_processes(jobs, range(20), dies) == {number: -number for number in range(20)}


def test_schedules_in_processes_find_the_same():
    def outcome(jobs: int, body: str):
        x, settings = np.zeros(256, np.uint32), Settings(schedules=11, jobs=jobs, seed=3)
        try:
            launch(kernel_text(body, 1), x, block=(64, 1, 1), settings=settings)
        except EmulationError as error:
            return str(error)
        notes = [report.as_dict() for report in settings.findings]
        return x.tolist(), settings.steps, settings.launches, notes

    expected = {("128", "7"): [], ("256", "7"): ["warning: race"], ("256", "%r0"): "race", ("128", "%r1"): "mismatch"}
    for (at, value), found in expected.items():
        body = BODY.replace("AT", at).replace("VALUE", value)
        alone = outcome(1, body)
        assert outcome(2, body) == alone == outcome(4, body)
        if isinstance(found, str):
            assert alone.startswith(found)
        else:
            assert alone[2] == 11 and {f"{note['severity']}: {note['kind']}" for note in alone[3]} == set(found)
