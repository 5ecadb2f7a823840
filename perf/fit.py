"""Fit the matmul model's coefficients to times of random products, and write them into the package.

    python perf/sweep.py matmul --cases random --brute --seed 1 --json perf/results/FILE.json      gathers times
    python perf/fit.py perf/results/FILE.json ... [--held-out FILE.json ...] [--write]             fits

The loss of a product is how much longer than the best the configurations take that the model prefers (a soft minimum of
its clocks), and a little how far its clocks are from the times, in proportion. Coefficients are logarithms, improved
by a random search. Without ``--held-out`` every fourth product is held out. Printed is the regret, time of the choice
over the best configuration timed, mean and 95th percentile, before and after, by class.
"""

from __future__ import annotations

import json
import re
from collections import namedtuple
from pathlib import Path

import numpy as np
import script
from matmul_brute import workloads
from matmul_random import CLASSES, Random

from cutesync.kernels.matmul import coefficients
from cutesync.kernels.matmul.coefficients import COEFFICIENTS, Coefficients
from cutesync.kernels.matmul.model import Access, Workload, cost, table
from cutesync.kernels.matmul.policy import SMS, MatmulPolicy

SHARPNESS = 0.03  # of the soft minimum: clocks so much more, in proportion, count e times less
NEAR = 0.3  # configurations that take so much longer than the best count e times less
WEIGHT = 0.15  # of the distance between clocks and times
STEP = 0.25  # of a coefficient's logarithm at the beginning
FIXED = 0.01  # weight of the distance to where the search began: what the times do not tell stays

_SHORT = re.compile(r"(\d+)x(\d+)([cp]) (\d)x(\d)(?: /(\d+))?( T)?")


def policy_of(words: str, promoted: bool) -> MatmulPolicy:
    """The configuration that ``matmul_sweep.short`` wrote."""
    m, n, schedule, peers_m, peers_n, splits, swapped = _SHORT.fullmatch(words).groups()
    schedule = "cooperative" if schedule == "c" else "pingpong"
    return MatmulPolicy(
        (int(m), int(n)),
        schedule,
        (int(peers_m), int(peers_n)),
        promoted=promoted,
        splits=int(splits or 1),
        swap_ab=bool(swapped),
    )


class Times(namedtuple("Times", "of load starts us groups")):
    """All configurations of all products in one table: their numbers, the products' fields repeated for each, where a
    product's begin, the times, and the class of each product."""


def times(records: list[dict]) -> Times:
    policies, loads, starts, us, groups = [], [], [], [], []
    for record in records:
        product = Random(*record["product"])
        ways = workloads(product)
        starts.append(len(us))
        groups.append(product.group)
        for words, taken in record["times"].items():
            config = policy_of(words, ways[0].promoted)
            policies.append(config)
            loads.append(ways[bool(config.swap_ab)])
            us.append(taken)
    access = Access(*(np.array(column) for column in zip(*(load.access for load in loads))))
    rest = {name: np.array([getattr(load, name) for load in loads]) for name in Workload._fields if name != "access"}
    return Times(table(policies, SMS), Workload(**rest, access=access), np.array(starts), np.array(us), groups)


def of_products(function: np.ufunc, values: np.ndarray, data: Times) -> tuple[np.ndarray, np.ndarray]:
    """A reduction by products, and the same repeated for each configuration."""
    reduced = function.reduceat(values, data.starts)
    return reduced, np.repeat(reduced, np.diff([*data.starts, len(values)]))


def lost(data: Times, by: Coefficients) -> np.ndarray:
    """How much longer than the best the model's choice takes, of each product, in proportion."""
    clocks = cost(data.of, data.load, by)
    least = of_products(np.minimum, clocks, data)[1]
    chosen = np.where(clocks == least, data.us, np.inf)
    return of_products(np.minimum, chosen, data)[0] / of_products(np.minimum, data.us, data)[0] - 1


