"""What a sweep found, as a table and as JSON: one entry a case, with times, rates, the floor and the bars.

python perf/report.py perf/results/FILE.json        prints the table of an earlier run
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import script

RESULTS = Path(__file__).parent / "results"
OURS = "cutesync"


def result_path(family: str, gpu_name: str, date: str, suffix: str = "") -> Path:
    """``perf/results/<family>-<gpu>-<date>.json``."""
    gpu = gpu_name.lower().replace("nvidia ", "").replace(" ", "-")
    return RESULTS / f"{family}-{gpu}-{date}{suffix}.json"


def write(report: dict, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def entry(case, measured: dict, checks: dict, troubles: dict, clocks: dict, copy_rate: float) -> dict:
    """The record of one case. ``measured`` is measure -> contestant -> summary; ``copy_rate`` is in bytes a microsecond."""
    floor = case.bytes / copy_rate
    return {
        "group": case.group,
        "name": case.name,
        "op": case.op,
        "dtype": case.dtype,
        "shape": case.inputs[0][0],
        "axis": case.axis,
        "offset": case.offset,
        "size": case.size,
        "bytes": case.bytes,
        "flops": case.flops,
        "floor_us": floor,
        "measures": measured,
        "checks": checks,
        "troubles": troubles,
        "clocks": clocks,
        "bars": [bar_result(bar, case, measured, checks, floor) for bar in case.bars],
    }


def bar_result(bar, case, measured: dict, checks: dict, floor: float) -> dict:
    """Whether a bar is met: True, False, or None where the rival did not run. A wrong result meets no bar."""
    times = {name: numbers["median_us"] for name, numbers in measured.get(bar.measure, {}).items()}
    times["floor"] = floor
    readers = [times[name] for name in times if name not in ("copy", "floor") and checks.get(name, {}).get("ok", True)]
    if bar.against == "read" and readers:
        times["read"] = min(readers)
    value, met = None, None
    if OURS in times and bar.against in times:
        value, met = bar.judge(times[OURS], times[bar.against])
        met = met and checks.get(OURS, {}).get("ok", False)
    return {
        "text": bar.text,
        "measure": bar.measure,
        "against": bar.against,
        "of": bar.of,
        "limit": bar.limit,
        "value": value,
        "met": met,
    }


def group_results(report: dict, bars) -> list[dict]:
    """Bars on the geometric mean of a group's (rival's time / ours); ``bars`` are (group, rival, least mean, measure)."""
    found = []
    for group, rival, limit, measure in bars:
        cases = [case for case in report["cases"] if case["group"] == group]
        times = [case["measures"].get(measure, {}) for case in cases]
        whole = cases and all(OURS in one and rival in one for one in times)
        value = (
            statistics.geometric_mean(one[rival]["median_us"] / one[OURS]["median_us"] for one in times)
            if whole
            else None
        )
        found.append(
            {
                "text": f"geometric mean of {rival} / {OURS} over {group} >= {limit:.2f}",
                "measure": measure,
                "value": value,
                "met": None if value is None else value >= limit,
            }
        )
    return found


def microseconds(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.1f}"


def lines(found: dict) -> list[str]:
    """The table rows of one case: ours with its spread, its rate and its share of the floor, then every other time over ours."""
    rows = []
    for measure, times in found["measures"].items():
        ours = times.get(OURS)
        if ours is None:
            continue
        median = ours["median_us"]
        spread = f"[{microseconds(ours['p5_us'])} {microseconds(ours['p95_us'])}]"
        row = f"{found['name']:<38} {measure:<9} {microseconds(median):>8} {spread:<19} {found['bytes'] / median / 1e6:>5.2f}"
        row += f" {found['floor_us'] / median:>5.2f} |"
        for name, numbers in times.items():
            if name != OURS:
                wrong = "" if found["checks"].get(name, {}).get("ok", True) else "!"
                dry = "~" if numbers["starved"] else ""
                row += (
                    f" {name}{wrong} {microseconds(numbers['median_us'])}{dry} ({numbers['median_us'] / median:.2f}x)"
                )
        rows.append(row)
    check = found["checks"].get(OURS)
    if check is None or not check["ok"]:
        rows.append(f"{found['name']:<38} WRONG: error {check['error'] if check else 'unknown: did not run'}")
    rows += [f"{'':<38} {name}: {reason}" for name, reason in found["troubles"].items()]
    if found["bars"]:
        rows.append(f"{'':<38} {'; '.join(map(verdict, found['bars']))}")
    return rows


def verdict(bar: dict) -> str:
    word = {True: "met", False: "MISSED", None: "not measured"}[bar["met"]]
    value = "" if bar["value"] is None else f": {bar['value']:.3f}"
    measure = f"{bar['measure']}, " if "measure" in bar else ""
    return f"{word} {measure}{bar['text']}{value}"


def figure(found: dict) -> str:
    """The row of a figure that is no case: cycles, what they are in terms of another, and its bar."""
    over = [f"{value:.2f} {what}" for what, value in found.items() if what.startswith("over ")]
    return "; ".join(
        [
            f"{found['name']:<60} {found['cycles']:>8.1f} cycles",
            *over,
            *([verdict(found["bar"])] if "bar" in found else []),
        ]
    )


HEADER = (
    f"{'case':<38} {'measure':<9} {'us':>8} {'[5 % 95 %]':<19} {'TB/s':>5} {'floor':>5} | others in us (their time over ours); "
    "! error beyond what is allowed, ~ host too slow"
)


def ending(report: dict) -> list[str]:
    """The last lines: the bars that are not met, by case, and what was wrong or could not run."""
    bars = [bar for found in report["cases"] for bar in found["bars"]]
    met, missed = (sum(bar["met"] is value for bar in bars) for value in (True, False))
    rows = [f"bars: {met} met, {missed} missed, {len(bars) - met - missed} not measured"]
    for found in report["cases"]:
        short = [verdict(bar) for bar in found["bars"] if bar["met"] is not True]
        rows += [f"  {found['name']}: {'; '.join(short)}"] if short else []
    rows += [f"  {verdict(bar)}" for bar in report.get("group_bars", ())]
    wrong = [found["name"] for found in report["cases"] if not found["checks"].get(OURS, {}).get("ok", False)]
    rows.append(f"wrong or failed results of {OURS}: {', '.join(wrong) if wrong else 'none'}")
    rows += [f"failed case {name}: {reason}" for name, reason in report["failures"].items()]
    return rows


def main(argv=None) -> None:
    parser = script.parser(__doc__)
    parser.add_argument("json", type=Path, nargs="+", help="results of sweep.py")
    for path in parser.parse_args(argv).json:
        with script.reading(path) as earlier:
            print(
                HEADER,
                *(row for found in earlier["cases"] for row in lines(found)),
                *map(figure, earlier.get("figures", [])),
                *ending(earlier),
                sep="\n",
            )


if __name__ == "__main__":
    script.run(main)
