"""Flags as bits of few columns that lie inside the flagged axis: a lane has all of them. They agree with the reference,
at the ends of rows and of arrays that begin anywhere."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import tile_policy
from cutesync.kernels.flags.strided_choice import BallotPolicy

from ..cases import same
from ..views import broadcast_to
from .cases import keys
from .test_flat import NAMES
from .test_vectors import INDEXED, check, large  # noqa: F401

SLOW = pytest.mark.slow
COLUMNS = [
    ((2, 3, 169, 2), "float16", 2),
    ((300, 6), "int8", 0),
    ((2, 130, 8), "bool", 1),
    ((3, 129, 2), "int64", 1),
    ((2, 257, 5), "int16", 1),
]


@pytest.mark.parametrize(
    ("shape", "dtype", "axis"), [pytest.param(*c, marks=[SLOW] * (i > 2)) for i, c in enumerate(COLUMNS)]
)
def test_bits_of_few_columns(shape, dtype, axis, large, on_emulator):  # noqa: F811
    host = keys(shape, dtype)
    for options in ({}, {"successor": 1}, {"op": INDEXED}):
        check(host, lambda x: x, axis, NAMES[1:3], dtype="bits", **options)
    assert all(isinstance(choice.policy, BallotPolicy) and choice.policy.columns == shape[-1] for choice in large)


def test_bits_of_columns_of_a_slice(large, on_emulator):  # noqa: F811
    """Columns with gaps behind them, that begin anywhere; and some items alone count."""
    host = keys((3, 140, 5), "int16")
    check(host, lambda x: x[:, 3:, 1:4], 1, NAMES[1:3], dtype="bits")
    view = lambda x: x[1:, 3:, 1:3]  # noqa: E731
    found, wanted = (
        of.flag_tails(view(x), axis=1, dtype="bits", n=99) for of, x in ((cs, cs.asarray(host)), (reference, host))
    )
    same(np.asarray(found)[:, :4], wanted[:, :4], "of 99 items")
    assert all(isinstance(choice.policy, BallotPolicy) for choice in large)


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda x: x[..., ::-1], id="backwards"),
        pytest.param(lambda x: broadcast_to(x[..., 1:2], (3, 70, 4)), id="repeated"),
    ],
)
def test_bits_of_columns_that_are_no_run(view, on_emulator):
    """A tile of columns that run backwards or repeat is not loaded as a run of memory, though its rows follow each
    other: float16 (2, 4, 400, 2) reversed along the last axis read beyond the array."""
    for dtype in ("float16", "int8"):
        check(keys((3, 70, 4), dtype), view, 1, NAMES[1:3], dtype="bits")
        check(keys((3, 70, 4), dtype)[..., :2].copy(), lambda x: x[..., ::-1], 1, NAMES[1:2], dtype="bits")


@pytest.mark.parametrize("words", [4, pytest.param(8, marks=SLOW)])
def test_words_of_columns(words, large, monkeypatch, on_emulator):  # noqa: F811
    """A thread has several words of a column that are neighbours in the output, where there are as many."""
    monkeypatch.setattr(tile_policy, "WORDS", ((words, 0),))
    for shape, dtype in (((6, 256), "uint16"), ((2, 5, 509), "int8"), ((3, 500), "float64")):
        host = keys(shape, dtype)
        view = lambda x: x.transpose((*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))  # noqa: E731
        turned = np.ascontiguousarray(view(host))
        for options in ({}, {"successor": 1}):
            check(turned, view, len(shape) - 1, NAMES[1:3], dtype="bits", **options)
    assert all(choice.policy.words == words for choice in large)


def test_words_of_columns_of_floats(large, monkeypatch, on_emulator):  # noqa: F811
    """Of floats of two bytes, a thread has one word of a column."""
    monkeypatch.setattr(tile_policy, "WORDS", ((4, 0),))
    for dtype, words in (("float16", 1), ("bfloat16", 1), ("float32", 4)):
        check(keys((256, 6), dtype), lambda x: x.T, 1, NAMES[1:2], dtype="bits")
        assert [choice.policy.words for choice in large] == [words]
        large.clear()
