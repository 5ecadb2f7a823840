"""Partitions in three parts: the elements of a first condition, those of a second one, and the others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...arguments import flag
from ...dtypes import BY_NAME, INT64, DType
from ...errors import ArgumentTypeError, ArgumentValueError, explain
from ...identity import Identity, identify
from ...ops import operator
from ...runtime import arrays, forks, workspace
from ...runtime.call import Family, Spec, Views, front_end
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run
from ...runtime.repeat import repeatable
from ...runtime.view import View
from ...sizes import ceil_div
from ...types import Stream
from .. import args as args_of
from ..count import check, split
from ..layouts import Strided, strided
from ..policy import Policy
from ..scan.plan import plan as plan_scan
from ..scan.spec import ScanSpec, along
from ..states import NO_ARGS, Argument, Single, argument_type, numbered
from .calls import arrays_of, mask_kind, takes_index
from .spec import Selection, length_of

PARTS = 3
CONDITIONS = "first", "second"
_parting = forks.lock()


@dataclass(frozen=True)
class CountPolicy(Policy, kernel=".parts:CountParts"):
    """Blocks of ``warps``, each of which goes through a chunk of ``rows`` times 32 positions. Not measured on a GPU."""

    warps: int = 8
    rows: int = 128


@dataclass(frozen=True)
class MovePolicy(CountPolicy, kernel=".parts:MoveParts"):
    """The same for the kernel that moves elements: its chunks are those that have been counted."""


class Partitioned(NamedTuple):
    """``values`` in their new order (a tuple of several arrays), ``counts``, how long the parts are (three int64 on the
    device), and ``indices``, or None."""

    values: Any
    counts: Any
    indices: Any = None


@repeatable
def partition3(
    x: Any,
    first: Any,
    second: Any,
    *,
    indices: bool = False,
    out: Any = None,
    n: Any = None,
    args: tuple = NO_ARGS,
    stream: Stream = None,
) -> Partitioned:
    """Return the elements of ``x`` that ``first`` selects, behind them those of the others that ``second`` selects, and
    then the rest, each part in order. The call does not wait for the GPU.

    Parameters
    ----------
    x, n, args, stream : as for ``select``; ``args`` follow the operands of both callables.
    first, second : each an array of bool, uint8 or int8, an array of bits, or a callable, as ``where`` of ``select``.
    indices : whether to return the indices of the elements in their new order (int64), too: a stable order of ``x``.
    out : array of one axis, at least of the size of ``x``, that is written instead of a new one; a tuple of arrays if
        ``x`` is one, or with ``indices``, whose array comes last. One more, three int64, gets the counts. They do not
        overlap the inputs. What lies behind ``n`` elements is not written.

    Returns
    -------
    Partitioned : ``values``, ``counts`` (array of three int64 on the device: the lengths of the parts), ``indices``.

    Errors: ``cutesync.errors``. The method is that of a pass of a radix sort: warps count the parts of their shares, a
    scan of the counts says where each begins, and the shares are read again to be moved.
    """
    xs, given = arrays_of(x), [identify(one, name) for one, name in zip((first, second), CONDITIONS)]
    fns = tuple(one if type(one) is Identity else None for one in given)
    others = (*xs[1:], *(one for one in given if type(one) is not Identity))
    on_host, kinds, names = arrays.adapter(xs[0]) is arrays.NUMPY, NO_ARGS, _names(xs is x, len(xs), fns)
    number, count = split(n, on_host)
    others = others if count is None else (*others, count)
    if args is not NO_ARGS:
        kinds, memory = args_of.split(args)
        others = (*others, *memory)
    call, key = _known(names, len(xs), fns, flag(indices, "indices"), count is not None, kinds, number)
    outs, results = None, len(xs) + indices
    if out is not None:
        outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if not results <= len(outs) <= results + 1:
            allowed = f"{results} arrays, and that of the counts, if wanted"
            raise ArgumentTypeError(explain("out", f"{len(outs)} arrays", allowed))
        outs = outs if len(outs) > results else (*outs, None)
    *values, counts = call(key, xs[0], outs, stream, others)
    if on_host:
        values = [value[: min(xs[0].size, xs[0].size if number is None else number)] for value in values]
    places = values.pop() if indices else None
    return Partitioned(tuple(values) if xs is x else values[0], counts, places)


@functools.lru_cache(maxsize=256)
def _names(several: bool, count: int, fns: tuple) -> tuple[str, ...]:
    """Return the names of the arrays of elements, and of conditions that are arrays."""
    names = tuple(f"x[{i}]" for i in range(count)) if several else ("x",)
    return (*names, *(name for name, fn in zip(CONDITIONS, fns) if fn is None))


@dataclass(frozen=True, eq=False)
class Arguments:
    """What identifies a call, except the arrays; ``_known`` makes one object for all calls that are the same."""

    names: tuple[str, ...]
    arrays: int
    fns: tuple
    indices: bool
    counted: bool
    numbers: tuple
    n: int | None


@functools.lru_cache(maxsize=1024)
def _known(
    names: tuple, count: int, fns: tuple, indices: bool, counted: bool, kinds: tuple, n: int | None
) -> tuple[Callable, tuple]:
    """Return the front end of a call, and what identifies the call there."""
    numbers = args_of.alike(kinds)[0]
    every = (*names, *["n"] * counted, *(f"args[{i}]" for i, value in enumerate(numbers) if value is None))
    first = len(names) + counted  # of the run-time arguments
    places = tuple(first + i for i, value in enumerate(numbers) if value is not None)
    made = args_of.plan_with_numbers(_plan, places, lambda spec: spec.parting.args) if places else _plan
    family = Family("partition3", every, _parse, made, count + indices + 1, strided=True, partial=True, counting=True)
    return front_end(family._replace(required=len(every))), (
        Arguments(names, count, fns, indices, counted, numbers, n),
    )


@dataclass(frozen=True)
class Parting:
    """What the kernels do. Of ``conditions``, only their kinds, callables and arguments count; the arrays have elements
    of ``sources``. ``counted``: the number of positions is in device memory. ``indices``: they are written, too.
    ``strided``: how the arrays are read, masks and bits after the others; None: all are contiguous."""

    conditions: tuple[Selection, ...]
    sources: tuple[DType, ...]
    counted: bool
    indices: bool
    strided: Strided | None

    @property
    def args(self) -> tuple[Argument, ...]:
        return self.conditions[0].args

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        layout = self.strided.layout if self.strided else None
        return (*(one.key for one in self.conditions), self.counted, self.indices, layout)


@dataclass(frozen=True)
class PartSpec(Spec):
    """A call: the first ``length`` positions; results have ``capacity`` elements."""

    parting: Parting
    length: int
    capacity: int

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        types = (*self.parting.sources, *[INT64] * self.parting.indices)
        return (*(((self.capacity,), dtype) for dtype in types), ((PARTS,), INT64))


def _parse(arguments: tuple, views: Views, out: View | None) -> PartSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    (given,) = arguments
    xs, masks = views[: given.arrays], list(views[given.arrays : len(given.names)])
    size = length_of(xs, given.names)
    check(views[len(given.names)] if given.counted else None)
    sources, read = tuple(x.dtype for x in xs), (*xs, *masks)
    memory = zip(views[len(given.names) + given.counted :], (f"args[{i}]" for i in range(len(given.numbers))))
    found = args_of.read(given.numbers, memory)
    args = tuple(a if isinstance(a, Argument) else Argument(argument_type(a, sources), False) for a in found)
    conditions = []
    for fn, name in zip(given.fns, CONDITIONS):
        if fn is None:
            conditions.append(Selection(mask_kind(masks.pop(0), name, size), sources, args=args))
        else:
            indexed = takes_index(fn, name, len(xs), len(args))
            conditions.append(Selection("callable", sources, fn=fn.fn, takes_index=indexed, args=args))
    capacity = size
    if out is not None:
        if len(out.shape) != 1 or out.size < size:
            raise ArgumentValueError(explain("out", f"shape {out.shape}", f"one axis of at least {size} elements"))
        capacity = out.size
    layout = strided(read) if size else None
    parting = Parting(tuple(conditions), sources, given.counted, given.indices, layout)
    return PartSpec(parting, size if given.n is None else min(given.n, size), capacity)


def _plan(spec: PartSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call: one that counts, a scan of the counts, and one that moves elements."""
    parting, device = spec.parting, views[0].device
    policies = CountPolicy(), MovePolicy()
    chunks = max(1, ceil_div(spec.length, policies[0].rows * 32))
    given = [name for name, one in zip(CONDITIONS, parting.conditions) if one.kind != "callable"]
    outputs = [*numbered("out", parting.sources), *["places"] * parting.indices, "counts"]
    names = [
        *numbered("x", parting.sources),
        *given,
        *["n"] * parting.counted,
        *numbered("arg", parting.args),
        *outputs,
        "tallies",
    ]
    values: dict[str, Any] = {"length": spec.length, "chunks": chunks}
    values |= {f"step{i}": out.steps[0] for i, out in enumerate(outs)}
    values |= parting.strided.values if parting.strided else {}
    grid = ceil_div(chunks, policies[0].warps)
    kernels = [_kernel_spec(policy, parting) for policy in policies]
    count, move = (Launch(kernel, device, grid, values, names, None, stream).run for kernel in kernels)
    tallies = View(0, (PARTS * chunks,), INT64, device, True)
    add = ScanSpec(Single(operator("add"), INT64, INT64, INT64), True, False, (0,), **along(None, tallies.shape))
    scan, _ = plan_scan(add, (tallies, None, None), (tallies,), stream)

    def run(addresses: tuple[int, ...], stream: int) -> None:
        with _parting:  # another thread's launches on this stream come before these or after
            place = workspace.scratch(device, stream, tallies.nbytes, "parts").addresses[0]
            count((*addresses, place), stream)
            scan((place, place), stream)
            move((*addresses, place), stream)

    return run, None


def _kernel_spec(policy: CountPolicy, parting: Parting) -> KernelSpec:
    """Return the kernel of a policy."""
    masks = [BY_NAME["uint32" if one.kind == "bits" else "uint8"] for one in parting.conditions]
    pointers = [Pointer(name, t) for name, t in zip(numbered("x", parting.sources), parting.sources)]
    pointers += [Pointer(name, t) for name, t in zip(CONDITIONS, masks)]
    pointers += [Pointer(name, t) for name, t in zip(numbered("out", parting.sources), parting.sources)]
    pointers += [Pointer(name, INT64) for name in ("places", "counts", "n", "tallies")]
    numbers: list[Pointer | Scalar] = [Scalar("length", "Int64"), Scalar("chunks", "Int64")]
    numbers += [Scalar(f"step{i}", "Int64") for i in range(len(parting.sources) + parting.indices + 1)]
    numbers += parting.strided.layout.parameters if parting.strided else []
    numbers += [a.parameter(name) for name, a in zip(numbered("arg", parting.args), parting.args)]
    key = ("partition3", policy, *parting.key)
    return KernelSpec(key, (pointers, numbers), lambda: policy.make(parting))