def loss(data: Times, by: Coefficients) -> float:
    clocks, best = np.log(cost(data.of, data.load, by)), of_products(np.minimum, data.us, data)[1]
    longer = data.us / best - 1
    preferred = np.exp((of_products(np.minimum, clocks, data)[1] - clocks) / SHARPNESS)
    soft = of_products(np.add, preferred * longer, data)[0] / of_products(np.add, preferred, data)[0]
    weight = np.exp(-longer / NEAR)
    away = clocks - np.log(data.us)
    middle = of_products(np.add, weight * away, data)[1] / of_products(np.add, weight, data)[1]
    spread = of_products(np.add, weight * (away - middle) ** 2, data)[0] / of_products(np.add, weight, data)[0]
    return float(soft.mean() + WEIGHT * np.sqrt(spread).mean())


def fitted(data: Times, begin: Coefficients, rounds: int, seed: int = 0) -> Coefficients:
    """A random search: some coefficients are changed at a time; what is better is kept; steps become smaller."""
    random, origin = np.random.default_rng(seed), np.log(np.array(begin))
    at, step = origin.copy(), STEP

    def value(point: np.ndarray) -> float:
        return loss(data, Coefficients(*np.exp(point))) + FIXED * float(np.mean((point - origin) ** 2))

    least = value(at)
    for turn in range(rounds):
        change = random.standard_normal(len(at)) * (random.random(len(at)) < 3 / len(at))
        step = STEP * 0.1 ** (turn / rounds)
        for sign in (1, -1):
            found = value(at + sign * step * change)
            if found < least:
                at, least = at + sign * step * change, found
                break
    return Coefficients(*(float(f"{number:.3g}") for number in np.exp(at)))


def described(data: Times, by: Coefficients) -> list[str]:
    """Lines: the regret of each class and of all."""
    regret, groups = lost(data, by), np.array(data.groups)
    rows = [(group, regret[groups == group]) for group in CLASSES if group in data.groups] + [("all", regret)]
    return [
        f"{name:10} {len(of):4}  mean {of.mean():6.2%}  95th percentile {np.quantile(of, 0.95):6.1%}"
        for name, of in rows
    ]


def written(by: Coefficients) -> None:
    """Put the numbers into ``coefficients.py``; its comments stay."""
    path = Path(coefficients.__file__)
    text = path.read_text(encoding="utf-8")
    for name, number in by._asdict().items():
        text = re.sub(rf"^(    {name}: float = )\S+", rf"\g<1>{number:g}", text, flags=re.M)
    path.write_text(text, encoding="utf-8")


def main(argv=None) -> None:
    parser = script.parser(__doc__)
    parser.add_argument("json", type=Path, nargs="+", help="results of sweep.py matmul --cases random --brute")
    parser.add_argument("--held-out", type=Path, nargs="+", default=[], help="results that are not fitted to")
    parser.add_argument("--rounds", type=int, default=4000, help="of the search")
    parser.add_argument("--write", action="store_true", help="put the coefficients into the package")
    chosen = parser.parse_args(argv)

    def records(paths: list[Path]) -> list[dict]:
        found = []
        for path in paths:
            with script.reading(path) as report:
                found += [record for record in report["products"] if len(record["times"]) > 1]
        return found

    known, unknown = records(chosen.json), records(chosen.held_out)
    if not unknown:
        known, unknown = [r for i, r in enumerate(known) if i % 4], known[::4]
    fit_to, held = times(known), times(unknown)
    by = fitted(fit_to, COEFFICIENTS, chosen.rounds)
    for name, data in (("fitted", fit_to), ("held out", held)):
        print(f"{name}, before:", *described(data, COEFFICIENTS), f"{name}, after:", *described(data, by), sep="\n")
    print(json.dumps(by._asdict()))
    if chosen.write:
        written(by)


if __name__ == "__main__":
    script.run(main)
