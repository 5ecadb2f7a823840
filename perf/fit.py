"""Fit the matmul model's coefficients to times of random products, and write them into the package.

    python perf/sweep.py matmul --cases random --brute --seed 1 --json perf/results/FILE.json      gathers times
    python perf/fit.py perf/results/FILE.json ... [--held-out FILE.json ...] [--write]             fits

A product with a ``weight`` counts as so many, and is never held out: one of the table that must not be lost.
Coefficients are logarithms. First clocks are brought near the times, by least squares; then a random search makes the
choice better. Without ``--held-out`` every fourth product is held out. Printed is the regret, time of the choice
over the best configuration timed, mean and 95th percentile, before and after, by class.
"""

from __future__ import annotations

import json
import math
import re
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import script
from matmul_brute import is_full, is_promoted, workload
from matmul_random import CLASSES, Random

from cutesync.kernels.matmul import coefficients
from cutesync.kernels.matmul.coefficients import COEFFICIENTS, Coefficients
from cutesync.kernels.matmul.model import Access, Workload, cost, table
from cutesync.kernels.matmul.policy import SMS, MatmulPolicy

NEAR = 0.2  # configurations that take so much longer than the best, in proportion, count e times less
CLOCK, ABSOLUTE = 1750.0, 0.3  # clocks a microsecond; weight of the distance to it, and the most
PRIOR, STEPS, NUDGE = 0.15, 40, 1e-2  # of the least squares: weight of the old coefficients; steps; for differences
SHARPNESS = 0.03  # of the soft minimum: clocks so much more, in proportion, count e times less
MOST_LONGER = 0.6  # that counts
WEIGHT = 0.15  # of the distance between clocks and times
STEP, FIXED = 0.2, 0.02  # of the search: of a logarithm at the beginning; weight of the distance to the least squares

_SHORT = re.compile(r"(\d+)x(\d+)([cp]) (\d)x(\d)(?: /(\d+))?( T)?(?: own (a?b?))?")


def policy_of(words: str, promoted: bool) -> MatmulPolicy:
    """The configuration that ``matmul_sweep.short`` wrote."""
    m, n, schedule, peers_m, peers_n, splits, swapped, own = _SHORT.fullmatch(words).groups()
    schedule = "cooperative" if schedule == "c" else "pingpong"
    return MatmulPolicy(
        (int(m), int(n)),
        schedule,
        (int(peers_m), int(peers_n)),
        promoted=promoted,
        splits=int(splits or 1),
        swap_ab=bool(swapped),
        load_a="own" if "a" in (own or "") else "tma",
        load_b="own" if "b" in (own or "") else "tma",
    )


class Times(namedtuple("Times", "of load starts us groups")):
    """All configurations of all products in one table: their numbers, the products' fields repeated for each, where a
    product's begin, the times, and the class of each product."""


def times(records: list[dict]) -> Times:
    policies, loads, starts, us, groups = [], [], [], [], []
    for record in records:
        product, columns = Random(*record["product"]), record.get("columns", True)
        parts = is_full(product) and record.get("parts", True)
        starts.append(len(us))
        groups.append(product.group)
        for words, taken in record["times"].items():
            config = replace(policy_of(words, is_promoted(product)), parts=parts)
            policies.append(config)
            loads.append(workload(product, config, columns))
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


