"""How many blocks are to fit the registers of a multiprocessor: more than would anyway, where there are so many."""

import pytest

import cutesync as cs
from cutesync.runtime import device

from ..compiled import dry, needed


def resident(function, *given, **options) -> int:
    with device.forced("dry"):
        (spec,) = needed(function, *given, **options)
        return spec.key[1].resident


@pytest.mark.parametrize(("shape", "blocks"), [((13, 92, 4075), 4), ((21, 309, 4649), 1)])
def test_words_that_begin_anywhere(shape, blocks):
    """Of 414 and 382 blocks."""
    assert resident(cs.any, dry(shape, "uint8"), axis=1) == blocks


@pytest.mark.parametrize(("columns", "blocks"), [(65536, 2), (20800, 1)])
def test_bytes_in_order(columns, blocks):
    x = dry((1024 if blocks == 2 else 108, columns), "int8")
    assert resident(cs.reduce, x, lambda a, b: a * 2 + b, axis=0) == blocks
    assert resident(cs.max, x, axis=0) == 1


@pytest.mark.parametrize(("rows", "blocks"), [(303, 4), (34, 1)])
def test_runs_in_order(rows, blocks):
    x = dry((rows, 16923), "uint8")[:, :16821]
    assert resident(cs.reduce, x, lambda a, b: a * 2 + b, axis=1) == blocks


@pytest.mark.parametrize(("rows", "blocks"), [(854308, 6), (100000, 1)])
def test_slices(rows, blocks):
    x = dry((rows, 43), "int8")[:, :33]
    assert resident(cs.reduce, x, lambda a, b: a * 2 + b, axis=1) == blocks
