"""Tiles of columns of small arrays that have one block each."""

import numpy as np

import cutesync as cs
from cutesync.kernels.reduce import lone_policy
from cutesync.runtime import call as calls

from ..cases import data, same
from .strided_cases import recorded


def test_tiles_of_small_arrays_have_blocks_of_twice_as_many_threads(monkeypatch):
    """So that no blocks wait for each other; unless threads would have too many positions."""
    chosen = recorded(monkeypatch)
    for shape, dtype in (((2, 900, 32), "uint8"), ((700, 48), "float32"), ((600, 40), "int64"), ((900, 37), "int32")):
        x = data(shape, dtype)
        same(np.asarray(cs.argmax(cs.asarray(x), axis=-2)), x.argmax(-2))
    assert [choice.policy.lanes * choice.policy.groups for choice in chosen] == [512] * 4
    assert not any(choice.policy.split for choice in chosen)
    monkeypatch.setattr(lone_policy, "WIDE_GROUPS", {128: 4, 64: 4})
    monkeypatch.setattr(calls, "_plans", {})
    same(np.asarray(cs.argmax(cs.asarray(x), axis=-2)), x.argmax(-2))
    assert chosen[-1].policy.split and chosen[-1].policy.lanes * chosen[-1].policy.groups == 256
