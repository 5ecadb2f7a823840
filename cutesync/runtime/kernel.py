"""KernelSpec: a kernel to compile, with its named parameters in order, its key in the caches, and the function that
makes it.

A launch gives values by parameter name (see ``launch``); positions follow from the order of ``parameters``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

from ..dtypes import DType
from . import compiler, device


@functools.lru_cache(maxsize=64)
def bytes_of(kind: str) -> int:
    """Return the size of a number, given the name of its DSL class."""
    return int(re.sub(r"\D", "", kind)) // 8


@dataclass(frozen=True)
class Pointer:
    """An address in global memory of elements of one type. ``align`` is in bytes; 0 means that of one element.
    ``size``, as of every parameter, is that of the parameter in bytes."""

    name: str
    element: DType
    align: int = 0
    size: ClassVar[int] = 8

    def example(self) -> Any:
        """Return an example argument for the DSL's compiler."""
        import cutlass.cute as cute
        from cutlass.cute.runtime import make_ptr

        return make_ptr(self.element.cutlass, 0, cute.AddressSpace.gmem, assumed_align=self.align or self.element.size)


@dataclass(frozen=True)
class Scalar:
    """A number; ``kind`` is the name of its DSL class."""

    name: str
    kind: str

    @property
    def size(self) -> int:
        return bytes_of(self.kind)

    def example(self) -> Any:
        import cutlass

        return getattr(cutlass, self.kind)(0)


@dataclass(frozen=True)
class Packed:
    """``size`` bytes that are copied unchanged: a tensor map, or the extents that the DSL passes beside one. It has no
    example."""

    name: str
    size: int


Parameter = Pointer | Scalar | Packed


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """A kernel to compile. ``given`` has its parameters in order, alone or in groups, which are tuples or lists of
    them. ``make()`` returns its host object: ``__call__`` takes a tuple of all that is given, the grid and the stream;
    ``threads`` is the block size, and ``smem`` the bytes of dynamic shared memory, if there are any. ``examples()``
    returns the example arguments for a ``__call__`` that takes others instead of the tuple.

    ``key`` identifies everything that decides the machine code; the family comes first. The cache adds this package's
    source.
    """

    key: tuple
    given: Sequence[Any]
    make: Callable[[], Any]
    cluster: int = 1
    examples: Callable[[], Sequence] | None = None

    @functools.cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(_flat(self.given))

    @property
    def label(self) -> str:
        """The policy as text, for messages, or what comes behind the family, if there is more."""
        return next((repr(part) for part in self.key if dataclasses.is_dataclass(part)), str(self.key[:2][-1]))

    def build(self) -> tuple[Callable, list, dict]:
        """Return ``(host function, example arguments, launch facts)`` for ``cute.compile``."""
        from cutlass import Int32
        from cutlass.runtime import make_fake_stream

        host = self.make()
        given = (_examples(self.given),) if self.examples is None else self.examples()
        facts = {"block": (host.threads, 1, 1), "smem": getattr(host, "smem", 0), "cluster": (self.cluster, 1, 1)}
        return host.__call__, [*given, Int32(1), make_fake_stream()], facts

    def kernel(self, stream: int = 0) -> compiler.Kernel:
        """Return the compiled kernel; ``stream`` is the stream of the call that launches it."""
        found = _collected.get()
        if found is None:
            return compiler.get(self.key, self.build, stream=stream)
        found[self.key] = self
        return compiler.Kernel(str(self.key[0]), b"", "", (1, 1, 1), 0, ())


def _flat(given: Sequence[Any]) -> Iterator[Parameter]:
    for each in given:
        if isinstance(each, (tuple, list)):
            yield from _flat(each)
        else:
            yield each


def _examples(given: Sequence[Any]) -> tuple:
    return tuple(_examples(each) if isinstance(each, (tuple, list)) else each.example() for each in given)


_collected: ContextVar[dict[tuple, KernelSpec] | None] = ContextVar("cutesync_collected", default=None)


def collecting() -> bool:
    """Return whether this is a dry run: its plans have no launches, and must not be stored."""
    return _collected.get() is not None


@contextlib.contextmanager
def collect() -> Iterator[dict[tuple, KernelSpec]]:
    """Make a dry run: inside, in this thread, calls check their arguments and prepare their launches, but compile,
    launch and allocate nothing. Yield the kernels that they need, by key. Their arrays must come from
    ``device_array.allocate``, called inside."""
    found: dict[tuple, KernelSpec] = {}
    token = _collected.set(found)
    try:
        with device.forced("dry"):
            yield found
    finally:
        _collected.reset(token)
