"""Rows of bytes, which are scanned as words of four."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs

from ..cases import same, scanned

WAYS = ({}, {"reverse": True}, {"exclusive": True, "init": 5}, {"exclusive": True, "reverse": True, "init": 5})


@pytest.mark.drawn(2)
@pytest.mark.parametrize("op", ["add", "min", "max"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_all_values(dtype, op, on_emulator):
    """Every value comes first, last, and after values of either sign, in rows of whole vectors and in others."""
    x = np.random.default_rng(7).permutation(np.tile(np.arange(256), 10)).astype(np.uint8).view(dtype)
    x = (x // 2).astype(dtype) if op != "add" else x
    for shape, way in (((20, 128), WAYS[:2]), ((6, 403), WAYS[2:])):
        rows = x[: np.prod(shape)].reshape(shape)
        for how in way:
            given = {} if op == "add" and "init" in how else how
            same(np.asarray(cs.scan(cs.asarray(rows), op, axis=1, **given)), scanned(rows, op, axis=1, **given), how)
