"""DeviceArray has NumPy's indexing, views and conversions; arithmetic is left to NumPy."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes
from cutesync.errors import ArgumentIndexError, ArgumentTypeError, ArgumentValueError
from cutesync.runtime.device_array import DeviceArray

from ..cases import same
from ..views import broadcast_to

H = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
INDICES = [
    0,
    -1,
    np.int64(2),
    (),
    (1, 2),
    (1, -2, 3),
    slice(None),
    slice(1, None),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(10, -10, -2),
    slice(2, 1),
    slice(-100, 100),
    (slice(None), -1),
    (slice(None), slice(None, None, 3), slice(3, 0, -1)),
    Ellipsis,
    (..., 0),
    (0, ..., 0),
    (..., slice(4, 0, -2)),
    None,
    (None, ..., None, 1),
    (slice(1, 2), None, 3),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_views_are_those_of_numpy(place, index):
    x, wanted = cs.asarray(H), H[index]
    found = x[index]
    assert found.shape == np.shape(wanted)
    same(np.asarray(found), np.asarray(wanted))
    same(np.asarray(found.T), np.asarray(wanted).T)
    same(np.asarray(found.copy()), np.asarray(wanted))
    if found.size and min(found.shape, default=2) > 1:
        assert found.strides == wanted.strides


def test_views_of_views_are_the_same_memory(place):
    x = cs.asarray(np.zeros((3, 4, 5), np.int32))
    view = x[1:, ::-2, ::3].T[1]
    cs.scan(cs.asarray(np.ones(60, np.int32)), "add", out=x.reshape(-1))  # written after the view was made
    same(np.asarray(view), (1 + H)[1:, ::-2, ::3].T[1])


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        (3, IndexError, "needs -3 to 2"),
        (-4, IndexError, "needs -3 to 2"),
        ((0, 0, 0, 0), IndexError, "at most 3 indices for shape"),
        ((..., ...), IndexError, "one ..."),
        ("b", IndexError, "use np.asarray"),
        (1.0, IndexError, "ints, slices, None"),
        (True, IndexError, "ints, slices, None"),
        ([0, 1], IndexError, "ints, slices, None"),
        (np.array([True, False, True]), IndexError, "ints, slices, None"),
        (slice("a", None), TypeError, "a slice of ints"),
        (slice(None, None, 0), ValueError, "whose step is not 0"),
    ],
    ids=str,
)
def test_indexes_that_are_refused(on_emulator, index, error, words):
    with pytest.raises(error, match=f"DeviceArray index: got .*{words}") as raised:
        cs.asarray(H)[index]
    assert isinstance(raised.value, cs.errors.CutesyncError)


def test_an_empty_axis_has_no_entries(on_emulator):
    with pytest.raises(ArgumentIndexError, match="got 0; needs no index"):
        cs.empty((0, 3), "int8")[0]


def test_iteration(place):
    assert [int(v) for v in cs.asarray(np.arange(3))] == [0, 1, 2]
    rows = list(cs.asarray(H))
    assert len(rows) == 3 and all(np.array_equal(np.asarray(row), host) for row, host in zip(rows, H))
    for use in (len, iter, list):
        with pytest.raises(ArgumentTypeError, match="at least one dimension"):
            use(cs.empty((), "int8"))


def test_scalars(place):
    for dtype, value in (("int32", -3), ("float64", 2.5), ("bool", True), ("uint64", 1 << 63), ("float16", 0.0)):
        for shape in ((), (1,), (1, 1)):
            x = cs.asarray(np.full(shape, value, dtype))
            assert (float(x), int(x), bool(x), x.item()) == (float(value), int(value), bool(value), value)
    assert list(range(cs.sum(cs.asarray(np.array([1, 2]))))) == [0, 1, 2]
    assert cs.asarray(np.arange(6))[-1].item() == 5 and int(cs.asarray(np.arange(6))[::-2][1]) == 3


def test_what_is_no_scalar(on_emulator):
    for shape in ((2,), (0,), (1, 2)):
        x = cs.asarray(np.zeros(shape))
        for use in (float, int, lambda x: x.item()):
            with pytest.raises(ArgumentTypeError, match="needs an array of one element"):
                use(x)
        with pytest.raises(ArgumentValueError, match=r"bool: got shape .*ambiguous; cs.any"):
            bool(x)
    for x in (cs.asarray(np.zeros(1, np.int32)), cs.asarray(2.0)):
        with pytest.raises(ArgumentTypeError, match="a 0-d array of integers"):
            operator.index(x)


def test_reshape(place):
    x = cs.asarray(np.arange(12))
    for shape in ((3, 4), (-1, 6), ([12],), ((2, 2, 3),), (-1,), (12, 1)):
        found = x.reshape(*shape)
        assert found.ptr == x.ptr
        same(np.asarray(found), np.arange(12).reshape(*shape))
    assert cs.empty((), "int8").reshape(1).shape == (1,) and cs.empty((0, 3), "int8").reshape(3, -1).shape == (3, 0)


@pytest.mark.parametrize("shape", [5, (-1, -1), (-1, 5), (-2, -6), (-12, -1), (0, -1), 2.5, "3"], ids=str)
def test_shapes_that_reshape_refuses(on_emulator, shape):
    with pytest.raises((ArgumentTypeError, ArgumentValueError)):
        cs.asarray(np.arange(12)).reshape(shape)


def test_strided_views_are_copied_before_they_are_reshaped(place):
    x = cs.asarray(H)
    with pytest.raises(ArgumentValueError, match=r"reshape: got strides .*x.copy\(\).reshape"):
        x.T.reshape(-1)
    same(np.asarray(x.T.copy().reshape(-1)), H.T.reshape(-1))


@pytest.mark.parametrize("dtype", ["float16", "int8", "bool", "int32", "bfloat16"])
def test_astype(place, dtype):
    wanted = dtypes.dtype(dtype)
    for view in (lambda a: a, lambda a: a[1, ::2], lambda a: a.T):
        found = view(cs.asarray(H)).astype(dtype)
        assert found.dtype is wanted and found.steps is None
        same(np.asarray(found), view(H).astype(wanted.numpy))


def test_copies_are_independent(place):
    x = cs.asarray(np.zeros(8, np.int32))
    loaded = pickle.loads(pickle.dumps(x))
    for own in (x.copy(), x[::2].copy(), x.astype("int32"), copy.copy(x), copy.deepcopy([x])[0], loaded):
        cs.scan(cs.asarray(np.ones(own.size, np.int32)), "add", out=own)
        assert not np.asarray(x).any() and np.asarray(own)[0] == 1
    with pytest.raises(ArgumentValueError, match="copy: got False; needs None or True"):
        np.array(x, copy=False)


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float8_e5m2", "uint64"])
def test_pickles_have_the_elements(on_emulator, dtype):
    x = cs.asarray(H).astype(dtype)
    found = pickle.loads(pickle.dumps(x.T[::2]))
    assert found.dtype is x.dtype and found.steps is None
    same(np.asarray(found), np.asarray(x).T[::2])


@pytest.mark.parametrize(
    "use",
    [
        *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.add, operator.sub),
        *(operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.matmul),
        *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift),
    ],
)
def test_arithmetic_and_comparisons_are_numpys(on_emulator, use):
    x = cs.asarray(H)
    for a, b in ((x, x), (x, 1), (1, x)):
        with pytest.raises(ArgumentTypeError, match=r"operator .*; needs NumPy arrays; np.asarray\(x\)"):
            use(a, b)


@pytest.mark.parametrize("use", [operator.neg, operator.invert, abs])
def test_unary_operators_are_numpys(on_emulator, use):
    with pytest.raises(ArgumentTypeError, match="operator .*; needs NumPy arrays"):
        use(cs.asarray(H))


def test_it_is_as_hashable_as_numpys(on_emulator):
    with pytest.raises(TypeError, match="unhashable"):
        hash(cs.asarray(H))


@pytest.mark.parametrize("call", [cs.sum, cs.cumsum, lambda x: cs.flag_heads(x)], ids=["sum", "cumsum", "flags"])
def test_functions_take_strided_views(place, call):
    host = np.arange(12, dtype=np.int32)
    x = cs.asarray(host)
    for index in (slice(None, None, 2), slice(3, None), slice(None, None, -3)):
        same(np.asarray(call(x[index])), np.asarray(call(host[index].copy())))


def test_matmul_takes_strided_views(place):
    a, b = (np.random.default_rng(i).integers(-3, 4, (24, 40)).astype(np.float16) for i in (0, 1))
    in_a, in_b, out = cs.asarray(a), cs.asarray(b), cs.asarray(np.zeros((24, 24), np.float16))
    assert cs.matmul(in_a[::-1], in_b.T, out=out.T).shape == (24, 24)
    assert np.array_equal(np.asarray(out).T, a[::-1] @ b.T)


def test_the_interface_has_strides():
    x = DeviceArray(4096, (2, 3), dtypes.FLOAT32, 0, None)
    assert x.__cuda_array_interface__["strides"] is None and x.T.__cuda_array_interface__["strides"] == (4, 12)
    last = x[1, ::-1].__cuda_array_interface__
    assert (last["data"], last["shape"], last["strides"]) == ((4096 + 20, False), (3,), (-4,))


def test_dlpack_has_strides(monkeypatch, on_emulator):
    for view in (lambda a: a.T, lambda a: a[:, ::2, 1], lambda a: a[::-1]):
        same(np.from_dlpack(view(cs.asarray(H))), view(H))


def test_dlpack_of_the_gpu_has_no_negative_strides():
    x = DeviceArray(4096, (4,), dtypes.FLOAT32, 0, None)
    with pytest.raises(BufferError, match=r"strides of 0 or more; x.copy\(\)"):
        x[::-1].__dlpack__()


def test_the_interface_repeats_elements():
    x = DeviceArray(4096, (3,), dtypes.FLOAT32, 0, None).broadcast_to((2, 3))
    assert (x.__cuda_array_interface__["shape"], x.__cuda_array_interface__["strides"]) == ((2, 3), (0, 4))


@pytest.mark.gpu
def test_exports_to_torch_share_memory():
    torch = pytest.importorskip("torch")
    x = cs.asarray(H)
    for view in (
        lambda a: a.T,
        lambda a: a[:, ::2, 1],
        lambda a: a[1],
        functools.partial(broadcast_to, shape=(2, 3, 4, 5)),
    ):
        found = torch.from_dlpack(view(x))
        assert found.data_ptr() == view(x).ptr and np.array_equal(found.cpu().numpy(), view(H))
        owner = SimpleNamespace(__cuda_array_interface__=view(x).__cuda_array_interface__)
        assert np.array_equal(torch.as_tensor(owner, device="cuda").cpu().numpy(), view(H))
