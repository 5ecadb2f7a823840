"""Every kernel in every configuration compiles for sm_90a, without a GPU: no spills, no local memory, the sizes that
launches declare."""

from __future__ import annotations

import re

import pytest

from cutesync import dtypes
from cutesync.kernels.reduce.plan import Folding, kernel_for
from cutesync.kernels.reduce.policy import Config, Problem, choose
from cutesync.ops import operator

from ..cases import DTYPES, bicyclic, has_meaning
from ..compiled import assert_overlaps, cubin_figures, tell_figures

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]

# shapes (outer, length, inner) that between them reach every kernel, scope, block size and vector width
EVERY_CONFIG = [
    (1, 1, 1),
    (1, 2, 1),
    (9, 3, 1),
    (9, 4, 1),
    (9, 7, 1),
    (9, 8, 1),
    (9, 16, 1),
    (9, 20, 1),
    (9, 37, 1),
    (9, 64, 1),
    (9, 100, 1),
    (9, 128, 1),
    (1, 1000, 1),
    (1, 3000, 1),
    (1, 9000, 1),
    (5000, 300, 1),
    (5000, 2000, 1),
    (300, 5000, 1),
    (5000, 10**5, 1),
    (1, 10**5, 1),
    (1, 10**6, 1),
    (1, 10**8, 1),
    (1, 1 << 10, 1),
    (1, 1 << 16, 1),
    (1, 1 << 22, 1),
    (1, 1 << 27, 1),
    (3, 1 << 20, 1),
    (300, 1 << 14, 1),
    (3, 10**6, 1),
    (3, 10**8, 1),
    (1, 50, 2),
    (1, 10**6, 2),
    (1, 50, 3),
    (1, 10**6, 3),
    (1, 10**6, 4),
    (1, 10**6, 5),
    (1, 10**6, 7),
    (1, 10**6, 8),
    (1, 10**6, 16),
    (20000, 50, 3),
    (1, 9, 40),
    (1, 50, 40),
    (1, 10**5, 40),
    (1, 10**5, 41),
    (1, 50, 256),
    (1, 10**4, 256),
    (1, 50, 10**4),
    (1, 10**4, 10**4),
    (1, 3, 10**6),
    (20000, 50, 40),
]
ONE_OF_EACH = [(9, 37, 1), (1, 10**6, 1), (1, 10**5, 40)]  # rows, segments, columns
EVERY_KERNEL = [
    (9, 3, 1),
    (9, 37, 1),
    (1, 3000, 1),
    (5000, 2000, 1),
    (1, 10**6, 1),
    (3, 10**6, 1),
    (1, 10**6, 3),
    (1, 10**5, 40),
]


def element_sizes(folding: Folding) -> tuple[int, ...]:
    return (8, 8, folding.register()[0], 8, 8, 8, 8, 8, 4, 4)


def verify(config: Config, folding: Folding, has_init: bool = False, count=None) -> tuple:
    kernel = kernel_for(config, folding, has_init)
    ptx = kernel.ptx
    assert re.findall(r"^\.target (.*)$", ptx, re.M) in (["sm_90a"], ["sm_90a, debug"])
    entries = re.findall(r"\.entry (\w+)", ptx)
    assert entries == [kernel.name] and kernel.name.startswith("cutesync_reduce")
    assert tuple(map(int, re.search(r"\.reqntid (\d+), (\d+), (\d+)", ptx).groups())) == kernel.block
    assert kernel.params == element_sizes(folding)
    assert_overlaps(ptx)
    assert not re.search(r"\.local\b|ld\.local|st\.local", ptx), "local memory in the PTX"
    assert not re.search(r"\bcall\b|vprintf|\btrap\b", ptx), "a function call or a trap in the PTX"
    static = sum(int(size) for size in re.findall(r"^\s*\.shared .*\[(\d+)\];", ptx, re.M))
    assert static == 0, "static shared memory, which launches do not count"
    if count is not None:
        assert kernel.smem >= count.total, f"{kernel.smem} bytes declared, {count.total} allocated"
        assert kernel.smem <= count.total + 256, f"{kernel.smem} bytes declared, only {count.total} allocated"
        count.total = 0
    assert kernel.smem <= 227 * 1024 and kernel.cluster == (1, 1, 1)
    registers, frame = cubin_figures(kernel.cubin)
    assert frame == 0, f"{config.kernel} of {folding.source}: {frame} bytes of stack a thread, spills or local arrays"
    assert 0 < registers * kernel.block[0] <= 65536
    op = folding.op if folding.is_arg else folding.op.name
    return (" ".join(map(str, config.kernel)) + f" {op}", folding.source.name, kernel.block[0], kernel.smem, registers)


