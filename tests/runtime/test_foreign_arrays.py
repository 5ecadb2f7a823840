"""Arrays that are not what their address, shape and type say: refused in every place, or told apart."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.runtime import arrays, device


class Quantity(np.ndarray):
    """An array with units, as libraries make them."""

    def __array_ufunc__(self, *arguments, **options):
        raise NotImplementedError


REFUSED_NUMPY = {
    "masked": (np.ma.array([1, 99, 3], mask=[0, 1, 0]), "its mask would be lost"),
    "masked without a mask": (np.ma.array([1, 2]), "MaskedArray"),
    "a subclass of masked": (np.ma.array([1, 2]).view(type("Mine", (np.ma.MaskedArray,), {})), "Mine"),
    "the masked constant": (np.ma.masked, "mask"),
    "units": (np.arange(3.0).view(Quantity), "Quantity, whose operations are its own"),
}


@pytest.mark.usefixtures("on_emulator")
@pytest.mark.parametrize("case", REFUSED_NUMPY)
def test_numpy_arrays_that_mean_more_than_their_memory(case):
    """In every place where an array may stand."""
    x, words = REFUSED_NUMPY[case]
    plain, half = np.ones(3, np.int32), np.ones((3, 3), np.float16)
    for call in (
        lambda: cs.sum(x),
        lambda: cs.scan(plain, out=x),
        lambda: cs.scan(plain, init=x),
        lambda: cs.asarray(x),
        lambda: cs.flag_heads_and_tails(plain, out=(x, x)),
        lambda: cs.matmul(x, half),
        lambda: cs.matmul(half, x),
        lambda: cs.matmul(half, half, bias=x),
        lambda: cs.matmul(half, half, out=x),
    ):
        with pytest.raises(ArgumentTypeError, match=words):
            call()


@pytest.mark.usefixtures("on_emulator")
def test_numpy_subclasses_that_are_plain_memory(tmp_path):
    mapped = np.memmap(tmp_path / "x", np.int32, "w+", shape=(4,))
    mapped[:] = [1, 2, 3, 4]
    for x in (mapped, np.arange(1, 5, dtype=np.int32).view(np.matrix), np.rec.array(np.arange(1, 5, dtype=np.int32))):
        assert arrays.adapter(x) is arrays.NUMPY and np.asarray(cs.asarray(x)).sum() == 10


class Interface:
    def __init__(self, facts) -> None:
        self.__cuda_array_interface__ = facts


PLAIN = {"shape": (100,), "typestr": "<f8", "data": (1 << 20, False), "version": 3}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        None,
        3,
        PLAIN | {"shape": (-1,)},
        PLAIN | {"shape": 3},
        PLAIN | {"shape": ("a",)},
        PLAIN | {"typestr": "zz"},
        PLAIN | {"typestr": None},
        PLAIN | {"typestr": ">f8"},
        PLAIN | {"typestr": "|V8"},
        PLAIN | {"typestr": "<c16"},
        PLAIN | {"data": None},
        PLAIN | {"data": (0, False)},
        PLAIN | {"data": (-8, False)},
        PLAIN | {"data": (2**70, False)},
        PLAIN | {"strides": (8, 8)},
        PLAIN | {"strides": 8},
        PLAIN | {"strides": ("a",)},
        PLAIN | {"strides": (12,)},
        PLAIN | {"strides": (-4,)},
        PLAIN | {"mask": "a mask"},
    ],
    ids=str,
)
def test_a_cuda_array_interface_that_is_malformed_or_masked(facts, monkeypatch):
    monkeypatch.setattr(device, "of_pointer", lambda pointer: 0)
    x = Interface(facts)
    for identify in (arrays.adapter(x).identify, arrays.adapter(x).identify_strided):
        with pytest.raises((ArgumentTypeError, ArgumentValueError), match=": got .*; needs "):
            identify(x)


def test_a_cuda_array_interface_that_is_sound(monkeypatch):
    monkeypatch.setattr(device, "of_pointer", lambda pointer: 0)
    view = arrays.adapter(Interface(None)).view
    assert view(Interface(PLAIN)).contiguous and view(Interface(PLAIN | {"mask": None, "strides": (8,)})).contiguous
    assert view(Interface(PLAIN | {"strides": (-16,), "data": (1 << 20, True)})).strides == (-2,)


def test_what_one_object_has_says_nothing_of_another(monkeypatch):
    """Adapters are kept by type: a class has what its objects have, and an object may lack what another one has."""
    monkeypatch.setattr(arrays, "ADAPTERS", dict(arrays.ADAPTERS))
    for x in (np.ndarray, Export, np.int32):
        with pytest.raises(ArgumentTypeError, match=r"^x: got a type; needs an array"):
            cs.nonzero(x)
    arrays.adapter(SimpleNamespace(__cuda_array_interface__=PLAIN))
    with pytest.raises(ArgumentTypeError, match=r": got a SimpleNamespace; needs an array"):
        cs.nonzero(SimpleNamespace())


def test_cupy_strides_that_are_no_multiple_of_the_element():
    x = SimpleNamespace(
        dtype=np.dtype("f8"),
        shape=(3,),
        strides=(12,),
        data=SimpleNamespace(ptr=256, device_id=0),
        flags=SimpleNamespace(c_contiguous=False),
    )
    with pytest.raises(ArgumentValueError, match="strides of .12,. bytes"):
        arrays._Cupy.view(None, x)


class Export:
    """A DLPack export of 4 elements of any type, however odd."""

    def __init__(self, code: int, bits: int, lanes: int = 1, strides=None) -> None:
        self.memory, self.shape = (ctypes.c_int64 * 32)(), (ctypes.c_int64 * 1)(4)
        self.strides = strides and (ctypes.c_int64 * 1)(*strides)
        words = (
            ctypes.addressof(self.memory),
            1,
            1 | code << 32 | bits << 40 | lanes << 48,
            ctypes.addressof(self.shape),
            ctypes.addressof(self.strides) if strides else 0,
            0,
            0,
            0,
        )
        self.managed = (ctypes.c_uint64 * 8)(
            *words
        )  # data, device, ndim and type, shape, strides, byte offset, context, deleter

    def __dlpack__(self, **options):
        made = ctypes.pythonapi.PyCapsule_New
        made.restype, made.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return made(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self):
        return 1, 0


class Failing:
    def __dlpack__(self, **options):
        raise KeyError("the exporter's own")

    def __dlpack_device__(self):
        return 1, 0


def test_dlpack_of_types_that_are_read_as_they_are():
    for code, bits, name in ((2, 32, "float32"), (0, 8, "int8"), (6, 8, "bool"), (4, 16, "bfloat16")):
        assert arrays.adapter(x := Export(code, bits)).view(x).dtype.name == name


@pytest.mark.parametrize(
    "x",
    [
        Export(2, 32, 2),
        Export(2, 8),
        Export(10, 8),
        Export(0, 12),
        Export(5, 64),
        Export(3, 64),
        Export(2, 32, 0),
        Failing(),
        np.ndarray,
    ],
    ids=["lanes", "float8", "code 10", "12 bits", "complex", "opaque", "no lanes", "failing", "a class"],
)
def test_dlpack_that_cannot_be_read(x):
    with pytest.raises(ArgumentTypeError, match=": got .*; needs "):
        arrays.adapter(x).view(x)


class TestTorch:
    """By a stand-in: what decides the result, or the refusal, is part of what makes two calls alike."""

    @pytest.fixture(autouse=True)
    def _stand_in(self, monkeypatch):
        class Tensor:
            dtype, shape, requires_grad, neg, address, layout = "float32", (3,), False, False, 256, "strided"
            __torch_dispatch__ = None
            __module__ = "torch"
            get_device = is_contiguous = stride = is_conj = lambda self: 0
            is_neg = lambda self: self.neg  # noqa: E731
            numel = lambda self: 3  # noqa: E731

            def data_ptr(self):
                if self.address is None:
                    raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
                return self.address

        self.grad_mode, self.Tensor = True, Tensor
        torch = SimpleNamespace(Tensor=Tensor, is_grad_enabled=lambda: self.grad_mode, _C=SimpleNamespace())
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setattr(arrays, "ADAPTERS", dict(arrays.ADAPTERS))

    def signatures(self, **attributes):
        x = self.Tensor()
        for name, value in attributes.items():
            setattr(x, name, value)
        adapter = arrays.adapter(x)
        return adapter.identify(x), adapter.identify_strided(x)

    def test_a_negated_tensor_is_another(self):
        assert not set(self.signatures()) & set(self.signatures(neg=True))

    def test_grad_mode_counts_where_a_gradient_is_asked_for(self):
        plain, asked = set(self.signatures()), set(self.signatures(requires_grad=True))
        self.grad_mode = False
        assert set(self.signatures()) == plain == set(self.signatures(requires_grad=True))
        assert not asked & plain

    @pytest.mark.parametrize(("address", "error"), [(None, ArgumentTypeError), (0, ArgumentValueError)])
    def test_tensors_without_memory(self, address, error):
        """Sparse, nested and of torch.func; zero tensors and freed storage, whose address is 0."""
        with pytest.raises(error, match="tensor"):
            self.signatures(address=address)

    def test_types_that_give_operations_their_own_meaning(self):
        x = type("DTensor", (self.Tensor,), {"__torch_dispatch__": print})()
        with pytest.raises(ArgumentTypeError, match="x: got a DTensor; needs a plain tensor"):
            arrays.adapter(x)


def test_torch_tensors_themselves(torch):
    plain = torch.ones(3)
    adapter = arrays.adapter(plain)
    negated = torch.view_as_complex(torch.ones(1, 2)).conj().imag
    assert adapter.identify(negated)[1] != adapter.identify(torch.ones(1, 2)[:, 1])[1] and negated.is_neg()
    for x in (
        torch.eye(3).to_sparse(),
        torch.eye(3).to_sparse_csr(),
        torch._efficientzerotensor((3,)),
        torch.ones(3, device="meta"),
    ):
        with pytest.raises((ArgumentTypeError, ArgumentValueError)):
            adapter.identify(x)
    seen = []

    def identified(x):
        with pytest.raises(ArgumentTypeError):
            adapter.identify(x)
        seen.append(x)
        return x

    torch.vmap(identified)(torch.ones(2, 3))
    assert seen and arrays.adapter(torch.nn.Parameter(plain)).identify(plain)[0] == plain.data_ptr()
