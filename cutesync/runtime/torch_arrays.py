"""The adapter of torch.Tensor (see ``arrays``). torch is found among the modules that are loaded, never imported."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..dtypes import DType, element_type as parse_dtype
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain
from . import device
from .device import HOST
from .view import View, contiguous_strides

_MOST_STREAMS = 256  # whose objects are kept


class Torch:
    """Adapter of torch.Tensor. Every call asks for torch's current stream."""

    def __init__(self) -> None:
        self.torch = sys.modules["torch"]
        self.address = self.torch.Tensor.data_ptr
        guards = getattr(getattr(self.torch._C, "_dynamo", None), "guards", None)
        self._quick = getattr(guards, "_empty_strided_cuda", None)
        self.stream = getattr(self.torch._C, "_cuda_getCurrentRawStream", None) or self._public_stream
        self._here = getattr(self.torch._C, "_cuda_getDevice", None) or self._public_device
        names = "_cuda_getCurrentStream", "_cuda_setStream"
        self._stream_functions = [getattr(self.torch._C, name, None) for name in names]
        self._streams: dict[tuple[int, int], Any] = {}  # torch's objects of foreign streams, by handle and device

    def _public_stream(self, ordinal: int) -> int:
        return self.torch.cuda.current_stream(ordinal).cuda_stream

    def _public_device(self) -> int:
        return self.torch.cuda.current_device()

    @staticmethod
    def identify(x: Any) -> tuple[int, tuple]:
        try:
            grad = x.requires_grad and _has_grad_mode()
            return (x.data_ptr() or _no_memory(x)), (
                x.dtype,
                x.shape,
                x.get_device(),
                x.is_contiguous(),
                x.is_neg(),
                grad,
            )
        except RuntimeError as error:
            raise _no_plain_tensor(x) from error

    @staticmethod
    def identify_strided(x: Any) -> tuple[int, tuple]:
        try:
            grad = x.requires_grad and _has_grad_mode()
            return (x.data_ptr() or _no_memory(x)), (x.dtype, x.shape, x.stride(), x.get_device(), x.is_neg(), grad)
        except RuntimeError as error:
            raise _no_plain_tensor(x) from error

    def view(self, x: Any) -> View:
        if x.device.type not in ("cuda", "cpu"):
            raise DeviceError(explain("array", f"a torch tensor on {x.device}", "one on a CUDA device", "x.cuda()"))
        if x.requires_grad and self.torch.is_grad_enabled():
            raise ArgumentValueError(
                explain(
                    "array",
                    "a torch tensor that requires grad",
                    "one that does not: no gradient is computed",
                    "x.detach()",
                )
            )
        if x.is_conj() or x.is_neg():
            raise ArgumentValueError(
                explain(
                    "array", "a lazily conjugated or negated tensor", "plain values", "x.resolve_conj().resolve_neg()"
                )
            )
        ordinal = HOST if x.device.type == "cpu" else x.device.index
        return View(
            x.data_ptr(), tuple(x.shape), parse_dtype(x.dtype), ordinal, x.is_contiguous(), True, tuple(x.stride())
        )

    def allocator(self, shape: tuple[int, ...], dtype: DType, ordinal: int) -> Any:
        """torch reuses memory in the order of its current stream, so a result for another stream is made with that
        stream current.

        ``torch.empty`` takes 3.1 us, ``torch.empty_strided`` 1.8, and what torch.compile's code calls, for the current
        device only, 1.0."""
        steps, element = contiguous_strides(shape), getattr(self.torch, dtype.name)
        place = self.torch.device(f"cuda:{ordinal}")
        make = functools.partial(self.torch.empty_strided, shape, steps, dtype=element, device=place)
        quick, here, stream_of, one = self._quick, self._here, self.stream, self.torch.cuda.device_count() == 1
        if quick is not None:
            quick = functools.partial(quick, shape, steps, element)

        def empty(stream: int, other: bool = False) -> Any:
            if other and stream_of(ordinal) != (stream if stream not in device.DEFAULT else 0):
                return self._on_stream(make, stream, ordinal)
            return quick() if quick is not None and (one or here() == ordinal) else make()

        return empty

    def _on_stream(self, make: Callable[[], Any], stream: int, ordinal: int) -> Any:
        """Return ``make()`` with a stream of a device as torch's current one. ``torch.cuda.stream`` takes several
        microseconds; the two functions that it calls are called here if the device is current."""
        known = self._streams.get((stream, ordinal))
        if known is None:
            cuda, place = self.torch.cuda, self.torch.device(f"cuda:{ordinal}")
            known = cuda.ExternalStream(stream, device=place) if stream else cuda.default_stream(place)
            if len(self._streams) >= _MOST_STREAMS:
                self._streams.clear()
            self._streams[stream, ordinal] = known
        get, put = self._stream_functions
        if get is None or put is None or self._here() != ordinal:
            with self.torch.cuda.stream(known):
                return make()
        number, index, kind = get(ordinal)
        put(stream_id=known.stream_id, device_index=ordinal, device_type=known.device_type)
        try:
            return make()
        finally:
            put(stream_id=number, device_index=index, device_type=kind)


def _has_grad_mode() -> bool:
    return sys.modules["torch"].is_grad_enabled()


def _no_memory(x: Any) -> int:
    """Return address 0 for an empty tensor; raise for one that has elements without memory."""
    if x.numel():
        came = f"a torch tensor of {x.numel()} elements without memory"
        raise ArgumentValueError(explain("array", came, "one that has its elements in memory", "x.clone()"))
    return 0


def _no_plain_tensor(x: Any) -> ArgumentTypeError:
    """Return the error for tensors without an address, shape or strides: sparse, nested, and those of torch.func."""
    came = f"a torch tensor of layout {x.layout} that is not one block of memory"
    return ArgumentTypeError(
        explain("array", came, "a dense tensor", "x.to_dense(), outside torch.func and torch.vmap")
    )
