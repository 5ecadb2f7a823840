"""Random reductions and scans with states of several values: several inputs of any types, maps of elements and of their
indexes, run-time arguments, several results."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cutesync as cs
from cutesync.dtypes import BY_NAME, DType
from cutesync.reference import _cast

from .draw import Case, Dice, Undefined
from .judge import exactly
from .tuples import Monoid, elements, function, monoid, presented, running
from .values import NUMBERS, pick

MAX_INPUTS = 3


@dataclass
class Shape:
    """What machine code depends on, drawn for a theme. ``maps`` are the expressions of a transform, one a value, or
    None; ``ends`` those of finish. ``small`` says of each input whether it must be small."""

    op: Monoid
    sources: tuple[DType, ...]
    unpacked: bool
    maps: list[str] | None
    ends: list[str] | None
    results: tuple[DType, ...]
    tuple_out: bool
    takes_index: bool
    args: tuple
    small: tuple[bool, ...]

    @property
    def transform(self) -> Callable | None:
        if self.maps is None:
            return None
        names = [f"v{i}" for i in range(len(self.sources))] + ["i"] * self.takes_index + self._arguments
        return function(", ".join(names), self.maps, self.unpacked)

    @property
    def finish(self) -> Callable | None:
        if self.ends is None:
            return None
        return function(", ".join(["s", *self._arguments]), self.ends, not self.tuple_out, "s" * self.unpacked)

    @property
    def _arguments(self) -> list[str]:
        return ["t"] * len(self.args)


def _shape(dice: Dice) -> Shape:
    theme = dice.theme
    unpacked = bool(theme.random() < 0.2)
    op = monoid(theme, unpacked)
    args = op.args or ((pick(theme, (1, 0, np.int64(1), 0.5, np.float32(0.5))),) if theme.random() < 0.25 else ())
    if not op.args and args and not isinstance(op.given, str):  # every callable takes them
        op.given = function("p, q, t", op.given.results, unpacked, "pq" if unpacked else "")
    mapped = theme.random() < 0.5
    sources, maps, takes_index = op.values, None, False
    if mapped:
        sources = tuple(pick(theme, NUMBERS) for _ in range(1 if unpacked else 1 + int(theme.integers(MAX_INPUTS))))
        takes_index = bool(theme.random() < 0.4)
        maps = [_map(theme, op, j, sources, takes_index, bool(args), unpacked) for j in range(len(op.values))]
    elif theme.random() < 0.3:  # converted before they are combined
        sources = tuple(pick(theme, NUMBERS) for _ in op.values)
    floats = any(v.kind == "f" for v in op.values)
    small = (floats,) * len(sources) if mapped else tuple(floats and s is not v for s, v in zip(sources, op.values))
    ends, results, tuple_out = None, op.values, not unpacked
    if theme.random() < 0.4:
        ends, results = map(list, zip(*(_end(theme, op) for _ in range(1 + int(theme.integers(2))))))
        tuple_out = len(ends) > 1 or bool(theme.random() < 0.5)
    return Shape(op, sources, unpacked, maps, ends, tuple(results), tuple_out, takes_index, args, small)


def _map(theme, op: Monoid, j: int, sources, takes_index: bool, argument: bool, unpacked: bool) -> str:
    """The expression that makes value j of a state."""
    value, i = op.values[j], int(theme.integers(len(sources)))
    if takes_index and theme.random() < 0.4 and not (value.kind == "f" and op.adds[j]) and value.kind != "b":
        return pick(theme, ("i", "i + 1", f"i if v{i} else 0"))
    source, parity = value if unpacked else sources[i], op.parity[j]
    if parity:
        text = {"odd": f"v{i} | 1", "even": f"v{i} * 2"}[parity]
        return text if source.kind in "iu" and _wraps_alike(source, value) else {"odd": "1", "even": "2"}[parity]
    if source.kind == "b" or value.kind == "b":
        return f"v{i}"
    if argument and theme.random() < 0.5:
        return f"v{i} if v{i} > t else 1"
    sums = (f"v{i} + 2", f"v{i} * 3") if _wraps_alike(source, value) else ()
    return pick(theme, (f"v{i}", f"v{i} if v{i} > 0 else 1", *sums))


def _end(theme, op: Monoid) -> tuple[str, DType]:
    """A result: its expression and its type."""
    j = int(theme.integers(len(op.values)))
    value, same = op.values[j], [k for k, v in enumerate(op.values) if v is op.values[j]]
    wide = [BY_NAME[name] for name in ("float32", "float64")]
    allowed = {"b": NUMBERS, "f": [t for t in NUMBERS if t.name != "bfloat16" or value.size < 8]}.get(
        value.kind, [t for t in NUMBERS if t.kind in "biu"] + wide
    )
    text = f"s[{j}]"
    if value.kind != "b":
        text = pick(theme, (text, f"{text} * 2", f"{text} + s[{pick(theme, same)}]"))
    found = pick(theme, allowed)
    return (text if _wraps_alike(value, found) else f"s[{j}]"), found


def _wraps_alike(source: DType, target: DType) -> bool:
    """Whether sums of a type are the same numbers in ``target``: small integers add up in 32 bits, in NumPy in their
    own."""
    return source.kind not in "iu" or source.size >= 4 or (target.kind in "iu" and target.size <= source.size)


def reduction(dice: Dice) -> Case:
    """``cs.reduce`` of states."""
    return _case(dice, cs.reduce)


def scan(dice: Dice) -> Case:
    """``cs.scan`` of states."""
    return _case(dice, cs.scan)


def _case(dice: Dice, call: Callable) -> Case:
    rng, shape = dice.rng, _shape(dice)
    shape.args = tuple(type(t)(rng.integers(1, 4)) for t in shape.args)
    scans = call is cs.scan
    extents = dice.shape(dice.shapes((1, 1, 1, 2, 2, 3, 4)))
    has_init, exclusive, reverse = dice.theme.random() < 0.3, dice.theme.random() < 0.3, dice.theme.random() < 0.3
    in_memory = bool(shape.args and dice.theme.random() < 0.3)
    axes: list = [None, *range(-len(extents), len(extents))]
    if not scans and not shape.takes_index and len(extents) > 1:
        axes += [(0, len(extents) - 1), tuple(range(len(extents)))]
    options: dict[str, Any] = {"axis": pick(rng, axes)}
    options |= {"exclusive": exclusive, "reverse": reverse} if scans else {"keepdims": bool(rng.integers(2))}
    if has_init:
        options["init"] = _given(shape, [bool(rng.integers(2)) if v.kind == "b" else 1 for v in shape.op.values])
    if shape.op.identity is not None and not isinstance(shape.op.given, str) and rng.random() < 0.8:
        options["identity"] = _given(shape, shape.op.identity)
    options |= _callables(shape)

    def made(rng) -> dict[str, np.ndarray]:
        parities = shape.op.parity if shape.maps is None else ("",) * MAX_INPUTS
        given = enumerate(zip(shape.sources, shape.small, parities))
        found = {f"x{j}": elements(rng, extents, *how) for j, how in given}
        return found | ({"t": np.array(rng.integers(1, 4), _type_of(shape.args[0]))} if in_memory else {})

    plain = shape.maps is None and shape.ends is None and shape.sources == shape.op.values and not in_memory
    outs = ("none", "given", "in place") if scans and plain and options["axis"] is not None else ("none", "given")
    names = tuple(f"x{j}" for j in range(len(shape.sources)))
    return Case(
        f"cs.{call.__name__} of states",
        functools.partial(_called, call, shape),
        made(rng),
        {"op": shape.op.given, **options} | ({} if in_memory or not shape.args else {"args": shape.args}),
        lambda inputs: tuple(map(exactly, _wanted(shape, inputs, options, scans))),
        made,
        {name: (dice.offset(), None) for name in names},
        pick(rng, outs),
        names,
    )


def _type_of(number: Any) -> Any:
    return number.dtype if isinstance(number, np.generic) else np.float32 if isinstance(number, float) else np.int32


def _given(shape: Shape, state: Sequence | None) -> Any:
    """A state as calls get it."""
    return None if state is None else state[0] if shape.unpacked else tuple(state)


def _callables(shape: Shape) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if shape.maps is not None:
        found["transform"] = shape.transform
    if shape.maps is not None or shape.sources != shape.op.values:
        types = [value.name for value in shape.op.values]
        found["dtype"] = types[0] if shape.unpacked else tuple(types)
    if shape.ends is not None:
        types = [result.name for result in shape.results]
        found |= {"finish": shape.finish, "out_dtype": tuple(types) if shape.tuple_out else types[0]}
    return found


def _called(call: Callable, shape: Shape, *, out: Any = None, **given) -> Any:
    xs = tuple(given.pop(f"x{j}") for j in range(len(shape.sources)))
    if "t" in given:
        given["args"] = (given.pop("t"),)
    alone = len(shape.results) == 1 and not (shape.unpacked and shape.ends is None) and shape.tuple_out
    found = call(
        xs[0] if shape.unpacked else xs, given.pop("op"), out=(out,) if alone and out is not None else out, **given
    )
    return found


def _wanted(shape: Shape, inputs: dict[str, np.ndarray], options: dict, scans: bool) -> list[np.ndarray]:
    """What NumPy makes of the same arguments."""
    xs = [inputs[f"x{j}"] for j in range(len(shape.sources))]
    args = (inputs["t"][()],) if "t" in inputs else tuple(np.asarray(t, _type_of(t))[()] for t in shape.args)
    axis, extents = options["axis"], xs[0].shape
    axes = range(len(extents)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = sorted(range(len(extents))[a] for a in axes)
    kept = [a for a in range(len(extents)) if a not in axes]
    lead, length = tuple(extents[a] for a in kept), math.prod(extents[a] for a in axes)
    rows = [np.transpose(x, [*kept, *axes]).reshape(*lead, length) for x in xs]
    start = options.get("init")
    if start is None and (options["exclusive"] if scans else length == 0):
        start = options.get("identity", _given(shape, shape.op.identity) if isinstance(shape.op.given, str) else None)
        if start is None and (scans or math.prod(lead)):
            raise Undefined
    front = None
    if start is not None:
        numbers = zip((start,) if shape.unpacked else start, shape.op.accumulators)
        front = tuple(np.full((*lead, 1), v, t.numpy) for v, t in numbers)
    with np.errstate(all="ignore"):
        state = _lifted(shape, rows, args)
        state = _scanned(shape, state, front, options, args) if scans else _reduced(shape, state, front, args)
        found = _finished(shape, state, args)
    if scans:
        return found if axis is None else [np.moveaxis(v, -1, axis) for v in found]
    ones = [1 if a in axes else n for a, n in enumerate(extents)]
    return [v.reshape(ones if options["keepdims"] else lead) for v in found]


def _lifted(shape: Shape, rows: list[np.ndarray], args: tuple) -> tuple:
    """The state of each element."""
    if shape.maps is None:
        return tuple(_cast(x, t) for x, t in zip(rows, shape.op.accumulators))
    if shape.unpacked:
        rows = [_cast(rows[0], shape.op.accumulators[0])]
    index = [np.broadcast_to(np.arange(rows[0].shape[-1]), rows[0].shape)] if shape.takes_index else []
    operands = [presented(x, t) for x, t in zip(rows, shape.op.values if shape.unpacked else shape.sources)]
    found = shape.transform.on_arrays(*operands, *index, *args)
    found = [np.broadcast_to(v, rows[0].shape) for v in ((found,) if shape.unpacked else found)]
    return tuple(map(_cast, found, shape.op.accumulators))


def _scanned(shape: Shape, state: tuple, front: tuple | None, options: dict, args: tuple) -> tuple:
    reverse = options["reverse"]
    if reverse:
        state = tuple(v[..., ::-1] for v in state)
    if front is not None:
        state = tuple(np.concatenate(pair, -1) for pair in zip(front, state))
    op = (lambda p, q: shape.op.combine(q, p, args)) if reverse else lambda p, q: shape.op.combine(p, q, args)
    state = running(op, state)
    if front is not None:
        state = tuple(v[..., :-1] if options["exclusive"] else v[..., 1:] for v in state)
    return tuple(v[..., ::-1] for v in state) if reverse else state


def _reduced(shape: Shape, state: tuple, front: tuple | None, args: tuple) -> tuple:
    if front is not None:
        state = tuple(np.concatenate(pair, -1) for pair in zip(front, state))
    if state[0].size == 0:
        return tuple(v.sum(-1, dtype=v.dtype) for v in state)
    return tuple(v[..., -1] for v in running(lambda p, q: shape.op.combine(p, q, args), state))


def _finished(shape: Shape, state: tuple, args: tuple) -> list[np.ndarray]:
    found: Any = state
    if shape.ends is not None:
        found = shape.finish.on_arrays(state if not shape.unpacked else state[0], *args)
        found = found if shape.tuple_out else (found,)
    return [_cast(np.asarray(v), t) for v, t in zip(found, shape.results)]
