"""Every scan kernel compiles for sm_90a, without a GPU: no spills, no local memory, the shared memory that launches
declare."""

from __future__ import annotations

import re

import pytest

from cutesync import dtypes
from cutesync.kernels.scan.plan import Meaning, kernel_for
from cutesync.kernels.scan.policy import Config, Problem, choose
from cutesync.ops import operator

from ..cases import bicyclic
from ..compiled import assert_overlaps, cubin_figures, tell_figures

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]

# shapes (rows, length, inner) that between them reach every kernel, team, group, vector width and tile size
EVERY_CONFIG = [
    (9, 3, 1),
    (9, 20, 1),
    (9, 37, 1),
    (9, 200, 1),
    (9, 3000, 1),
    (9, 16000, 1),
    (9, 1001, 1),
    (1, 1000, 1),
    (1, 4001, 1),
    (1, 10**5, 1),
    (1, 2 * 10**6, 1),
    (1, 10**8, 1),
    (300, 2800, 3),
    (1, 10**7, 2),
    (1, 10**4, 40),
    (1, 50, 10**6),
    (1, 10**6, 5),
    (1, 10**5, 64),
]
ROWS, WAVE, PIPELINE, COLUMNS, SLABS = (9, 3000, 1), (1, 10**6, 1), (1, 10**8, 1), (1, 10**4, 10**4), (1, 10**7, 9)


def verify(config: Config, meaning: Meaning, count) -> tuple:
    kernel = kernel_for(config, meaning)
    ptx = kernel.ptx
    assert re.findall(r"^\.target (.*)$", ptx, re.M) in (["sm_90a"], ["sm_90a, debug"])
    assert re.findall(r"\.entry (\w+)", ptx) == [kernel.name] and kernel.name.startswith("cutesync_scan")
    assert tuple(map(int, re.search(r"\.reqntid (\d+), (\d+), (\d+)", ptx).groups())) == kernel.block
    assert kernel.params == (8, 8, 8, meaning.register()[0], 8, 8, 8, 8, 8, 4)
    assert_overlaps(ptx)
    assert not re.search(r"\.local\b|ld\.local|st\.local", ptx), "local memory in the PTX"
    assert not re.search(r"\bcall\b|vprintf|\btrap\b", ptx), "a function call or a trap in the PTX"
    assert not re.search(r"^\s*\.shared .*\[\d+\];", ptx, re.M), "static shared memory, which launches do not count"
    assert count.total <= kernel.smem <= count.total + 512, f"{kernel.smem} bytes declared, {count.total} allocated"
    count.total = 0
    assert kernel.smem <= 227 * 1024 and kernel.cluster == (1, 1, 1)
    registers, frame = cubin_figures(kernel.cubin)
    assert frame == 0, f"{config.kernel} of {meaning.source}: {frame} bytes of stack a thread, spills or local arrays"
    assert 0 < registers * kernel.block[0] <= 65536
    return (
        " ".join(map(str, config.kernel)) + f" {meaning.op.name}",
        meaning.source.name,
        kernel.block[0],
        kernel.smem,
        registers,
    )


def meaning_of(
    op, dtype: str, result: str | None = None, exclusive: bool = False, reverse: bool = False, **start
) -> Meaning:
    source, target = dtypes.dtype(dtype), dtypes.dtype(result or dtype)
    return Meaning(operator(op), source, target.accumulator, target, exclusive, reverse, **start)


def config_of(shape, meaning: Meaning, x: int = 0) -> Config:
    return choose(Problem(*shape, meaning.source.size, meaning.result.size, x, 0))


def test_every_configuration(allocated, capsys):
    meaning = meaning_of("add", "float32")
    configs = {config_of(shape, meaning) for shape in EVERY_CONFIG}
    kinds = {(config.kernel[0], config.width) for config in configs}
    assert kinds == {
        ("short_rows", 1),
        ("rows", 1),
        ("columns", 1),
        ("slabs", 1),
        ("wave", 1),
        ("wave", 3),
        ("pipeline", 1),
        ("pipeline", 2),
    }
    assert {config.kernel[1] for config in configs if config.kernel[0] == "wave"} == {True, False}
    assert {config.kernel[-1] for config in configs if config.kernel[0] == "rows"} == {True, False}
    tell_figures(capsys, [verify(config, meaning, allocated) for config in configs])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float64"])
def test_every_type(dtype, allocated):
    """Those of most and of fewest elements a vector in the other kernels too."""
    meaning = meaning_of("add", dtype)
    for shape in (PIPELINE, *((WAVE, ROWS, SLABS) if dtype in ("bool", "uint8", "float64") else ())):
        verify(config_of(shape, meaning), meaning, allocated)


def test_few_columns_of_many_elements_a_vector(allocated):
    meaning = meaning_of("add", "int8")
    config = config_of((1, 10**8, 3), meaning)
    assert config.kernel[0] == "pipeline" and config.width == 3
    verify(config, meaning, allocated)


@pytest.mark.parametrize(
    ("op", "dtype"),
    [("mul", "int64"), ("min", "float64"), ("max", "float32"), ("and", "int8"), ("or", "bool"), ("xor", "int64")],
)
def test_every_operator(op, dtype, allocated):
    meaning = meaning_of(op, dtype)
    verify(config_of(PIPELINE, meaning), meaning, allocated)


@pytest.mark.parametrize(
    ("op", "dtype", "options"),
    [
        (bicyclic, "int64", {"reverse": True}),
        (lambda a, b: a + b, "int8", {"exclusive": True, "start": 0}),
        ("add", "int8", {"result": "int64", "start_in_memory": True}),
        ("add", "float16", {"exclusive": True, "reverse": True, "start": 0.0}),
        ("max", "float32", {"result": "float16", "reverse": True}),
    ],
    ids=["bicyclic", "a lambda", "wider", "half", "narrower"],
)
def test_callables_ways_and_dtype(op, dtype, options, allocated):
    meaning = meaning_of(op, dtype, **options)
    for shape in (PIPELINE, *((COLUMNS, SLABS) if op is bicyclic else ())):
        verify(config_of(shape, meaning), meaning, allocated)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_inputs_off_by_one_element(dtype, allocated):
    meaning = meaning_of("add", dtype)
    verify(config_of(PIPELINE, meaning, meaning.source.size), meaning, allocated)
