"""Every kernel of strided arrays, and of slices in shared memory, agrees with NumPy under hostile schedules over all
policies, the sanitizer watching."""

import numpy as np
import pytest

import cutesync as cs

from ..cases import bicyclic, brackets, data, fold, same, with_slow
from .strided_cases import SLICES, VIEWS, kernels_of, rows, slices

SCHEDULES = 12
# what: (data, call, what it must give for rows)
WHAT = {
    "sum": (
        lambda shape: data(shape, "int32"),
        lambda x, axis: cs.reduce(x, axis=axis),
        lambda r: r.sum(-1, dtype=np.int32),
    ),
    "order": (brackets, lambda x, axis: cs.reduce(x, bicyclic, axis=axis), lambda r: fold(bicyclic, r)),
    "argmax": (lambda shape: data(shape, "int32") >> 27, cs.argmax, lambda r: r.argmax(-1)),
}


@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("what", with_slow(WHAT, {"order", "argmax"}))
def test_agrees_under_schedules(name, what):
    shape, index, axis, *_ = VIEWS[name]
    make, call, expected = WHAT[what]
    x = make(shape)
    if what == "order" and ("vectors" in name or "runs" in name):  # 8-byte elements change the geometry
        pytest.skip("this kernel's geometry is one of 4-byte elements")
    with kernels_of(name) as seen, cs.emulate(schedules=SCHEDULES, seed=11) as ran:
        got = np.asarray(call(cs.asarray(x)[index], axis))
        assert len(seen) == 1 and ran.launches == SCHEDULES
    same(got, np.asarray(expected(rows(x[index], axis))), name)


@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize("what", with_slow(WHAT, {"order", "sum"}))
def test_slices_agree_under_schedules(name, what):
    shape, index, axis = SLICES[name]
    make, call, expected = WHAT[what]
    x = make(shape)
    with slices(), cs.emulate(schedules=SCHEDULES, seed=11):
        same(np.asarray(call(cs.asarray(x)[index], axis)), expected(rows(x[index], axis)), name)
