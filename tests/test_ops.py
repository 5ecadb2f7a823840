"""Operators on the host: names, identities, and the key that says when two callables are the same."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from .cases import DTYPES, NAMES, data, has_meaning, numpy_dtype

from cutesync import dtypes, ops
from cutesync.errors import ArgumentTypeError, ArgumentValueError

FACTOR = 3
TABLE = [1, 2, 3]


@pytest.mark.parametrize(("op", "dtype"), [(o, d) for o in NAMES for d in DTYPES if has_meaning(o, d)])
def test_the_identity_changes_nothing(op, dtype):
    operator = ops.operator(op)
    element = dtypes.dtype(dtype)
    value = operator.identity(element)
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
    assert ops.source_key(lambda a, b: a + b) not in NAMES


@pytest.mark.parametrize("bad", ["plus", "", "ADD", "+"])
def test_unknown_names_list_the_known_ones(bad):
    with pytest.raises(ArgumentValueError, match="add, mul, min, max, and, or, xor, any, all"):
        ops.operator(bad)


@pytest.mark.parametrize("bad", [None, 1, ["add"]])
def test_what_is_neither_name_nor_callable(bad):
    with pytest.raises(ArgumentTypeError, match="callable of two values"):
        ops.operator(bad)


class TestSourceKey:
    def test_equal_source_has_an_equal_key(self):
        one = lambda a, b: a + b * 2  # noqa: E731
        two = lambda a, b: a + b * 2  # noqa: E731
        assert one is not two and ops.source_key(one) == ops.source_key(two) is not None

    @pytest.mark.parametrize(
        "other",
        [lambda a, b: a + b * 4, lambda a, b: b + a * 2, lambda a, b: a - b * 2, lambda a, b: a + b * 2.0, lambda a, b, c=1: a + b * 2, lambda a, b: a + b * FACTOR],
    )
    def test_other_source_has_another(self, other):
        assert ops.source_key(other) != ops.source_key(lambda a, b: a + b * 2)

    def test_captured_numbers_are_in_the_key(self):
        def make(m):
            return lambda a, b: (a + b) % m

        keys = [ops.source_key(make(m)) for m in (7, 8, 7, 7.0, True, 1)]
        assert None not in keys
        assert keys[0] == keys[2] and len(set(keys)) == 5

    def test_defaults_are_in_the_key(self):
        def make(m):
            def op(a, b, shift=m):
                return a + b + shift

            return op

        assert ops.source_key(make(1)) != ops.source_key(make(2))

    def test_keyword_defaults_are_in_the_key(self):
        def make(m):
            def op(a, b, *, shift=m):
                return a + b + shift

            return op

        assert ops.source_key(make(1)) != ops.source_key(make(2))

    def test_a_global_number_is_in_the_key(self, monkeypatch):
        def op(a, b):
            return a + b * FACTOR

        before = ops.source_key(op)
        monkeypatch.setitem(op.__globals__, "FACTOR", 4)
        assert before is not None and ops.source_key(op) != before

    def test_a_global_number_that_changes_is_noticed_without_help(self, monkeypatch):
        """The key of one function object is remembered; a changed global must not meet the old key."""

        def op(a, b):
            return a - b * FACTOR

        before = ops.source_key(op)
        monkeypatch.setitem(op.__globals__, "FACTOR", 4)
        assert ops.source_key(op) != before

    def test_a_module_is_captured_by_name(self):
        assert ops.source_key(lambda a, b: math.gcd(a, b)) is not None
        assert ops.source_key(lambda a, b: math.gcd(a, b)) != ops.source_key(lambda a, b: math.lcm(a, b))

    @pytest.mark.parametrize("captured", [[1], {}, np.ones(2), object(), TABLE, lambda v: v], ids=["list", "dict", "array", "object", "global", "function"])
    def test_captured_objects_have_no_key(self, captured):
        assert ops.source_key(lambda a, b: a + captured) is None

    def test_a_global_object_has_no_key(self):
        assert ops.source_key(lambda a, b: a + TABLE[0]) is None
        assert ops.source_key(lambda a, b: helper(a) + b) is None

    def test_a_global_used_by_an_inner_function_has_no_key(self):
        """Code inside the callable reads globals too."""
        assert ops.source_key(lambda a, b: (lambda v: v + TABLE[0])(a) + b) is None

    def test_a_global_number_of_an_inner_function_is_in_the_key(self, monkeypatch):
        def make():
            return lambda a, b: (lambda v: v * FACTOR)(a) + b

        before = ops.source_key(make())
        monkeypatch.setitem(globals(), "FACTOR", 5)
        assert ops.source_key(make()) != before

    def test_objects_that_are_no_plain_functions_have_no_key(self):
        class Callable:
            def __call__(self, a, b):
                return a + b

            def method(self, a, b):
                return a + b

        assert ops.source_key(Callable()) is None
        assert ops.source_key(Callable().method) is None
        assert ops.source_key(np.add) is None
        assert ops.source_key(max) is None

    def test_default_that_is_an_object_has_no_key(self):
        def op(a, b, table=TABLE):
            return a + b

        assert ops.source_key(op) is None

    def test_a_cell_that_is_not_filled_yet_has_no_key(self):
        def outer():
            op = lambda a, b: a + later  # noqa: E731
            key = ops.source_key(op)
            later = 3
            return key, later

        assert outer()[0] is None

    def test_the_key_is_the_same_in_another_process(self):
        script = "from cutesync import ops\nK = 5\nprint(ops.source_key(lambda a, b: (a + b) % K))"
        keys = {
            subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True, env={**__import__("os").environ, "PYTHONHASHSEED": seed}).stdout
            for seed in ("1", "2")
        }
        assert len(keys) == 1 and "None" not in keys.pop()


def helper(v):
    return v


def test_numpy_runs_the_same_callable():
    x = data(10, "int32")
    assert np.array_equal(ops.operator(lambda a, b: a - b).numpy(x, x), np.zeros(10, numpy_dtype("int32")))
