"""The front door for arrays and the plain array of those who have no library."""

from __future__ import annotations

import gc
import time
from types import SimpleNamespace

import numpy as np
import pytest

import cutesync as cs
from cutesync import dtypes
from cutesync.errors import ArgumentTypeError, ArgumentValueError, WorkspaceError
from cutesync.runtime import arrays, device
from cutesync.runtime.device import HOST
from cutesync.runtime.device_array import DeviceArray
from cutesync.runtime.launch import bits

from ..cases import DTYPES, Capsule, data, same
from ..concurrency import in_threads


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_dlpack_gives_address_shape_and_type(dtype):
    x = data((3, 4), dtype)
    found = arrays.adapter(Capsule(x)).view(Capsule(x))
    assert (found.ptr, found.shape, found.dtype.name, found.device, found.contiguous) == (
        x.ctypes.data,
        (3, 4),
        dtype,
        HOST,
        True,
    )
    assert found.size == 12 and found.nbytes == x.nbytes


@pytest.mark.parametrize(
    ("make", "contiguous"),
    [
        (lambda x: x, True),
        (lambda x: x.T, False),
        (lambda x: x[:, :1], False),
        (lambda x: x[1:2], True),
        (lambda x: x[:, ::2], False),
        (lambda x: x[::2], False),
        (lambda x: x[:1].T, True),
        (lambda x: x[0:0], True),
        (lambda x: x.reshape(1, 3, 1, 4), True),
    ],
)
def test_contiguity(make, contiguous):
    x = make(np.zeros((3, 4), np.int32))
    found = arrays.adapter(Capsule(x)).view(Capsule(x))
    assert found.contiguous is contiguous
    assert found.shape == x.shape


def test_a_numpy_subclass_is_numpy():
    class Mine(np.ndarray):
        pass

    assert arrays.adapter(np.zeros(3).view(Mine)) is arrays.NUMPY


def test_an_array_that_lies_about_itself_is_not_remembered_for_its_type():
    """Each object is asked; only the kind of its library is remembered."""
    one, two = Capsule(np.zeros(3, np.int32)), Capsule(np.zeros(4, np.float64))
    assert arrays.adapter(one) is arrays.adapter(two)
    assert arrays.adapter(one).identify(one)[1] != arrays.adapter(two).identify(two)[1]


class Handle:
    def __init__(self, **attributes) -> None:
        self.__dict__.update(attributes)


class Protocol:
    def __init__(self, answer=(0, 77)) -> None:
        self.answer = answer

    def __cuda_stream__(self):
        return self.answer() if callable(self.answer) else self.answer


class CUstream:
    def __int__(self) -> int:
        return 55


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (0, 0),
        (1, 1),
        (12345, 12345),
        (Protocol(), 77),
        (Handle(cuda_stream=99), 99),
        (Handle(ptr=98), 98),
        (CUstream(), 55),
    ],
)
def test_forms_of_stream(stream, handle):
    assert arrays.stream_handle(stream) == handle


NO_STREAMS = [
    "0",
    1.0,
    True,
    object(),
    [],
    Handle(ptr="x"),
    -1,
    2**64,
    10**5000,
    Handle(cuda_stream=-1),
    Protocol,
    Protocol(None),
    Protocol((0,)),
    Protocol((0, "x")),
    Protocol((0, True)),
    Protocol((0, -1)),
    Protocol((0, 2**70)),
    Protocol(lambda: 1 / 0),
]


@pytest.mark.parametrize("stream", NO_STREAMS, ids=lambda stream: type(stream).__name__)
def test_what_is_no_stream(stream):
    with pytest.raises(ArgumentTypeError, match="^stream: got .*__cuda_stream__"):
        arrays.stream_handle(stream)


