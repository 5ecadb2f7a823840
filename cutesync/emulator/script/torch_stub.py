"""A module ``torch`` for scripts where torch is not installed, as far as scripts that launch kernels use it: tensors
over NumPy arrays in device memory, without gradients.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from .. import facts, limits
from .host_arrays import DeviceArray, device_array, plain

_DTYPES = {
    "float32": "float32",
    "float": "float32",
    "float64": "float64",
    "double": "float64",
    "float16": "float16",
    "half": "float16",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int": "int32",
    "int64": "int64",
    "long": "int64",
    "uint8": "uint8",
    "bool": "bool",
}
_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
_OF_NUMPY = "einsum matmul sum abs exp sqrt maximum minimum where equal allclose isnan any all cumsum max min"
_generator = np.random.default_rng(0)


class device:
    """A device: all memory is that of the emulated one, ``cpu`` tensors included."""

    def __init__(self, name: Any = "cuda", index: int | None = None) -> None:
        text = str(name)
        self.type, _, number = text.partition(":")
        self.index = int(number) if number else index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class Tensor(DeviceArray):
    """A tensor: an ndarray with torch's names."""

    is_cuda, requires_grad, grad = True, False, None
    layout, device = "strided", device("cuda", 0)  # type: ignore[assignment]

    def data_ptr(self) -> int:
        return self.ctypes.data

    def stride(self, axis: int | None = None) -> Any:
        steps = tuple(step // self.itemsize for step in self.strides)
        return steps if axis is None else steps[axis]

    def size(self, axis: int | None = None) -> Any:  # type: ignore[override]
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        return self.ndim

    def numel(self) -> int:
        return int(np.prod(self.shape))

    def element_size(self) -> int:
        return self.itemsize

    def is_contiguous(self) -> bool:
        return self.flags.c_contiguous

    def contiguous(self) -> Any:
        return device_array(np.ascontiguousarray(plain(self)), Tensor)

    def clone(self) -> Any:
        return device_array(np.array(plain(self), order="K"), Tensor)

    def numpy(self) -> np.ndarray:
        return plain(self)

    def to(self, *given: Any, dtype: Any = None, **_: Any) -> Any:
        kinds = [x for x in (*given, dtype) if isinstance(x, (np.dtype, type))]
        return device_array(plain(self).astype(kinds[0]), Tensor) if kinds else self

    def _itself(self, *_: Any, **__: Any) -> Any:
        return self

    cpu = cuda = detach = requires_grad_ = pin_memory = _itself

    def float(self) -> Any:
        return self.to(np.dtype("float32"))

    def half(self) -> Any:
        return self.to(np.dtype("float16"))

    def int(self) -> Any:
        return self.to(np.dtype("int32"))

    def long(self) -> Any:
        return self.to(np.dtype("int64"))

    def double(self) -> Any:
        return self.to(np.dtype("float64"))

    def permute(self, *axes: Any) -> Any:
        return np.ndarray.transpose(self, *axes)

    def transpose(self, *axes: Any) -> Any:
        return np.ndarray.swapaxes(self, *axes)

    def t(self) -> Any:
        return self.T

    def view(self, *shape: Any) -> Any:  # type: ignore[override]
        if shape and isinstance(shape[0], (np.dtype, type)):
            return np.ndarray.view(self, *shape)
        return np.ndarray.reshape(self, *shape)

    def unsqueeze(self, axis: Any) -> Any:
        return np.expand_dims(plain(self), axis).view(Tensor)

    def fill_(self, value: Any) -> Any:
        self[...] = value
        return self

    copy_ = fill_

    def zero_(self) -> Any:
        return self.fill_(0)

    def abs(self) -> Any:
        return np.abs(self)

    def dim_order(self) -> tuple:
        return tuple(sorted(range(self.ndim), key=lambda axis: -self.strides[axis]))


def _shape(given: tuple) -> tuple:
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def _maker(make: Callable[[tuple], np.ndarray], default: str = "float32", *, fresh: bool = False) -> Callable:
    def create(*shape: Any, dtype: Any = None, size: Any = None, **_: Any) -> Any:
        made = make(tuple(size) if size is not None else _shape(shape)).astype(dtype or np.dtype(default), copy=False)
        return device_array(made, Tensor, fresh=fresh)

    return create


def _like(create: Callable) -> Callable:
    return lambda x, dtype=None, **_: create(tuple(x.shape), dtype=dtype or x.dtype)


def _tensor(data: Any, dtype: Any = None, **_: Any) -> Any:
    found = np.array(plain(data))
    if dtype is None and found.dtype == np.float64 and not hasattr(data, "dtype"):
        dtype = np.dtype("float32")
    return device_array(found if dtype is None else found.astype(dtype), Tensor)


def _full(shape: Any, value: Any, dtype: Any = None, **_: Any) -> Any:
    found = dtype or (np.dtype("int64") if isinstance(value, int) else np.dtype("float32"))
    return device_array(np.full(shape, value, found), Tensor)


def _randint(*given: Any, dtype: Any = None, size: Any = None, **_: Any) -> Any:
    bounds, shape = (given, size) if size is not None else (given[:-1], given[-1])
    low, high = bounds if len(bounds) == 2 else (0, bounds[0])
    return device_array(_generator.integers(low, high, shape).astype(dtype or np.dtype("int64")), Tensor)


def _arange(*bounds: Any, dtype: Any = None, **_: Any) -> Any:
    return device_array(np.arange(*bounds).astype(dtype or np.asarray(bounds[0]).dtype), Tensor)


def assert_close(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, **_: Any) -> None:
    """As torch.testing.assert_close, with its tolerances."""
    a, b = np.asarray(plain(actual)), np.asarray(plain(expected))
    relative, absolute = _TOLERANCES.get(a.dtype.name, (0.0, 0.0))
    rtol, atol = relative if rtol is None else rtol, absolute if atol is None else atol
    if a.shape != b.shape or a.dtype != b.dtype:
        raise AssertionError(f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)} differ")
    wide = a.dtype if a.dtype.kind in "iub" else np.dtype("float64")
    if not np.allclose(a.astype(wide), b.astype(wide), rtol, atol):
        wrong = ~np.isclose(a.astype(wide), b.astype(wide), rtol, atol)
        raise AssertionError(f"Tensor-likes are not close!\n\nMismatched elements: {wrong.sum()} / {a.size}")


