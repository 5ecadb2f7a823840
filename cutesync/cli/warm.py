"""Compile kernels ahead of their first use. It needs no GPU: the kernels go into the cache on disk, where every later process finds them.

A family adds itself to ``FAMILIES`` with a function that lists its kernels: ``f(dtypes, ops, layouts)`` yields ``(label, compile)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ..arguments import choice
from ..dtypes import BY_NAME, INT64, DType, sum_dtype
from ..dtypes import dtype as parse_dtype
from ..errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ..ops import COMPARISONS, NAMES, neighbour_operator, operator

Job = tuple[str, Callable[[], object]]

DTYPES = ("int32", "int64", "float16", "bfloat16", "float32", "float64")
OPS = ("add", "min", "max")
LAYOUTS = ("whole", "rows", "columns")
ALL_OPS = (*NAMES, "sum", "prod", "argmin", "argmax", *COMPARISONS)
_LENGTHS = sorted({1 << k for k in range(33)} | {3 << k for k in range(31)} | {5, 7, 100, 1000, 10**7 + 19})
_OUTER = (1, 2, 16, 100, 1 << 10, 1 << 13, 1 << 16, 1 << 20, 1 << 24)
_INNER = (*range(2, 17), 17, 24, 32, 33, 64, 100, 128, 256, 1000, 1 << 10, 1 << 12, 1 << 16, (1 << 16) + 1)
_MOST = 1 << 33  # elements


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
    families : names of families: "reduce", "scan", "flags", "matmul", "patterns".
    dtypes : element types of the input, by name or NumPy type.
    ops : operators of ``reduce`` (a name or a callable), and "sum", "prod" (with NumPy's promotion), "argmin", "argmax"; of the flags
        ("ne" if none of theirs is there); of scans those that they have, "sum" and "prod" being ``cumsum`` and ``cumprod``. A pair that has no meaning, such as "xor" of floats, is left out.
    layouts : "whole" (everything is reduced; arrays of up to 128 bytes aside), "rows" (the last axis is), "columns" (an earlier axis is).
        The flags have "whole" (1-D arrays) and "rows", and are uint8. Scans are inclusive and in index order.
    progress : called as ``progress(done, total, label)`` after each kernel.

    Returns
    -------
    int : the number of kernels that are ready.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError for an unknown family, dtype, operator or layout; OperatorError for a callable that cannot be
    traced. Nothing is compiled before all arguments are checked.
    """
    if progress is not None and not callable(progress):
        raise ArgumentTypeError(explain("progress", shown(progress), "None or a callable of (done, total, label)"))
    work = list(jobs(families, dtypes, ops, layouts))
    for done, (label, compile_kernel) in enumerate(work, 1):
        compile_kernel()
        if progress is not None:
            progress(done, len(work), label)
    return len(work)


def jobs(families: Iterable[str], dtypes: Iterable, ops: Iterable, layouts: Iterable[str]) -> list[Job]:
    """The kernels that ``warm`` compiles, each as ``(label, function)``; the arguments are checked here."""
    families, layouts, ops = _names(families, "families", FAMILIES), _names(layouts, "layouts", LAYOUTS), _ops(ops)
    parsed = [parse_dtype(spec, "dtypes") for spec in _several(dtypes, "dtypes")]
    return [job for family in families for job in FAMILIES[family](parsed, ops, layouts)]


def _names(given, argument: str, allowed) -> tuple[str, ...]:
    return tuple(choice(name, argument, allowed) for name in _several(given, argument))


def _several(given, argument: str) -> tuple:
    """One name or type, or several."""
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


def _reduce_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    from ..kernels.reduce.plan import kernel_for

    for source in dtypes:
        for op in ops:
            folding = None if op in COMPARISONS else _folding(op, source)
            if folding is None:
                continue
            seen = set()
            for config in _configs(folding, layouts):
                tiny = config.kernel[0] == "whole_rows" and layouts == ("whole",)
                if config.kernel not in seen and not tiny:
                    seen.add(config.kernel)
                    name = op if isinstance(op, str) else getattr(op, "__name__", "callable")
                    label = f"reduce {name} {source}: {' '.join(map(str, config.kernel))}"
                    yield label, lambda config=config, folding=folding: kernel_for(config, folding, False)


def _folding(op, source):
    """What ``op`` on ``source`` computes, as the public calls have it; None where it has no meaning."""
    from ..kernels.reduce.plan import Folding

    if op in ("argmin", "argmax"):
        return Folding(op, source, source, INT64)
    result = sum_dtype(source) if op in ("sum", "prod") else BY_NAME["bool"] if op in ("any", "all") else source
    parsed = operator({"sum": "add", "prod": "mul"}.get(op, op) if isinstance(op, str) else op)
    try:
        parsed.check(result)
    except ArgumentTypeError:
        return None
    return Folding(parsed, source, source.accumulator if op in ("any", "all") else result.accumulator, result)


