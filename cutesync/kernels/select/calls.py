"""Calls of selections: their arrays and arguments, what identifies them, and the Spec of each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arguments import exact, flag, integer
from ...dtypes import BY_NAME, INT64, DType, number, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import Identity, identify
from ...ops import required_parameters
from ...runtime import arrays
from ...runtime.call import Family, Views, front_end
from ...runtime.indexing import axis_number
from ...runtime.view import View, is_c_contiguous
from .. import args as args_of
from ..axes import NUMBER_BITS
from ..count import check, split
from ..layouts import strided
from ..states import NO_ARGS, Argument, argument_type
from .plan import plan
from .result import Selected
from .spec import MAX_LENGTH, Selection, SelectSpec, length_of

MASKS = ("bool", "uint8", "int8")
MAX_AXES = 64


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a public function asks for; calls that ask for the same have one object.

    It has the function's name, the number of arrays of ``x``, whether they came as a tuple, whether to return indices
    and values, and whether ``where`` must be as long as ``x``. ``heads``: runs are selected, and ``where`` is when
    elements are equal; whether to return each element's run, and the lengths in which type. ``axes``: of how many axes
    coordinates are wanted, ``together`` in the rows of one array. ``rejects``: what is not selected, behind what is.
    ``axis``: that of rows, whose results lie ``rows``: "apart" or "packed". ``resumed``: an array says whether the
    first element begins a run.
    """

    name: str
    arrays: int
    packed: bool
    indices: bool
    values: bool
    whole: bool
    heads: bool = False
    inverse: bool = False
    lengths: DType | None = None
    equal_nan: bool = False
    axes: int = 0
    together: bool = False
    rejects: bool = False
    axis: int | None = None
    rows: str = ""
    resumed: bool = False

    @functools.cached_property
    def places(self) -> int:
        """Arrays of indices."""
        return (self.axes if self.axes and not self.together else 1) if self.indices else 0

    @functools.cached_property
    def outputs(self) -> int:
        """Results, without the count."""
        return (
            self.arrays * self.values
            + self.places
            + self.inverse
            + (self.lengths is not None)
            + (self.rows == "packed")
        )


def wanted_by(make: Callable[..., Wanted], *asked: Any) -> Wanted:
    """Return ``make(*asked)``, the same object as for the last call that asked so."""
    try:
        return _wanted_by(make, *asked)
    except TypeError:  # an argument that cannot be hashed is none that is allowed
        return make(*asked)


@functools.lru_cache(maxsize=1024, typed=True)
def _wanted_by(make: Callable[..., Wanted], *asked: Any) -> Wanted:
    return make(*asked)


def arrays_of(x: Any) -> tuple:
    """Return the arrays of ``x``, which is one or a tuple of them."""
    if type(x) is not tuple:
        return (x,)
    if not x:
        raise ArgumentValueError(explain("x", "an empty tuple", "at least one array"))
    return x


def rows_of(axis: Any, packed: Any) -> str:
    """Return how the results of rows lie, after checking the arguments of a call by rows."""
    packed = flag(packed, "packed")
    if axis is None:
        if packed:
            raise ArgumentValueError(explain("packed", "True without an axis", "the axis of the rows", "axis=-1"))
        return ""
    integer(axis, "axis", -MAX_AXES, MAX_AXES)
    return "packed" if packed else "apart"


@dataclass(frozen=True, eq=False)
class Arguments:
    """What identifies a call, except the arrays. ``where``: the Identity of a callable; None for an array, or for none.
    ``capacity``: the length of the results, None for that of ``x``. ``n``: an int, or None. ``numbers`` has a number of
    the same type for each run-time argument that is a number, and None for each that is an array. There is one object
    for all calls of the same arguments (``_known``), so plans are found by its identity."""

    wanted: Wanted
    where: Identity | None
    names: tuple[str, ...]
    capacity: int | None
    fill: Any
    n: int | None
    numbers: tuple


NOTHING = 0  # the default of ``fill_value``


