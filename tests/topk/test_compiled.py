"""Every kernel of the policy compiles for sm_90a, without a GPU: no local memory, no spills but where more
warps are faster, the shared memory that launches declare."""

from __future__ import annotations

import pytest

import cutesync as cs
from cutesync.kernels.topk.policy import SHORT_LIGHT, FewPolicy, ShortPolicy

from ..compiled import dry, needed, tell_figures, verify

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]
LARGE = 1 << 28
STACK = 80  # bytes of a thread, at most, of warps that have short rows in fewer registers than they would take
SHAPES = {"array": (LARGE,), "rows": (1 << 14, 1 << 14), "short rows": (1 << 20, 100)}
SHAPES |= {f"rows of {length}": (1 << 18, length) for length in (256, 512, 1024, 2048, 4096)}
CASES = [
    ("array", "float32", 64),
    ("array", "float32", 2048),
    ("array", "int64", 2048),
    ("array", "float16", 2048),
    ("array", "int8", 64),
    ("rows", "float32", 64),
    ("rows", "float16", 2048),
    ("short rows", "bfloat16", 8),
    ("short rows", "bfloat16", 64),
    ("rows of 256", "float32", 8),
    ("rows of 256", "float64", 8),
    ("rows of 512", "int64", 8),
    ("rows of 256", "float32", 128),
    ("rows of 256", "int64", 256),
    ("rows of 512", "float64", 128),
    ("rows of 256", "float16", 128),
    ("rows of 512", "int64", 256),
    ("rows of 512", "float64", 16),
    ("rows of 1024", "int8", 16),
    ("rows of 1024", "int8", 128),
    ("rows of 1024", "float32", 8),
    ("rows of 1024", "float32", 16),
    ("rows of 1024", "float32", 64),
    ("rows of 1024", "float32", 128),
    ("rows of 1024", "float32", 256),
    ("rows of 1024", "float32", 512),
    ("rows of 1024", "float16", 64),
    ("rows of 1024", "float16", 256),
    ("rows of 2048", "float32", 64),
    ("rows of 2048", "int8", 64),
    ("rows of 2048", "int64", 100),
    ("rows of 4096", "float32", 100),
]


def figures(spec, allocated) -> tuple:
    policy = spec.key[1]
    short = isinstance(policy, ShortPolicy) and not isinstance(policy, FewPolicy)
    stack = STACK if short and policy.blocks_per_sm < SHORT_LIGHT else 0
    return verify(spec, allocated, slack=2048, stack=stack)


@pytest.mark.drawn(6)
@pytest.mark.parametrize(("shape", "dtype", "k"), CASES)
def test_every_configuration(shape, dtype, k, allocated, capsys):
    specs = needed(cs.topk, dry(SHAPES[shape], dtype), k, stream=0)
    tell_figures(capsys, [figures(spec, allocated) for spec in specs])


def test_columns_and_many_results(allocated, capsys):
    x = dry((1 << 14, 1 << 10), "float32")
    specs = needed(cs.topk, x, 16, 0, stream=0) + needed(cs.argtopk, x, 16, 0, largest=False, stream=0)
    specs += needed(cs.topk, dry((1 << 20,), "float32"), 5000, stream=0)
    tell_figures(capsys, [figures(spec, allocated) for spec in specs])
