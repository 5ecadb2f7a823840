"""From the spec of a call to its launch: the axes and the policy determine the kernel and its parameters."""

from __future__ import annotations

import functools
from dataclasses import replace

from ...dtypes import INT64, DType
from ...runtime.call import Views
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, nothing
from .. import spread
from ..axes import divisor
from ..hardware import VECTOR_BYTES
from ..states import numbered
from .form import Form, form_of
from .packed_policy import is_packed
from .periods import in_periods
from .policy import FlagPolicy, Problem, alignment, choose
from .spec import FlagSpec, Marking
from .strided_choice import Facts, StridedChoice
from .strided_policy import SHORT_OF_BITS, choose_strided

# Rows of one element, of which no more than so many are read although no element decides (H200, bits of bfloat16: of
# 2**20 1.8 us, unread 2.2 us; of 2**21 3.1 us both ways; of 76736599, reversed: 364 and 68 us).
MIN_UNREAD = 1 << 21

_ARRAYS = ("x", "out", "other")
_NUMBERS = tuple(Scalar(name, "Int64") for name in ("length", "rows", "period", "runs"))
_NUMBERS += Scalar("factor", "Uint32"), Scalar("shift", "Uint32")  # which divide by the period
_STRIDED = tuple(Scalar(name, "Int64") for name in ("n", "work", "length", "period"))


def kernel_spec(policy: FlagPolicy, marking: Marking) -> KernelSpec:
    """Return the kernel of a policy for contiguous rows. The parameters that every warp waits for come first."""
    given = _pointers(marking.source, marking.result), _NUMBERS, _values(marking)
    return KernelSpec((marking.name, policy, *marking.key), given, lambda: policy.make(marking))


def strided_spec(choice: StridedChoice, marking: Marking) -> KernelSpec:
    """Return the kernel of a choice for strided arrays."""
    policy = choice.policy
    arrays = *_pointers(marking.source, marking.result), Pointer("count", INT64)
    given = arrays, _STRIDED, _values(marking), _axes(policy.digits, marking.outputs)
    return KernelSpec((marking.name, policy, *marking.key), given, lambda: policy.make(marking))


@functools.lru_cache(maxsize=64)
def _axes(digits: int, outputs: int) -> tuple[Scalar, ...]:
    names = ("count", "factor", "shift", "extent", *_ARRAYS[: 1 + outputs])
    kinds = {"factor": "Uint32", "shift": "Uint32"}
    return tuple(Scalar(f"{name}{k}", kinds.get(name, "Int64")) for name in names for k in range(digits))


@functools.lru_cache(maxsize=64)
def _pointers(source: DType, result: DType) -> tuple[Pointer, ...]:
    return Pointer("x", source), Pointer("out", result), Pointer("other", result)


def _values(marking: Marking) -> tuple[Pointer | Scalar, ...]:
    """The predecessor and the successor, then the run-time arguments."""
    names = numbered("arg", marking.args)
    return *_ends(marking.register), *(argument.parameter(name) for name, argument in zip(names, marking.args))


@functools.lru_cache(maxsize=64)
def _ends(register: str) -> tuple[Scalar, ...]:
    return Scalar("predecessor", register), Scalar("successor", register)


def plan(spec: FlagSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launch of a call."""
    if views[0].size == 0:
        return nothing, None
    found = None if spec.counted else spread.find(views[:1], outs, spec.axis)
    if found is None:
        return _plan(spec, views, outs, stream), None
    (x,), once = spread.first_slices(views[:1], found.axis), spread.results_once(outs, found)
    run = _plan(replace(spec, shape=x.shape), (x, *views[1:]), once, stream)
    return spread.then_copied(run, found, views, outs, stream), None


def _plan(spec: FlagSpec, views: Views, outs: Views, stream: int) -> Run:
    form = form_of(spec.axis, spec.marking.bits, views, outs)
    short = spec.marking.bits and form.flagged.extent < SHORT_OF_BITS
    tiled = spec.tile is not None and spec.tile < form.flagged.extent
    packed = is_packed(form, views[0].dtype.size, tiled)
    if form.is_contiguous and not (spec.counted or short or packed):
        return _contiguous(spec, form, views, outs, stream).run
    return _strided(spec, form, views, outs, stream).run


def _contiguous(spec: FlagSpec, form: Form, views: Views, outs: Views, stream: int) -> Launch:
    x, marking, length = views[0], spec.marking, form.flagged.extent
    size = 0 if marking.bits else marking.result.size
    aligned = min(alignment(out.ptr) for out in outs)
    tile, words = spec.tile or length, marking.compares_bytes
    problem = Problem(form.rows, length, tile, x.dtype.size, size, alignment(x.ptr), aligned, words)
    choice = choose(problem)
    factor, shift = divisor(choice.period) if choice.policy.periodic and choice.policy.joined else (0, 0)
    values = {
        "factor": factor,
        "shift": shift,
        "length": choice.length,
        "rows": choice.rows,
        "period": choice.period,
        "runs": choice.runs,
        "predecessor": spec.predecessor,
        "successor": spec.successor,
    }
    kernel = kernel_spec(choice.policy, marking)
    arrays = ("x", *numbered("arg", marking.args), *_ARRAYS[1 : 1 + marking.outputs])
    return Launch(kernel, x.device, choice.grid, values, arrays, stream=stream)


def _strided(spec: FlagSpec, form: Form, views: Views, outs: Views, stream: int) -> Launch:
    x, marking = views[0], spec.marking
    period = min(spec.tile or form.flagged.extent, form.flagged.extent)
    facts = Facts(
        x.dtype.size,
        marking.result.size,
        x.ptr % VECTOR_BYTES,
        min(alignment(out.ptr) for out in outs),
        spec.tile is not None and spec.tile < form.flagged.extent,
        spec.counted,
        marking.compares_bytes or marking.subtracts_bytes or marking.compares_halves,
        form.flagged.extent % period == 0,
        x.dtype.kind == "f",
    )
    alone = marking.is_flag and not (spec.counted or marking.predecessor or marking.successor)
    if form.flagged.extent == 1 and form.rows > MIN_UNREAD and alone:
        form = form.unread()
    longer = in_periods(form, facts) if facts.even else None
    if longer is not None:
        form, facts = longer, replace(facts, periodic=True)
    choice = choose_strided(form, facts)
    values = choice.values | {
        "n": spec.n,
        "length": form.flagged.extent,
        "period": period,
        "predecessor": spec.predecessor,
        "successor": spec.successor,
    }
    count = ("count",) if spec.counted and spec.n is None else ()
    arrays = ("x", *numbered("arg", marking.args), *count, *_ARRAYS[1 : 1 + marking.outputs])
    return Launch(strided_spec(choice, marking), x.device, choice.grid, values, arrays, stream=stream)
