"""Write the tables of the READMEs from the newest results of each family.

    python perf/readme.py [--check]

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->`` in README.md, perf/README.md or the README.md of a
folder of the package. NAME is a family, or ``summary`` (some cases of every family), ``graphs`` (small arrays of
several families), ``cycles`` (barriers) or ``launch`` (time on the host). With ``--check`` nothing is written, and it
exits with 1 if a table is not what the results say.
"""

from __future__ import annotations

import re
import statistics
from fnmatch import fnmatchcase
from pathlib import Path

import script
from report import OURS, RESULTS, digits

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "perf" / "README.md", *sorted(ROOT.glob("cutesync/*/README.md")))
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
POWER = re.compile(r"\b2\^(\d+)")

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
SUMMARY = {
    "reduce": ("sum float32 2^28", "sum float32 (2^24, 16) axis 1"),
    "scan": (
        "sum float32 2^28",
        "sum float32 2^20",
        "forward fill (Python) int32 2^28",
        "sum float32 (2^20, 64) axis 0",
    ),
    "flags": ("heads int32 to uint8 2^28",),
    "matmul": (
        "4096^3 bfloat16 NT",
        "8192x8192x4096 bfloat16 NT bias gelu",
        "4097x4095x4099 bfloat16 NT",
        "16x6144x4096 bfloat16 NT",
        "8192^3 float8_e4m3fn NT fast",
    ),
}  # of the table in README.md: what is behind included
NOT_SHOWN = {"reduce": ("sum int64 2^28", "sum float64 2^28")}
NAMES = {"cub": "CUB", "cupy": "CuPy", "compute": "cuda.compute", "quack": "QuACK", "copy": "copy of as much"}
LAUNCH_NAMES = {
    "cutesync on DeviceArray": "cs.reduce(x, out=o) on DeviceArray",
    "cutesync on torch tensors": "cs.reduce(x, out=o) on torch tensors",
}
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
    paths = RESULTS.glob(f"{family}-*-????-??-??.json")
    found = [path for path in sorted(paths) if not loaded(path).get("left_out")]  # none of a run that was cut
    if not found:
        raise FileNotFoundError(f"no results of {family} under {RESULTS}")
    return max(found, key=lambda path: loaded(path)["date"])


def loaded(path: Path) -> dict:
    with script.reading(path) as report:
        return dict(report)


def escaped(name: str) -> str:
    """2^k as Markdown shows it as 2**k."""
    return POWER.sub(r"2\\*\\*\1", name)


def shown(family: str, name: str) -> bool:
    """Whether a case is a row of the table."""
    return any(fnmatchcase(name, pattern) for pattern in ROWS.get(family, ("*",))) and not any(
        fnmatchcase(name, p) for p in NOT_SHOWN.get(family, ())
    )


def table(name: str) -> str:
    """A table as Markdown, its source first."""
    if name in MAKERS:
        families, make = MAKERS[name]
        found = [newest(family) for family in families]
        return markdown(
            f"{', '.join(f'`perf/results/{path.name}`' for path in found)}.", *make(*(loaded(path) for path in found))
        )
    path = newest(name)
    report = loaded(path)
    versions = ", ".join(
        f"{title} {report['versions'][package]}"
        for package, title in VERSIONS[-1 if name == "limits" else 0 :]
        if package in report["versions"]
    )
    copy = (
        f"; a copy of 1 GiB moves {report['copy_bytes_per_us'] / 1e6:.2f} TB/s" if "copy_bytes_per_us" in report else ""
    )
    cases = [case for case in report["cases"] if shown(name, case["name"])]
    if name == "limits":
        heads, rows = shares(cases)
    elif name == "patterns":
        heads, rows = HEADS, [compared(case, case["name"]) for case in cases]
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


HEADS = ["", "microseconds", "rate", "of the floor", "time of others over ours"]


def compared(case: dict, title: str) -> list[str]:
    """One row of a table that fits cases of any family: time, rate, and the others' times over ours."""
    times = case["measures"][SUSTAINED if case["flops"] else "event"]
    ours = times[OURS]["median_us"]
    of_floor = case["floor_us"] / ours
    moved = f"{case['bytes'] / ours / 1e6:.2f} TB/s"
    others = ", ".join(
        f"{NAMES.get(name, name)} {numbers['median_us'] / ours:.2f}"
        for name, numbers in times.items()
        if name not in (*NOT_RIVALS, "copy")
    )
    return [
        escaped(title),
        f"**{digits(ours)}**",
        f"{case['flops'] / ours / 1e6:.0f} TFLOP/s" if case["flops"] else moved,
        f"{of_floor:.2f}" if not case["flops"] or of_floor > MEMORY_BOUND else "-",
        others or "-",
    ]


def summary(*reports: dict) -> tuple[list[str], list[list[str]]]:
    """Some cases of every family."""
    rows = []
    for report in reports:
        cases = {case["name"]: case for case in report["cases"]}
        family = report["family"]
        rows += [compared(cases[name], f"{family}: {name}") for name in SUMMARY[family]]
    return HEADS, rows


def cycles(report: dict) -> tuple[list[str], list[list[str]]]:
    rows = [
        [row["name"], f"{row['cycles']:.1f}", f"{row['over sync_threads']:.2f}" if "over sync_threads" in row else "-"]
        for row in report["figures"]
    ]
    return ["", "cycles", "over sync_threads"], rows


def launch(report: dict) -> tuple[list[str], list[list[str]]]:
    """Microseconds of a call on the host, and of the first call of a process."""
    calls = sorted(report["host_us"].items(), key=lambda item: item[1]["median_us"])
    rows = [[f"`{LAUNCH_NAMES.get(name, name)}`", f"{digits(numbers['median_us'])} us"] for name, numbers in calls]
    for state, words in (("warm", "with the kernel on disk"), ("cold", "with an empty cache")):
        seconds = statistics.median_high(report["first_call_s"][state])
        rows.append([f"first call of a process, {words}", f"{seconds:.3f} s"])
    return ["", "time"], rows


def graphs(*reports: dict) -> tuple[list[str], list[list[str]]]:
    """Microseconds a call, of calls that follow one another in a graph, on data that no cache holds."""
    chosen = [
        (report["family"], case)
        for report in reports
        for case in report["cases"]
        if "graph" in case["measures"] and any(fnmatchcase(case["name"], p) for p in GRAPHS[report["family"]])
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


MAKERS = {
    "summary": (tuple(SUMMARY), summary),
    "graphs": (tuple(GRAPHS), graphs),
    "cycles": (("patterns",), cycles),
    "launch": (("launch",), launch),
}


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
    """A page's text with every table made anew."""
    return BLOCK.sub(lambda match: match[1] + table(match[2]) + match[3], text)


def main(argv=None) -> int:
    parser = script.parser(__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a table is not what the results say"
    )
    chosen = parser.parse_args(argv)
    before = {page: page.read_text(encoding="utf-8") for page in PAGES if page.exists()}
    changed = {page: after for page, text in before.items() if (after := written(text)) != text}
    if chosen.check:
        names = ", ".join(str(page.relative_to(ROOT)) for page in changed)
        print(f"not what the results say: {names}; run python perf/readme.py" if names else "as the results say")
        return int(bool(changed))
    for page, text in changed.items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    script.run(main)
