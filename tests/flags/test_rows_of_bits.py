"""Bits of odd rows, and of arrays backwards, whose words blocks join from the flags of a run of memory: they agree with
the reference."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import order, packed_policy, plan, strided_policy
from cutesync.kernels.flags.strided_choice import PackedPolicy

from ..cases import same
from ..compiled import dry
from ..views import broadcast_to
from .cases import keys

SLOW = pytest.mark.slow
INDEXED = lambda a, b, index: (a != b) & (index % 3 != 1)  # noqa: E731
ROWS = [  # shape, type, elements before the first, between rows, a step of both axes
    ((5, 371), "int8", 0, 0, 1),
    ((9, 71), "float16", 1, 12, 1),
    ((3, 530), "bool", 3, 0, 1),
    ((7, 101), "int32", 1, 0, 1),
    ((20, 43), "int8", 0, 9, -1),
    ((30, 83), "float32", 1, 13, 1),
    ((3, 431), "int16", 1, 0, -1),
    ((1, 3000), "uint8", 5, 0, -1),
    ((2, 9001), "bfloat16", 0, 0, 1),
    ((40, 13), "int64", 1, 0, 1),
    ((40, 17), "uint8", 3, 0, 1),
]


@pytest.fixture
def chosen(monkeypatch) -> list:
    """The policies that are chosen, of arrays that count as large."""
    back = dict.fromkeys((1, 2, 4), 0)
    limits = {"MIN_ELEMENTS": ((0, 0),), "MIN_LONG_BYTES": 0, "MIN_APART": 0, "MIN_BACK": back}
    for limit, value in limits.items():
        monkeypatch.setattr(packed_policy, limit, value)
    monkeypatch.setattr(order, "MIN_REPEATED", 0)
    for limit in ("FEW_THREADS", "MAX_EQUAL"):
        monkeypatch.setattr(strided_policy, limit, 0)
    found, strided = [], plan.strided_spec
    monkeypatch.setattr(plan, "strided_spec", lambda choice, *rest: found.append(choice) or strided(choice, *rest))
    return found


def check(name: str, view, host, **options) -> None:
    with cs.emulate():
        found = getattr(cs, name)(view(cs.asarray(host)), **options)
    wanted = getattr(reference, name)(view(host), **options)
    for one, other in zip(found, wanted) if isinstance(found, tuple) else [(found, wanted)]:
        same(np.asarray(one), other)


@pytest.mark.parametrize(
    ("shape", "dtype", "offset", "gap", "step"), [pytest.param(*c, marks=[SLOW] * (i > 2)) for i, c in enumerate(ROWS)]
)
def test_bits_of_odd_rows(chosen, shape, dtype, offset, gap, step):
    rows, length = shape
    host = keys(rows * (length + gap) + offset, dtype)
    view = lambda x: x[offset:].reshape(rows, length + gap)[::step, :length][:, ::step]  # noqa: E731
    check("flag_heads_and_tails", view, host, dtype="bits")
    check("flag_heads_and_tails", view, host, dtype="bits", predecessor=1, successor=0)
    check("flag_tails", view, host, op=INDEXED, dtype="bits")
    assert {type(choice.policy).__name__ for choice in chosen} == {"PackedPolicy"}


@pytest.mark.parametrize("length", [33, 64, 65, 371, 5000])
@pytest.mark.parametrize("gap", [0, 3, 40])
@pytest.mark.parametrize("most", [505, 8177])
def test_a_block_never_has_more_elements_than_its_threads(length, gap, most):
    """Of whichever rows its words are, with what lies between these."""
    each, pitch = -(-length // 32), length + gap
    words = packed_policy._words(pitch, each, most)
    begins = [row * pitch + 32 * word for row in range(words + 2) for word in range(each)]
    ends = [min(begin + 32, begin // pitch * pitch + length) for begin in begins]
    assert words and max(ends[first + words - 1] - begins[first] for first in range(each)) <= most


LIMITS = [  # type, extents of memory, view, vectors of a thread; 0: other kernels
    ("int8", (1 << 13, 51), lambda x: x, 1),
    ("int8", (1 << 9, 51), lambda x: x, 0),  # votes of so few take less time
    ("int8", (1 << 14, 399), lambda x: x, 2),
    ("float32", (1 << 14, 399), lambda x: x, 4),
    ("float64", (99, 2091), lambda x: x, 0),  # warps have rows of so few
    ("int64", (1 << 16, 343), lambda x: x[:, 1:], 0),  # wide elements are not loaded for those between rows
    ("int16", (1 << 16, 344), lambda x: x[:, 72:], 0),  # vectors load these where they lie
    ("int16", (1 << 16, 343), lambda x: x[:, 72:], 4),
    ("int32", (1 << 23,), lambda x: x[::-1], 4),
    ("int64", (1 << 23,), lambda x: x[::-1], 0),
]


@pytest.mark.parametrize(("dtype", "shape", "view", "vectors"), LIMITS)
def test_which_rows_are_flagged_by_blocks_of_words(monkeypatch, dtype, shape, view, vectors):
    found, strided = [], plan.strided_spec
    monkeypatch.setattr(plan, "strided_spec", lambda choice, *rest: found.append(choice) or strided(choice, *rest))
    cs.flag_heads(view(dry(shape, dtype)), dtype="bits")
    assert [choice.policy.unroll for choice in found if type(choice.policy) is PackedPolicy] == [vectors] * (
        vectors > 0
    )


REPEATED = [((3, 200, 4), "int8"), ((2, 9, 5), "float16"), ((400, 3), "float64"), ((3, 70, 2), "bool")]


@pytest.mark.parametrize(("shape", "dtype"), [pytest.param(*c, marks=[SLOW] * (i > 1)) for i, c in enumerate(REPEATED)])
def test_rows_of_few_columns_that_are_equal(chosen, shape, dtype):
    host, axis = keys((*shape[:-2], 1, 2 * shape[-1]), dtype), len(shape) - 2
    view = lambda x: broadcast_to(x[..., ::2], shape)  # noqa: E731
    check("flag_heads_and_tails", view, host, axis=axis)
    check("flag_tails", view, host, axis=axis, op=INDEXED)
    if dtype != "bool":
        check("adjacent_difference", view, host, axis=axis)
    assert {type(choice.policy).__name__ for choice in chosen} == {"ColumnsPolicy"}
    check("flag_heads_and_tails", view, host, axis=axis, dtype="bits")


def test_words_that_are_equal_along_rows(chosen):
    host = keys((5, 1), "float32")
    view = lambda x: broadcast_to(x, (5, 333))  # noqa: E731
    check("flag_heads_and_tails", view, host, dtype="bits")
    (choice,) = chosen
    assert choice.axes[1].extent == 333  # neighbouring threads have neighbouring words
