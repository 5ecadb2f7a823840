"""Draw a schedule that ``cs.emulate(trace="run.json")`` wrote: warps, barrier phases and copies of one block over time.

    python perf/trace.py run.json [--block N] [--out FILE.png]

Time is the emulator's step count: it orders events and says nothing about speed. The whole file opens at
ui.perfetto.dev.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import script

WAIT, RUN, PHASE, COPY, TENSOR = "#d9c27a", "#4c78a8", "#72b7b2", "#e45756", "#8e6bb0"


def tracks(events: list[dict], process: int) -> list[tuple[str, list[dict]]]:
    """``(name, spans)`` of a process's tracks: warps, then barriers, then what was in flight."""
    names = {
        e["tid"]: e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["name"] == "thread_name" and e["pid"] == process
    }
    return [
        (names[track], [e for e in events if e["ph"] == "X" and e["pid"] == process and e["tid"] == track])
        for track in sorted(names)
    ]


def colour(track: str, span: dict) -> str:
    if track.startswith("warp"):
        return RUN if "at" in span["args"] else WAIT
    if track.startswith("mbarrier"):
        return PHASE
    return TENSOR if span["name"].startswith("wgmma") else COPY


def draw(events: list[dict], block: int, out: Path) -> None:
    processes = sorted({e["pid"] for e in events})
    if not 0 <= block < len(processes):
        sys.exit(f"trace.py: got --block {block}; needs one of its {len(processes)} blocks, from 0")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    rows = tracks(events, processes[block])
    figure, axes = plt.subplots(figsize=(14, 0.34 * len(rows) + 1.3))
    for y, (name, spans) in enumerate(rows):
        for span in spans:
            axes.barh(
                y, span["dur"], left=span["ts"], height=0.8, color=colour(name, span), edgecolor="white", linewidth=0.4
            )
            if name.startswith("mbarrier") and span["dur"] > 30:
                axes.text(
                    span["ts"] + span["dur"] / 2, y, span["name"], ha="center", va="center", fontsize=6, clip_on=True
                )
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("steps of the emulator")
    title = next(
        e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["name"] == "process_name" and e["pid"] == processes[block]
    )
    axes.set_title(re.sub(r"(\w{30})\w+", r"\1...", title), fontsize=10)
    legend = (
        ("runs", RUN),
        ("waits", WAIT),
        ("phase of a barrier", PHASE),
        ("copy in flight", COPY),
        ("tensor cores at work", TENSOR),
    )
    axes.legend(
        handles=[Patch(color=c, label=text) for text, c in legend],
        ncols=5,
        fontsize=8,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.6 / len(rows) - 0.08),
    )
    figure.savefig(out, dpi=130, bbox_inches="tight")
    print(out)


def main(argv=None) -> None:
    parser = script.parser(__doc__)
    parser.add_argument("file", type=Path, help="what cs.emulate(trace=...) wrote")
    parser.add_argument("--block", type=int, default=0, help="which block of which launch, counted over the file")
    parser.add_argument("--out", type=script.output, help="the PNG (default: beside the file)")
    options = parser.parse_args(argv)
    with script.reading(options.file) as trace:
        draw(trace["traceEvents"], options.block, options.out or options.file.with_suffix(".png"))


if __name__ == "__main__":
    script.run(main)