def selected(wanted: Wanted, xs: tuple, where: Any, args: tuple, options: tuple, stream: Any) -> Selected:
    """Make a call. ``options`` are size, fill_value, out and n."""
    size, fill_value, out, n = options
    where, others, x, kinds = identify(where, "where"), xs[1:], xs[0], NO_ARGS
    if type(where) is not Identity:
        if wanted.values and not wanted.heads:
            others = (*others, where)
        where = None
        if args is not NO_ARGS and (type(args) is not tuple or args):
            raise ArgumentTypeError(explain("args", shown(args), "none without a callable"))
    on_host, array = arrays.adapter(x) is arrays.NUMPY, None
    if n is not None:
        n, array = split(n, on_host)
        others = others if array is None else (*others, array)
    if args is not NO_ARGS:
        kinds, memory = args_of.split(args)
        others = (*others, *memory)
    if size is None and on_host and out is None and wanted.rows == "apart":  # nothing is left unwritten
        size = _extent(x, wanted.axis)
    if size is not None:
        size = integer(size, "size", 0, MAX_LENGTH)
    outs = None if out is None else _outs(wanted, out)
    capacity = size if outs is None or size is not None else _length(outs[0], wanted)
    if fill_value is not NOTHING:
        fill_value = number(fill_value, "fill_value")  # checked also where it is not used
    fill, text = (None, None) if size is None else (fill_value, exact(fill_value))
    call, key = _known(wanted, where, array is not None, kinds, capacity, fill, n, text)
    found = call(key, x, outs, stream, others)
    if on_host and wanted.rows != "apart":
        known = min(x.size, x.size if n is None else n) if wanted.rejects else size
        return _exact(wanted, found, known)
    return _result(wanted, found)


def _outs(wanted: Wanted, out: Any) -> tuple:
    """Return the arrays of ``out``, and that of the count, or None."""
    alone = wanted.outputs == 1 and not wanted.packed
    outs = out if isinstance(out, (tuple, list)) or not alone else (out,)
    if not isinstance(outs, (tuple, list)) or not wanted.outputs <= len(outs) <= wanted.outputs + 1:
        allowed = "an array" if alone else f"a tuple of {wanted.outputs} arrays"
        raise ArgumentTypeError(
            explain("out", f"a {type(out).__name__}", f"{allowed}, and that of the count, if wanted")
        )
    return tuple(outs) if len(outs) > wanted.outputs else (*outs, None)


def _extent(x: np.ndarray, axis: Any) -> int:
    """Return the length of the rows of an array."""
    return x.shape[axis_number(axis, x.ndim, "axis")]


def _length(out: Any, wanted: Wanted) -> int:
    """Return the capacity of the results, by the first array of ``out``."""
    arrays.adapter(out, "out")  # raises for what is no array
    shape = out.shape if hasattr(out, "shape") else arrays.view_of(out, "out").shape
    if wanted.rows == "apart" and shape:
        return int(shape[-1])
    axes = 1 + wanted.together
    if len(shape) != axes:
        allowed = "an array of one axis" if axes == 1 else f"an array of {axes} axes"
        raise ArgumentValueError(explain("out", f"shape {tuple(shape)}", allowed))
    return int(shape[0])


def _exact(wanted: Wanted, found: tuple, known: int | None) -> Selected:
    """Return the results for NumPy arrays: their exact parts. They are ``known`` elements long, or as many as are
    selected."""
    *values, count = found
    n = min(int(count) if known is None else known, len(values[0]))
    whole = {len(values) - 1} if wanted.rows else set()  # the results that are not cut
    whole |= {len(values) - 1 - len(whole) - (wanted.lengths is not None)} if wanted.inverse else set()
    return _result(wanted, [*(value if i in whole else value[:n] for i, value in enumerate(values)), count])


def _result(wanted: Wanted, found: Sequence) -> Selected:
    """Return the results as users get them; the count comes last."""
    if len(found) == 2:
        return Selected(*found)
    if not wanted.values:
        return Selected(tuple(found[:-1]), found[-1])
    *values, count = found
    offsets = values.pop() if wanted.rows == "packed" else None
    lengths = values.pop() if wanted.lengths is not None else None
    inverse = values.pop() if wanted.inverse else None
    places = values.pop() if wanted.indices else None
    return Selected(tuple(values) if wanted.packed else values[0], count, places, inverse, lengths, offsets)


@functools.lru_cache(maxsize=256)
def _front_end(names: tuple[str, ...], outputs: int, places: tuple[int, ...]) -> Callable:
    made = args_of.plan_with_numbers(plan, places, lambda spec: spec.selection.args) if places else plan
    family = Family("select", names, _parse, made, outputs, strided=True, partial=True, counting=True)
    return front_end(family._replace(required=len(names)))


