"""``args=`` of flags, differences and activations; those of reductions and scans are in ``test_states``."""

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes, reference
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError
from cutesync.runtime import call
from cutesync.runtime.kernel import collect


def differs(a, b, t):
    return (b * 1.0 - a * 1.0) > t


def differs_at(a, b, i, t, step):
    return (b * 1.0 - a * 1.0 > t) | (i % step == 0)


@pytest.mark.parametrize("dtype", ["float16", "int8", pytest.param("bool", marks=pytest.mark.slow)])
def test_flags(dtype, on_emulator):
    """Numbers and elements in memory, contiguous and strided, with the index and without."""
    x = np.random.default_rng(3).integers(0, 4, (6, 75)).astype(dtype)
    here = cs.asarray(x)
    for axis, view in ((1, here), (0, here), (1, here[::-1, 3:40])):
        whole = np.asarray(view)
        for t in (1, 0.5):
            wanted = reference.flag_heads(whole, differs, axis=axis, args=(t,))
            assert np.array_equal(np.asarray(cs.flag_heads(view, differs, axis=axis, args=(t,))), wanted)
            given = cs.asarray(np.array(t)), np.int64(5)
            found = cs.flag_heads_and_tails(view, differs_at, axis=axis, args=given, tile=7)
            wanted = reference.flag_heads_and_tails(whole, differs_at, axis=axis, args=(t, 5), tile=7)
            assert all(map(np.array_equal, map(np.asarray, found), wanted))


def test_differences_and_n(on_emulator):
    x = np.random.default_rng(4).integers(-9, 9, 300).astype(np.int32)
    scaled = lambda a, b, k: a - k * b  # noqa: E731
    assert np.array_equal(
        cs.adjacent_difference(x, scaled, args=(3,)), reference.adjacent_difference(x, scaled, args=(3,))
    )
    out, count = cs.asarray(np.full(300, 7, np.int32)), cs.asarray(np.array(100))
    cs.adjacent_difference(cs.asarray(x), scaled, args=(2,), n=count, out=out)
    found = np.asarray(out)
    assert (
        np.array_equal(found[:100], reference.adjacent_difference(x[:100], scaled, args=(2,)))
        and (found[100:] == 7).all()
    )


def test_activations(on_emulator):
    """Beside one value and beside two; a second result; split K."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(-2, 3, (40, 64)).astype(np.float16), rng.integers(-2, 3, (64, 24)).astype(np.float16)
    c, product = rng.integers(-2, 3, (40, 24)).astype(np.float32), a.astype(np.float32) @ b.astype(np.float32)
    clipped = lambda v, low, high: min(max(v, low), high)  # noqa: E731
    for low, high in ((-3, 5), (np.float32(0), 2.5)):
        found = cs.matmul(a, b, activation=clipped, args=(low, high), out_dtype="float32")
        assert np.array_equal(found, product.clip(low, high))
    arrays = tuple(map(cs.asarray, (a, b, c)))
    gated = lambda v, g, k: v * g + k  # noqa: E731
    bound = cs.asarray(np.array(4, np.int32))
    for config in (None, cs.MatmulPolicy((64, 32), "pingpong", splits=2)):
        how = {"out_dtype": "float32", "config": config}
        found, before = cs.matmul(*arrays, activation=gated, args=(bound,), pre_activation=True, **how)
        assert np.array_equal(np.asarray(found), product * c + 4) and np.array_equal(np.asarray(before), product)


def test_new_numbers_make_no_plans(on_emulator, monkeypatch):
    monkeypatch.setattr(call, "_plans", {})
    x, a = cs.asarray(np.arange(64, dtype=np.float32)), cs.asarray(np.ones((16, 16), np.float16))
    kernels = set()
    for t in (0.5, 2.0, -0.0):
        with collect() as found:
            cs.flag_heads(cs.empty(64, "float32"), differs, args=(t,))
            cs.matmul(
                cs.empty((16, 16), "float16"), cs.empty((16, 16), "float16"), activation=lambda v, k: v * k, args=(t,)
            )
        kernels |= set(found)
        assert np.asarray(cs.flag_heads(x, differs, args=(t,)))[1:].all() == (t < 1)
        assert (np.asarray(cs.matmul(a, a, activation=lambda v, k: v * k, args=(t,))) == 16 * t).all()
    assert len(call._plans) == 2 and len(kernels) == 2


@pytest.mark.parametrize("first, then", [(0, "bfloat16"), (0, "int8")])
def test_numbers_of_equal_text_have_types_of_their_own(first, then, on_emulator):
    """A call after one with another type of number takes its number as what it is."""
    x = np.arange(5, dtype=np.float64)
    shifted = lambda v, t: v + t  # noqa: E731
    number = dtypes.BY_NAME[then].numpy.type(1.5)
    for t in (first, number, first):
        assert cs.reduce(x, transform=shifted, args=(t,)) == x.sum() + 5 * float(t)


def test_bad_arguments(on_emulator):
    x, a = cs.asarray(np.arange(8)), np.ones((8, 8), np.float16)
    for wrong in (lambda: cs.flag_heads(x, args=(1,)), lambda: cs.adjacent_difference(x, "sub", args=(1,))):
        with pytest.raises(ArgumentTypeError, match="callable"):
            wrong()
    with pytest.raises(ArgumentTypeError, match="callable"):
        cs.matmul(a, a, activation="relu", args=(1,))
    with pytest.raises(ArgumentTypeError, match="tuple"):
        cs.flag_heads(x, differs, args=3)
    with pytest.raises(ArgumentTypeError, match="args: got None"):
        cs.flag_heads(x, differs, args=(None,))
    with pytest.raises(ArgumentValueError, match="one element"):
        cs.flag_heads(x, differs, args=(x,))
    with pytest.raises(DeviceError):
        cs.flag_heads(np.arange(8), differs, args=(x,))
