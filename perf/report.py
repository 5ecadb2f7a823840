"""What a sweep found, as a table and as JSON: one entry a case, with times, rates, the floor and the bars.

python perf/report.py [--bars] perf/results/FILE.json        prints the table of an earlier run
"""

from __future__ import annotations

import json
import statistics
import textwrap
from pathlib import Path

import script

RESULTS = Path(__file__).parent / "results"
OURS = "cutesync"
WIDTH = 120  # columns of the table
MARGIN = 70  # of a row before the other contestants


def result_path(family: str, gpu_name: str, date: str, suffix: str = "") -> Path:
    """``perf/results/<family>-<gpu>-<date>.json``."""
    gpu = gpu_name.lower().replace("nvidia ", "").replace(" ", "-")
    return RESULTS / f"{family}-{gpu}-{date}{suffix}.json"


def write(report: dict, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def entry(case, measured: dict, checks: dict, troubles: dict, clocks: dict, copy_rate: float) -> dict:
    """The record of one case. ``measured``: measure -> contestant -> summary. ``copy_rate``: bytes a microsecond."""
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
    others = ("copy", "floor", *case.partial)
    readers = [times[name] for name in times if name not in others and checks.get(name, {}).get("ok", True)]
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
    """Bars on the geometric mean over a group of rival's time / ours; ``bars``: (group, rival, least mean, measure)."""
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


def digits(value: float) -> str:
    """Four significant digits, never as a power of ten."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def wrapped(text: str, first: str = "", margin: int = 4) -> list[str]:
    """Lines of at most WIDTH columns; those after the first are indented by ``margin``."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * margin, break_on_hyphens=False)


def lines(found: dict, bars: bool = False) -> list[str]:
    """The table rows of one case: our time, its range, rate and share of the floor, then the others over ours."""
    rows = []
    for measure, times in found["measures"].items():
        ours = times.get(OURS)
        if ours is None:
            continue
        median = ours["median_us"]
        spread = f"{(ours['p95_us'] - ours['p5_us']) / median:.0%}"
        row = f"{found['name']:<33} {measure:<9} {digits(median):>7} {spread:>4}"
        rate = f"{found['flops'] / median / 1e6:.0f}" if found["flops"] else f"{found['bytes'] / median / 1e6:.2f}"
        row += f" {rate:>4} {found['floor_us'] / median:>5.2f} | "
        others = []
        for name, numbers in times.items():
            if name == OURS:
                continue
            wrong = "" if found["checks"].get(name, {}).get("ok", True) else "!"
            dry = "~" if numbers["starved"] else ""
            others.append(f"{name}{wrong}\xa0{numbers['median_us'] / median:.2f}{dry}")
        row = wrapped(" ".join(others), row, MARGIN) or [row.rstrip()]
        rows += [line.replace("\xa0", " ") for line in row]
    check = found["checks"].get(OURS)
    if check is None or not check["ok"]:
        rows += wrapped(f"{found['name']}: WRONG: error {check['error'] if check else 'unknown: did not run'}")
    for name, reason in found["troubles"].items():
        rows += wrapped(f"{name}: {reason}", " " * 4)
    for bar in found["bars"] if bars else ():
        rows += wrapped(verdict(bar), " " * 4)
    return rows


def verdict(bar: dict) -> str:
    word = {True: "met", False: "MISSED", None: "not measured"}[bar["met"]]
    value = "" if bar["value"] is None else f": {bar['value']:.3f}"
    measure = f"{bar['measure']}, " if "measure" in bar else ""
    return f"{word} {measure}{bar['text']}{value}"


def figure(found: dict, bars: bool = False) -> list[str]:
    """The rows of a figure that is no case: cycles, what they are in terms of another, and its bar."""
    over = [f"{value:.2f} {what}" for what, value in found.items() if what.startswith("over ")]
    judged = wrapped(verdict(found["bar"]), " " * 4) if bars and "bar" in found else []
    return ["; ".join([f"{found['name']:<54} {found['cycles']:>8.1f} cycles", *over]), *judged]


HEADER = (
    f"{'case':<33} {'measure':<9} {'us':>7} {'5-95':>4} {'rate':>4} {'floor':>5} | others: their time over ours\n"
    f"{'5-95: range of times; rate: TB/s, or TFLOP/s of products':<{MARGIN - 2}}| ! wrong result, ~ host too slow"
)


def ending(report: dict, bars: bool = False) -> list[str]:
    """The last lines: what was wrong or could not run; with ``bars`` those that are not met, by case."""
    rows = []
    if bars:
        found = [bar for case in report["cases"] for bar in case["bars"]]
        met, missed = (sum(bar["met"] is value for bar in found) for value in (True, False))
        rows.append(f"bars: {met} met, {missed} missed, {len(found) - met - missed} not measured")
        for case in report["cases"]:
            short = [verdict(bar) for bar in case["bars"] if bar["met"] is not True]
            rows += wrapped(f"{case['name']}: {'; '.join(short)}", "  ") if short else []
        rows += [f"  {verdict(bar)}" for bar in report.get("group_bars", ())]
    wrong = [found["name"] for found in report["cases"] if not found["checks"].get(OURS, {}).get("ok", False)]
    rows += wrapped(f"wrong or failed results of {OURS}: {', '.join(wrong) if wrong else 'none'}")
    for name, reason in report["failures"].items():
        rows += wrapped(f"failed case {name}: {reason}")
    if report.get("left_out"):
        rows += wrapped(f"not measured: {', '.join(report['left_out'])}")
    return rows


def main(argv=None) -> None:
    parser = script.parser(__doc__)
    parser.add_argument("json", type=Path, nargs="+", help="results of sweep.py")
    parser.add_argument("--bars", action="store_true", help="also say which bars are met")
    chosen = parser.parse_args(argv)
    for path in chosen.json:
        with script.reading(path) as earlier:
            rows = [row for found in earlier["cases"] for row in lines(found, chosen.bars)]
            rows += [row for found in earlier.get("figures", []) for row in figure(found, chosen.bars)]
            print(HEADER, *rows, *ending(earlier, chosen.bars), sep="\n")


if __name__ == "__main__":
    script.run(main)
