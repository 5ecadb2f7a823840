"""Results whose lines begin anywhere: stored by threads in aligned vectors, and nothing beside the result."""

from dataclasses import replace

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import element_type
from cutesync.kernels.matmul.policy import MatmulPolicy

from .support import few_blocks, integers, operand

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

AROUND = 0x5A  # bytes beside the result

PLAIN, SWAPPED = MatmulPolicy((64, 64), "pingpong", swap_ab=False), MatmulPolicy((64, 64), "pingpong", swap_ab=True)

# out, configuration, (M, N), columns contiguous, elements before the first and between lines
LINES = {
    "rows of 16 bits": ("float16", PLAIN, (70, 131), False, 3, 0),
    "rows of 16 bits, of the transpose": ("float16", SWAPPED, (70, 67), False, 1, 2),
    "columns of 16 bits": ("bfloat16", replace(PLAIN, tile=(64, 88)), (75, 130), True, 5, 0),
    "rows of 11 vectors": ("bfloat16", replace(PLAIN, tile=(64, 88)), (70, 181), False, 3, 1),
    "rows of 32 bits, 4 lanes a line": ("float32", replace(PLAIN, tile=(64, 48)), (66, 75), False, 1, 1),
    "columns of 32 bits, by elements": ("float32", PLAIN, (66, 75), True, 1, 1),
    "rows of 8 bits": ("int8", replace(PLAIN, tile=(64, 128)), (70, 167), False, 7, 3),
    "rows of 8 bits, a lane a line": ("int8", replace(PLAIN, tile=(64, 112)), (70, 67), False, 3, 1),
    "aligned rows of an odd length": ("float16", PLAIN, (70, 63), False, 0, 1),
    "deferred": ("float16", MatmulPolicy((128, 64), "cooperative", swap_ab=False), (259, 131), False, 1, 0),
    "cluster split": ("float16", replace(PLAIN, splits=3), (70, 131), False, 5, 0),
}
QUICK = {"columns of 16 bits"}


def beside(flat, shape: tuple[int, int], by_columns: bool, before: int, between: int):
    """A result of this shape in an array of one dimension."""
    lines, length = shape[::-1] if by_columns else shape
    step = length + between
    rows = flat[before : before + lines * step].reshape(lines, step)[:, :length]
    return rows.T if by_columns else rows


def stored(name: str) -> None:
    """The product agrees with the reference, and the bytes beside it stay."""
    out, config, shape, by_columns, before, between = LINES[name]
    (m, n), k = shape, 72
    kind = "int8" if out == "int8" else "float16"
    a, b = operand(m, k, False, kind), operand(k, n, True, kind)
    element = element_type(out).numpy
    lines, length = shape[::-1] if by_columns else shape
    got = np.full((before + lines * (length + between) + 8) * np.dtype(element).itemsize, AROUND, np.uint8).view(
        element
    )
    wanted = got.copy()
    beside(wanted, shape, by_columns, before, between)[...] = cs.reference.matmul(a, b, out_dtype=out)
    there = cs.asarray(got)
    a, b = cs.asarray(np.ascontiguousarray(a)), cs.asarray(np.ascontiguousarray(b.T)).T
    cs.matmul(a, b, out=beside(there, shape, by_columns, before, between), config=config)
    assert np.asarray(there).tobytes() == wanted.tobytes()


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LINES]
)
def test_nothing_beside_lines_is_written(name, monkeypatch):
    few_blocks(monkeypatch, 3)
    stored(name)


@pytest.mark.drawn(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_hostile_schedules(name, monkeypatch):
    few_blocks(monkeypatch, 2)
    with cs.emulate(schedules=8, seed=3):
        stored(name)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 7, 9, 65])
def test_every_length_of_the_last_line(columns):
    """C is added in place, with a bias and an activation."""
    for swapped in (False, True):
        config = MatmulPolicy((64, 64), "pingpong", swap_ab=swapped)
        a, b, c = integers(66, 40), operand(40, columns, True), integers(66, columns, seed=2)
        bias = integers(columns, seed=3)
        wanted = cs.reference.matmul(a, b, c, beta=1.0, bias=bias, activation="relu")
        cs.matmul(a, b, c, beta=1.0, bias=bias, activation="relu", out=c, config=config)
        assert np.array_equal(c, wanted)
