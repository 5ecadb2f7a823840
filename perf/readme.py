"""Write the tables of README.md from the newest results of each family, between ``<!-- table: family -->`` and ``<!-- end -->``.

    python perf/readme.py [--check]

With ``--check`` nothing is written, and it exits with 1 if README.md is not what the results say.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import script
from report import OURS, RESULTS

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
POWER = re.compile(r"2\^(\d+)")

# Which cases a table shows, by name; those of a family that is not named here are shown whole.
ROWS = {
    "reduce": (
        "sum * 2^28",
        "sum float64 2^27",
        *(f"sum float32 2^{k}" for k in (12, 16, 18, 20, 22, 24)),
        "sum by a lambda float32 *",
        "argmax *",
        "sum of squares *",
        "sum float32 (*",
        "sum float32 2^28 off by 1",
        "sum int8 2^32+7",
    ),
    "flags": (
        "heads int* to uint8 2^28",
        "heads float32 to uint8 2^28",
        *(f"heads int32 to uint8 2^{k}" for k in (12, 16, 20, 24)),
        "tails *",
        "both *",
        "heads int32 to int32 *",
        "heads * to bits *",
        "lambda * 2^28",
        "difference *",
        "tile *",
        "heads int32 to uint8 2^16 x 2^12",
        "heads int8 to uint8 *+*",
    ),
    "scan": (
        "sum * 2^28",
        "sum * 2^27",
        *(f"sum float32 2^{k}" for k in (12, 16, 20, 22, 24)),
        "exclusive *",
        "reverse *",
        "max float32 *",
        "sum by a lambda float32 *",
        "forward fill *",
        "sum float32 (*",
        "sum float32 2^28 off by 1",
        "sum int8 2^31+5",
    ),
}
GRAPHS = {
    "reduce": ("sum float32 2^??",),
    "scan": ("sum float32 2^??",),
    "flags": ("heads int32 to uint8 2^??",),
}  # of the table of calls in a graph
NOT_SHOWN = {"reduce": ("sum int64 2^28", "sum float64 2^28")}
NAMES = {"cub": "CUB", "cupy": "CuPy", "compute": "cuda.compute", "quack": "QuACK", "copy": "copy of as much"}
NOT_RIVALS = (OURS, "read", "plain", "aligned")
SUSTAINED = "graph hot"
MEMORY_BOUND = 0.5  # a product that moves its bytes at more than this share of the copy rate also says so
VERSIONS = (
    ("torch", "torch"),
    ("cupy-cuda13x", "CuPy"),
    ("cupy-cuda12x", "CuPy"),
    ("cuda-cccl", "cuda-cccl"),
    ("quack-kernels", "QuACK"),
    ("nvidia-cutlass-dsl", "DSL"),
)


def newest(family: str) -> Path:
    found = sorted(path for path in RESULTS.glob(f"{family}-*-????-??-??.json"))
    if not found:
        raise FileNotFoundError(f"no results of {family} under {RESULTS}")
    return max(found, key=lambda path: loaded(path)["date"])


def loaded(path: Path) -> dict:
    with script.reading(path) as report:
        return dict(report)


def digits(value: float) -> str:
    """Four significant digits, never as a power of ten."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def escaped(name: str) -> str:
    """2^k as Markdown shows it as 2**k."""
    return POWER.sub(r"2\\*\\*\1", name)


def shown(family: str, name: str) -> bool:
    """Whether a case is a row of the table."""
    return any(fnmatchcase(name, pattern) for pattern in ROWS.get(family, ("*",))) and not any(
        fnmatchcase(name, p) for p in NOT_SHOWN.get(family, ())
    )


def table(family: str) -> str:
    """The newest results of a family as Markdown; of ``graphs``, the small arrays of several families."""
    if family == "graphs":
        heads, rows = graphs()
        return markdown(f"{', '.join(f'`perf/results/{newest(part).name}`' for part in GRAPHS)}.", heads, rows)
    path = newest(family)
    report = loaded(path)
    versions = ", ".join(
        f"{name} {report['versions'][package]}"
        for package, name in VERSIONS[-1 if family == "limits" else 0 :]
        if package in report["versions"]
    )
    copy = (
        f"; a copy of 1 GiB moves {report['copy_bytes_per_us'] / 1e6:.2f} TB/s" if "copy_bytes_per_us" in report else ""
    )
    cases = [case for case in report["cases"] if shown(family, case["name"])]
    if family == "limits":
        heads, rows = shares(cases)
    elif all(case["flops"] and SUSTAINED in case["measures"] for case in cases):
        heads, rows = products(cases)
    else:
        heads, rows = calls(cases)
    return markdown(f"`perf/results/{path.name}`: {report['gpu']}, {versions}{copy}.", heads, rows)


