"""Every scan kernel compiles for sm_90a, without a GPU: no spills, no local memory, the shared memory that launches
declare."""

from __future__ import annotations

import functools
import math

import pytest

import cutesync as cs
from cutesync.dtypes import dtype as element_type
from cutesync.kernels.scan.cluster_policy import ColumnClusterPolicy
from cutesync.kernels.scan.column_policy import ColumnPolicy, ColumnTilePolicy
from cutesync.kernels.scan.narrow_policy import NarrowPolicy
from cutesync.kernels.scan.policy import PipelinePolicy
from cutesync.kernels.scan.row_policy import RowPolicy, ShortRowPolicy
from cutesync.kernels.scan.slice_policy import SlicePolicy
from cutesync.kernels.scan.wave_policy import WavePolicy
from cutesync.runtime.device import DRY
from cutesync.runtime.device_array import DeviceArray

from ..cases import bicyclic
from ..compiled import dry, needed, tell_figures, verify as verify_kernel

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]

# shapes (rows, length, inner) that between them reach every kernel, team, group, vector width and tile size
EVERY_CONFIG = [
    (9, 3, 1),
    (9, 20, 1),
    (20_000, 37, 1),
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
    (1, 5 * 10**4, 3),
    (1, 10**4, 40),
    (1, 40, 10**4),
    (1, 200, 100),
    (1, 50, 10**6),
    (1, 10**6, 5),
    (1, 10**5, 64),
]
ROWS, WAVE, PIPELINE, COLUMNS, SLABS = (9, 3000, 1), (1, 10**6, 1), (1, 10**8, 1), (1, 10**4, 10**4), (1, 10**7, 9)
OTHERS = (WAVE, ROWS, SLABS)
verify = functools.partial(verify_kernel, slack=512)


def needed_for(shape, source: str, op="add", offset: int = 0, **options):
    """The kernel of a scan of such an array."""
    (spec,) = needed(cs.scan, dry(shape, source, offset), op, axis=1, **options)
    return spec


def test_every_configuration(allocated, capsys):
    specs = {spec.key: spec for spec in (needed_for(shape, "float32") for shape in EVERY_CONFIG)}
    policies = [(type(policy), width) for _, policy, width, *_ in specs]
    assert set(policies) == {
        (ShortRowPolicy, 1),
        (RowPolicy, 1),
        (ColumnPolicy, 1),
        (ColumnTilePolicy, 1),
        (ColumnClusterPolicy, 1),
        (NarrowPolicy, 1),
        (SlicePolicy, 1),
        (WavePolicy, 1),
        (WavePolicy, 3),
        (PipelinePolicy, 1),
    }
    assert {policy.alone for _, policy, *_ in specs if isinstance(policy, ColumnTilePolicy)} == {True, False}
    assert {policy.ragged for _, policy, *_ in specs if isinstance(policy, RowPolicy)} == {True, False}
    tell_figures(capsys, [verify(spec, allocated) for spec in specs.values()])


CASES = {  # what: (shape, type, operator, options)
    **{dtype: (PIPELINE, dtype, "add", {}) for dtype in ("bool", "uint8", "bfloat16", "int32", "float64")},
    # the types of most and of fewest elements a vector in the other kernels, too
    **{f"{dtype}, {shape}": (shape, dtype, "add", {}) for dtype in ("uint8", "float64") for shape in OTHERS},
    "mul": (PIPELINE, "int64", "mul", {}),
    "max": (PIPELINE, "float32", "max", {}),
    "and": (PIPELINE, "int8", "and", {}),
    **{f"bicyclic, {shape}": (shape, "int64", bicyclic, {"reverse": True}) for shape in (PIPELINE, COLUMNS, SLABS)},
    "a lambda": (PIPELINE, "int8", lambda a, b: a + b, {"exclusive": True, "init": 0}),
    "wider": (PIPELINE, "int8", "add", {"dtype": "int64", "init": dry((1,), "int64")}),
    "half": (PIPELINE, "float16", "add", {"exclusive": True, "reverse": True}),
    "narrower": (PIPELINE, "float32", "max", {"dtype": "float16", "reverse": True}),
    "off by one byte": (PIPELINE, "int8", "add", {"offset": 1}),
    "off by one element": (PIPELINE, "float32", "add", {"offset": 4}),
    "rows of bytes off by one": ((2000, 65_536, 1), "int8", "add", {"offset": 1}),
    "long rows of bytes": ((300, 200_001, 1), "int8", "max", {}),
    "columns of bytes apart": ((9, 3, 551_011), "int8", "add", {}),
    "slices off by one byte": ((90_000, 48, 1), "int8", "add", {"offset": 1}),
    "slices that begin anywhere": ((600, 9717, 2), "int8", "add", {}),
    "rows of pairs of bytes": ((4096, 1024, 2), "int8", "max", {}),
    "a row of pairs of bytes": ((1, 4_000_000, 2), "bool", "add", {"reverse": True}),
    "short slices of two columns": ((8192, 512, 2), "float32", "add", {}),
    "short slices of columns of 8 bytes": ((2000, 256, 4), "uint64", "add", {"reverse": True}),
    "a wave of whole words": ((1, 1 << 20, 1), "float32", "add", {}),
    "a large wave of whole words": ((1, 1 << 22, 1), "int32", lambda a, b: a + b, {"exclusive": True, "init": 0}),
    "a wave of halves": ((1, 4_000_001, 1), "float16", "max", {"exclusive": True, "init": 0, "offset": 2}),
    "a wave of words off by one": ((1, 1 << 21, 1), "float32", "add", {"reverse": True, "offset": 4}),
    "a wave of words apart": ((1, 1_500_001, 1), "int32", lambda a, b: a + b, {"exclusive": True, "init": 0}),
    "a wave of small words": ((1, 2_200_001, 1), "bfloat16", lambda a, b: a + b, {"reverse": True, "offset": 2}),
    "a wave of words from bytes": ((1, 3_000_001, 1), "int8", "add", {"dtype": "int16", "offset": 1}),
    "a wave of halves from words": ((1, 1_500_001, 1), "float32", "max", {"dtype": "float16", "reverse": True}),
    "long rows of a block": ((1720, 4940, 1), "float64", "add", {"exclusive": True}),
    "rows of 8 bytes off by one": ((2048, 2048, 1), "float64", "add", {"reverse": True, "offset": 8}),
    "rows of 8 bytes apart": ((900, 1300, 1), "int64", lambda a, b: a + b, {"offset": 8}),
    "long rows of a block off by one": ((1024, 8192, 1), "int64", lambda a, b: a + b, {"reverse": True, "offset": 8}),
}


