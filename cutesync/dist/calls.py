"""From a call of a public function on Sharded arrays to its family here."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..kernels.flags.spec import FlagSpec
from ..kernels.histogram.spec import CountSpec
from ..kernels.matmul.call import MatmulSpec
from ..kernels.reduce.spec import ReduceSpec
from ..kernels.scan.spec import ScanSpec
from ..kernels.segments.search import SearchSpec
from ..kernels.segments.spec import SegmentsSpec
from ..kernels.select.spec import SelectSpec
from ..kernels.topk.spec import TopKSpec
from ..runtime import arrays, call as front_ends, repeat
from ..runtime.call import Family
from . import by_key, flags, histogram, product as products, reduce, scan, scan_by_key, segments, select, topk
from .inputs import Inputs, check_whole, is_whole
from .repeat import Prepared
from .sharded import Ragged, Sharded

if TYPE_CHECKING:
    from .group import Group

_MOST_PLANS = 1024


def call_sharded(family: Family, call: Callable, arguments: tuple, given: tuple, out: Any, stream: Any) -> Any:
    """Make a call of a family; ``call`` is its front end, and ``given`` are its inputs."""
    ragged, whole = None, given
    if type(given[0]) is Ragged:
        ragged, given = given[0], _rooms(family, given)
    if len(given) == 1:
        ((first,), xs) = given, given
        key: tuple = (family.name, arguments, ragged is None, first.key)
    else:
        first, xs = given[0], tuple(x for x in given if x is not None) if family.name == "matmul" else given
        for x, name in zip(given, family.inputs):
            if x is not None and type(x) is not Sharded:
                came, allowed = f"a {type(x).__name__} beside a Sharded", "a Sharded"
                raise ArgumentTypeError(explain(name, came, allowed, "group.shard(x, axis=None) copies it to each"))
        key = (family.name, arguments, ragged is None, *[None if x is None else x.key for x in given])
    group, outs = first.group, None
    if out is not None:
        outs = _outs(family, group, out)
        key = (*key, *[y.key for y in outs])
    try:
        plan = group.plans.get(key)
    except TypeError:  # an unhashable argument: the plan is used once
        plan, key = None, ()
    if plan is None:
        plan = Prepared(_plan(family, call, arguments, given, outs, ragged))
        if len(group.plans) >= _MOST_PLANS:
            group.plans.clear()
        if key:
            group.plans[key] = plan
    found = _run(plan, xs, outs, stream, ragged)
    if front_ends.recorders:
        _note(family, plan, (whole, outs, stream), out if outs is not None else found)
    return found if outs is None else out


def _run(plan: Prepared, xs: tuple, outs: tuple[Sharded, ...] | None, stream: Any, ragged: Ragged | None) -> Any:
    """Make a call whose plan is known."""
    first = xs[0]
    group = first.group
    if outs is not None:
        _check_apart(tuple(x for x in xs if x is not None), outs, in_place=getattr(plan.plan, "in_place", False))
    return plan.run(xs, (group, group.streams(first, stream), stream is not None), outs, ragged)


def _note(family: Family, plan: Prepared, call: tuple, found: Any) -> None:
    """Tell what observes this thread's calls of public functions, if anything does, how to make this one again.
    ``call``: its inputs, its outputs and its stream."""
    recorder = front_ends.recorders.get(get_ident())
    if not isinstance(recorder, repeat.Recorder):
        return
    known = weakref.ref(plan)

    def again(given: tuple, outs: tuple[Sharded, ...] | None, stream: Any) -> tuple | None:
        plan = known()
        if plan is None:
            return None
        ragged = given[0] if type(given[0]) is Ragged else None
        xs = given if ragged is None else _rooms(family, given)
        xs = tuple([x for x in xs if x is not None]) if family.name == "matmul" else xs
        made = _run(plan, xs, outs, stream, ragged)
        return () if outs is not None else made if type(made) is tuple else (made,)

    given, outs, stream = call
    results = () if outs is not None else found if type(found) is tuple else (found,)
    recorder.note_whole(again, given, outs, stream, results)


def _identify(x: Any) -> tuple[int, tuple]:
    """Return address 0, and what identifies an array of a call beside other arguments. The group's own signature stands
    for it: what is recorded must not keep the group."""
    room = x.room if type(x) is Ragged else x
    return 0, (room.key, room.group.signature)


def _rooms(family: Family, given: tuple) -> tuple:
    """Return the inputs of a call, with the Sharded that has the values of each Ragged."""
    first, found = given[0], []
    for x, name in zip(given, family.inputs):
        if type(x) is Ragged and x.counts is not first.counts:
            allowed = f"values that lie as those of {family.inputs[0]} do"
            raise ArgumentValueError(explain(name, repr(x), allowed, "select both in one call"))
        if type(x) is Sharded and not is_whole(name):
            raise ArgumentTypeError(explain(name, "a Sharded beside a Ragged", "a Ragged"))
        found.append(x.room if type(x) is Ragged else x)
    return tuple(found)


def _outs(family: Family, group: Group, out: Any) -> tuple[Sharded, ...]:
    """Return the outputs that a caller gives."""
    outs = (out,) if family.outputs == 1 else out
    if not isinstance(outs, (tuple, list)) or len(outs) != family.outputs or any(type(y) is not Sharded for y in outs):
        allowed = "a Sharded" if family.outputs == 1 else f"a tuple of {family.outputs} Shardeds"
        raise ArgumentTypeError(explain("out", f"a {type(out).__name__} for a Sharded x", allowed))
    if any(y.group is not group for y in outs):
        raise ArgumentValueError(explain("out", "a Sharded of another group", "one of the group of x"))
    return tuple(outs)


def _check_outs(plan: Any, spec: Any, outs: tuple[Sharded, ...]) -> None:
    """Raise unless outputs have the shapes and types of the results, and are sharded as these are."""
    where = getattr(plan, "results", None)
    if where is None:
        raise ArgumentTypeError(explain("out", "a Sharded for this call", "None"))
    for y, (shape, dtype) in zip(outs, spec.results * (len(outs) // len(spec.results))):
        if y.dtype is not dtype:
            raise ArgumentTypeError(explain("out", f"dtype {y.dtype}", f"dtype {dtype}"))
        if y.shape != shape:
            raise ArgumentValueError(explain("out", f"shape {y.shape}", f"shape {shape}"))
        if y.axis != where.axis or (where.axis is not None and y.lengths != where.lengths):
            allowed = (
                "the whole on each device" if where.axis is None else f"axis={where.axis}, lengths={where.lengths}"
            )
            raise ArgumentValueError(explain("out", repr(y), allowed))
        if not all(view.contiguous and view.writable for view in y.views):
            raise ArgumentValueError(explain("out", "strided or read-only parts", "contiguous ones"))


def _check_apart(xs: tuple[Sharded, ...], outs: tuple[Sharded, ...], in_place: bool) -> None:
    """Raise if an output overlaps an input or another output. With ``in_place``, the only output may be the first
    input; each of several may be an input of its type."""
    inputs = [(x, in_place and (i == 0 or len(outs) > 1)) for i, x in enumerate(xs)]
    for j, y in enumerate(outs):
        for other, same in (*inputs, *((z, False) for z in outs[j + 1 :])):
            for rank, ((start, stop), (first, last)) in enumerate(zip(y.spans, other.spans)):
                if start < last and first < stop and not (same and y.views[rank] == other.views[rank]):
                    allowed = "x itself or memory of its own" if in_place else "memory of its own"
                    raise ArgumentValueError(explain("out", "memory that overlaps another array of the call", allowed))


def _plan(
    family: Family,
    call: Callable,
    arguments: tuple,
    given: tuple,
    outs: tuple[Sharded, ...] | None,
    ragged: Ragged | None,
) -> Any:
    """Check the arguments, and return the plan of a call."""
    spec = _spec(family, arguments, given, outs)
    xs, inputs = tuple(x for x in given if x is not None), Inputs(family.inputs, given, ragged is not None)
    plan: Any = None
    kinds = (ReduceSpec, ScanSpec, FlagSpec, SelectSpec, CountSpec)
    if ragged is not None:
        number = type(getattr(spec, "n", None)) is int or (isinstance(spec, SelectSpec) and arguments[0].n is not None)
        _check_ragged(family, not isinstance(spec, kinds), ((outs is not None, "out="), (number, "a number as n=")))
    if isinstance(spec, ReduceSpec):
        plan = reduce.plan_of(call, arguments, spec, given, inputs)
    if isinstance(spec, ScanSpec):
        plan = scan.plan_of(call, arguments, spec, given, inputs)
    if isinstance(spec, FlagSpec):
        plan = flags.plan_of(call, arguments, spec, given, inputs)
    if isinstance(spec, SelectSpec):
        plan = select.plan_of(call, arguments, spec, given, inputs)
    if isinstance(spec, SegmentsSpec):
        plan = (
            by_key.plan_of(spec, xs)
            or scan_by_key.plan_of(spec, given, inputs)
            or segments.plan_of(spec, given, inputs)
        )
    if isinstance(spec, TopKSpec):
        plan = topk.plan_of(call, arguments, spec, xs)
    if isinstance(spec, CountSpec):
        plan = histogram.plan_of(call, arguments, spec, given, inputs)
    if isinstance(spec, SearchSpec):
        plan = histogram.search_plan_of(call, arguments, spec, given, inputs)
    if isinstance(spec, MatmulSpec):
        plan = products.plan_of(call, arguments, spec, given)
    if plan is None:
        raise ArgumentTypeError(explain(family.inputs[0], "a Sharded", f"an array on one device, for {family.name}"))
    if outs is not None:
        _check_outs(plan, spec, outs)
    return plan


def _check_ragged(family: Family, unknown: bool, refused: tuple[tuple[bool, str], ...]) -> None:
    """Raise for calls that do not take the values of a selection."""
    for wrong, what in ((unknown, ""), *refused):
        if wrong:
            came = f"a Ragged, for {family.name}" + (f" with {what}" if what else "")
            raise ArgumentTypeError(explain(family.inputs[0], came, "a Sharded", "np.asarray(x) copies it"))


def _spec(family: Family, arguments: tuple, given: tuple, outs: tuple[Sharded, ...] | None) -> Any:
    """Return the Spec of a call on the whole arrays."""
    first = given[0]
    product = family.name == "matmul"  # its operands are sharded along axes of their own
    if family.name == "searchsorted":
        histogram.check_search(*given[:2])
        product = True
    for x, name in zip(given[1:], family.inputs[1:]):
        if x is None or (product and x.group is first.group):
            continue
        if x.group is first.group and is_whole(name):
            check_whole(x, name, first)
            continue
        if x.group is not first.group or x.axis != first.axis or x.offsets != first.offsets:
            raise ArgumentValueError(explain(name, repr(x), f"an array sharded as {family.inputs[0]} is, {first!r}"))
    views = tuple(None if x is None else x.view for x in given)
    padded = (*views, *(None,) * (len(family.inputs) - len(views)))
    return family.parse(arguments, padded, outs[0].view if outs else None)


def on_each(x: Sharded | Ragged, make: Callable[[int], Any]) -> Sharded:
    """Return the Sharded of ``make(ordinal)`` for each device of ``x``: the whole array on each."""
    group = x.room.group if isinstance(x, Ragged) else x.group
    return Sharded(group, [make(ordinal) for ordinal in group.ordinals], None)


arrays.ADAPTERS[Sharded] = arrays.ADAPTERS[Ragged] = arrays.SHARDED
arrays.SHARDED.calls = call_sharded
arrays.SHARDED.repeated = _identify
arrays.SHARDED.on_each = on_each
