"""``python perf/sweep.py matmul --cases random``: random products against torch, by classes and by causes.

QuACK takes part where it is installed, in products of its types without a bias: its tuner takes half a minute for the
first. ``--rivals torch`` leaves it out.

``--brute`` times many configurations of each product as well, and reports the regret of the model's choice. The fastest
are timed again beside the choice, in more rounds: the least of many times taken once is too small by their noise."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

import report as reporting
import script
from matmul_brute import compiled
from matmul_race import Race
from matmul_random import CLASSES, Random, draw
from rivals import Libraries, versions

from cutesync.kernels.matmul.policy import MatmulPolicy

QUOTAS = {"layers": 4, "eights": 4, "any": 2}  # of a round of products; 1 of the other classes
ROUND_S, BRUTE_ROUND_S = 2, 6  # a round is drawn for so many of the seconds
CONFIGURATIONS = 40
COMPILE_SHARE = {False: 0.4, True: 0.7}  # of the seconds, by --brute
AGAIN, AGAIN_ROUNDS = 3, 15  # so many of the fastest are timed again, in so many rounds
KEEP = 10  # products after which the JSON is written
BOUNDS = (0.97, 0.95, 0.9)


def products(seed: int, groups: Iterable[str], rounds: int, waves: Sequence[float] | None = None) -> list[Random]:
    """The products of some rounds: each has ``QUOTAS`` of the classes. ``waves``: only those whose ``tiles`` are
    between these."""
    least, most = waves or (0, math.inf)
    drawn = {group: (one for one in draw(group, seed) if least <= one.tiles <= most) for group in groups}
    return [next(drawn[group]) for _ in range(rounds) for group in drawn for _ in range(QUOTAS.get(group, 1))]


def short(config: MatmulPolicy) -> str:
    """A configuration as text: "128x256c 2x1 /3 T own ab" is cooperative, a cluster of 2 along M, K in 3 slices
    ("in 3": one behind the other), swap_ab, both operands loaded by the kernel's threads if TMA refuses them,
    float32 split into its parts in the kernel ("parts")."""
    (m, n), (peers_m, peers_n) = config.tile, config.cluster
    split = f" /{config.splits}" if config.splits > 1 else f" in {config.slices}" if config.slices > 1 else ""
    own = "".join(name for name, load in (("a", config.load_a), ("b", config.load_b)) if load == "own")
    swapped, loads = " T" if config.swap_ab else "", f" own {own}" if own else ""
    return f"{m}x{n}{config.schedule[0]} {peers_m}x{peers_n}{split}{swapped}{loads}{' parts' if config.parts else ''}"


def race(one: Race, product: Random, configs: list[MatmulPolicy | None]) -> dict:
    """The record of a product: microseconds of the model's choice (the first, None), of the rivals and of each other
    configuration; what is wrong."""
    buffers = one.sets(product)
    contestants = [[one.ours(product, of, config) for of in buffers] for config in configs]
    wrong = one.wrong(product, buffers[0], [calls[0] for calls in contestants])
    rivals = {"torch": [one.theirs(product, of) for of in buffers], "quack": [one.quack(product, of) for of in buffers]}
    rivals = {name: calls for name, calls in rivals.items() if calls[0] is not None}
    times = one.times(product, [*contestants, *rivals.values()])
    fastest = sorted(range(1, len(contestants)), key=times.__getitem__)[:AGAIN]
    again = one.times(product, [contestants[i] for i in (0, *fastest)], AGAIN_ROUNDS) if fastest else []
    return {
        "product": list(dataclasses.astuple(product)),
        "us": round(times[0], 3),
        "torch": None,
        **{name: round(us, 3) for name, us in zip(rivals, times[len(contestants) :])},
        "times": {short(config): round(us, 2) for config, us in zip(configs, times) if config},
        "again": [round(us, 3) for us in again],
        "wrong": wrong,
    }


def run(gpu, libraries: Callable, report: dict, keep: Callable, chosen, groups: Iterable[str]) -> None:
    """Time products into the report until the seconds have passed. ``libraries()`` imports torch, after the kernels are
    compiled."""
    begin, brute, seconds = time.monotonic(), chosen.brute, chosen.seconds
    rounds = max(1, int(seconds / (BRUTE_ROUND_S if brute else ROUND_S)))
    drawn = products(chosen.seed, groups, rounds, chosen.waves)
    ready, kernels = compiled(drawn, CONFIGURATIONS if brute else 0, COMPILE_SHARE[brute] * seconds)
    print(f"{kernels} kernels in {time.monotonic() - begin:.0f} s", flush=True)
    one, found = Race(gpu, libraries()), report["products"]
    for product, configs in zip(drawn, ready):
        if time.monotonic() - begin > seconds:
            break
        if None not in configs:
            continue
        if len(found) % KEEP == 0:
            keep()
        try:
            found.append(race(one, product, configs))
        except Exception as error:  # one product that fails does not stop the others
            report["failures"][product.name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]


def product_of(record: dict) -> Random:
    return Random(*record["product"])


CAUSES: dict[str, Callable[[Random], str]] = {
    "rows": lambda p: f"{p.m:4}" if p.group == "layers" else "",
    "waves": lambda p: next((f"< {b}" for b in (0.5, 1, 2, 4) if p.tiles < b), ">= 4") if p.dtype == "bfloat16" else "",
    "pitch": lambda p: f"{p.pitch:3}" if p.dtype == "bfloat16" else "",
}


def table(report: dict) -> list[str]:
    """Lines: the classes and the causes, geometric mean of torch / ours, shares below the bounds, the worst."""
    records = [record for record in report["products"] if record["torch"]]
    lines = [f"{'class':14}{'cases':>6}{'mean':>7}" + "".join(f"  <{bound}" for bound in BOUNDS) + "  worst"]

    def row(name: str, of: list[dict], rival: str = "torch") -> None:
        ratios = {record[rival] / record["us"]: product_of(record).name for record in of}
        below = "".join(f"{sum(r[rival] / r['us'] < bound for r in of) / len(of):7.0%}" for bound in BOUNDS)
        least = min(ratios)
        lines.append(
            f"{name:14}{len(of):6}{statistics.geometric_mean(ratios):7.3f}{below}  {least:.2f} {ratios[least]}"
        )

    for group in CLASSES:
        of = [record for record in records if record["product"][0] == group]
        if of:
            row(group, of)
        beside = [record for record in of if "quack" in record]
        if beside:
            row(f"{group}, quack", beside, "quack")
    for cause, label in CAUSES.items():
        labels = {label(product_of(record)) for record in records} - {""}
        for one in sorted(labels):
            row(f"{cause} {one}", [record for record in records if label(product_of(record)) == one])
    failures = [f"{name}: {words}" for name, words in report["failures"].items()]
    return lines + regret(report) + failures + [words for record in report["products"] for words in record["wrong"]]


def lost(record: dict) -> float:
    """How much longer the model's choice takes than the best configuration timed, in proportion: as they were timed
    again, where they were."""
    us, *others = record.get("again") or (record["us"], *record["times"].values())
    return us / min(us, *others) - 1


def regret(report: dict) -> list[str]:
    """Lines: the regret of the model's choice, by class and of all."""
    lines, known = [], [record for record in report["products"] if record["times"]]
    for group in (*CLASSES, "all"):
        of = sorted(lost(record) for record in known if group in (record["product"][0], "all"))
        if of:
            lines.append(
                f"regret {group:10} {len(of):4} mean {statistics.mean(of):6.1%}"
                f"  95th percentile {of[int(0.95 * (len(of) - 1))]:6.1%}"
            )
    return lines