def markdown(source: str, heads: list[str], rows: list[list[str]]) -> str:
    lines = [
        source,
        "",
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def graphs() -> tuple[list[str], list[list[str]]]:
    """Microseconds a call, of calls that follow one another in a graph, on data that no cache holds."""
    cases = {family: loaded(newest(family))["cases"] for family in GRAPHS}
    chosen = [
        (family, case)
        for family in GRAPHS
        for case in cases[family]
        if "graph" in case["measures"] and any(fnmatchcase(case["name"], p) for p in GRAPHS[family])
    ]
    others = rivals([case for _, case in chosen], "graph")
    rows = []
    for family, case in chosen:
        times = case["measures"]["graph"]
        rows.append(
            [
                f"{family}: {escaped(case['name'])}",
                f"**{digits(times[OURS]['median_us'])}**",
                *(digits(times[name]["median_us"]) if name in times else "-" for name in others),
            ]
        )
    return ["microseconds a call", "cutesync", *(NAMES.get(name, name) for name in others)], rows


def rivals(cases: list[dict], measure: str) -> list[str]:
    return list(
        dict.fromkeys(name for case in cases for name in case["measures"].get(measure, {}) if name not in NOT_RIVALS)
    )


def calls(cases: list[dict]) -> tuple[list[str], list[list[str]]]:
    """Microseconds of one call, ours and everyone's."""
    others, rows = rivals(cases, "event"), []
    for case in cases:
        times = case["measures"].get("event", {})
        ours = times[OURS]["median_us"]
        row = [
            escaped(case["name"]),
            f"**{digits(ours)}**",
            f"{case['bytes'] / ours / 1e6:.2f}",
            f"{case['floor_us'] / ours:.2f}",
        ]
        rows.append(row + [digits(times[name]["median_us"]) if name in times else "-" for name in others])
    return [
        "microseconds a call",
        "cutesync",
        "TB/s",
        "of the floor",
        *(NAMES.get(name, name) for name in others),
    ], rows


def products(cases: list[dict]) -> tuple[list[str], list[list[str]]]:
    """Of calls back to back: microseconds and TFLOP/s of ours, and the times of the others over ours."""
    others, rows = rivals(cases, SUSTAINED), []
    for case in cases:
        times = case["measures"][SUSTAINED]
        ours = times[OURS]["median_us"]
        of_copy = case["floor_us"] / ours
        row = [
            case["name"],
            digits(ours),
            f"**{case['flops'] / ours / 1e6:.0f}**"
            + (f", {of_copy:.2f} of the copy rate" if of_copy > MEMORY_BOUND else ""),
        ]
        rows.append(row + [f"{times[name]['median_us'] / ours:.2f}" if name in times else "-" for name in others])
    return ["product", "microseconds", "TFLOP/s", *(f"{NAMES.get(name, name)} / ours" for name in others)], rows


def shares(cases: list[dict]) -> tuple[list[str], list[list[str]]]:
    """Where the time of a product goes, in per cent, and what limits it."""
    rows = []
    for case in cases:
        part, busy, config = case["shares"], case["busy"], case["config"]
        tile = "x".join(map(str, config["tile"])) + f" {config['schedule']}"
        tile += "".join(
            f", {word} {value}"
            for word, value, usual in (
                ("cluster", "x".join(map(str, config["cluster"])), "1x1"),
                ("K in", config["splits"], 1),
            )
            if value != usual
        )
        columns = (("tensor",), ("clock",), ("waves", "edges"), ("start", "epilogue"), ("loop", "packing"))
        percent = [f"{100 * sum(part[name] for name in names):.0f}" for names in columns]
        rows.append(
            [
                case["name"],
                f"**{case['tflops']:.0f}**",
                f"{case['ghz']:.2f}",
                tile,
                *percent,
                *(f"{busy[name]:.0f}" if name in busy else "-" for name in ("dram", "l2")),
                case["limit"],
            ]
        )
    return [
        "product",
        "TFLOP/s",
        "GHz",
        "tile",
        "tensor %",
        "clock %",
        "waves, edges %",
        "start, epilogue %",
        "loop, packing %",
        "DRAM busy %",
        "L2 busy %",
        "limited by",
    ], rows


def written(text: str) -> str:
    """README's text with every table made anew."""
    return BLOCK.sub(lambda match: match[1] + table(match[2]) + match[3], text)


def main(argv=None) -> int:
    parser = script.parser(__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if README.md is not what the results say"
    )
    chosen = parser.parse_args(argv)
    before = README.read_text(encoding="utf-8")
    after = written(before)
    if chosen.check:
        print(
            "README.md says what the results say"
            if after == before
            else "README.md is not what the results say: run python perf/readme.py"
        )
        return int(after != before)
    README.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    script.run(main)
