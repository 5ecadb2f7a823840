"""The front end of every family: from a public call to a plan, and from a plan to the call's result.

A call with a known signature costs one dictionary look-up. The key holds the arguments, the signatures of the arrays
and their alignment. It does not hold their addresses: ``Plan.run`` takes these on each call. torch's tensors are first
compared with those of the call before (identification.py). NumPy arrays are copied to the device, and from then on are
treated as other arrays.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import DType
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain
from . import arrays, device_array
from .device_array import DeviceArray
from .identification import guarded, identified, several_of
from .kernel import collecting
from .launch import Run
from .view import View

_MOST_PLANS = 4096
_plans: dict[tuple, Any] = {}
"""Plans by key, and what ``identification`` keeps."""
recorders: dict[int, Any] = {}
"""What observes the calls of a thread, by its identifier (see repeat.py)."""


class Spec:
    """Base class of what a call computes: its arguments, parsed once and checked against the arrays' shapes and
    types."""

    unread: tuple[int, ...] = ()
    """Indices of inputs that are given and checked, but never read: an output may overlap them."""

    @property
    def result(self) -> tuple[tuple[int, ...], DType]:
        """Shape and element type of each output, if all are alike."""
        raise NotImplementedError

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        """Shape and element type of each output; of one if all are alike."""
        return (self.result,)


Views = tuple[Any, ...]
"""The views of the arrays, in order; None for an array that is not given."""


class Plan(NamedTuple):
    """A prepared call of one signature. ``run`` takes the addresses of the inputs (0 for an input not given), then
    those of the outputs. An output overlaps the first input if the input's address minus the output's lies between
    ``before`` and ``behind``; ``reads`` has index, before and behind of each other input that is read."""

    run: Run
    ordinal: int
    before: int
    behind: int
    reads: tuple[tuple[int, int, int], ...]
    more: More


class More(NamedTuple):
    """The rest of a plan. ``empties`` make the results that are not given on a stream. ``in_place`` is the
    index of the input that the only output may be. With several outputs, ``pairs`` has what must not overlap."""

    empties: tuple[Callable[..., Any], ...]
    in_place: int | None
    pairs: tuple[Pair, ...]


class Pair(NamedTuple):
    """An output, and an input or a later output: their indices among the addresses. They overlap if the address of the
    other minus that of the output lies between ``before`` and ``behind``; ``same``: they may be the same memory."""

    output: int
    other: int
    before: int
    behind: int
    same: bool


class Family(NamedTuple):
    """A kind of call: its name, the names of its inputs (all but the first ``required`` may be None), and the number of
    its outputs.

    ``parse(arguments, views, out)`` checks the arguments and returns the Spec; ``out`` is the view of a given output,
    or None. ``plan(spec, views, outs, stream)`` returns ``(run, in_place)``: the launches, and the index of the input
    that the output may be, or None; with several outputs, any number says that each may be an input of its type. The
    view of an input not given is None; an output not given is a View at address 0.
    With ``strided``, arrays may have any strides; with ``float8``, elements may be 8-bit floats. ``numbers`` are the
    inputs that a caller may give as numbers instead, for messages. With ``partial``, a call may leave elements of its
    outputs as they are. With ``counting``, the last of several outputs is made if a caller gives None.
    ``keep(arguments, ordinal, stream)`` returns whether later calls may use the plan.
    """

    name: str
    inputs: tuple[str, ...]
    parse: Callable[..., Spec]
    plan: Callable[..., tuple[Run, int | None]]
    outputs: int = 1
    strided: bool = False
    float8: bool = False
    numbers: tuple[str, ...] = ()
    partial: bool = False
    counting: bool = False
    keep: Callable[..., bool] = lambda arguments, ordinal, stream: True
    required: int = 1


def front_end(family: Family) -> Callable:
    """Return ``call(arguments, x, out, stream, others=())`` of a family; ``others`` are all inputs after the first, or
    none. Equal ``arguments`` mean equal calls (``arguments.exact``). Several outputs are a sequence."""
    adapters, own, host, name, single = arrays.ADAPTERS, arrays.OWN, arrays.NUMPY, family.name, family.outputs == 1
    beside, strided, inputs, sharded = arrays.beside, family.strided, family.inputs, arrays.SHARDED

    def call(arguments: tuple, x: Any, out: Any, stream: Any, others: tuple = ()) -> Any:
        kind = type(x)
        addresses: tuple[int, ...]
        found = None  # the plan, if it is known already
        if kind is DeviceArray and type(out) is DeviceArray and not others:  # the fastest path: plain attributes
            adapter, pointer, target = own, x.ptr, out.ptr
            key: tuple = (name, arguments, x.signature, pointer & 15, out.signature, target & 15)
            addresses = pointer, target
        else:
            adapter = adapters.get(kind) or arrays.adapter(x, inputs[0])
            if adapter is host or adapter is sharded:
                return adapter.calls(family, call, arguments, (x, *others), out, stream)
            if single and adapter.guard is None and (not others or (out is not None and len(others) == 1)):
                pointer, first = adapter.identify_strided(x) if strided else adapter.identify(x)
                key, addresses = (name, arguments, first, pointer & 15), (pointer,)
                for y in others:
                    theirs = adapter if type(y) is kind else beside(y, inputs[1])
                    second, middle = theirs.identify_strided(y) if strided else theirs.identify(y)
                    key, addresses = (*key, middle, second & 15), (pointer, second)
                if out is not None:
                    theirs = adapter if type(out) is kind else beside(out, "out")
                    target, last = theirs.identify_strided(out) if strided else theirs.identify(out)
                    key, addresses = (*key, last, target & 15), (*addresses, target)
            else:
                identify = guarded if single and adapter.guard is not None else identified
                key, addresses, found = identify(_plans, family, adapter, arguments, x, others, out)
                pointer, target = addresses[0], addresses[-1]
        try:
            run, ordinal, before, behind, reads, more = _plans[key] if found is None else found
        except (KeyError, TypeError):
            run, ordinal, before, behind, reads, more = _make(family, key, (x, *others), out, stream)
        raw, given = adapter.stream(ordinal) if stream is None else arrays.stream_handle(stream), out
        if out is not None:
            if not single:
                out, addresses = _completed(family, out, addresses, more, adapter, (raw, stream is not None))
            elif before < pointer - target < behind and not (pointer == target and more.in_place == 0):
                raise _overlap(family, 0, more.in_place)
            for i, low, high in reads:
                if low < addresses[i] - target < high and not (i == more.in_place and addresses[i] == target):
                    raise _overlap(family, i, more.in_place)
        elif single:
            out = more.empties[0](raw, stream is not None)
            addresses += (adapter.address(out),)
        else:
            out = [empty(raw, stream is not None) for empty in more.empties]
            addresses += tuple(map(adapter.address, out))
        run(addresses, raw)
        if recorders:
            _note(family, key, adapter, stream, ((x, *others), given, out))
        return out if single else tuple(out)

    return call


@contextlib.contextmanager
def recording(recorder: Any) -> Iterator[Any]:
    """Let ``recorder`` observe this thread's calls inside, in place of what does so around, which is yielded."""
    thread = get_ident()
    before = recorders.get(thread)
    recorders[thread] = recorder
    try:
        yield before
    finally:
        if before is None:
            del recorders[thread]
        else:
            recorders[thread] = before


