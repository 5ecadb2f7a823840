"""Small arrays share allocations of the default stream; an allocation lives as long as any of them."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import cutesync as cs
from cutesync.runtime import slots


class Memory:
    """An allocation."""

    def __init__(self, handle: int) -> None:
        self.handle = handle


@pytest.fixture(autouse=True)
def latest(monkeypatch):
    monkeypatch.setattr(slots, "_latest", {})


def test_slots_of_a_chunk_do_not_overlap():
    assert slots.take(0) is None
    memory = Memory(1 << 20)
    found = [slots.add(0, memory)]
    while (more := slots.take(0)) is not None:
        found.append(more)
    assert [address for address, _ in found] == list(range(1 << 20, (1 << 20) + slots.CHUNK, slots.SLOT))
    assert all(owner is memory for _, owner in found)
    assert slots.take(0) is None and slots.take(1) is None


def test_a_chunk_lives_as_long_as_its_arrays():
    first = weakref.ref(slots.add(0, Memory(0))[1])
    held = slots.take(0)
    other = slots.add(0, Memory(1 << 20))
    assert first() is held[1] and slots.take(0)[1] is other[1]
    del held
    assert first() is None


def test_devices_have_chunks_of_their_own():
    of_each = [slots.add(ordinal, Memory(ordinal << 30)) for ordinal in range(3)]
    assert [slots.take(ordinal) for ordinal in (2, 0, 1)] == [
        ((ordinal << 30) + slots.SLOT, of_each[ordinal][1]) for ordinal in (2, 0, 1)
    ]


@pytest.mark.gpu
def test_small_results_keep_their_values():
    """More results than a chunk has slots, of several kinds, kept and freed in turn, on two streams in turn."""
    x = cs.asarray(np.arange(1000, dtype=np.int64))
    kept = [cs.sum(x[: i + 1], stream=(0, 1)[i % 2]) for i in range(200)]
    others = [cs.cumsum(x[i : i + 32]) for i in range(100)]
    del kept[::3]
    more = [cs.max(x[: i + 1]) for i in range(100)]
    whole = [i * (i + 1) // 2 for i in range(200)]
    del whole[::3]
    assert [int(y) for y in kept] == whole
    assert [int(y) for y in more] == list(range(100))
    assert all(np.array_equal(y, np.cumsum(np.arange(i, i + 32))) for i, y in enumerate(others))
    assert len({y.ptr for y in (*kept, *more, *others)}) == len(kept) + 200
