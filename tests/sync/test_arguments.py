"""What cannot work is refused when the kernel is traced, with the arithmetic in the message; what hangs is named."""

import os
import subprocess
import sys
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest

from cutesync import emulator
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.sync import Barrier, Barriers, CompletionBarrier, NamedBarrier, Ring, Role, Roles

from . import kernels

ROOT = Path(__file__).parents[2]


class Ids(IntEnum):
    ZERO = 0
    ONE = 1
    LAST = 16


class Clash(IntEnum):
    FIRST = 1
    OTHER = 1


REFUSED = {
    "no barrier at all": (lambda: Barriers.make(0, 32), "got 0"),
    "a barrier of nobody": (lambda: Barrier.make(0), "1 to 2[*][*]20 - 1 = 1048575"),
    "a barrier of too many": (lambda: Barrier.make(1 << 20), "got 1048576"),
    "a barrier of no scope": (lambda: Barrier.make(32, scope="grid"), "'block' or 'cluster'"),
    "a completion barrier of nobody": (lambda: CompletionBarrier.make(0, lambda: None), "got 0"),
    "barrier 0 by name": (lambda: NamedBarrier(Ids.ZERO, 64), "1 to 15"),
    "barrier 16": (lambda: NamedBarrier(Ids.LAST, 64), "1 to 15"),
    "two names, one number": (lambda: NamedBarrier(Clash.FIRST, 64), "OTHER"),
    "half a warp": (lambda: NamedBarrier(Ids.ONE, 48), "48 = 1 [*] 32 [+] 16"),
    "more than a block": (lambda: NamedBarrier(Ids.ONE, 1056), "32 to 1024"),
    "more groups than ids": (lambda: NamedBarrier(Ids.ONE, 64, 2), "members of Ids"),
    "no group": (lambda: NamedBarrier(Ids.ONE, 64, 0), "1 or more"),
    "a ring without stages": (lambda: Ring.make(0, consumers=1), "got 0"),
    "a ring filled by hope": (
        lambda: Ring.make(2, consumers=1, producer="hope"),
        "'threads' or 'cp_async' or 'copies'",
    ),
    "a ring without consumers": (lambda: Ring.make(2, consumers=0), "0 consumer warps"),
    "copies by two warps": (lambda: Ring.make(2, consumers=1, producers=2), "2 producer"),
    "a role without warps": (lambda: Role("idle", 0), "1 to 32"),
    "a role without a name": (lambda: Role("not a name", 1), "identifier"),
    "registers by sevens": (lambda: Role("odd", 4, registers=25), "multiple of 8 from 24 to 256"),
    "no roles": (lambda: Roles(), "at least one"),
    "one name for two roles": (lambda: Roles(Role("a", 1), Role("a", 1)), "each name once"),
    "too many warps": (lambda: Roles(Role("a", 16), Role("b", 17)), "16 [+] 17 = 33"),
    "registers for a single warp": (
        lambda: Roles(Role("a", 1, registers=40), Role("b", 3, registers=40)),
        "whole warpgroups",
    ),
    "registers for some": (lambda: Roles(Role("a", 4, registers=40), Role("b", 4)), "every role"),
    "too many registers": (
        lambda: Roles(Role("a", 8, registers=240), Role("b", 8, registers=240)),
        "256 [*] 240 [+] 256 [*] 240 = 122880",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_is_refused_with_the_arithmetic(what):
    call, words = REFUSED[what]
    with pytest.raises(ArgumentValueError, match=words):
        call()


def test_the_wrong_type_is_refused():
    with pytest.raises(ArgumentTypeError, match="IntEnum"):
        NamedBarrier(1, 64)
    with pytest.raises(ArgumentTypeError, match="traced function"):
        CompletionBarrier.make(32, None)
    with pytest.raises(ArgumentTypeError, match="producer, consumer"):
        Roles(Role("producer", 1), Role("consumer", 1)).run(producer=lambda warp: None)


def test_the_emulator_names_the_planted_hang():
    with pytest.raises(emulator.EmulationError, match="(?s)deadlock.*65"):
        emulator.check(kernels.hang, np.zeros(64, np.int32), schedules=1)


MILLION = """
import torch, numpy as np
import cutesync as cs
x = np.arange(256, dtype=np.int32)
for how in ("token", "parity"):
    device = torch.from_numpy(x).cuda()
    got = [cs.patterns.phases.run(device, 10**6, how=how).cpu().numpy() for _ in range(2)]
    assert np.array_equal(got[0], got[1])
    assert np.array_equal(got[0], cs.patterns.phases.run(device, 10**6, how="sync_threads").cpu().numpy())
print("a million phases")
"""


def in_a_process(code: str, **environment: str) -> subprocess.CompletedProcess:
    """A kernel that hangs or traps takes its process with it, so it gets one of its own."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = os.environ | {"CUTE_DSL_ARCH": "sm_90a", "PYTHONPATH": path} | environment
    return subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.gpu
def test_a_million_phases_end():
    pytest.importorskip("torch")
    ran = in_a_process(MILLION)
    assert ran.returncode == 0 and "a million phases" in ran.stdout, ran.stderr


def test_a_debug_build_runs_as_the_plain_one_and_reports(tmp_path):
    code = """
import numpy as np
from cutesync import emulator
from tests.sync import kernels
x = np.arange(5 * kernels.THREADS, dtype=np.int32)
out = np.zeros_like(x)
emulator.check(kernels.turns, x, out, 5, "parity", schedules=9)
assert np.array_equal(out.reshape(5, -1), x.reshape(5, -1)[:, ::-1])
compiled = emulator.compile_for_emulator(kernels.hang, out[:64])
assert "globaltimer" in compiled.__ptx__ and "trap" in compiled.__ptx__ and "vprintf" in compiled.__ptx__
print("bounded")
"""
    ran = in_a_process(code, CUTESYNC_DEBUG="1", CUTESYNC_BACKEND="emulator", CUTESYNC_CACHE_DIR=str(tmp_path))
    assert ran.returncode == 0 and "bounded" in ran.stdout, ran.stderr
