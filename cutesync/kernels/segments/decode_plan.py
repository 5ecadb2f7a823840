"""From the spec of a call that decodes runs to its launches: one, or, of long runs and strided arrays, several that
search in sums of lengths."""

from __future__ import annotations

import functools
from typing import Any

from ...dtypes import INT32, INT64
from ...runtime import workspace
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar as Number
from ...runtime.launch import Launch, Run, in_turn
from ...sizes import ceil_div
from ..layouts import strided
from ..select.plan import summed
from .decode_policy import GROUP, GROUPS, MANY_BLOCKS, MAX_TURNS, RESULTS, TILE_WORDS, Choice, choose, searches
from .decode_spec import DecodeSpec, Decoding, Lengths

ARRAYS = "values", "lengths", "n", "out", "count"


def plan(spec: DecodeSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call; at least one block decodes, which stores the count."""
    decoding = spec.decoding
    if decoding.lengths is None:
        return _search(spec, views, outs, stream), None
    if not searches(spec.runs, spec.size, decoding.dtype.size, spec.strided is not None):
        return _decode(spec, views, outs, stream), None
    device, groups = views[0].device, ceil_div(spec.runs, GROUP)
    inputs = _inputs(views)
    sums = inputs + len(outs)  # number of the array behind the call's own
    every = tuple(range(sums + 1))
    steps = [(_add(spec, views, stream, groups), (*every[1:inputs], sums)), (_search(spec, views, outs, stream), every)]
    if groups > 1:
        steps.insert(1, (summed(groups, device, stream), (sums, sums)))
    return in_turn(steps, (8 * groups,), device), None


def _parameters(decoding: Decoding, more: tuple[str, ...], numbers: tuple[str, ...]) -> tuple[list, list]:
    """Return the parameters of a kernel that decodes: pointers, ``more`` of them than the arrays of a call, and
    numbers."""
    types = {"values": decoding.dtype, "out": decoding.dtype, "lengths": decoding.lengths or INT64}
    pointers = [Pointer(name, types.get(name, INT64)) for name in (*ARRAYS, *more)]
    found = [Number("fill", decoding.dtype.dsl), *(Number(name, "Int64") for name in numbers)]
    return pointers, [*found, *(decoding.layout.parameters if decoding.layout else [])]


def _values(spec: DecodeSpec, outs: Views) -> dict[str, Any]:
    """Return the constant parameters of a launch that decodes."""
    values = {"runs": spec.runs, "size": spec.size, "fill": spec.fill, "step": outs[0].steps[0]}
    return values | (spec.strided.values if spec.strided else {})


def _decode(spec: DecodeSpec, views: Views, outs: Views, stream: int) -> Run:
    """Prepare the launch that decodes in one pass."""
    decoding = spec.decoding
    assert decoding.lengths is not None
    chosen: Choice = choose(spec.runs, spec.size, decoding.dtype.size, decoding.lengths.size)
    parameters = _parameters(decoding, (), ("runs", "size", "step", "limit", "unit", "places"))
    rest = Pointer("scratch", INT64), Pointer("counters", INT32)
    kernel = KernelSpec(("decode", chosen.policy, decoding), (*parameters, *rest), lambda: chosen.policy.make(decoding))
    values = _values(spec, outs) | {"limit": chosen.limit, "unit": chosen.unit, "places": chosen.tiles}
    names = *ARRAYS[: _inputs(views)], *ARRAYS[3:]
    claim = functools.partial(workspace.counters_and_slots, slots=TILE_WORDS * chosen.tiles)
    return Launch(kernel, views[0].device, chosen.grid, values, names, claim, stream).run


def _search(spec: DecodeSpec, views: Views, outs: Views, stream: int) -> Run:
    """Prepare the launch that finds results in sums of groups of runs, or by divisions."""
    decoding = spec.decoding

    def make() -> Any:
        from .searched import SearchedDecode
        from .searched_ranks import RankDecode

        return (SearchedDecode if decoding.alike or decoding.dtype.size < 4 else RankDecode)(decoding)

    parameters = _parameters(decoding, ("sums",), ("runs", "size", "times", "step", "turns"))
    kernel = KernelSpec(("decode", decoding), parameters, make)
    tiles = ceil_div(spec.size, RESULTS)
    turns = max(1, min(MAX_TURNS, tiles // MANY_BLOCKS))
    values = _values(spec, outs) | {"times": spec.times, "turns": turns}
    names = *ARRAYS[: _inputs(views)], *ARRAYS[3:], *(() if decoding.alike else ("sums",))
    return Launch(kernel, views[0].device, max(1, ceil_div(tiles, turns)), values, names, None, stream).run


def _inputs(views: Views) -> int:
    """Return how many inputs a call has."""
    return 3 if views[2] is not None else 2 if views[1] is not None else 1


def _add(spec: DecodeSpec, views: Views, stream: int, groups: int) -> Run:
    """Prepare the launch that adds up the lengths of each of ``groups`` groups of runs."""
    view, layout = views[1], strided(views[1:2])
    lengths = Lengths(view.dtype, spec.decoding.counted, layout.layout if layout else None)

    def make() -> Any:
        from .sums import Sums

        return Sums(lengths)

    pointers = Pointer("lengths", view.dtype), Pointer("n", INT64), Pointer("sums", INT64)
    numbers = [Number("runs", "Int64"), Number("groups", "Int64"), *(layout.layout.parameters if layout else ())]
    kernel = KernelSpec(("run_sums", lengths), (pointers, numbers), make)
    values = {"runs": spec.runs, "groups": groups, **(layout.values if layout else {})}
    names = "lengths", *(("n",) * lengths.counted), "sums"
    return Launch(kernel, view.device, -(-groups // GROUPS), values, names, None, stream).run