def _seed(seed: int) -> None:
    global _generator
    _generator = np.random.default_rng(seed)


def _names() -> dict[str, Any]:
    zeros, ones = _maker(np.zeros), _maker(np.ones)
    empty = _maker(np.empty, fresh=True)
    names: dict[str, Any] = {
        "Tensor": Tensor,
        "device": device,
        "zeros": zeros,
        "ones": ones,
        "empty": empty,
        "rand": _maker(lambda shape: _generator.random(shape)),
        "randn": _maker(lambda shape: _generator.standard_normal(shape)),
        "zeros_like": _like(zeros),
        "ones_like": _like(ones),
        "empty_like": _like(empty),
        "tensor": _tensor,
        "as_tensor": _tensor,
        "from_numpy": _tensor,
        "full": _full,
        "randint": _randint,
        "arange": _arange,
        "manual_seed": _seed,
        "no_grad": contextlib.nullcontext,
        "inference_mode": contextlib.nullcontext,
        "is_tensor": lambda x: isinstance(x, Tensor),
    }
    names.update({name: getattr(np, name) for name in _OF_NUMPY.split()})
    names.update({name: np.dtype(kind) for name, kind in _DTYPES.items()})
    with contextlib.suppress(ImportError):
        import ml_dtypes

        names["bfloat16"] = np.dtype(ml_dtypes.bfloat16)
    return names


def _cuda() -> dict[str, Any]:
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    properties = SimpleNamespace(multi_processor_count=limits.multiprocessors(), name=facts.NAME, major=9, minor=0)
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "synchronize": lambda *_: None,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "Stream": lambda *_, **__: stream,
        "stream": lambda *_: contextlib.nullcontext(),
        "get_device_capability": lambda *_: facts.CAPABILITY,
        "get_device_name": lambda *_: facts.NAME,
        "get_device_properties": lambda *_: properties,
        "empty_cache": lambda: None,
        "manual_seed": _seed,
    }


def install() -> None:
    """Put the modules where ``import`` finds them."""
    torch, cuda, testing = (ModuleType(name) for name in ("torch", "torch.cuda", "torch.testing"))
    torch.__dict__.update(_names(), cuda=cuda, testing=testing, __version__="0", __path__=[])
    cuda.__dict__.update(_cuda())
    testing.__dict__["assert_close"] = assert_close
    sys.modules.update({"torch": torch, "torch.cuda": cuda, "torch.testing": testing})
