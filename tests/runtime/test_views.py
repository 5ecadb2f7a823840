"""Views of a DeviceArray, made at random, are those of NumPy: the same elements, shapes and strides, and errors where
NumPy needs a copy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.runtime.device_array import DeviceArray

from ..cases import same
from ..views import broadcast_to, random_view


def agrees(found: DeviceArray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    same(np.asarray(found), wanted)
    if found.size:
        pairs = zip(found.shape, found.strides, wanted.strides)
        assert all(ours == theirs for extent, ours, theirs in pairs if extent > 1)


def cut(size: int, rng: np.random.Generator) -> tuple[int, ...]:
    """A shape of ``size`` elements."""
    shape = []
    while size > 1 and rng.random() < 0.8:
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        shape.append(int(rng.choice(divisors)))
        size //= shape[-1]
    return (*shape, size)


def test_random_views_are_those_of_numpy(on_emulator):
    rng = np.random.default_rng(17)
    host = np.arange(5 * 4 * 6, dtype=np.int16).reshape(5, 4, 6)
    array, copied, laid = cs.asarray(host), 0, 0
    for _ in range(400):
        ours, theirs = random_view(rng, array, host)
        agrees(ours, theirs)
        same(np.asarray(ours.copy()), theirs)
        shape = cut(theirs.size, rng)
        wanted = theirs.reshape(shape)
        if theirs.size and not np.shares_memory(wanted, theirs):
            with pytest.raises(ArgumentValueError, match=r"reshape: got strides .*x.copy"):
                ours.reshape(shape)
            copied += 1
        else:
            agrees(ours.reshape(shape), wanted)
            laid += not ours.view.contiguous
        assert math.prod(shape) == ours.size
    assert copied > 20 and laid > 20


def test_permutations(on_emulator):
    host = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    x = cs.asarray(host)
    for axes in ((), (None,), (1, 2, 0), ((2, 0, 1),), ([0, -1, 1],)):
        agrees(x.transpose(*axes), host.transpose(*axes))
    agrees(x.swapaxes(0, -1), host.swapaxes(0, -1))
    agrees(x[0, 0, 0].transpose(), host[0, 0, 0].transpose())
    agrees(broadcast_to(x[:, None], (5, 2, 7, 3, 4)), np.broadcast_to(host[:, None], (5, 2, 7, 3, 4)))
    agrees(broadcast_to(x[1, 2, 3], 3), np.broadcast_to(host[1, 2, 3], 3))


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda x: x.transpose(0, 1), ValueError, "each of 3 axes once"),
        (lambda x: x.transpose(0, 0, 1), ValueError, "each of 3 axes once"),
        (lambda x: x.transpose(0, 1, 3), ValueError, "axis 3; needs -3 to 2"),
        (lambda x: x.transpose("01"), TypeError, "an int"),
        (lambda x: x.swapaxes(0, 3), ValueError, "axis 3; needs -3 to 2"),
        (lambda x: x.swapaxes(0, None), TypeError, "an int"),
        (lambda x: x.broadcast_to((3, 4)), ValueError, "more axes in front"),
        (lambda x: x.broadcast_to((2, 3, 5)), ValueError, "more axes in front"),
        (lambda x: x.broadcast_to((2, -1, 4)), ValueError, "extents of 0 or more"),
        (lambda x: x.broadcast_to(1.5), TypeError, "an int or a tuple"),
    ],
)
def test_views_that_are_refused(on_emulator, use, error, words):
    with pytest.raises(error, match=words) as raised:
        use(cs.asarray(np.zeros((2, 3, 4), np.int8)))
    assert isinstance(raised.value, (ArgumentValueError, ArgumentTypeError))
