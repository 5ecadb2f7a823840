"""``torch.cuda`` in a checked script: the emulator's device, where everything has ended when it returns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from .. import facts, limits
from . import torch_graphs
from .session import Session, caller
from .torch_tensors import is_cuda


class Stream:
    """A stream; all of them are one to the emulator."""

    def __init__(self, device: Any = None, priority: int = 0, stream_ptr: int = 0, **_: Any) -> None:
        self.cuda_stream = self.stream_ptr = stream_ptr
        self.priority, self.device, self.device_index = priority, torch.device("cuda", 0), 0

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def _nothing(self, *_: Any) -> None:
        """Nothing is under way."""

    synchronize = wait_event = wait_stream = _nothing

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream


class Event:
    """An event that has happened; the time between two is a millisecond."""

    cuda_event = 1

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 1.0

    def _nothing(self, *_: Any) -> None:
        """Nothing is under way."""

    record = synchronize = wait = _nothing


def _properties(*_: Any) -> SimpleNamespace:
    return SimpleNamespace(
        name=facts.NAME,
        major=facts.CAPABILITY[0],
        minor=facts.CAPABILITY[1],
        multi_processor_count=limits.multiprocessors(),
        total_memory=facts.MEMORY,
        warp_size=facts.attribute(10),
        max_threads_per_multi_processor=limits.THREADS_OF_SM,
        max_threads_per_block=limits.THREADS,
        regs_per_multiprocessor=facts.attribute(82),
        shared_memory_per_block=limits.PLAIN_SHARED,
        shared_memory_per_block_optin=limits.SHARED,
        shared_memory_per_multiprocessor=limits.SHARED_OF_SM,
        L2_cache_size=facts.attribute(38),
        is_integrated=False,
    )


def _constant(value: Any) -> Callable:
    return lambda *_, **__: value


@contextlib.contextmanager
def _block(*_: Any, **__: Any) -> Any:
    """Of ``torch.cuda.device`` and ``stream``: one device, one stream."""
    yield


class Generator(torch.Generator):
    """A generator of random numbers; those of the device are the CPU's."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, "cpu" if is_cuda(device) else device)


def install(session: Session) -> None:
    """Answer for the rest of the process."""
    stream, cuda = Stream(), torch.cuda
    constants = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": facts.CAPABILITY,
        "get_device_name": facts.NAME,
        "get_arch_list": ["sm_90", "sm_90a"],
        "mem_get_info": (facts.MEMORY, facts.MEMORY),
        "current_stream": stream,
        "default_stream": stream,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
    }
    nothing = (
        "init _lazy_init empty_cache set_device set_stream ipc_collect _sleep reset_peak_memory_stats "
        "reset_max_memory_allocated reset_accumulated_memory_stats"
    )
    for name, value in constants.items():
        setattr(cuda, name, _constant(value))
    for name in nothing.split():
        setattr(cuda, name, _constant(None))
    for name in ("manual_seed", "manual_seed_all"):
        setattr(cuda, name, lambda seed: torch.default_generator.manual_seed(seed))
    cuda.get_device_properties = _properties
    cuda.Stream, cuda.ExternalStream, cuda.Event = Stream, Stream, Event
    cuda.stream = cuda.device = _block
    for name in ("range_push", "range_pop", "mark", "range_start", "range_end"):
        setattr(cuda.nvtx, name, _constant(0))
    cuda.nvtx.range = _block
    torch.version.cuda = "13.0"
    torch.Generator = Generator
    torch_graphs.install(session)
    _python_functions(session)
    _benchmarks(session)


_operators: dict[str, _Operator] = {}


class _Operator:
    """A custom operator without a dispatcher, also in ``torch.ops``: the function itself."""

    def __init__(self, name: str, function: Callable) -> None:
        self.function, self.__name__, self.default = function, function.__name__, self
        space, _, own = name.rpartition("::")
        setattr(getattr(torch.ops, space), own, self)
        _operators[name] = self

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def _accept(self, function: Any = None, /, **_: Any) -> Any:
        """A fake kernel is not needed."""
        return (lambda f: f) if function is None else function

    register_fake = register_kernel = register_vmap = impl_abstract = _accept

    def register_autograd(self, backward: Callable, /, *, setup_context: Callable | None = None) -> None:
        forward = self.function

        class Made(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *arguments: Any) -> Any:
                result = forward(*arguments)
                if setup_context is not None:
                    setup_context(ctx, inputs=arguments, output=result)
                return result

        Made.backward = staticmethod(backward)
        self.function = Made.apply


def _python_functions(session: Session) -> None:
    """``custom_op`` and ``compile`` give the Python function itself: its kernels run where it is called."""

    plain = torch.library.custom_op

    def custom_op(name: str, function: Any = None, /, **how: Any) -> Any:
        def make(function: Callable) -> Any:
            if function.__module__.startswith("torch."):
                return plain(name, function, **how)
            return _Operator(name, function)

        return make if function is None else make(function)

    def compile(model: Any = None, **_: Any) -> Any:
        session.note(f"torch.compile at {caller()}: not compiled")
        return (lambda f: f) if model is None else model

    def registering(register: Callable, method: str) -> Callable:
        def call(operator: Any, *arguments: Any, **named: Any) -> Any:
            own = operator if isinstance(operator, _Operator) else _operators.get(operator)
            if own is None:
                return register(operator, *arguments, **named)
            return getattr(own, method)(*arguments, **{k: v for k, v in named.items() if k != "lib"})

        return call

    for method in ("register_fake", "register_kernel", "register_vmap", "register_autograd"):
        setattr(torch.library, method, registering(getattr(torch.library, method), method))
    torch.library.custom_op = custom_op
    torch.compile = compile


def _benchmarks(session: Session) -> None:
    """Triton's benchmark makes one call."""
    try:
        import triton.testing as testing
    except ImportError:
        return

    def do_bench(function: Callable, *_: Any, **__: Any) -> float:
        session.note(f"do_bench at {caller()}: one call, and the time that it returns says nothing")
        function()
        return 1.0

    testing.do_bench = testing.do_bench_cudagraph = do_bench
