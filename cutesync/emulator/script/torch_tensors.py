"""CUDA tensors of torch on a CPU: each lies in ``heap``, and says that its device is ``cuda:0``.

A tensor is one of the device if its storage lies in the heap. Two modes of torch, in force while the script runs, keep
this true. The function mode sees the calls of Python code: it turns requests for the device into requests for the CPU
and answers ``device`` and ``is_cuda``. The dispatch mode sees every operator below, those of the backward pass
included: results of operators on device tensors move into the heap before anybody sees them.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from .. import heap
from . import graphs, torch_graphs
from .session import Session, caller

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
_KDL_CUDA = 2
_DEVICE_OF_TENSOR, _DEVICE_OF_MANAGED = 8, 40  # offsets of the device type in DLTensor, DLManagedTensorVersioned
_UNWRITTEN = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
_WAITING = {"_local_scalar_dense", "nonzero", "equal", "masked_select", "_unique2"}  # operators that the host waits for
_WIDE = ("mm", "bmm", "addmm", "baddbmm")  # products with ``out_dtype``, which torch has for the device only
_strict = [False]  # whether kernels must write fresh tensors before they read them (--initcheck)


class _Targets(threading.local):
    """Where operators that are under way in this thread must leave their results: "cuda" or "cpu", innermost last.

    ``calls``: how many functions of torch Python code has called that are under way.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.calls = 0


_targets = _Targets()


def on_device(tensor: torch.Tensor) -> bool:
    """Whether the tensor's storage lies in device memory."""
    try:
        return tensor.layout is torch.strided and heap.holds(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # tensors without storage, as fake ones
        return False


def _strided_in_heap(tensor: torch.Tensor, fresh: bool) -> torch.Tensor:
    """A copy of a tensor in device memory, with the same sizes and strides."""
    steps, offset = tensor.stride(), 0
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, steps)) + 1 if tensor.numel() else 0
    name = f"torch tensor {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)} made at {caller()}"
    block = heap.allocate(reach * tensor.element_size(), name, fresh=fresh, strict=_strict[0])
    storage = torch.from_numpy(block).untyped_storage()
    made = torch.empty(0, dtype=tensor.dtype).set_(storage, offset, tensor.shape, steps)
    if not fresh:
        made.copy_(tensor)
    return made


def _missing_gradient() -> bool:
    """Whether torch itself makes a tensor now, for a gradient that the backward pass of device tensors has not got."""
    if _targets.calls:
        return False
    try:
        saved = torch._C._current_autograd_node().saved_tensors
    except (AttributeError, RuntimeError):  # no backward pass is under way, or it is not one of a Python function
        return False
    return any(on_device(x) for x in saved if x is not None)


