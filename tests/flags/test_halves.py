"""Flags of two-byte types, found two keys at a time: as those of NumPy, of numbers that are none and of both zeros,
too."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes, reference
from cutesync.kernels.flags import strided_policy, tile_policy, words
from cutesync.runtime import call

from ..cases import same
from .cases import keys
from .test_vectors import as_all, large  # noqa: F401

SLOW = pytest.mark.slow
SHAPES = [((9, 40), 0), ((31, 6), 0), ((3, 11, 24), 1), ((5, 67), 0), ((4, 3, 70), 1)]


def special(shape, dtype: str) -> np.ndarray:
    """Keys with floats that are no numbers, infinities, zeros of both signs, and the smallest numbers."""
    host = keys(shape, dtype)
    if host.dtype.kind == "f":
        bits = [0x7C00, 0xFC00, 0x7C01, 0xFE00, 0x0000, 0x8000, 0x0001, 0x3C00]
        host = np.array(bits, np.uint16)[np.random.default_rng(host.size).integers(0, len(bits), host.size)]
        return host.view(np.float16).reshape(shape)
    return host


@pytest.mark.drawn(4)
@pytest.mark.parametrize("op", ["ne", "eq"])
@pytest.mark.parametrize("dtype", ["float16", "int16", pytest.param("uint16", marks=SLOW)])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_two_keys_at_once(shape, axis, dtype, op, large, monkeypatch, on_emulator):  # noqa: F811
    for name, value in (("MAX_HALF", 0), ("LONG_SLICE", 2)):
        monkeypatch.setattr(strided_policy, name, value)
    host = special(shape, dtype)
    for name in ("flag_heads", "flag_tails", "flag_heads_and_tails"):
        found = getattr(cs, name)(cs.asarray(host), op, axis=axis)
        wanted = getattr(reference, name)(host, op, axis=axis)
        for one, other in zip(as_all(found), as_all(wanted)):
            same(np.asarray(one), other, f"{name} {op}")
    assert all(choice.policy.by_words for choice in large)


@pytest.mark.parametrize("dtype", ["float16", "int16"])
def test_bits_and_other_orders(dtype, large, on_emulator):  # noqa: F811
    """Words of columns, results that are stored down the rows, and tiles that blocks transpose."""
    host = special((66, 72), dtype)
    for view in (lambda x: x, lambda x: x.T, lambda x: x[:, ::-1]):
        for axis in (0, 1):
            for options in ({}, {"dtype": "bits"}):
                found = cs.flag_heads_and_tails(view(cs.asarray(host)), axis=axis, **options)
                for one, other in zip(found, reference.flag_heads_and_tails(view(host), axis=axis, **options)):
                    same(np.asarray(one), other, f"{axis} {options}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int16"])
def test_two_keys_differ_as_numbers_do(dtype):
    """Of all pairs of special keys, and in both halves of a word."""
    bits = [
        0x0000,
        0x8000,
        0x0001,
        0x7F80,
        0xFF80,
        0x7F81,
        0x7FFF,
        0xFFFF,
        0x7C00,
        0xFC00,
        0x7C01,
        0x7BFF,
        0x3C00,
        0x8001,
    ]
    shift = 16 if dtype == "bfloat16" else 0

    def number(key: int):
        if dtype == "int16":
            return key
        return (np.uint32(key << shift).view(np.float32)) if shift else np.uint16(key).view(np.float16)

    for a in bits:
        for b in bits:
            top = words._differing(dtypes.dtype(dtype), a | b << 16, b | a << 16)
            wanted = bool(number(a) != number(b))
            assert (bool(top & 0x8000), bool(top & 0x80000000)) == (wanted, wanted), (hex(a), hex(b))


@pytest.mark.parametrize("before", [2, 4, 6])
def test_bits_of_runs_in_pieces_of_a_row(monkeypatch, before):
    """A row's four elements are two pieces of memory."""
    monkeypatch.setattr(tile_policy, "MIN_TRANSPOSED", 0)
    monkeypatch.setattr(call, "_plans", {})
    host = keys((before + 256,), "uint16")
    theirs = host[before:].reshape(8, 8, 4).transpose(1, 2, 0)
    ours = cs.asarray(host)[before:].reshape(8, 8, 4).transpose(1, 2, 0)
    found = cs.flag_heads_and_tails(ours, axis=0, dtype="bits")
    for one, other in zip(found, reference.flag_heads_and_tails(theirs, axis=0, dtype="bits")):
        same(np.asarray(one), other)