@functools.lru_cache(maxsize=4096)
def _known(
    wanted: Wanted, where: Any, counted: bool, kinds: tuple, capacity: Any, fill: Any, n: Any, _: tuple | None
) -> tuple:
    """Return the front end of a call, and what it identifies the call by. ``counted``: an array has the number of
    elements; ``kinds`` are those of run-time arguments. The last argument distinguishes numbers that are equal as
    keys."""
    names = [f"x[{i}]" for i in range(wanted.arrays)] if wanted.packed else ["x"]
    names += [_mask_name(wanted)] * (where is None and wanted.values and not wanted.heads) + ["n"] * counted
    first, numbers = len(names), args_of.alike(kinds)[0]
    names += [f"args[{i}]" for i, number in enumerate(numbers) if number is None]
    places = tuple(first + i for i, number in enumerate(numbers) if number is not None)
    key = Arguments(wanted, where, tuple(names), capacity, fill, n, numbers)
    return _front_end(tuple(names), wanted.outputs + 1, places), (key,)


def again(given: Arguments, n: int | None) -> tuple:
    """Return the front end of the same call of ``n`` elements, and what identifies it; None: an array has their
    number."""
    kinds = tuple(None if number is None else args_of.kind_of(number) for number in given.numbers)
    fill = given.fill, None if given.fill is None else exact(given.fill)
    return _known(given.wanted, given.where, n is None, kinds, given.capacity, fill[0], n, fill[1])


def resumed(given: Arguments) -> tuple:
    """Return the front end of the same call for runs, and what identifies it, where an array of one element, the last
    input, says whether the first element begins a run."""
    fill = given.fill, None if given.fill is None else exact(given.fill)
    wanted = replace(given.wanted, resumed=True)
    return _known(wanted, None, False, (None,), given.capacity, fill[0], given.n, fill[1])


def _parse(arguments: tuple, views: Views, out: View | None) -> SelectSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    (given,) = arguments
    wanted, by_name = given.wanted, dict(zip(given.names, views))
    xs, outer = views[: wanted.arrays], tuple[int, ...]()
    if wanted.rows:
        by_name, outer = _by_rows(wanted, by_name)
        xs = tuple(by_name.values())[: wanted.arrays]
    length = length_of(xs, given.names)
    args = _parse_args(given, by_name)
    kind, takes_index, length = _kind(given, by_name, length, len(args))
    check(by_name.get("n"))
    whole = xs[0].shape[-1] if wanted.rows else xs[0].size
    if wanted.rows:
        length = whole if length else 0
    length = length if given.n is None else min(given.n, length)
    sources = tuple(x.dtype for x in xs)
    read = (*xs, *([by_name[_mask_name(wanted)]] if kind in ("mask", "bits") else []))
    layout = strided(read) if length else None
    fn = None if given.where is None else given.where.fn
    selection = Selection(
        kind,
        sources,
        values=wanted.values,
        indices=wanted.indices,
        counted="n" in by_name,
        filled=given.fill is not None,
        fn=fn,
        takes_index=takes_index,
        args=args,
        inverse=wanted.inverse,
        lengths=wanted.lengths,
        equal_nan=wanted.equal_nan,
        axes=wanted.axes,
        together=wanted.together,
        wide=wanted.axes > 0 and xs[0].size >= 1 << NUMBER_BITS,
        layout=layout.layout if layout else None,
        rejects=wanted.rejects,
        rows=wanted.rows,
        resumed=wanted.resumed,
    )
    fill: tuple = ()
    if given.fill is not None:
        fill = tuple(scalar(given.fill, dtype, "fill_value") for dtype in selection.results)
        if wanted.indices:
            fill += (-1 if wanted.values else scalar(given.fill, INT64, "fill_value"),)
        fill += (0,) * (wanted.lengths is not None)
    capacity = (xs[0].size if wanted.rows == "packed" else whole) if given.capacity is None else given.capacity
    spec = SelectSpec(selection, length, whole, capacity, fill, xs[0].shape, layout, outer=outer)
    return _with_counting(spec, read) if wanted.rejects else spec