@pytest.mark.drawn(14)
@pytest.mark.parametrize("name", CASES)
def test_every_type_operator_and_way(name, allocated):
    shape, source, op, options = CASES[name]
    verify(needed_for(shape, source, op, **options), allocated)


def test_few_columns_of_many_elements_a_vector(allocated):
    spec = needed_for((1, 10**8, 2), "int8", dtype="int16")
    assert isinstance(spec.key[1], PipelinePolicy) and spec.key[2] == 2
    verify(spec, allocated)


# what: (shape, strides, axis)
VIEWS = {
    "backwards": ((1 << 26,), (-1,), 0),
    "short rows backwards": ((90_000, 64), (64, -1), 1),
    "rows apart": ((9000, 3000), (3072, 1), 1),
    "long rows apart": ((900, 30_000), (30_720, 1), 1),
    "short slices of groups apart": ((120, 1 << 13, 3), (9 << 13, 3, 1), 2),
    "transposed": ((8192, 8192), (1, 8192), 0),
    "transposed rows": ((8192, 8192), (1, 8192), 1),
    "permuted": ((512, 256, 512), (1, 1 << 18, 512), 1),
    "slices of a vector": ((1 << 20, 2), (2, 1), 1),
    "tiles of many columns": ((512, 1 << 16), (1 << 16, 1), 0),
    "narrow columns apart": ((40_000, 30, 4), (256, 7, 1), 1),
    "groups of odd rows": ((900, 117, 35), (4200, 35, 1), 2),
    "slices backwards": ((40_000, 43, 5), (215, -5, 1), 1),
    "columns backwards": ((512, 1024, 128), (1 << 17, 128, -1), 1),
    "blocks that do not divide their axes": ((1151, 39, 124), (39, 1, 44889), 0),
    "short columns turned": ((1 << 22, 4), (1, 1 << 22), 1),
    "narrow slices that begin anywhere": ((64, 40_000, 9), (400_001, 9, 1), 1),
    "short rows turned": ((1 << 20, 5), (1, 1 << 20), 1),
    "few slices backwards": ((4000, 43, 5), (215, -5, 1), 1),
    "odd rows of many columns": ((200_001, 119), (119, 1), 0),
    "narrow rows of many bytes": ((200_001, 30), (30, 1), 0),
    "odd rows of more columns": ((200_001, 239), (239, 1), 0),
    "short axes in tiles that are turned": ((1 << 20, 5, 3), (1, 1 << 20, 5 << 20), 2),
    "long rows that begin anywhere": ((90, 1_000_003), (1_200_001, 1), 1),
    "rows of equal elements": ((1 << 20, 70), (1, 0), 1),
    "short slices with gaps": ((1 << 20, 70), (77, 1), 1),
    "rows that begin anywhere": ((9000, 1003), (1100, 1), 1),
    "positions apart": ((40_000, 761, 3), (3044, 4, 1), 1),
    "long columns turned": ((1 << 18, 20, 2), (1, 2 << 18, 1 << 18), 1),
    "an axis of one element": ((60_000, 245, 1), (374, 1, 1), 2),
    "runs of positions turned": ((5, 1 << 18, 37), (37 << 18, 1, 1 << 18), 0),
    "columns beside each other": ((4164, 1177, 7), (7, 29148, 1), 1),
    "a row with gaps": ((1 << 25,), (2,), 0),
    "short rows with gaps": ((1 << 18, 64), (128, 2), 1),
    "every second column": ((1 << 18, 5, 16), (256, 32, 2), 1),
    "short rows in backward order": ((90_000, 128, 3), (-384, 3, 1), 2),
    "rows with gaps": ((9000, 3008), (6016, 2), 1),
    "units of columns turned": ((4096, 32, 2, 32), (32, 1, 1 << 17, 1 << 18), 2),
    "short rows that are repeated": ((2, 1 << 21, 6), (6, 0, 1), 1),
    "few columns with gaps": ((153, 41_939, 5), (419_390, 10, 2), 1),
    "few columns, each a row": ((8, 1 << 21), (1, 8), 1),
    "few columns backwards": ((1 << 22, 8), (8, -1), 0),
    "tall columns of bytes turned": ((5, 103, 2152, 40), (8866240, 86080, 1, 2152), 1),
    "odd columns of bytes turned": ((13, 6366, 159), (6366, 1, 13 * 6366), 0),
    "columns apart": ((5000, 4096), (8192, 1), 0),
    "short columns of odd rows": ((189_472, 2, 212), (430, 215, 1), 1),
    "lines of short columns turned": ((128, 4, 65536), (1, 128, 512), 1),
    "short runs of columns turned": ((16384, 4, 512), (4, 1, 65536), 0),
    "tall columns of odd rows": ((2048, 400, 256), (127_200, 318, 1), 1),
    "short rows of few columns, each apart": ((12, 50_000, 4), (1, 48, 12), 1),
    "columns turned, of few tiles": ((2832, 3, 432), (1, 1_223_424, 2832), 1),
    "bytes of columns turned, one by one": ((7, 1355, 2272), (1355, 1, 9485), 0),
    "tall columns turned": ((2, 3616, 35, 186), (23_540_160, 1, 3616, 126_560), 2),
}


