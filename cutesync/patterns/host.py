"""The host side of the patterns: from a call to its launches, by the front end of all families (``runtime.call``).

A pattern's ``run`` gives ``call`` a function that makes a ``Task`` of the checked array: the result's shape and type,
and the launches. This function is identified by value, as a user's callable is: its code, what it captures, and the
kernels that it names. So a copied and changed file runs the change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cutesync.arguments import whole
from cutesync.dtypes import INT64, DType
from cutesync.errors import ArgumentTypeError, ArgumentValueError, explain, shown
from cutesync.identity import identify
from cutesync.runtime import arrays, backend, device_array, workspace
from cutesync.runtime.call import Family, Spec, Views, front_end
from cutesync.runtime.kernel import KernelSpec, Pointer, Scalar
from cutesync.runtime.launch import Launch, Run, in_turn, nothing
from cutesync.runtime.view import View
from cutesync.sizes import ceil_div

MOST_THREADS = 1024  # of a block


class Step(NamedTuple):
    """One launch. ``make(dtype)`` returns the PatternKernel for an ``x`` of that type. The kernel is identified by all
    that ``make`` reaches: its source, what it captures, the user's callables.

    ``n`` (default: the length of x) and ``m`` are the kernel's numbers. There is a block for every ``tile`` of the
    ``n`` elements, or else there are ``blocks``. ``arrays`` are the kernel's ``x`` and ``out``, as indices into x, the
    result and the task's temporaries. ``counted``: its state is the workspace of the stream, which begins with
    counters."""

    make: Callable[[DType], Any]
    tile: int = 0
    n: int | None = None
    m: int = 0
    blocks: int = 1
    arrays: tuple[int, int] = (0, 1)
    counted: bool = False


class Task(Spec):
    """What a call on ``x`` computes: the launches in order, where one of no blocks is left out, the ``shape`` and the
    type of the result (default: those of ``x``), and the sizes of temporaries, in bytes."""

    def __init__(self, x: View, *steps: Step, shape=None, dtype=None, temporaries: Sequence[int] = ()) -> None:
        self.steps, self.temporaries = steps, temporaries
        self._result = x.shape if shape is None else shape, x.dtype if dtype is None else dtype

    @property
    def result(self) -> tuple[tuple[int, ...], DType]:
        return self._result


def call(task: Callable[..., Task], x, out, stream, *others, dtypes: tuple[str, ...] = ()) -> Any:
    """Run ``task(x, out)`` on the vector ``x`` of one of ``dtypes`` (default: any), and return the result. ``others``
    are the kernel's state, and an array whose address the kernel gets as ``m``."""
    return _call((identify(task, "the kernel of"), dtypes), x, out, stream, others)


def _parse(arguments: tuple, views: Views, out: View | None) -> Task:
    task, dtypes = arguments
    return task.fn(vector(views[0], dtypes), out)


def vector(x: View, dtypes: tuple[str, ...] = ()) -> View:
    """``x``, checked."""
    if dtypes and x.dtype.name not in dtypes:
        raise ArgumentTypeError(explain("dtype of x", str(x.dtype), " or ".join(dtypes)))
    if len(x.shape) != 1:
        raise ArgumentValueError(explain("x", f"an array of {len(x.shape)} dimensions", "1"))
    return x


def _plan(task: Task, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    x, (out,) = views[0], outs
    if out.size == 0:
        return nothing, None
    given = ("x", *(name for name, view in zip(("state", "m"), views[1:]) if view is not None), "out")
    launches = [(_launch(step, x, out.dtype, given, stream), step.arrays) for step in task.steps]
    return in_turn([(launch.run, places) for launch, places in launches if launch], task.temporaries, x.device), None


def _launch(step: Step, x: View, result: DType, given: tuple[str, ...], stream: int) -> Launch | None:
    n = x.size if step.n is None else step.n
    grid = ceil_div(n, step.tile) if step.tile else step.blocks
    names = ("x", "out", "counters", "n", "scratch") if step.counted else ("x", "out", "state", "n", "m")
    types = x.dtype, result, INT64 if "state" in given else x.dtype
    spec = KernelSpec(
        ("patterns", identify(step.make, "the kernel of").key, *(t.name for t in types)),
        (*map(Pointer, names, types), Scalar("n", "Int64"), Scalar(names[4], "Int64")),
        lambda: step.make(x.dtype),
    )
    claim = workspace.counters_and_slots if step.counted else None
    return Launch(spec, x.device, grid, {"n": n, "m": step.m}, given, claim, stream) if grid else None


_call = front_end(Family("patterns", ("x", "state", "flags"), _parse, _plan))


def placed(x, stream) -> tuple[Any, int]:
    """``x`` on a device, a NumPy array as a copy, and the handle of the stream of a call on it."""
    if isinstance(x, np.ndarray):
        stream = arrays.stream_handle(0 if stream is None else stream)
        return arrays.on_device(x, "x", stream, False), stream
    ordinal = arrays.checked(x, "x").device
    return x, arrays.adapter(x).stream(ordinal) if stream is None else arrays.stream_handle(stream)


def zeros(count: int, x, stream) -> Any:
    """``count`` zeros (int64) for the state of a call on ``x``: of NumPy if ``x`` is, else on its device."""
    state = np.zeros(count, np.int64)
    if isinstance(x, np.ndarray):
        return state
    x, stream = placed(x, stream)
    return device_array.from_numpy(state, INT64, arrays.checked(x, "x").device, stream)


def measured(make: Callable[[DType], Any], count: int, m: int, stream) -> list[int]:
    """The ``count`` numbers (int64) that one block of a kernel without an input stores, on the current device."""
    stream = arrays.stream_handle(stream)
    x, out = (device_array.allocate((size,), INT64, stream=stream) for size in (0, count))
    call(lambda x, out: Task(x, Step(make, m=m), shape=out.shape), x, out, stream)
    return device_array.to_numpy(out, stream).tolist()


def consumer_warps(consumers, default: int) -> int:
    """How many consumer warps a block has beside its producer warp, checked."""
    consumers = default if consumers is None else whole(consumers, "consumers")
    if not 1 <= consumers <= 31:
        came = f"{consumers} consumer warps + 1 producer warp"
        raise ArgumentValueError(explain("consumers", came, "2 to 32 warps a block"))
    return consumers


def blocks_of(x: View, blocks: int | None, tile_bytes: int, per_sm: int) -> int:
    """The grid of a kernel whose blocks take one tile after another: ``blocks``, or as many as run at once; few on the
    emulator, so that a block does several tiles."""
    place = backend.of(x.device)
    resident = per_sm * (3 if place.on_host else place.multiprocessors(x.device))
    return blocks or min(ceil_div(x.nbytes, tile_bytes), resident)


def traceable(fn, argument: str) -> Callable:
    """``fn``, checked."""
    if not callable(fn):
        raise ArgumentTypeError(explain(argument, shown(fn), "a callable of one value that the DSL can trace"))
    return fn


def whole_warps(threads) -> int:
    """``threads`` of a block, checked."""
    threads = whole(threads, "threads")
    if threads % 32 or not 32 <= threads <= MOST_THREADS:
        came = f"{threads} = {threads // 32} * 32 + {threads % 32}"
        raise ArgumentValueError(explain("threads", came, f"a multiple of 32 from 32 to {MOST_THREADS}"))
    return threads