def _by_rows(wanted: Wanted, by_name: dict) -> tuple[dict, tuple[int, ...]]:
    """Return the views of the arrays with the axis of the rows at the end, and the shape of what has a row each."""
    (first, view), *_ = by_name.items()
    axis = axis_number(wanted.axis, len(view.shape), "axis")
    order = [*(i for i in range(len(view.shape)) if i != axis), axis]
    found = dict(by_name)
    for name in list(by_name)[: wanted.arrays + (_mask_name(wanted) in by_name)]:
        other = by_name[name]
        shape = view.shape
        if other.dtype is BY_NAME["uint32"] and name == _mask_name(wanted):
            shape = (*shape[:axis], -(-shape[axis] // 32), *shape[axis + 1 :])
        if other.shape != shape:
            allowed = f"shape {shape}, " + ("a bit each" if shape != view.shape else f"that of {first}")
            raise ArgumentValueError(explain(name, f"shape {other.shape}", allowed))
        shape, steps = (tuple(of[i] for i in order) for of in (other.shape, other.steps))
        found[name] = replace(other, shape=shape, strides=steps, contiguous=is_c_contiguous(shape, steps))
    return found, tuple(view.shape[i] for i in order[:-1])


def _with_counting(spec: SelectSpec, read: Views) -> SelectSpec:
    """Return a call that knows how many elements are selected: another one counts them."""
    if spec.capacity < spec.whole:
        raise ArgumentValueError(explain("out", f"{spec.capacity} elements", f"{spec.whole}, as x has"))
    chosen = spec.selection
    callable_ = chosen.kind == "callable"
    layout = strided(read if callable_ else read[len(chosen.sources) :]) if spec.length else None
    sources = chosen.sources if callable_ else ()
    form = layout.layout if layout else None
    counts = replace(chosen, sources=sources, values=False, indices=False, rejects=False, layout=form)
    return replace(spec, counting=replace(spec, selection=counts, strided=layout))


def _mask_name(wanted: Wanted) -> str:
    return "condition" if wanted.name == "compress" else "where"


def _parse_args(given: Arguments, by_name: dict) -> tuple[Argument, ...]:
    accumulate = tuple(view.dtype for view in by_name.values())[: given.wanted.arrays]
    memory = iter([(view, name) for name, view in by_name.items() if name.startswith("args[")])
    found = args_of.read(given.numbers, memory)
    return tuple(a if isinstance(a, Argument) else Argument(argument_type(a, accumulate), False) for a in found)


def _kind(given: Arguments, by_name: dict, length: int, args: int) -> tuple[str, bool, int]:
    """Return the kind of a selection, whether its callable takes the index, and how many positions there are."""
    wanted = given.wanted
    if given.where is not None and not wanted.heads:
        return "callable", takes_index(given.where, "where", wanted.arrays, args), length
    if wanted.heads:
        return "heads", False, length
    if not wanted.values:
        return "nonzero", False, length
    name = _mask_name(wanted)
    view = by_name[name]
    kind = mask_kind(view, name, length, wanted.whole, bool(wanted.rows))
    return kind, False, min(length, view.size) if not wanted.whole else length


def takes_index(condition: Identity, name: str, count: int, args: int) -> bool:
    """Return whether a callable of the elements of ``count`` arrays takes the index of their position, too."""
    operands = required_parameters(condition.fn) - args
    if operands not in (0, count, count + 1):
        allowed = f"a callable of {count} or {count + 1} values and {args} of args"
        raise ArgumentTypeError(explain(name, f"one of {operands + args} parameters", allowed))
    return operands == count + 1


def mask_kind(view: View | None, name: str, length: int, whole: bool = True, rows: bool = False) -> str:
    """Return the kind of an array that selects: "mask" or "bits"; those of ``rows`` have been counted. It is as long as
    ``x``, or if not ``whole`` at most so long."""
    if view is None:
        raise ArgumentTypeError(explain(name, "None", "a mask, bits or a callable"))
    if view.dtype is BY_NAME["uint32"] and whole:
        if view.size != -(-length // 32) and not rows:
            came = f"{view.size} words of uint32"
            raise ArgumentValueError(explain(name, came, f"{-(-length // 32)} for {length} elements: a bit each"))
        return "bits"
    if view.dtype.name not in MASKS:
        kinds: tuple[DType | str, ...] = (*MASKS, "uint32 for bits")
        raise ArgumentTypeError(explain(name, f"an array of {view.dtype}", ", ".join(map(str, kinds))))
    if view.size != length if whole else view.size > length:
        allowed = f"{length}" if whole else f"at most {length}"
        raise ArgumentValueError(explain(name, f"{view.size} elements", f"{allowed}, as x has"))
    return "mask"
