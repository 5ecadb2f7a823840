"""Every kernel in every configuration compiles for sm_90a, without a GPU: no spills, no local memory, the sizes that
launches declare."""

from __future__ import annotations

from itertools import product

import pytest

import cutesync as cs
from cutesync.kernels.reduce.problem import FillPolicy, NarrowPolicy, SegmentPolicy, ShortRowPolicy, WholeRowPolicy
from cutesync.kernels.reduce.strided_problem import RunPolicy, ShortPolicy, StridedPolicy
from cutesync.runtime.kernel import collect

from ..cases import bicyclic, has_meaning
from ..compiled import dry, needed, tell_figures, verify

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
    (1, 10**6, 21),
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
    (1, 3, 10**7),
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


def test_every_configuration(allocated, capsys):
    with collect() as found:
        for shape, offset in [*product(EVERY_CONFIG, (0,)), *product(EVERY_CONFIG[1::3], (4,))]:
            out = dry((shape[0], shape[2]), "float32", offset, 1 << 60)
            cs.reduce(dry(shape, "float32", offset), axis=1, out=out)
    policies = [spec.key[1] for spec in found.values()]
    every = {SegmentPolicy, ShortRowPolicy, WholeRowPolicy, NarrowPolicy, StridedPolicy, RunPolicy, ShortPolicy}
    assert {type(policy) for policy in policies} == every
    scopes = {policy.scope for policy in policies if isinstance(policy, SegmentPolicy)}
    assert scopes == {"warp", "block", "grid", "grid_rows"}
    tell_figures(capsys, [verify(spec, allocated) for spec in found.values()])


CASES = {  # what: (shapes, type, operator, options)
    **{dtype: (ONE_OF_EACH, dtype, "add", {}) for dtype in ("bool", "int8", "bfloat16", "int32", "float64")},
    **{
        f"{op} of {dtype}": ([(1, 10**6, 1)], dtype, op, {})
        for op in ("mul", "min", "and", "xor", "any")
        for dtype in ("bool", "float64" if op in ("min", "any") else "int8")
        if has_meaning(op, dtype) and not (dtype == "bool" and op in ("mul", "min", "max"))  # "and", "and" and "or"
    },
    "argmin": (ONE_OF_EACH, "int8", "argmin", {}),
    "argmax": (EVERY_KERNEL, "float64", "argmax", {}),
    "bicyclic": (EVERY_KERNEL, "int64", bicyclic, {}),
    "a callable on int8": (ONE_OF_EACH, "int8", lambda a, b: a + b, {}),
    **{
        f"{source} to {result}": (
            ONE_OF_EACH,
            source,
            "add",
            {"init": 1, "dtype": result, "transform": lambda v: v * v},
        )
        for source, result in (
            ("int8", "int64"),
            ("float32", "float16"),
            ("int32", "float64"),
        )
    },
}


@pytest.mark.drawn(9)
@pytest.mark.parametrize("name", CASES)
def test_every_type_and_operator(name, allocated):
    """Every kernel that reductions of such shapes need, each once."""
    shapes, source, op, options = CASES[name]
    call, given = (getattr(cs, op), {}) if op in ("argmin", "argmax") else (cs.reduce, {"op": op})
    with collect() as found:
        for shape in shapes:
            call(dry(shape, source), axis=1, **given, **options)
    for spec in found.values():
        verify(spec, allocated)


# what: (shape, strides, axis, type); each selects another way to load or to store
STRIDED = {
    "rows": ((3000, 9, 8), (-99, 9 * 8, 1), 2, "float32"),
    "rows of bytes": ((3000, 9, 32), (-320, 32, 1), 2, "int8"),
    "slices": ((90000, 9, 3), (37, 4, 1), 1, "bool"),
    "slices of rows": ((90000, 7), (9, 1), 1, "uint16"),
    "vectors stored backwards": ((3000, 4, 64), (256, 64, -1), 1, "float16"),
    "equal results": ((512, 4096, 40), (0, 40, 1), 2, "bfloat16"),
    "equal elements": ((9, 1 << 20), (1, 0), 1, "float64"),
    "words": ((5, 1 << 20), (1048579, 1), 0, "int8"),
    "rows apart": ((30000, 371), (1113, 1), 1, "int8"),
    "few rows apart": ((10000, 371), (1113, 1), 1, "uint8"),
    "rows apart of 2-byte elements": ((30000, 101), (351, 1), 1, "int16"),
    "rows apart of floats": ((30000, 350), (951, 1), 1, "float16"),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", STRIDED)
def test_strided_arrays(name, allocated):
    shape, strides, axis, dtype = STRIDED[name]
    view = dry(shape, dtype, base=1 << 41).as_strided(shape, strides, 1 << 20)
    with collect() as found:
        for op in ("sum", "max", "argmax"):
            getattr(cs, op)(view, axis=axis)
        cs.reduce(view, lambda a, b: a + b, axis=axis)
    for spec in found.values():
        verify(spec, allocated)


@pytest.mark.parametrize(("algorithm", "kernels"), [("multi_launch", 1), ("atomic", 2)])
def test_the_other_rungs(algorithm, kernels, allocated):
    for dtype in ("int32", "float64"):
        found = needed(cs.reduce, dry((10**6,), dtype), algorithm=algorithm)
        assert len(found) == kernels  # the same for each level; what fills the result, and what adds to it
        for spec in found:
            verify(spec, allocated)


@pytest.mark.parametrize("dtype", ["bool", "float16", "int32", "float64"])
def test_fill(dtype, allocated):
    (spec,) = needed(cs.reduce, dry((0, 5), dtype), axis=0)
    assert spec.key[1] == FillPolicy()
    verify(spec, allocated)
