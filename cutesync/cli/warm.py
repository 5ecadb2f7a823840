"""Compiles kernels ahead of their first use, without a GPU: they are stored in the cache on disk, where later processes
find them.

Each family has a function in ``FAMILIES`` that yields its kernels, ``(label, KernelSpec)``, for dtypes, ops and
layouts: those that public calls need in a dry run (see ``runtime.kernel.collect``).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..arguments import choice
from ..dtypes import BOOL, INT64, DType, dtype as parse_dtype, sum_dtype
from ..errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ..identity import name_of
from ..ops import COMPARISONS, NAMES, operator
from ..runtime import device
from ..runtime.device_array import DeviceArray, transposed
from ..runtime.kernel import KernelSpec, collect

Job = tuple[str, KernelSpec]

DTYPES = ("int32", "int64", "float16", "bfloat16", "float32", "float64")
OPS = ("add", "min", "max")
LAYOUTS = ("whole", "rows", "columns")
NAMED_REDUCTIONS = ("mean", "var", "std", "var_mean", "logsumexp", "count_nonzero", "minmax")
NAMED_SCANS = ("cummax", "cummin", "ffill", "linear_recurrence")
ALL_OPS = (*NAMES, "sum", "prod", "argmin", "argmax", *NAMED_REDUCTIONS, *NAMED_SCANS, *COMPARISONS)
_LENGTHS = sorted({1 << k for k in range(33)} | {3 << k for k in range(31)} | {5, 7, 100, 1000, 10**7 + 19})
_OUTER = (1, 2, 16, 100, 1 << 10, 1 << 13, 1 << 16, 1 << 20, 1 << 24)
_INNER = (*range(2, 17), 17, 24, 32, 33, 64, 100, 128, 256, 1000, 1 << 10, 1 << 12, 1 << 16, (1 << 16) + 1)
_MOST = 1 << 33  # elements
_FAR = 1 << 40  # an address, and a distance that no two arrays overlap at
_PRODUCTS = 16, 12288  # the least and the largest extent of products
_ALIGNED, _ANY = 1000, 500  # products of extents that are multiples of 16, and of any


def warm(
    families: Iterable[str] = ("reduce",),
    dtypes: Iterable[str] = DTYPES,
    ops: Iterable = OPS,
    layouts: Iterable[str] = ("whole",),
    *,
    progress: Callable[[int, int, str], None] | None = None,
) -> int:
    """Compile, or load from the cache, every kernel that calls of these kinds will need. No GPU is needed.

    Parameters
    ----------
    families : names of families: "reduce", "scan", "flags", "select", "segments", "topk",
        "histogram", "matmul", "patterns".
    dtypes : element types of the input, by name or NumPy type.
    ops : operators of ``reduce`` (a name or a callable), and "sum", "prod" (with NumPy's promotion), "argmin",
        "argmax", "mean", "var", "std", "var_mean", "logsumexp", "count_nonzero", "minmax"; of the flags ("ne" if none
        of theirs is there); of scans those that they have, "sum" and "prod" being ``cumsum`` and ``cumprod``, and
        "cummax", "cummin", "ffill", "linear_recurrence". An operator that is not defined for a type, such as "xor" of
        floats, is left out.
    layouts : "whole" (all axes are reduced; arrays of up to 128 bytes are left out), "rows" (the last axis is reduced),
        "columns" (an earlier axis is reduced). The flags have "whole" (1-D arrays) and "rows", and are uint8. Scans are
        inclusive and in index order.
    progress : called as ``progress(done, total, label)`` after each kernel.

    Returns
    -------
    int : the number of kernels, all of which are in the cache now.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError for an unknown family, dtype, operator or layout; OperatorError for a callable
    that cannot be traced. Nothing is compiled before all arguments are checked.
    """
    if progress is not None and not callable(progress):
        raise ArgumentTypeError(explain("progress", shown(progress), "None or a callable of (done, total, label)"))
    return ready(jobs(families, dtypes, ops, layouts), progress)


def ready(work: list[Job], progress: Callable[[int, int, str], None] | None) -> int:
    """Compile these kernels, or load them from the cache. Return how many there are."""
    for done, (label, spec) in enumerate(work, 1):
        spec.kernel()
        if progress is not None:
            progress(done, len(work), label)
    return len(work)


def part_of(word: str) -> tuple[int, int]:
    """``(i, n)`` from "i/n": every nth kernel, from the ith on, which counts from 1."""
    number, _, count = word.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ArgumentValueError(explain("--part", shown(word), "I/N, with I from 1 to N"))
    return int(number), int(count)


def jobs(families: Iterable[str], dtypes: Iterable, ops: Iterable, layouts: Iterable[str]) -> list[Job]:
    """Check the arguments. Return the kernels that ``warm`` compiles, each with a label."""
    families, layouts, ops = _names(families, "families", FAMILIES), _names(layouts, "layouts", LAYOUTS), _ops(ops)
    parsed = [parse_dtype(spec, "dtypes") for spec in _several(dtypes, "dtypes")]
    return [job for family in families for job in FAMILIES[family](parsed, ops, layouts)]


def _names(given, argument: str, allowed) -> tuple[str, ...]:
    return tuple(choice(name, argument, allowed) for name in _several(given, argument))


def _several(given, argument: str) -> tuple:
    """Return one name or type, or several, as a tuple."""
    if isinstance(given, (str, type, np.dtype, DType)) or callable(given):
        return (given,)
    try:
        return tuple(given)
    except TypeError:
        raise ArgumentTypeError(explain(argument, shown(given), "a sequence")) from None


def _ops(given) -> tuple:
    found = _several(given, "ops")
    for op in found:
        if isinstance(op, str) and op not in ALL_OPS:
            raise ArgumentValueError(explain("ops", shown(op), ", ".join(ALL_OPS) + ", or a callable of two values"))
        if not isinstance(op, str):
            operator(op)
    return found


def _dry_array(shape: tuple[int, ...], dtype: DType, offset: int = 0) -> DeviceArray:
    """Return an array of a dry run that begins ``offset`` bytes after a 16-byte boundary."""
    return DeviceArray(_FAR + offset, shape, dtype, device.DRY, None)


def _shapes(layouts: tuple[str, ...]) -> Iterator[tuple[tuple[int, ...], int | None]]:
    """Yield the ``(shape, axis)`` of arrays whose kernels differ; ``axis`` is the axis of the operation, None for
    all."""
    for length in _LENGTHS if "whole" in layouts else ():
        yield (length,), None
    for outer in _OUTER if layouts != ("whole",) else ():
        for inner in (1, *(_INNER if "columns" in layouts else ())):
            for length in _LENGTHS if "rows" in layouts or inner > 1 else ():
                if outer * inner * length <= _MOST:
                    yield ((outer, length) if inner == 1 else (outer, length, inner)), 1


def _collected(label: str, calls: Iterable[Callable[[], object]]) -> Iterator[Job]:
    """Yield the kernels of public calls. A call with an operator that is not defined for the type, such as "xor" of
    floats, ends the list."""
    with collect() as found, contextlib.suppress(ArgumentTypeError):
        for call in calls:
            call()
    for spec in found.values():
        yield f"{label}: {spec.label}", spec


def _by_operator(ops: Iterable, calls: dict[str, Callable], general: Callable) -> Iterator[tuple[Any, Callable]]:
    """Yield each operator with its own function, or with the general one that takes it as ``op``."""
    for op in ops:
        own = calls.get(op) if isinstance(op, str) else None
        yield op, own or functools.partial(general, op=op)


def _reduce_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    import cutesync

    names = ("sum", "prod", "argmin", "argmax", *NAMED_REDUCTIONS)
    calls = {name: getattr(cutesync, name) for name in names}
    defined = [op for op in ops if op not in (*COMPARISONS, *NAMED_SCANS)]
    for source in dtypes:
        for op, call in _by_operator(defined, calls, cutesync.reduce):
            found = _collected(f"reduce {_name(op)} {source}", _reductions(call, op, source, layouts))
            yield from (job for job in found if layouts != ("whole",) or not job[1].label.startswith("WholeRow"))


def _reductions(call: Callable, op, source: DType, layouts: tuple[str, ...]) -> Iterator[Callable]:
    result = {"sum": sum_dtype(source), "prod": sum_dtype(source), "any": BOOL, "all": BOOL}.get(op, source)
    result = INT64 if op in ("argmin", "argmax") else result
    for shape, axis in _shapes(layouts):
        kept = shape[:1] + shape[2:] if axis else ()
        for x_offset in (0, source.size):
            if op in NAMED_REDUCTIONS:  # results of their own types, at aligned addresses
                yield functools.partial(call, _dry_array(shape, source, x_offset), axis=axis)
                continue
            for out_offset in (0, result.size):
                x, out = _dry_array(shape, source, x_offset), _dry_array(kept, result, _FAR + out_offset)
                yield functools.partial(call, x, axis=axis, out=out)


def _scan_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    """Yield inclusive scans in index order; "sum" and "prod" are ``cumsum`` and ``cumprod``. Operators that only
    reductions have are left out."""
    import cutesync

    from ..kernels.scan.call import NAMES as names

    calls = {"sum": cutesync.cumsum, "prod": cutesync.cumprod} | {op: getattr(cutesync, op) for op in NAMED_SCANS}
    defined = [op for op in ops if not isinstance(op, str) or op in (*names, *calls)]
    for source in dtypes:
        for op, call in _by_operator(defined, calls, cutesync.scan):
            inputs = 2 if op == "linear_recurrence" else 1
            arrays = (
                functools.partial(call, *[_dry_array(shape, source, offset)] * inputs, axis=axis)
                for shape, axis in _shapes(layouts)
                for offset in (0, source.size)
            )
            yield from _collected(f"scan {_name(op)} {source}", arrays)


def _flag_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    from .. import flag_heads, flag_heads_and_tails, flag_tails

    layouts = tuple(layout for layout in layouts if layout != "columns") or ("whole",)
    for source in dtypes:
        for op in [op for op in ops if callable(op) or op in COMPARISONS] or ["ne"]:
            for call in (flag_heads, flag_tails, flag_heads_and_tails):
                arrays = (
                    functools.partial(call, _dry_array(shape, source, offset), op)
                    for shape, _ in _shapes(layouts)
                    for offset in (0, source.size)
                )
                yield from _collected(f"{call.__name__} {_name(op)} {source}", arrays)


def _select_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    """Yield selections by masks, partitions, indices of elements that are not 0, and encodings of runs, of 1-D arrays.
    Operators and layouts do not apply."""
    from .. import flatnonzero, partition, run_length_encode, select

    for source in dtypes:
        calls: list[Callable] = []
        for n in _LENGTHS:
            x = _dry_array((n,), source)
            calls += [functools.partial(call, x, _dry_array((n,), BOOL)) for call in (select, partition)]
            calls += [functools.partial(call, x) for call in (flatnonzero, run_length_encode)]
        yield from _collected(f"select {source}", calls)


def _topk_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    """Yield the largest 64 elements of 1-D arrays and of rows. Operators and layouts do not apply."""
    from .. import topk

    for source in dtypes:
        arrays = [_dry_array(shape, source) for shape in (*((n,) for n in _LENGTHS), (1 << 12, 1 << 12))]
        yield from _collected(f"topk {source}", [functools.partial(topk, x, min(64, x.shape[-1])) for x in arrays])


def _count_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    """Yield counts of integers, of 256 and of more bins, and sums of float32 weights; no operators, no layouts."""
    from .. import bincount

    for source in (dtype for dtype in dtypes if dtype.kind != "f"):
        x, weights = _dry_array((1 << 20,), source), _dry_array((1 << 20,), parse_dtype("float32"))
        calls = [functools.partial(bincount, x, length=1 << k) for k in (8, 11, 13, 15, 20)]
        calls += [functools.partial(bincount, x, weights, length=1 << k) for k in (8, 13)]
        yield from _collected(f"bincount {source}", calls)


def _segment_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    """Yield operations by int32 keys, of 1-D arrays. Layouts do not apply."""
    from .. import reduce_by_key, scan_by_key

    for source in dtypes:
        for op in [op for op in ops if not isinstance(op, str) or op in NAMES]:
            arrays = [(_dry_array((n,), parse_dtype("int32")), _dry_array((n,), source)) for n in _LENGTHS]
            calls = [functools.partial(call, *pair, op) for call in (reduce_by_key, scan_by_key) for pair in arrays]
            yield from _collected(f"by key {_name(op)} {source}", calls)


def _pattern_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    """Yield the patterns as the demo runs them; types, operators and layouts do not apply."""
    from .demo_patterns import cases

    for case in cases("nowhere"):
        yield from _collected(f"pattern {case.operation} {case.dtype}", [case.prepare])


def _matmul_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    """Yield what the model chooses for products of random extents, without terms: for operands that TMA reads in place,
    and for some that it refuses. ``ops`` and ``layouts`` say nothing here."""
    from .. import matmul

    random = np.random.default_rng(0)
    lows, highs = np.log(_PRODUCTS[0]), np.log(_PRODUCTS[1])
    extents = [np.exp(random.uniform(lows, highs, 3)).astype(int) for _ in range(_ALIGNED + _ANY)]
    shapes = [tuple(int(n) for n in each // 16 * 16) for each in extents[:_ALIGNED]]
    shapes += [tuple(map(int, each)) for each in extents[_ALIGNED:]]
    for element in (dtype for dtype in dtypes if dtype.name in ("float16", "bfloat16", "float32", "int8", "uint8")):
        for b_transposed in (False, True):
            calls = []
            for m, n, k in shapes:
                b = _dry_array((n, k) if b_transposed else (k, n), element)
                operands = _dry_array((m, k), element), transposed(b) if b_transposed else b
                calls.append(functools.partial(matmul, *operands))
            yield from _collected(f"matmul {element}{', B transposed' if b_transposed else ''}", calls)


def _name(op) -> str:
    return op if isinstance(op, str) else name_of(op)


FAMILIES: dict[str, Callable[[list, tuple, tuple[str, ...]], Iterator[Job]]] = {
    "reduce": _reduce_jobs,
    "scan": _scan_jobs,
    "flags": _flag_jobs,
    "select": _select_jobs,
    "segments": _segment_jobs,
    "topk": _topk_jobs,
    "histogram": _count_jobs,
    "matmul": _matmul_jobs,
    "patterns": _pattern_jobs,
}