WRONG = (ArgumentTypeError, ArgumentValueError)
REFUSED = {  # what: (call, error, words)
    **{
        f"x of {x.dtype}": (lambda x=x: cs.asarray(x), ArgumentTypeError, "^x: got")
        for x in (np.ones(2, complex), np.ones(2, ">f4"), np.array(["a"]), np.array([object()]))
    },
    "other size": (lambda: cs.asarray(np.arange(12)).reshape(5), ArgumentValueError, "12 elements"),
    **{
        f"empty of {str(shape)[:30]}": (lambda shape=shape: cs.empty(shape, "int8"), WRONG, "got")
        for shape in (-1, (2, -3), 2.5, ("a",), "3", True, None, 2**63, (2**40, 2**40), 10**400)
    },
    **{
        f"reshape to {shape}": (
            lambda shape=shape: cs.empty(12, "int8").reshape(*shape),
            ArgumentValueError,
            "got",
        )
        for shape in ((-2, -6), (-12, -1))
    },
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_device_array_refuses(what, on_emulator):
    call, error, words = REFUSED[what]
    with pytest.raises(error, match=words):
        call()


class TestDeviceArray:
    """On the emulator it lives in host memory, so its bookkeeping is testable anywhere."""

    pytestmark = pytest.mark.usefixtures("on_emulator")

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 0, 3)], ids=str)
    def test_there_and_back(self, shape, dtype):
        x = data(shape, dtype)
        array = cs.asarray(x)
        assert (array.shape, array.dtype.name, array.size, array.ndim) == (x.shape, dtype, x.size, x.ndim)
        same(np.asarray(array), np.asarray(x))

    def test_it_is_a_copy(self):
        x = np.arange(5)
        array = cs.asarray(x)
        x[:] = 0
        assert np.asarray(array).tolist() == [0, 1, 2, 3, 4]

    def test_of_lists_and_scalars(self):
        assert np.asarray(cs.asarray([1, 2])).tolist() == [1, 2]
        assert cs.asarray(2.5).dtype.name == "float64" and cs.asarray(2.5).shape == ()

    def test_of_views_that_are_not_contiguous(self):
        x = data((4, 6), "int16")
        for v in (x.T, x[::-1], x[:, ::3], np.asfortranarray(x)):
            same(np.asarray(cs.asarray(v)), v)

    def test_of_itself(self):
        array = cs.asarray(np.arange(3))
        assert cs.asarray(array) is array

    def test_memory_is_aligned_for_vectors(self):
        assert all(cs.empty(n, "int8").ptr % 256 == 0 for n in (1, 3, 1000))

    def test_slices_share_memory(self):
        array = cs.asarray(np.arange(20, dtype=np.int32).reshape(5, 4))
        part = array[1:3]
        assert (part.ptr - array.ptr, part.shape) == (16, (2, 4))
        same(np.asarray(part), np.arange(4, 12, dtype=np.int32).reshape(2, 4))
        same(np.asarray(array[-2:]), np.arange(12, 20, dtype=np.int32).reshape(2, 4))
        assert array[4:2].shape == (0, 4) and array[:].shape == (5, 4)

    def test_reshape(self):
        array = cs.asarray(np.arange(12))
        same(np.asarray(array.reshape(3, 4)), np.arange(12).reshape(3, 4))
        assert array.reshape((2, 6)).shape == (2, 6) and array.reshape([12]).shape == (12,)
        assert cs.empty((), "int8").reshape(1).shape == (1,)

    def test_empty(self):
        assert (
            cs.empty(3, "float32").shape == (3,)
            and cs.empty((2, 3), np.int8).nbytes == 6
            and cs.empty((), "int8").size == 1
        )

    def test_layouts_of_numpy_integers_are_those_of_ints(self, on_emulator):
        x = cs.asarray(np.arange(12, dtype=np.int32))
        y = x.as_strided(tuple(np.array([2, 3])), tuple(np.array([6, 2])), np.int32(1))
        assert {type(n) for n in (*y.shape, *y.steps, y.ptr)} == {int}
        assert np.asarray(cs.sum(y, axis=1)).tolist() == [1 + 3 + 5, 7 + 9 + 11]

    def test_views_keep_the_memory_alive(self):
        view = cs.asarray(np.arange(100000, dtype=np.int64))[99990:]
        gc.collect()
        junk = [np.full(100000, -1, np.int64) for _ in range(3)]
        assert np.asarray(view).tolist() == list(range(99990, 100000))
        del junk

    def test_numpys_arguments(self):
        array = cs.asarray(np.arange(3, dtype=np.int32))
        assert np.asarray(array, dtype=np.float64).dtype == np.float64
        assert np.array(array, copy=True).tolist() == [0, 1, 2]

    def test_dlpack_to_numpy(self):
        x = data((3, 4), "float32")
        same(np.from_dlpack(cs.asarray(x)), x)

    def test_the_cuda_array_interface_is_not_offered_for_host_memory(self):
        assert not hasattr(cs.asarray(np.arange(3)), "__cuda_array_interface__")

    def test_equal_arrays_have_one_signature(self):
        a, b, c, d = cs.empty(3, "int8"), cs.empty(3, "int8"), cs.empty(4, "int8"), cs.empty(3, "uint8")
        assert a.signature is b.signature and len({id(v.signature) for v in (a, c, d)}) == 3

    def test_repr_and_len(self):
        assert repr(cs.empty((2, 3), "int8")) == f"DeviceArray(shape=(2, 3), dtype=int8, device={HOST})"
        assert len(cs.empty((2, 3), "int8")) == 2