@pytest.mark.drawn(14)
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, ("bool", "float16", "float64")[i % 3]) for i, name in enumerate(VIEWS)]
)
def test_arrays_that_are_not_contiguous(name, dtype, allocated):
    shape, steps, axis = VIEWS[name]
    x = DeviceArray(1 << 40, shape, element_type(dtype), DRY, None, steps)
    for spec in needed(cs.scan, x, "add", axis=axis, exclusive=dtype != "bool", reverse=dtype != "bool"):
        verify(spec, allocated)


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("shape", "dtype", "op"),
    [
        ((1 << 16, 128), "bool", "add"),
        ((4096, 2048), "bfloat16", "add"),
        ((8192, 256), "float64", "lambda"),
        ((9000, 333), "int8", "max"),
        ((6000, 30, 2000), "int8", "max"),
        ((9000, 3, 4801), "uint8", "add"),
        ((27, 1689, 1829), "bool", "add"),
    ],
    ids=str,
)
def test_columns_that_run_backwards(shape, dtype, op, allocated):
    """The lowest element lies on a boundary."""
    op = (lambda a, b: a + b) if op == "lambda" else op
    kind, steps = element_type(dtype), (*(math.prod(shape[k + 1 :]) for k in range(len(shape) - 1)), -1)
    x = DeviceArray((1 << 40) + (shape[-1] - 1) * kind.size, shape, kind, DRY, None, steps)
    for spec in needed(cs.scan, x, op, axis=len(shape) - 2):
        assert spec.key[3] == "backward"
        verify(spec, allocated)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("shape", "dtype", "op", "offset"),
    [
        ((1, 18600, 448), "uint8", "lambda", 0),
        ((588, 282, 413), "int8", "lambda", 0),
        ((44, 1361, 428), "float32", "add", 4),
        ((1, 16384, 512), "bfloat16", "add", 2),
        ((1 << 22, 3, 1), "bool", "add", 1),
        ((1 << 20, 8, 2), "float16", "max", 2),
    ],
    ids=str,
)
def test_words_and_vectors_that_are_not_whole(shape, dtype, op, offset, allocated):
    """Elements of words that are combined one by one; rows and slices that begin behind boundaries."""
    spec = needed_for(shape, dtype, (lambda a, b: a + b) if op == "lambda" else op, offset)
    policy = spec.key[1]
    assert op == "lambda" or getattr(policy, "skew", 0) > 0 or policy.joined
    verify(spec, allocated)


def test_recurrences_along_columns(allocated):
    for shape in ((1 << 15, 1 << 12), (100, 5000)):
        arrays = [dry(shape, "float32"), dry(shape, "float32", base=1 << 41)]
        (spec,) = needed(cs.linear_recurrence, *arrays, axis=0, init=dry(shape[1:], "float32", base=1 << 42))
        verify(spec, allocated)