def folding_of(op, dtype: str, result: str | None = None, transform=None) -> Folding:
    source = dtypes.dtype(dtype)
    target = source if result is None else dtypes.dtype(result)
    if op in ("argmin", "argmax"):
        return Folding(op, source, source, dtypes.INT64)
    if op in ("any", "all"):
        return Folding(operator(op), source, source.accumulator, dtypes.BOOL, transform)
    return Folding(operator(op), source, target.accumulator, target, transform)


def config_of(shape, folding: Folding, aligned: bool = True) -> Config:
    return choose(Problem(*shape, folding.source.size, folding.slot_words, aligned, aligned))


def test_every_configuration(allocated, capsys):
    folding = folding_of("add", "float32")
    configs = {
        config_of(shape, folding, aligned).kernel: config_of(shape, folding, aligned)
        for shape in EVERY_CONFIG
        for aligned in (True, False)
    }
    assert {kernel[0] for kernel in configs} == {"segments", "rows", "whole_rows", "columns", "narrow"}
    assert {kernel[1] for kernel in configs if kernel[0] == "segments"} == {"warp", "block", "grid", "grid_rows"}
    tell_figures(capsys, [verify(config, folding, count=allocated) for config in configs.values()])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(dtype, allocated):
    folding = folding_of("add", dtype)
    for config in {config_of(shape, folding).kernel: config_of(shape, folding) for shape in ONE_OF_EACH}.values():
        verify(config, folding, count=allocated)


@pytest.mark.parametrize("op", ["mul", "min", "max", "and", "or", "xor", "any", "all"])
def test_every_operator(op, allocated):
    for dtype in ("bool", "int8", "float64"):
        same_as_another = dtype == "bool" and op in ("mul", "min", "max")  # of bool: they are "and", "and" and "or"
        if has_meaning(op, dtype) and not same_as_another:
            folding = folding_of(op, dtype)
            verify(config_of((1, 10**6, 1), folding), folding, count=allocated)


@pytest.mark.parametrize(("op", "dtype"), [("argmin", "int8"), ("argmax", "float64")])
def test_argmin_and_argmax(op, dtype, allocated):
    folding = folding_of(op, dtype)
    for shape in EVERY_KERNEL:
        verify(config_of(shape, folding), folding, count=allocated)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(bicyclic, "int64"), (lambda a, b: a + b, "int8"), (lambda a, b: a | b, "bool")],
    ids=["bicyclic", "int8", "bool"],
)
def test_callables(op, dtype, allocated):
    folding = folding_of(op, dtype)
    for shape in EVERY_KERNEL if op is bicyclic else ONE_OF_EACH:
        verify(config_of(shape, folding), folding, count=allocated)


@pytest.mark.parametrize(
    ("dtype", "result"),
    [("int8", "int64"), ("bool", "int32"), ("float16", "float32"), ("float32", "float16"), ("int32", "float64")],
)
def test_init_transform_and_dtype(dtype, result, allocated):
    folding = folding_of("add", dtype, result, transform=lambda v: v * v)
    for shape in ONE_OF_EACH:
        verify(config_of(shape, folding), folding, has_init=True, count=allocated)


@pytest.mark.parametrize("scope", ["level", "atomic"])
def test_the_other_rungs(scope, allocated):
    """The configurations of algorithm="multi_launch" and "atomic"."""
    for dtype in ("int32", "float64"):
        verify(Config(("segments", scope, 16, 4, 2), 1, 1, 8), folding_of("add", dtype), count=allocated)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill(dtype):
    verify(Config(("fill",), 1, 1, 1), folding_of("add", dtype), has_init=True)