def _wide_product(func: Any) -> Callable:
    """The operator itself, or for a product with ``out_dtype`` the one of operands of that type."""
    name, _, overload = func.__name__.partition(".")
    if name not in _WIDE or overload not in ("dtype", "dtype_out"):
        return func

    def run(*args: Any, out: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
        *operands, wanted = args
        result = getattr(torch, name)(*(x.to(wanted) for x in operands), **kwargs)
        return result if out is None else out.copy_(result)

    return run


class OperatorMode(TorchDispatchMode):
    """Keeps the results of operators on device tensors in device memory."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        there = [x for x in given if on_device(x)]
        for x in there:
            if not func.is_view:
                heap.initialised(x.data_ptr())
        cuda = bool(there) or (not given and _missing_gradient())
        target = _targets.names[-1] if _targets.names else "cuda" if cuda else "cpu"
        name = func.__name__.split(".")[0]
        fresh, graph = name in _UNWRITTEN, self.session.capture
        run = _wide_product(func)
        if graph is not None and (there or target == "cuda") and not func.is_view:
            if target == "cpu" or name in _WAITING:
                run = graphs.outside(self.session, name, run)
            elif not fresh:
                return torch_graphs.captured(graph, func, run, (args, kwargs), partial(_strided_in_heap, fresh=True))
        result = run(*args, **kwargs)
        if target == "cpu":
            return result
        mine = set() if _targets.names else {id(x) for x in given}

        def moved(x: Any) -> Any:
            if not isinstance(x, torch.Tensor) or id(x) in mine or on_device(x) or x.layout is not torch.strided:
                return x
            made = _strided_in_heap(x, fresh)
            if graph is not None:
                graph.kept.append(made)
            return made

        return tree_map(moved, result)


@contextlib.contextmanager
def _to(target: str) -> Iterator[None]:
    _targets.names.append(target)
    try:
        yield
    finally:
        _targets.names.pop()


def is_cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and (device == "cuda" or device.startswith("cuda:"))


class FunctionMode(TorchFunctionMode):
    """Answers questions for the device, and makes tensors there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        special = _SPECIAL.get(func)
        if special is not None:
            return special(self, func, args, kwargs)
        name = getattr(func, "__name__", "")
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        if "device" not in kwargs and name != "to":
            _targets.calls += 1
            try:
                return func(*args, **kwargs)
            finally:
                _targets.calls -= 1
        if name == "to":
            return self._convert(func, args, kwargs)
        wanted = kwargs["device"]
        if wanted is None:
            return func(*args, **kwargs)
        cuda = is_cuda(wanted) or isinstance(wanted, int)
        with _to("cuda" if cuda else "cpu"):
            result = func(*args, **{**kwargs, "device": CPU if cuda else wanted})
            plain = cuda and isinstance(result, torch.Tensor) and not on_device(result)
            return result.clone() if plain else result

    @staticmethod
    def _convert(func: Callable, args: tuple, kwargs: dict) -> Any:
        """``tensor.to(...)``, in all its forms."""
        tensor, *rest = args
        devices = [x for x in (*rest, kwargs.get("device")) if isinstance(x, (str, torch.device))]
        devices += [x for x in rest[:1] if isinstance(x, int) and not isinstance(x, bool)]
        others = [x for x in (*rest, kwargs.get("other")) if isinstance(x, torch.Tensor)]
        if not devices and not others:
            return func(*args, **kwargs)
        cuda = on_device(others[0]) if others else is_cuda(devices[0]) or isinstance(devices[0], int)
        if not cuda and devices and torch.device(devices[0]).type != "cpu":
            return func(*args, **kwargs)

        def plain(x: Any) -> Any:
            return CPU if any(x is d for d in devices) else x

        rest, kwargs = [plain(x) for x in rest], {k: plain(v) for k, v in kwargs.items()}
        if on_device(tensor) == cuda:
            return func(tensor, *rest, **kwargs)
        with _to("cuda" if cuda else "cpu"):
            result = func(tensor, *rest, **kwargs)
            return result.clone() if on_device(result) != cuda else result


def _device(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    return CUDA if on_device(args[0]) else func(*args, **kwargs)


def _is_cuda(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> bool:
    return on_device(args[0]) or func(*args, **kwargs)


def _is_cpu(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> bool:
    return not on_device(args[0]) and func(*args, **kwargs)


def _get_device(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> int:
    return 0 if on_device(args[0]) else func(*args, **kwargs)


def _cuda(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    with _to("cuda"):
        return args[0] if on_device(args[0]) else args[0].clone()


def _cpu(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    with _to("cpu"):
        return args[0].clone() if on_device(args[0]) else args[0]


def _itself(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    return args[0]


def _nothing(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> None:
    """``record_stream``: memory is freed when nobody holds it."""


def _backward(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    """The backward pass runs the script's own functions: the mode stays in force."""
    names = "tensor", "gradient", "retain_graph", "create_graph", "inputs"
    given = dict(zip(names, args)) | kwargs
    tensor, gradient = given.pop("tensor"), given.pop("gradient", None)
    with mode:
        return torch.autograd.backward(tensor, gradient, **given)


def _dlpack(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    """A capsule whose device is that of the tensor."""
    capsule = func(*args, **kwargs)
    if on_device(args[0]):
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        versioned = "dltensor_versioned" in repr(capsule)
        offset = _DEVICE_OF_MANAGED if versioned else _DEVICE_OF_TENSOR
        at = pointer(capsule, b"dltensor_versioned" if versioned else b"dltensor")
        ctypes.c_int32.from_address(at + offset).value = _KDL_CUDA
    return capsule


def _dlpack_device(mode: FunctionMode, func: Any, args: tuple, kwargs: dict) -> Any:
    return (_KDL_CUDA, 0) if on_device(args[0]) else func(*args, **kwargs)


_T = torch.Tensor
_SPECIAL: dict[Any, Callable] = {
    _T.device.__get__: _device,
    _T.is_cuda.__get__: _is_cuda,
    _T.is_cpu.__get__: _is_cpu,
    _T.get_device: _get_device,
    _T.cuda: _cuda,
    _T.cpu: _cpu,
    _T.pin_memory: _itself,
    _T.record_stream: _nothing,
    _T.backward: _backward,
    _T.__dlpack__: _dlpack,
    _T.__dlpack_device__: _dlpack_device,
}


class _ExchangeTable(ctypes.Structure):
    """DLPackExchangeAPI (dlpack.h), through which tvm-ffi reads tensors."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("managed_from_object", ctypes.c_void_p),
        ("managed_to_object", ctypes.c_void_p),
        ("tensor_from_object", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    ]


_kept_alive: list[Any] = []


def _exchange_table() -> None:
    """Let tvm-ffi see device tensors as such."""
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    plain = _ExchangeTable.from_address(pointer(capsule, b"dlpack_exchange_api"))
    table = _ExchangeTable.from_buffer_copy(plain)
    read = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def marking(address: int, follow: bool) -> Any:
        function = read(address)

        def run(tensor: int, out: int) -> int:
            code = function(tensor, out)
            at = ctypes.c_void_p.from_address(out).value if follow else out
            if code == 0 and at:
                start = at + (_DEVICE_OF_MANAGED - _DEVICE_OF_TENSOR if follow else 0)
                if heap.holds(ctypes.c_void_p.from_address(start).value or 0):
                    ctypes.c_int32.from_address(start + _DEVICE_OF_TENSOR).value = _KDL_CUDA
            return code

        return read(run)

    def stream(kind: int, index: int, out: int) -> int:
        ctypes.c_void_p.from_address(out).value = None
        return 0

    own = (
        marking(plain.managed_from_object, True),
        marking(plain.tensor_from_object, False),
        ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)(stream),
    )
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in own]
    table.managed_from_object, table.tensor_from_object, table.current_stream = addresses
    _kept_alive.extend((own, table))
    torch.Tensor.__dlpack_c_exchange_api__ = ctypes.addressof(table)


def _in_threads(session: Session) -> None:
    """Modes belong to a thread: those that the script starts enter their own."""
    plain = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def run(self: Any) -> None:
        with OperatorMode(session), FunctionMode():
            plain(self)

    threading.Thread._bootstrap_inner = run  # type: ignore[attr-defined]


def install(session: Session) -> None:
    """Put the modes in force for the rest of the process."""
    _strict[0] = session.options.initcheck
    _exchange_table()
    _in_threads(session)
    torch.autograd.has_torch_function = lambda *_: False
    for mode in (OperatorMode(session), FunctionMode()):
        mode.__enter__()
        _kept_alive.append(mode)
