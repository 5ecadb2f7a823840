"""Operators on the host: names and identities."""

import numpy as np
import pytest

from cutesync import dtypes, ops
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from .cases import DTYPES, NAMES, data, has_meaning, numpy_dtype


@pytest.mark.parametrize(("op", "dtype"), [(o, d) for o in NAMES for d in DTYPES if has_meaning(o, d)])
def test_the_identity_changes_nothing(op, dtype):
    operator = ops.operator(op)
    value = operator.identity(dtypes.dtype(dtype))
    if op in ("min", "max"):
        assert value is None
        return
    x = data(20, dtype, "xor" if dtype == "bool" else "add")
    if op in ("any", "all"):
        x = x != 0
    neutral = np.full(20, value).astype(x.dtype)
    assert np.array_equal(operator.numpy(neutral, x), x)
    assert np.array_equal(operator.numpy(x, neutral), x)


@pytest.mark.parametrize("op", NAMES)
def test_bitwise_operators_have_no_meaning_for_floats(op):
    operator = ops.operator(op)
    for dtype in DTYPES:
        if has_meaning(op, dtype):
            operator.check(dtypes.dtype(dtype))
        else:
            with pytest.raises(ArgumentTypeError, match=op):
                operator.check(dtypes.dtype(dtype))


def test_a_name_is_its_own_key_and_no_callable_can_have_it():
    assert {ops.operator(name).key for name in NAMES} == set(NAMES)
    assert ops.operator(lambda a, b: a + b).key not in NAMES


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        *(
            (name, ArgumentValueError, "add, mul, min, max, and, or, xor, any, all")
            for name in ("plus", "", "ADD", "+")
        ),
        *((other, ArgumentTypeError, "callable of two values") for other in (None, 1, ["add"])),
    ],
)
def test_what_is_no_operator(bad, error, words):
    """An unknown name lists the known ones."""
    with pytest.raises(error, match=words):
        ops.operator(bad)


def test_numpy_runs_the_same_callable():
    x = data(10, "int32")
    assert np.array_equal(ops.operator(lambda a, b: a - b).numpy(x, x), np.zeros(10, numpy_dtype("int32")))
