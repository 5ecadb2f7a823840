"""What random cases showed: geometric means by class, the worst cases, kernels, bars. See ``shapes_run.py``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from shapes import Drawn

SMALL_US = 8.0  # cases whose floor is less are latency
WORST = 15


def record(case: Drawn, times: dict[str, float], right: bool | None, troubles: dict[str, str]) -> dict:
    """The record of one case; ``right`` is None if it did not run."""
    return {
        "number": case.number,
        "name": case.name,
        "op": case.op,
        "dtype": case.dtype,
        "shape": case.shape,
        "kind": case.kind,
        "bytes": case.read + case.written,
        "rival_bytes": case.rival_bytes,
        "lines": case.lines + case.written,
        "times": times,
        "right": right,
        "troubles": troubles,
    }


def mean(values: Iterable[float]) -> float:
    """The geometric mean; NaN of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def floor(found: dict) -> float:
    """The time of the copy; of a stepped array, as much longer as it touches more bytes of lines."""
    lines = found["lines"] / found["bytes"] if found["kind"] == "stepped" else 1
    return lines * found["times"]["copy"]


def of_copy(found: dict) -> float:
    """The share of the copy's rate; of a stepped array, that of the lines that it touches."""
    return floor(found) / found["times"]["cutesync"]


def behind_copy(found: dict) -> float:
    """The time beyond that of the copy, or of the lines of a stepped array."""
    return found["times"]["cutesync"] - floor(found)


def of_rivals(found: dict) -> float | None:
    """The time of the fastest rival over ours; None without one."""
    rivals = [us for name, us in found["times"].items() if name not in ("cutesync", "copy")]
    return min(rivals) / found["times"]["cutesync"] if rivals else None


def of_rivals_by_bytes(found: dict) -> float:
    """The same of the times that a byte takes, as rivals leave out results."""
    return of_rivals(found) * found["bytes"] / found["rival_bytes"]


def classes(timed: list[dict]) -> dict[str, list[dict]]:
    """The cases by class: small ones, then large ones by how they lie in memory."""
    found: dict[str, list[dict]] = {}
    for one in timed:
        found.setdefault("small" if floor(one) < SMALL_US else one["kind"], []).append(one)
    return dict(sorted(found.items()))


def bar(title: str, cases: list[dict], value: Callable, good: Callable, share: float, never: Callable) -> list[str]:
    """A bar: ``share`` of the cases must be ``good``, and none ``never``; and the cases beside it."""
    values = [(value(one), one) for one in cases]
    met = sum(good(v) for v, _ in values)
    beside = [(v, one) for v, one in values if never(v)]
    if not values:
        return [f"{title}: no cases"]
    ok = met >= share * len(values) and not beside
    lines = [f"{title}: {met} of {len(values)}{'' if ok else '  <- missed'}; beside the limit {len(beside)}"]
    return lines + [f"    {v:8.2f}  {one['name']}" for v, one in beside[:WORST]]


def bars(timed: list[dict]) -> list[str]:
    """Whether each bar is met."""
    by = classes(timed)
    small = by.get("small", [])
    plain = [one for kind, each in by.items() if kind.startswith("contiguous") for one in each]
    lined, stepped = by.get("strided with whole lines", []), by.get("stepped", [])
    rivals = [one for one in timed if of_rivals(one) is not None]
    found = bar(
        "rivals: ours as fast (0.97) in 99 %, never below 0.85",
        rivals,
        of_rivals,
        lambda v: v >= 0.97,
        0.99,
        lambda v: v < 0.85,
    )
    if any(one["rival_bytes"] < one["bytes"] for one in rivals):
        shares = [of_rivals_by_bytes(one) for one in rivals]
        met, beside = (sum(map(good, shares)) for good in (lambda v: v >= 0.97, lambda v: v < 0.85))
        found.append(f"    by bytes moved: {met} of {len(rivals)}; beside the limit {beside}")
    for title, cases, least, share, limit in (
        ("contiguous: 95 % above 0.75 of a copy, none below 0.5", plain, 0.75, 0.95, 0.5),
        ("strided with whole lines: none below 0.5 of a copy", lined, 0.5, 1.0, 0.5),
        ("stepped: 0.6 of a copy of the lines touched", stepped, 0.6, 0.95, 0.3),
    ):
        found += bar(title, cases, of_copy, lambda v, least=least: v >= least, share, lambda v, limit=limit: v < limit)
        found.append(f"    geometric mean {mean(map(of_copy, cases)):.2f}")
    return found + bar(
        "small: copy + 2.5 us in 95 %, none above copy + 8 us",
        small,
        behind_copy,
        lambda v: v <= 2.5,
        0.95,
        lambda v: v > 8,
    )


def row(found: dict) -> str:
    """A case in one line."""
    rivals = ", ".join(f"{name} {us:.1f}" for name, us in found["times"].items() if name not in ("cutesync", "copy"))
    times = found["times"]
    return f"{of_copy(found):5.2f} {times['cutesync']:9.1f} us, copy {times['copy']:.1f}, {rivals}  {found['name']}"


def lines(summary: dict, records: list[dict]) -> list[str]:
    """The report."""
    by_type = summary["kernels by type"]
    found = [
        f"{summary['family']}, seed {summary['seed']}: {summary['drawn']} drawn, {len(summary['refused'])} refused; "
        f"{summary['kernels']} kernels, at most {max(by_type.values(), default=0)} of a type; "
        f"a plan takes {summary['planning_us']:.0f} us, 95 % of them up to {summary['planning_us_95']:.0f}"
    ]
    found += [f"    refused: {text}" for text in sorted(set(summary["refused"].values()))[:5]]
    if not records:
        return found
    found.append(
        f"compiled {summary['compiled']} kernels in {summary['compile_s']:.0f} s; {len(summary['failed'])} failed"
    )
    found += [f"    {text}" for text in summary["failed"][:5]]
    wrong = [one for one in records if one["right"] is False]
    troubled = [one for one in records if one["right"] is None]
    found.append(f"{len(records)} cases ran: {len(wrong)} wrong, {len(troubled)} failed")
    found += [f"    wrong: {one['name']}" for one in wrong[:WORST]]
    found += [f"    failed: {one['name']}: {one['troubles']}" for one in troubled[:5]]
    timed = [one for one in records if {"cutesync", "copy"} <= set(one["times"])]
    found.append("class: cases, geometric means of the copy's rate and of the rivals' times over ours")
    for kind, each in classes(timed).items():
        rivals = [value for value in map(of_rivals, each) if value is not None]
        found.append(f"    {kind}: {len(each)}, {mean(map(of_copy, each)):.2f}, {mean(rivals):.2f}")
    large = [one for one in timed if floor(one) >= SMALL_US]
    found.append("the worst large ones, then the worst small ones")
    found += [f"    {row(one)}" for one in sorted(large, key=of_copy)[:WORST]]
    found += [
        f"    {row(one)}"
        for one in sorted((one for one in timed if one not in large), key=behind_copy)[: -WORST // 2 : -1]
    ]
    return found + bars(timed)