def away(data: Times, by: Coefficients) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How far the logarithms of clocks and times are apart: each configuration's from its product's mean, the products'
    means, and the weights, which sum up to 1 for a product."""
    best = of_products(np.minimum, data.us, data)[1]
    weight = np.exp(-(data.us / best - 1) / NEAR)
    weight = weight / of_products(np.add, weight, data)[1]
    apart = np.log(cost(data.of, data.load, by)) - np.log(data.us)
    means, mean = of_products(np.add, weight * apart, data)
    return apart - mean, means, weight


def loss(data: Times, by: Coefficients) -> float:
    """How much longer the preferred take (a soft minimum of the clocks), and how far clocks are from times."""
    clocks = np.log(cost(data.of, data.load, by))
    longer = np.minimum(data.us / of_products(np.minimum, data.us, data)[1] - 1, MOST_LONGER)
    preferred = np.exp((of_products(np.minimum, clocks, data)[1] - clocks) / SHARPNESS)
    soft = of_products(np.add, preferred * longer, data)[0] / of_products(np.add, preferred, data)[0]
    apart, _, weight = away(data, by)
    spread = of_products(np.add, weight * apart**2, data)[0]
    return float(soft.mean() + WEIGHT * np.sqrt(spread).mean())


def least_squares(data: Times, begin: Coefficients) -> Coefficients:
    """By Levenberg and Marquardt: clocks in proportion to times within a product, some ``CLOCK`` a microsecond, and
    coefficients near where they were, as far as times do not say more."""
    origin = np.log(np.array(begin))

    def residuals(point: np.ndarray) -> np.ndarray:
        apart, means, weight = away(data, Coefficients(*np.exp(point)))
        absolute = np.clip(ABSOLUTE * (means - math.log(CLOCK)), -ABSOLUTE, ABSOLUTE)
        return np.concatenate([np.sqrt(weight) * apart, absolute, PRIOR * (point - origin)])

    at, damping, found = origin, 1.0, residuals(origin)
    for _ in range(STEPS):
        slope = np.stack([(residuals(at + NUDGE * one) - found) / NUDGE for one in np.eye(len(at))], 1)
        normal = slope.T @ slope
        change = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-6), -slope.T @ found)
        after = residuals(at + np.clip(change, -ABSOLUTE, ABSOLUTE))
        better = after @ after < found @ found
        if better:
            at, found = at + np.clip(change, -ABSOLUTE, ABSOLUTE), after
        damping *= 1 / 3 if better else 4
    return Coefficients(*np.exp(at))


def refined(data: Times, begin: Coefficients, rounds: int) -> Coefficients:
    """By a random search for less ``loss``: some coefficients are changed at a time; what is better is kept; steps
    become smaller."""
    random, origin = np.random.default_rng(0), np.log(np.array(begin))

    def value(point: np.ndarray) -> float:
        return loss(data, Coefficients(*np.exp(point))) + FIXED * float(np.mean((point - origin) ** 2))

    at, least = origin.copy(), value(origin)
    for turn in range(rounds):
        change = random.standard_normal(len(at)) * (random.random(len(at)) < 4 / len(at))
        for sign in (STEP, -STEP):
            point = at + sign * 0.15 ** (turn / rounds) * change
            found = value(point)
            if found < least:
                at, least = point, found
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
    parser.add_argument("--rounds", type=int, default=1500, help="of the search")
    parser.add_argument("--write", action="store_true", help="put the coefficients into the package")
    chosen = parser.parse_args(argv)

    def records(paths: list[Path]) -> list[dict]:
        found = []
        for path in paths:
            with script.reading(path) as report:
                columns = {name: report.get(name, True) for name in ("columns", "parts")}
                enough = [record for record in report["products"] if len(record["times"]) > 1]
                found += [record | columns for record in enough for _ in range(record.get("weight", 1))]
        return found

    known, unknown = records(chosen.json), records(chosen.held_out)
    if not unknown:
        random = [record for record in known if "weight" not in record]
        unknown = random[::4]
        known = [record for record in known if record not in unknown]
    fit_to, held = times(known), times(unknown)
    by = refined(fit_to, least_squares(fit_to, COEFFICIENTS), chosen.rounds)
    for name, data in (("fitted", fit_to), ("held out", held)):
        print(f"{name}, before:", *described(data, COEFFICIENTS), f"{name}, after:", *described(data, by), sep="\n")
    print(json.dumps(by._asdict()))
    if chosen.write:
        written(by)


if __name__ == "__main__":
    script.run(main)