def _note(family: Family, key: tuple, adapter: Any, stream: Any, arrays: tuple) -> None:
    """Tell what observes this thread, if anything does, about a call that was made. ``arrays``: its inputs, ``out`` as
    it was given, and as it is."""
    recorder = recorders.get(get_ident())
    if recorder is not None:
        try:
            plan = _plans.get(key)
        except TypeError:  # an unhashable argument
            plan = None
        inputs, given, out = arrays
        outs = (None,) * family.outputs if given is None else (given,) if family.outputs == 1 else tuple(given)
        recorder.note(_plans, plan, adapter, stream, (inputs, outs, (out,) if family.outputs == 1 else tuple(out)))


def _completed(
    family: Family, out: Any, addresses: tuple, more: More, adapter: Any, where: tuple[int, bool]
) -> tuple[Any, tuple]:
    """Return the outputs that a caller gives, and the addresses of the call, with the last output if it is not among
    them. Raise if outputs overlap other arrays."""
    if out[-1] is None:
        last = more.empties[0](*where)
        out, addresses = (*out[:-1], last), (*addresses[:-1], adapter.address(last))
    _check_apart(family, addresses, more.pairs)
    return out, addresses


def _overlap(family: Family, i: int, in_place: int | None) -> ArgumentValueError:
    itself = "" if in_place is None else f"{family.inputs[in_place]} itself or "
    return ArgumentValueError(explain("out", f"memory that overlaps {family.inputs[i]}", f"{itself}memory of its own"))


