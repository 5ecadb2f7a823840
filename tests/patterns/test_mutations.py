"""Faults planted in the compiled pattern kernels: the emulator finds each, or the result is wrong."""

import pytest

import cutesync as cs
from cutesync.emulator import POLICIES

from .. import faults
from .cases import PATTERNS, same

pytestmark = pytest.mark.slow

# name: the number of elements; together they have every kind of synchronization of the patterns
SIZES = {
    "bulk": 3001,
    "tokens": 700,
    "parity": 700,
    "pipeline": 1100,
    "early exit": 300,
    "completion": 300,
    "transactions, copy": 700,
    "transactions, by hand": 600,
    "ping pong": 600,
    "phases by token": 100,
    "shared_tree": 300,
    "register_tree": 300,
    "list by block": 4200,
    "list by warp": 600,
    "list by scan": 1500,
    "scan of counts": 1500,
    "relay": 90,
}
MAX_STEPS = 60_000  # of a launch without end; those with one take fewer than 5000
OWN_THREADS = "only threads of the block use the barrier, and the block barrier orders them"
TOKEN = "arrives only to get a token: it has written nothing"
HARMLESS = (
    {
        (name, "no init fence #0"): OWN_THREADS
        for name in (
            "tokens",
            "parity",
            "pipeline",
            "early exit",
            "completion",
            "transactions, by hand",
            "phases by token",
        )
    }
    | {
        (name, mutant): OWN_THREADS
        for name in ("tokens", "parity")
        for mutant in ("no init fence #1", "no init fence at all #0")
    }
    | {("tokens", f"a relaxed arrival #{i}"): TOKEN for i in (0, 2, 3, 4)}
    | {
        ("bulk", f"no init fence #{i}"): "the other fence of thread 0 serves the barriers that copies signal"
        for i in range(2)
    }
    | {
        ("pipeline", "no block barrier #0"): "the DSL's pipeline brings a block barrier of its own",
        ("pipeline", "no block barrier #1"): "the DSL's pipeline brings a block barrier of its own",
        ("ping pong", "named barrier number #1"): "it becomes number 0, which nobody else uses",
        ("shared_tree", "no block barrier #8"): "thread 0 has written the last cell itself",
    }
)


@pytest.mark.parametrize("name", SIZES)
def test_no_mutant_survives(name, on_emulator):
    pattern = PATTERNS[name]
    x = pattern.make(SIZES[name])
    wanted = pattern.wanted(x)

    def right() -> bool:
        try:
            if pattern.ordered:
                with cs.emulate(schedules=9, seed=3, max_steps=MAX_STEPS):
                    return same(pattern.run(x), wanted, True)
            for policy in POLICIES:
                with cs.emulate(policy, 3, max_steps=MAX_STEPS):
                    if not same(pattern.run(x), wanted, False):
                        return False
            return True
        except ValueError:  # a list longer than its room is refused by the call
            return False

    # the mutants of the kernel that "list by scan" launches second are those of "scan of counts"
    bench = faults.Bench(right, skip="places" if name == "list by scan" else "")
    harmless = sorted(mutant for pattern, mutant in HARMLESS if pattern == name)
    assert sorted(bench.survivors(faults.TABLE, harmless)) == harmless