def _configs(folding, layouts: tuple[str, ...]):
    """The configurations of all shapes of these layouts, for inputs and outputs that lie on 16-byte boundaries or not."""
    from ..kernels.reduce.policy import Problem, choose

    outers = _OUTER if "rows" in layouts or "columns" in layouts else (1,)
    for outer in outers:
        for inner in (1, *(_INNER if "columns" in layouts else ())):
            if inner == 1 and not ("rows" in layouts or ("whole" in layouts and outer == 1)):
                continue
            for length in _LENGTHS:
                if outer * inner * length <= _MOST:
                    for aligned in ((True, True), (True, False), (False, True), (False, False)):
                        yield choose(Problem(outer, length, inner, folding.source.size, folding.slot_words, *aligned))


def _scan_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    """Inclusive scans in index order; "sum" and "prod" are ``cumsum`` and ``cumprod``. Operators that only reductions have are left out."""
    from ..kernels.scan.call import _NAMES
    from ..kernels.scan.plan import Meaning, kernel_for

    for source in dtypes:
        for op in ops:
            name = {"sum": "add", "prod": "mul"}.get(op, op) if isinstance(op, str) else op
            if isinstance(name, str) and name not in _NAMES:
                continue
            result = sum_dtype(source) if op in ("sum", "prod") else source
            parsed = operator(name)
            try:
                parsed.check(result)
            except ArgumentTypeError:
                continue
            meaning = Meaning(parsed, source, result.accumulator, result, False, False)
            for kernel, config in {config.kernel: config for config in _scan_configs(meaning, layouts)}.items():
                label = f"scan {op if isinstance(op, str) else parsed.name} {source}: {' '.join(map(str, kernel))}"
                yield label, lambda config=config, meaning=meaning: kernel_for(config, meaning)


def _scan_configs(meaning, layouts: tuple[str, ...]):
    """The configurations of all shapes of these layouts, for arrays on 16-byte boundaries and for an input one element behind one."""
    from ..kernels.scan.policy import Problem, choose

    for rows in _OUTER if layouts != ("whole",) else (1,):
        for inner in (1, *(_INNER if "columns" in layouts else ())):
            if inner == 1 and not ("rows" in layouts or ("whole" in layouts and rows == 1)):
                continue
            for length in _LENGTHS:
                if rows * inner * length <= _MOST:
                    for x in (0, meaning.source.size):
                        yield choose(Problem(rows, length, inner, meaning.source.size, meaning.result.size, x, 0))


def _flag_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    from ..kernels.flags.plan import Marking, kernel_for
    from ..kernels.flags.policy import Problem, choose

    flag = BY_NAME["uint8"]
    rows = [1] * ("whole" in layouts) + [outer for outer in _OUTER if outer > 1 and "rows" in layouts]
    for source in dtypes:
        aligned = {16, source.size}
        problems = [
            Problem(r, n, n, source.size, flag.size, a, 16)
            for r in rows
            for n in _LENGTHS
            if r * n <= _MOST
            for a in aligned
        ]
        configs = {config.kernel: config for config in map(choose, problems)}
        for op in [op for op in ops if callable(op) or op in COMPARISONS] or ["ne"]:
            for form in ("heads", "tails", "both"):
                marking = Marking(form, neighbour_operator(op, COMPARISONS), source, flag)
                for kernel, config in configs.items():
                    label = f"{marking.name} {marking.op.name} {source}: {' '.join(map(str, kernel))}"
                    yield label, lambda config=config, marking=marking: kernel_for(config, marking)


def _pattern_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    """The patterns as the demo runs them; types, operators and layouts do not apply."""
    del dtypes, ops, layouts
    from .demo_patterns import cases

    for case in cases("nowhere"):
        yield f"pattern {case.operation} {case.dtype}", case.kernels


def _matmul_jobs(dtypes: list, ops: tuple, layouts: tuple[str, ...]) -> Iterator[Job]:
    """Every configuration of the model for contiguous operands of these types, without terms. ``ops`` and ``layouts`` say nothing here."""
    from ..kernels.matmul.plan import kernel_for
    from ..kernels.matmul.candidates import COOPERATIVE, PINGPONG
    from ..kernels.matmul.terms import TermsSpec

    del ops, layouts
    for element in (dtype for dtype in dtypes if dtype.name in ("float16", "bfloat16")):
        both = {
            config.decided(element.size, several): None
            for config in COOPERATIVE + PINGPONG
            for several in (True, False)
        }
        for full in both:
            for majors in ((True, False), (True, True)):
                label = f"matmul {element}: {' '.join(map(str, full.kernel))} {'B transposed' if majors[1] else ''}"
                yield (
                    label,
                    lambda full=full, element=element, majors=majors: kernel_for(
                        full, (element, element), element, majors, TermsSpec()
                    ),
                )


FAMILIES: dict[str, Callable[[list, tuple, tuple[str, ...]], Iterator[Job]]] = {
    "reduce": _reduce_jobs,
    "scan": _scan_jobs,
    "flags": _flag_jobs,
    "matmul": _matmul_jobs,
    "patterns": _pattern_jobs,
}
