"""Draw the results of a sweep or of launch.py as PNG files (needs matplotlib: ``pip install 'cutesync[bench]'``).

    python perf/plot.py perf/results/FILE.json [--out FOLDER]

They lie beside the JSON file. From a sweep: ``FILE.png`` (one panel a dtype: time against size with the rivals and the
floor, the rate below it; of products, the TFLOP/s of each) and ``FILE-bars.png`` (what was reached of every bar; 1 is
the bar, longer is better). From launch.py: ``FILE.png``, the cost of a call.
"""

from __future__ import annotations

from pathlib import Path

import script

OURS = "cutesync"
COLOURS = {
    OURS: "tab:red",
    "cub": "tab:green",
    "torch": "tab:orange",
    "cupy": "tab:blue",
    "compute": "tab:purple",
    "quack": "tab:blue",
    "copy": "tab:gray",
    "read": "black",
}
SUSTAINED = "graph hot"
BAR_COLOURS = {True: "tab:green", False: "tab:red", None: "lightgray"}


def caption(report: dict) -> str:
    return f"{report['gpu']}, driver {report['clocks'].get('driver_version', '?')}, {report['date'][:10]}"


def curves(cases: list[dict], measure: str) -> dict[str, list[tuple[int, float, int]]]:
    """Contestant -> (size, median microseconds, bytes), by size. Sizes timed only as single calls use those times."""
    found: dict[str, list] = {}
    for case in sorted(cases, key=lambda case: case["size"]):
        times = case["measures"].get(measure) or case["measures"]["event"]
        for name, numbers in times.items():
            found.setdefault(name, []).append((case["size"], numbers["median_us"], case["bytes"]))
    return found


def draw_sizes(report: dict, plt, path: Path, group: str, measure: str) -> bool:
    """Time and rate against size, one column a dtype. False if the sweep holds no such cases."""
    cases = [case for case in report["cases"] if case["group"] == group]
    sizes_of = {
        dtype: {case["size"] for case in cases if case["dtype"] == dtype}
        for dtype in dict.fromkeys(case["dtype"] for case in cases)
    }
    dtypes = [dtype for dtype, sizes in sizes_of.items() if len(sizes) > 1] or list(
        sizes_of
    )  # a curve needs two points
    if not dtypes:
        return False
    figure, axes = plt.subplots(
        2, len(dtypes), figsize=(4.2 * len(dtypes), 7.5), squeeze=False, sharex="col", sharey="row"
    )
    for column, dtype in enumerate(dtypes):
        above, below = axes[:, column]
        chosen = sorted((case for case in cases if case["dtype"] == dtype), key=lambda case: case["size"])
        for name, points in curves(chosen, measure).items():
            sizes, times, moved = zip(*points, strict=True)
            style = {
                "color": COLOURS.get(name),
                "label": name,
                "marker": "o",
                "markersize": 3,
                "linewidth": 2.2 if name == OURS else 1.1,
                "linestyle": "--" if name in ("copy", "read") else "-",
                "zorder": 3 if name == OURS else 2,
            }
            above.plot(sizes, times, **style)
            below.plot(sizes, [nbytes / time / 1e6 for nbytes, time in zip(moved, times, strict=True)], **style)
        above.plot(
            [case["size"] for case in chosen],
            [case["floor_us"] for case in chosen],
            color="black",
            linestyle=":",
            linewidth=1,
            label="floor (bytes / copy rate)",
        )
        below.axhline(report["copy_bytes_per_us"] / 1e6, color="black", linestyle=":", linewidth=1)
        above.set_xscale("log", base=2)
        above.set(title=dtype, yscale="log")
        below.set_xlabel("elements")
        for axis in (above, below):
            axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("microseconds a call")
    axes[1, 0].set_ylabel("TB/s")
    fastest = min(
        case["measures"][m][OURS]["median_us"]
        for case in cases
        for m in case["measures"]
        if OURS in case["measures"][m]
    )
    axes[0, 0].set_ylim(bottom=0.4 * fastest)
    axes[0, 0].legend(fontsize=8)
    figure.suptitle(
        f"{report['family']} ({group}), per call in a {measure}, large sizes as single calls: {caption(report)}"
    )
    save(figure, plt, path)
    return True