def _check_apart(family: Family, addresses: tuple[int, ...], pairs: tuple[Pair, ...]) -> None:
    """Raise if an output overlaps an input or another output."""
    for output, other, before, behind, same in pairs:
        apart = addresses[other] - addresses[output]
        if before < apart < behind and not (same and apart == 0):
            if other > output:
                raise ArgumentValueError(explain("out", "two arrays that overlap", "memory of its own for each"))
            raise _overlap(family, other, other if same else None)


def _pairs(views: Views, outs: Views, unread: tuple[int, ...], in_place: int | None) -> tuple[Pair, ...]:
    """Return what must not overlap: each output with each input that is read, and with each later output."""
    read = [(i, x, *x.reach) for i, x in enumerate(views) if x is not None and i not in unread]
    written = [(j, y, *y.reach) for j, y in enumerate(outs, len(views))]
    found = []
    for k, (j, y, low, high) in enumerate(written, 1):
        for i, x, start, stop in (*read, *written[k:]):
            if start != stop:
                same = in_place is not None and i < len(views) and x.dtype is y.dtype
                found.append(Pair(j, i, low - stop, high - start, same))
    return tuple(found)


def _make(family: Family, key: tuple, given: tuple, out: Any, stream: Any) -> Plan:
    """Check the arguments, make the plan and store it under ``key``."""
    arguments, first = key[1], given[0]
    accepted = {"strided": family.strided, "float8": family.float8}
    views: Views = tuple(
        None if x is None and i >= family.required else arrays.checked(x, argument, **accepted)
        for i, (x, argument) in enumerate(zip(given, family.inputs))
    )
    views += (None,) * (len(family.inputs) - len(views))
    view = views[0]
    targets = (None,) * family.outputs if out is None else (out,) if family.outputs == 1 else several_of(family, out)
    outs: Views = tuple(None if y is None else arrays.checked(y, "out", writable=True, **accepted) for y in targets)
    for other, argument in (*zip(views[1:], family.inputs[1:]), *((y, "out") for y in outs)):
        if other is not None:
            arrays.same_device(view, other, argument, family.inputs[0])
    spec = family.parse(arguments, views, outs[0])
    results = spec.results
    results = results if len(results) == family.outputs else results * family.outputs
    library, empties = arrays.adapter(first), []
    for y, (shape, dtype) in zip(outs, results):
        if y is None:
            empties.append(library.allocator(shape, dtype, view.device))
        else:
            _check_out(y, shape, dtype)
    raw = library.stream(view.device) if stream is None else arrays.stream_handle(stream)
    outs = tuple(y or View(0, shape, dtype, view.device, True) for y, (shape, dtype) in zip(outs, results))
    run, in_place = family.plan(spec, views, outs, raw)
    pairs = _pairs(views[: len(given)], outs, spec.unread, in_place)
    reads: tuple = ()
    if family.outputs == 1:
        reads, pairs = tuple((other, before, behind) for _, other, before, behind, _ in pairs), ()
    _, before, behind = reads[0] if reads and reads[0][0] == 0 else (0, 0, 0)
    reads = tuple(other for other in reads if other[0])
    made = Plan(run, view.device, before, behind, reads, More(tuple(empties), in_place, pairs))
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    if not collecting() and family.keep(arguments, view.device, raw):
        try:
            _plans[key] = made
        except TypeError:  # an unhashable argument, such as a 0-d NumPy array: the plan is used once
            pass
    return made