def write(report: dict, path) -> None:
    """A line a product."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {name: value for name, value in report.items() if name != "products"}
    rows = ",\n".join(json.dumps(record, separators=(",", ":")) for record in report["products"])
    path.write_text(json.dumps(head)[:-1] + ', "products": [\n' + rows + "\n]}\n", encoding="utf-8")


def main(chosen) -> int:
    """Time, print the table and write the JSON; 1 if a result is wrong."""
    gpu = script.gpu()
    path = chosen.json or reporting.result_path(
        "matmul-random", gpu.name, datetime.date.today().isoformat(), f"-seed{chosen.seed}"
    )
    groups = chosen.cases[1:] or list(CLASSES)
    report = {"family": "matmul random", "gpu": gpu.name, "seed": chosen.seed, "brute": chosen.brute}
    launches = {"packs": True, "streams": True, "wide": True}  # what differs from files of before
    report |= {"waves": chosen.waves, **launches, "versions": versions(), "failures": {}, "products": []}
    try:
        run(
            gpu,
            lambda: Libraries(gpu, "matmul", ["torch", *(chosen.rivals or ())]),
            report,
            lambda: write(report, path),
            chosen,
            groups,
        )
    finally:  # also of a run that is interrupted
        write(report, path)
    print(*table(report), f"written: {path}", sep="\n")
    return int(bool(report["failures"]) or any(record["wrong"] for record in report["products"]))
