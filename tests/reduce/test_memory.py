"""Kernels write their result and nothing else, and read nothing outside their input."""

import numpy as np
import pytest

import cutesync as cs

from ..cases import data, same

pytestmark = pytest.mark.gpu

BAND = 64  # elements before and after


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((37,), None),
        ((2500,), None),
        ((70_001,), None),
        ((1001, 3), 1),
        ((1001, 3), 0),
        ((333, 37), 1),
        ((37, 333), 0),
        ((100, 300), 1),
        ((6, 50_000), 1),
        ((20_000, 17), 0),
        ((50_000, 5), 0),
        ((5, 7, 11), (0, 2)),
        ((5, 0), 1),
    ],
    ids=str,
)
def test_guard_bands_around_out_stay(dtype, shape, axis):
    x = data(shape, dtype)
    wanted = cs.reference.reduce(x, axis=axis)
    for skew in (0, 1, 3):
        device = cs.asarray(np.full(2 * BAND + skew + wanted.size, 77, wanted.dtype))
        out = (
            device[BAND + skew : BAND + skew + wanted.size].reshape(*wanted.shape)
            if wanted.shape
            else device[BAND + skew : BAND + skew + 1].reshape(())
        )
        cs.reduce(cs.asarray(x), axis=axis, out=out)
        found = np.asarray(device)
        same(found[BAND + skew : BAND + skew + wanted.size].reshape(wanted.shape), wanted)
        assert (found[: BAND + skew] == 77).all() and (found[BAND + skew + wanted.size :] == 77).all()


@pytest.mark.parametrize(
    ("shape", "axis"), [((70_001,), None), ((1001, 3), 1), ((20_000, 17), 0), ((50_000, 5), 0)], ids=str
)
def test_the_input_stays(shape, axis):
    x = data(shape, "int32")
    array = cs.asarray(x)
    cs.reduce(array, axis=axis)
    same(np.asarray(array), x)
