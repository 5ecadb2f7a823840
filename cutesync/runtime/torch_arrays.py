"""The adapter of torch.Tensor (see ``arrays``). torch is found among the modules that are loaded, never imported."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
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
        self._guards = _guards(guards)
        self.guard = None if self._guards is None else self._guard
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

    def _guard(self, tensors: Sequence[Any]) -> Callable[..., bool] | None:
        """Return ``same(*tensors)``: whether so many tensors have the types and ``identify_strided`` the signatures of
        these. It may say False of such that have. None if it would say so of these."""
        if len(set(map(id, tensors))) == len(tensors):
            same = _same_as(self._guards, tensors)
        else:  # torch's function refuses a tensor that is given twice
            each = [_same_as(self._guards, [x]) for x in tensors]
            same = None if None in each else _all_of(each)  # type: ignore[arg-type]
        if same is None or not any(x.requires_grad for x in tensors):
            return same
        enabled = self.torch.is_grad_enabled
        return None if enabled() else lambda *given: not enabled() and same(*given)

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


def _same_as(guards: Any, tensors: Sequence[Any]) -> Callable[..., bool] | None:
    try:
        same = guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return same if same(*tensors) is True else None
    except Exception:  # of a torch whose guards are made in another way
        return None


def _all_of(tests: Sequence[Callable[[Any], bool]]) -> Callable[..., bool]:
    def same(*tensors: Any) -> bool:
        for test, x in zip(tests, tensors):  # noqa: SIM110 (all() takes longer than two tests)
            if not test(x):
                return False
        return True

    return same


def _guards(found: Any) -> Any:
    """Return what compares tensors for torch.compile's code, among ``found``: type, dispatch keys (which have the kind
    of device, and whether values are negated), element type, device, extents, strides and requires_grad, in one call of
    0.2 us. None if this torch has none that tells apart the tensors that it must.

    ``identify_strided`` takes 0.5 us a tensor."""
    torch, guards = sys.modules["torch"], getattr(found, "TensorGuards", None)
    if guards is None:
        return None
    try:
        x = torch.empty((2, 3), dtype=torch.float32, device="cpu")
        others = [
            torch.nn.Parameter(x, requires_grad=False),
            torch.empty_like(x).requires_grad_(),
            torch._neg_view(x),
            x.to(torch.int32),
            x[:, :2],
            x[:1],
            x[0],
            x.new_empty((3, 2)).T,
            x.to("meta"),
        ]
        same = _same_as(guards, [x])
        works = same is not None and same(torch.empty_like(x)) is True and not any(map(same, others))
        return guards if works else None
    except Exception:  # of a torch that has not all of these, or in a mode where tensors are something else
        return None


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
