"""Elements of C that are loaded ahead, by rows and by columns; faults in how, and in the order of C and the result."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.matmul.policy import MatmulPolicy

from ..faults import RESULT, Bench, every
from .mutation_cases import CASES, PINGPONG
from .support import agrees, integers, operand

pytestmark = pytest.mark.usefixtures("on_emulator")
CONFIG = MatmulPolicy((64, 64), "pingpong")


@pytest.mark.parametrize(("columns", "order"), [(74, "C"), (72, "F")], ids=["pairs", "vectors"])
def test_c_is_loaded_ahead_up_to_the_edge(columns, order):
    """Neither 34, 74 nor 72 are multiples of a tile or a sub-tile. 584 are more k-tiles than those before which C is
    loaded; in "pingpong" it is loaded a sub-tile ahead."""
    a, b = integers(34, 584), integers(columns, 584).T
    c = cs.asarray(np.asarray(integers(34, columns, dtype="bfloat16", seed=2), order=order))
    c = c if order == "C" else cs.asarray(np.ascontiguousarray(np.asarray(c).T)).T
    for config in (MatmulPolicy((64, 48), "pingpong"), MatmulPolicy((128, 32), "cooperative", deferred=True)):
        got = cs.matmul(cs.asarray(a), cs.asarray(b.T).T, c, out_dtype="float32", config=config)
        agrees(np.asarray(got), a, b, np.asarray(c), out_dtype="float32")
    gated = cs.matmul(cs.asarray(a), cs.asarray(b.T).T, c, activation=lambda v, gate: v * gate, config=CONFIG)
    wanted = (a.astype("float32") @ b.astype("float32")) * np.asarray(c).astype("float32")
    assert np.array_equal(np.asarray(gated), wanted.astype("float16"))


def test_c_overwritten_in_place_without_a_fence_of_global_memory(on_emulator):
    a, b = operand(128, 72, False), operand(72, 64, True)

    def right() -> bool:
        c = cs.asarray(np.zeros((128, 64), np.float16))
        cs.matmul(cs.asarray(a), cs.asarray(b), c, beta=1.0, out=c, config=CASES[PINGPONG].config)
        return np.array_equal(np.asarray(c), cs.reference.matmul(a, b))

    Bench(right).check(every(r"fence\.proxy\.async\.global;"), {"proxy-read"})


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "order, edit, kinds",
    [
        ("C", every(r"(shfl\.sync\.bfly\.b32 .*), 1, (31, -1;)", r"\1, 2, \2"), {RESULT}),
        ("C", every(r"@inside ld\.global", "ld.global"), {"out-of-bounds"}),
        ("F", every(r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16", "mov.b32"), {RESULT}),
        ("F", every(r"@inside ld\.global", "ld.global"), {"out-of-bounds"}),
    ],
    ids=["of another lane", "rows behind it", "not turned", "columns behind it"],
)
def test_c_loaded_wrongly(order, edit, kinds, on_emulator):
    a, b, c = operand(72, 72, False), operand(72, 40, True), operand(72, 40, order == "F")

    def right() -> bool:
        of = cs.asarray(c) if order == "C" else cs.asarray(c.T).T
        got = cs.matmul(cs.asarray(a), cs.asarray(b.T).T, of, config=CASES[PINGPONG].config)
        return np.array_equal(np.asarray(got), cs.reference.matmul(a, b, c))

    Bench(right).check(edit, kinds)