def _check_out(out: View, shape: tuple[int, ...], element: DType) -> None:
    """Raise unless ``out`` has the shape and the type of the result, and no two of its elements share memory."""
    if out.dtype is not element:
        raise ArgumentTypeError(explain("out", f"dtype {out.dtype}", f"dtype {element}"))
    if out.shape != shape:
        raise ArgumentValueError(explain("out", f"shape {out.shape}", f"shape {shape}"))
    if not out.contiguous:
        _check_own_memory(out.shape, out.steps, 1)


def _check_own_memory(shape: tuple[int, ...], strides: tuple[int, ...], unit: int) -> None:
    if arrays.share_memory(shape, strides, unit):
        came = f"strides {strides}: elements share memory"
        raise ArgumentValueError(explain("out", came, "memory of its own for each element"))


def _call_numpy(family: Family, call: Callable, arguments: tuple, given: tuple, out: Any, stream: Any) -> Any:
    """Copy NumPy inputs to the device, make the call there, and copy the results back. Outputs that were given are
    written only after the call has succeeded."""
    raw = 0 if stream is None else arrays.stream_handle(stream)
    for i, (x, argument) in enumerate(zip(given, family.inputs)):
        if not isinstance(x, np.ndarray) and (x is not None or i < family.required):
            came = f"a {type(x).__name__} beside a NumPy {family.inputs[0]}"
            allowed = "a NumPy array, or a number" if argument in family.numbers else "a NumPy array"
            raise (ArgumentTypeError if x is None else DeviceError)(explain(argument, came, allowed))
    outs = () if out is None else (out,) if family.outputs == 1 else several_of(family, out)
    targets = [None if y is None else _like(y, family, given, raw) for y in outs]
    if any(np.may_share_memory(a, b) for a, b in itertools.combinations([y for y in outs if y is not None], 2)):
        raise ArgumentValueError(explain("out", "two arrays that overlap", "memory of its own for each"))
    copies = [
        None if x is None else arrays.on_device(x, argument, raw, family.strided)
        for x, argument in zip(given, family.inputs)
    ]
    wanted = None if out is None else targets[0] if family.outputs == 1 else targets
    found = call(arguments, copies[0], wanted, raw, tuple(copies[1:]))
    results = [device_array.to_numpy(y, raw) for y in ((found,) if family.outputs == 1 else found)]
    for i, y in enumerate(outs):
        if y is not None:
            y[...] = results[i]
            results[i] = y
    if family.outputs > 1:
        return tuple(results)
    return out if outs else results[0][()]


arrays.NUMPY.calls = _call_numpy


def _like(out: Any, family: Family, given: tuple, stream: int) -> DeviceArray:
    """Return device memory for a NumPy ``out``, after checking that ``out`` may be written."""
    if not isinstance(out, np.ndarray):
        allowed = "a NumPy array"
        raise DeviceError(explain("out", f"a {type(out).__name__} for a NumPy {family.inputs[0]}", allowed))
    view = arrays.view_of(out, "out")
    if not view.writable:
        raise ArgumentValueError(explain("out", "a read-only array", "a writable one"))
    for x, argument in zip(given, family.inputs):
        if x is not None and np.may_share_memory(x, out) and not device_array.same_memory(x, out):
            allowed = f"{argument} itself or memory of its own"
            raise ArgumentValueError(explain("out", f"memory that overlaps {argument}", allowed))
    _check_own_memory(out.shape, out.strides, out.itemsize)
    if family.partial:
        return device_array.from_numpy(out, view.dtype, stream=stream)
    return device_array.allocate(out.shape, view.dtype)