def test_the_interface_of_gpu_memory():
    interface = DeviceArray(4096, (2, 3), dtypes.FLOAT32, 0, None).__cuda_array_interface__
    assert interface == {
        "shape": (2, 3),
        "typestr": "<f4",
        "data": (4096, False),
        "strides": None,
        "version": 3,
        "stream": 1,
    }


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (-1, "Int8"),
        (-5, "Int32"),
        (2**63 - 1, "Int64"),
        (-(2**63), "Int64"),
        (2**64 - 1, "Uint64"),
        (255, "Uint8"),
        (1.5, "Float32"),
        (-0.0, "Float64"),
        (float("inf"), "Float32"),
    ],
)
def test_scalars_become_their_bits(value, kind):
    wanted = np.array(value, kind.lower())
    assert bits(value, kind).to_bytes(wanted.itemsize, "little") == wanted.tobytes()


def test_scalars_of_bfloat16_are_rounded_to_even():
    """Without ml_dtypes, too."""
    cases = {1.0: 0x3F80, -2.0: 0xC000, 1.00390625: 0x3F80, 1.01171875: 0x3F82, float("inf"): 0x7F80, 1e39: 0x7F80}
    assert {value: bits(value, "BFloat16") for value in cases} == cases
    assert bits(float("nan"), "BFloat16") == 0x7FC0


def test_a_float_too_large_for_its_register_is_infinite():
    """A float32 parameter of 1e39, as NumPy says."""
    assert bits(1e39, "Float32") == bits(float("inf"), "Float32")


def test_one_thread_at_a_time_imports_cuda_core(monkeypatch):
    """A thread that asks for a name of a module that another is still importing does not find it."""
    inside, most = [], []

    def slowly(name: str) -> None:
        inside.append(name)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()

    monkeypatch.setattr(device, "importlib", SimpleNamespace(import_module=slowly))
    device.import_core.cache_clear()
    in_threads(lambda k: device.import_core(), 8)
    assert most and max(most) == 1


@pytest.mark.parametrize(
    ("shape", "strides"), [((3,), (0,)), ((3, 4), (4, 4)), ((2, 3), (8, 4)), ((3, 3), (4, -8)), ((2,), (2,))], ids=str
)
def test_a_result_whose_elements_share_memory_is_refused(shape, strides, on_emulator):
    """Later elements would overwrite earlier ones."""
    memory = np.zeros(64, np.int32)
    out, x = np.ndarray(shape, np.int32, memory, 64, strides), np.ones((*shape, 2), np.int32)
    a, b = np.ones((*shape, 8), np.int8), np.ones(8, np.int8)
    for call in (
        lambda: cs.reduce(x, axis=-1, out=out),
        lambda: cs.scan(x[..., 0], out=out),
        lambda: cs.matmul(a, b, out=out),
    ):
        with pytest.raises(ArgumentValueError, match="share memory"):
            call()
    assert not memory.any()
    for distinct in (
        memory[:12].reshape(4, 3).T,
        memory[:24:2].reshape(3, 4)[::-1, ::-1],
        memory[:0].reshape(3, 0, 4),
        memory[:6].reshape(1, 6),
    ):
        assert not arrays.share_memory(distinct.shape, distinct.strides, distinct.itemsize)


def test_a_view_larger_than_memory_is_refused(on_emulator):
    for call in (cs.asarray, cs.sum, cs.flag_heads):
        with pytest.raises(WorkspaceError, match="bytes to copy"):
            call(np.broadcast_to(np.int32(1), (2**31, 2**29)))