def draw_products(report: dict, plt, path: Path) -> None:
    """TFLOP/s of every product, ours and the rivals', of calls back to back."""
    cases = report["cases"][::-1]
    names = list(dict.fromkeys(name for case in cases for name in case["measures"][SUSTAINED]))
    figure, axis = plt.subplots(figsize=(9, 1 + 0.3 * len(cases)))
    for i, name in enumerate(names):
        found = [
            (at, case["flops"] / case["measures"][SUSTAINED][name]["median_us"] / 1e6)
            for at, case in enumerate(cases)
            if name in case["measures"][SUSTAINED]
        ]
        places, rates = zip(*found, strict=True)
        axis.barh(
            [at + 0.27 * (len(names) / 2 - i - 0.5) for at in places],
            rates,
            height=0.27,
            color=COLOURS.get(name),
            label=name,
        )
    axis.set_yticks(range(len(cases)), [case["name"] for case in cases], fontsize=7)
    axis.set_xlabel("TFLOP/s")
    axis.margins(y=0.01)
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize=8)
    axis.set_title(f"{report['family']}, calls back to back: {caption(report)}", fontsize=9)
    save(figure, plt, path)


def shares(report: dict) -> list[tuple[str, float | None, bool | None]]:
    """Label, share of the bar (1: exactly met), and whether it is met, of every bar of a sweep."""
    found = []
    for case in report["cases"]:
        for bar in case["bars"]:
            share = None
            if bar["value"]:
                share = bar["limit"] / bar["value"] if bar["of"] == "time" else bar["value"] / bar["limit"]
            found.append((f"{case['name']}, {bar['measure']}: {bar['text']}", share, bar["met"]))
    return found


def draw_bars(report: dict, plt, path: Path) -> bool:
    found = shares(report)[::-1]
    if not found:
        return False
    figure, axis = plt.subplots(figsize=(11, 1.2 + 0.24 * len(found)))
    axis.barh(range(len(found)), [share or 0 for _, share, _ in found], color=[BAR_COLOURS[met] for *_, met in found])
    axis.set_yticks(range(len(found)), [label for label, *_ in found], fontsize=7)
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set(
        xlabel="reached, as a share of the bar", xlim=(0, min(3.0, max([1.2, *(share or 0 for _, share, _ in found)])))
    )
    axis.margins(y=0.01)
    met = sum(value is True for *_, value in found)
    axis.set_title(
        f"{report['family']}: {met} of {len(found)} bars met (gray: not measured), {caption(report)}", fontsize=9
    )
    save(figure, plt, path)
    return True


def draw_launch(report: dict, plt, path: Path) -> None:
    found = sorted(report["host_us"].items(), key=lambda item: -item[1]["median_us"])
    figure, axis = plt.subplots(figsize=(8, 1 + 0.4 * len(found)))
    medians = [numbers["median_us"] for _, numbers in found]
    places = axis.barh(
        [name for name, _ in found], medians, color=["tab:red" if OURS in name else "tab:gray" for name, _ in found]
    )
    axis.bar_label(places, [f"{value:.1f}" for value in medians], padding=3, fontsize=8)
    axis.set(xlabel="microseconds of host time a call")
    axis.set_title(caption(report), fontsize=9)
    save(figure, plt, path)


def save(figure, plt, path: Path) -> None:
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
    print(path)


def main(argv=None) -> None:
    parser = script.parser(__doc__)
    parser.add_argument("json", type=Path, nargs="+", help="results of sweep.py or launch.py")
    parser.add_argument("--out", type=Path, help="folder of the PNG files (default: beside the JSON)")
    chosen = parser.parse_args(argv)
    for source in chosen.json:
        folder = chosen.out or source.parent
        with script.reading(source) as report:
            draw(report, folder / f"{source.stem}.png", folder / f"{source.stem}-bars.png")


def draw(report: dict, path: Path, bars: Path) -> None:
    """The plots of one report."""
    family, cases = report["family"], report.get("cases", [])
    caption(report)  # a report that lacks what a caption says has no plots
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    if family == "launch":
        draw_launch(report, plt, path)
        return
    if all(case["flops"] for case in cases):
        draw_products(report, plt, path)
    else:
        draw_sizes(report, plt, path, cases[0]["group"], "graph")
    draw_bars(report, plt, bars)


if __name__ == "__main__":
    script.run(main)
