"""Fit the matmul model to times of random products, and write its coefficients and its correction into the package.

    python perf/sweep.py matmul --cases random --brute --seed 1 --json perf/results/FILE.json      gathers times
    python perf/fit.py perf/results/FILE.json ... [--write]                                        fits

A product of a file that is named three times counts as three, one with a ``weight`` as so many, whose regret is not
held out: one of the table that must not be lost.
The correction's trees are grown (see ``boost``); with ``--coefficients`` those of the model are fitted before. They are
logarithms. First clocks are brought near the times, by least squares; then a random search makes the choice better.
Printed is the regret, time of the choice over the best configuration timed, mean and 95th percentile, by
class: before, fitted to all products, and held out: of each fifth of the shapes by what is fitted to the others.
"""

from __future__ import annotations

import json
import math
import re
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import boost
import fit_records
import numpy as np
import script
from fit_records import policy_of
from matmul_brute import is_promoted, workload
from matmul_random import CLASSES, Random

from cutesync.kernels.hardware import SMS
from cutesync.kernels.matmul import coefficients
from cutesync.kernels.matmul.coefficients import COEFFICIENTS, SUSTAINED, Coefficients
from cutesync.kernels.matmul.correction import TREES, features
from cutesync.kernels.matmul.model import (
    Fixed,
    Table,
    copy_cost,
    cost,
    fixed,
    is_long,
    preferred,
    table,
)
from cutesync.kernels.matmul.workload import Access, Workload

NEAR = 0.2  # configurations that take so much longer than the best, in proportion, count e times less
FAR = 0.7  # those that take so much longer, in time and by the model, do not take part
FOLDS = 5  # of the products, by shapes: each is held out once
CLOCK, ABSOLUTE = 1750.0, 0.3  # clocks a microsecond; weight of the distance to it, and the most
PRIOR, STEPS, NUDGE = 0.1, 10, 1e-2  # of the least squares: weight of the old coefficients; steps; for differences
SHARPNESS = 0.03  # of the soft minimum: clocks so much more, in proportion, count e times less
MOST_LONGER = 0.6  # that counts
WEIGHT = 0.15  # of the distance between clocks and times
CHOICE = 0.1  # weight of the choice while trees grow, beside that distance
STEP, FIXED = 0.2, 0.02  # of the search: of a logarithm at the beginning; weight of the distance to the least squares


class Times(namedtuple("Times", "of load starts us groups counts weight")):
    """All configurations of all products in one table: their numbers, the products' fields repeated for each, where a
    product's begin, the times, the class of each product, as how many it counts, and the weights, which sum up to that
    for a product: what is fast, or what the model takes for fast, counts."""


def times(records: list[dict]) -> Times:
    """Of the configurations that are not ``FAR`` from the best in time and by the model."""
    data = _all_times(records)
    clocks = modelled(data, COEFFICIENTS)
    longer = [values / of_products(np.minimum, values, data)[1] - 1 for values in (data.us, clocks)]
    near = np.minimum(*longer)
    keep, weight = near < FAR, np.exp(-near / NEAR)
    access = Access(*(column[keep] for column in data.load.access))
    load = Workload(*(column if name == "access" else column[keep] for name, column in data.load._asdict().items()))
    starts = np.cumsum(np.append(0, of_products(np.add, keep.astype(int), data)[0]))[:-1]
    of = Table(*(column[keep] for column in data.of))
    data = data._replace(of=of, load=load._replace(access=access), starts=starts, us=data.us[keep], weight=weight[keep])
    return data._replace(weight=data.weight / of_products(np.add, data.weight, data)[1] * repeated(data.counts, data))


def _all_times(records: list[dict]) -> Times:
    policies, loads, starts, us, groups = [], [], [], [], []
    for record in records:
        product, columns = Random(*record["product"]), record.get("columns", True)
        starts.append(len(us))
        groups.append(product.group)
        for words, taken in record["times"].items():
            config = policy_of(words, is_promoted(product))
            policies.append(config)
            loads.append(workload(product, config, columns))
            us.append(taken)
    access = Access(*(np.array(column) for column in zip(*(load.access for load in loads))))
    rest = {name: np.array([getattr(load, name) for load in loads]) for name in Workload._fields if name != "access"}
    counts = np.array([record.get("count", 1) for record in records])
    load = Workload(**rest, access=access)
    return Times(table(policies, SMS), load, np.array(starts), np.array(us), groups, counts, np.ones(len(us)))


def of_products(function: np.ufunc, values: np.ndarray, data: Times) -> tuple[np.ndarray, np.ndarray]:
    """A reduction by products, and the same repeated for each configuration."""
    reduced = function.reduceat(values, data.starts)
    return reduced, repeated(reduced, data)


def repeated(values: np.ndarray, data: Times) -> np.ndarray:
    """Those of products, for each configuration."""
    return np.repeat(values, np.diff([*data.starts, len(data.us)]))


class Fitted(NamedTuple):
    """Coefficients, and the trees of the correction."""

    by: Coefficients
    trees: tuple[boost.Tree, ...]


def expected(data: Times, of: Fitted) -> np.ndarray:
    """Clocks, as the package compares them."""
    clocks, numbers = clocks_and_features(data, of.by)
    return clocks * np.exp(boost.sums(of.trees, numbers)) * preferred(data.of, data.load) + copied(data, of.by)


def modelled(data: Times, by: Coefficients) -> np.ndarray:
    """Clocks without the correction."""
    return of_products_alone(data, by) + copied(data, by)


def of_products_alone(data: Times, by: Coefficients) -> np.ndarray:
    """Without the copies of operands before; long products have coefficients of their own."""
    return np.where(is_long(data.load), cost(data.of, data.load, SUSTAINED), cost(data.of, data.load, by))


def copied(data: Times, by: Coefficients) -> np.ndarray:
    """Clocks of the copies before, which the trees do not correct."""
    return copy_cost(data.load.copies, data.load.copied, by)


def clocks_and_features(data: Times, by: Coefficients) -> tuple[np.ndarray, np.ndarray]:
    """Of each configuration, without copies."""
    clocks, long = of_products_alone(data, by), is_long(data.load)
    both = (fixed(data.of, data.load, numbers) for numbers in (SUSTAINED, by))
    known = Fixed(*(np.where(long, of_long, of_others) for of_long, of_others in zip(*both)))
    return clocks, features(data.of, data.load, clocks, known)


def grown(data: Times, by: Coefficients) -> tuple[boost.Tree, ...]:
    """The trees that bring the clocks nearer to the times, in proportion to each other within a product, and the
    choice nearer to the best: ``CHOICE`` times the time beyond the best of what would be drawn with ``chances``."""
    clocks, numbers = clocks_and_features(data, by)
    copies, longer = copied(data, by), excess(data)
    target = np.log(clocks + copies) - away(data, by)[0]
    choice = CHOICE / SHARPNESS * repeated(data.counts, data)

    def drawn(sums: np.ndarray) -> np.ndarray:
        corrected = clocks * np.exp(sums)
        logarithms = np.log(corrected + copies)
        chance = chances(data, logarithms)
        mean = of_products(np.add, chance * longer, data)[1]
        pull = data.weight * (target - logarithms) + choice * chance * (longer - mean)
        return pull * corrected / (corrected + copies)

    return boost.grown(numbers, drawn, data.weight)


def excess(data: Times) -> np.ndarray:
    """How much longer than the best of its product each configuration takes, in proportion; ``MOST_LONGER`` counts."""
    return np.minimum(data.us / of_products(np.minimum, data.us, data)[1] - 1, MOST_LONGER)


def chances(data: Times, logarithms: np.ndarray) -> np.ndarray:
    """Those of each configuration of a product to be chosen by clocks with these logarithms: a soft minimum."""
    chance = np.exp((of_products(np.minimum, logarithms, data)[1] - logarithms) / SHARPNESS)
    return chance / of_products(np.add, chance, data)[1]


def lost(data: Times, of: Fitted) -> np.ndarray:
    """How much longer than the best the model's choice takes, of each product, in proportion."""
    clocks = expected(data, of)
    least = of_products(np.minimum, clocks, data)[1]
    chosen = np.where(clocks == least, data.us, np.inf)
    return of_products(np.minimum, chosen, data)[0] / of_products(np.minimum, data.us, data)[0] - 1


def away(data: Times, by: Coefficients) -> tuple[np.ndarray, np.ndarray]:
    """How far the logarithms of clocks and times are apart: each configuration's from its product's mean, and the
    products' means."""
    apart = np.log(modelled(data, by)) - np.log(data.us)
    means = of_products(np.add, data.weight * apart, data)[0] / data.counts
    return apart - repeated(means, data), means


def loss(data: Times, by: Coefficients) -> float:
    """How much longer the preferred take (a soft minimum of the clocks), and how far clocks are from times."""
    clocks = np.log(modelled(data, by))
    soft = of_products(np.add, chances(data, clocks) * excess(data), data)[0]
    apart, _ = away(data, by)
    spread = of_products(np.add, data.weight * apart**2, data)[0]
    return float(np.average(soft + WEIGHT * np.sqrt(spread / data.counts), weights=data.counts))


def least_squares(data: Times, begin: Coefficients) -> Coefficients:
    """By Levenberg and Marquardt: clocks in proportion to times within a product, some ``CLOCK`` a microsecond, and
    coefficients near where they were, as far as times do not say more."""
    origin = np.log(np.array(begin))

    def residuals(point: np.ndarray) -> np.ndarray:
        apart, means = away(data, Coefficients(*np.exp(point)))
        absolute = np.clip(ABSOLUTE * (means - math.log(CLOCK)), -ABSOLUTE, ABSOLUTE)
        return np.concatenate([np.sqrt(data.weight) * apart, np.sqrt(data.counts) * absolute, PRIOR * (point - origin)])

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


def described(groups: np.ndarray, regret: np.ndarray) -> list[str]:
    """Lines: the regret of each class and of all."""
    rows = [(group, regret[groups == group]) for group in CLASSES if group in groups] + [("all", regret)]
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


def folds(records: list[dict]) -> np.ndarray:
    """The fold of each product: those of equal extents are in one."""
    numbers: dict[tuple, int] = {}
    found = [numbers.setdefault(tuple(sorted(record["product"][1:4])), len(numbers)) for record in records]
    return np.random.default_rng(0).permutation(len(numbers))[found] % FOLDS


def held_out(records: list[dict], fitted: Callable[[Times], Fitted]) -> list[str]:
    """Lines: the regret of each product by what is fitted to the other folds."""
    of, groups, regret = folds(records), [], []
    for fold in range(FOLDS):
        by = fitted(times([record for record, its in zip(records, of) if its != fold]))
        data = _all_times([record for record, its in zip(records, of) if its == fold and "weight" not in record])
        groups += data.groups
        regret += lost(data, by).tolist()
    return described(np.array(groups), np.array(regret))


def main(argv=None) -> None:
    parser = script.parser(__doc__)
    parser.add_argument("json", type=Path, nargs="+", help="results of sweep.py matmul --cases random --brute")
    parser.add_argument("--rounds", type=int, default=400, help="of the search")
    parser.add_argument("--coefficients", action="store_true", help="also the coefficients, not only the correction")
    parser.add_argument("--write", action="store_true", help="put what is fitted into the package")
    parser.add_argument("--no-folds", action="store_true", help="do not fit without each fold in turn")
    chosen = parser.parse_args(argv)
    records = fit_records.read(chosen.json)

    def fitted(data: Times) -> Fitted:
        by = refined(data, least_squares(data, COEFFICIENTS), chosen.rounds) if chosen.coefficients else COEFFICIENTS
        return Fitted(by, grown(data, by))

    found, data = fitted(times(records)), _all_times(records)
    for name, one in (("before", Fitted(COEFFICIENTS, TREES)), ("fitted", found)):
        print(f"{name}:", *described(np.array(data.groups), lost(data, one)), sep="\n")
    print(json.dumps(found.by._asdict()), flush=True)
    if chosen.write:
        written(found.by)
        boost.written(found.trees)
    if not chosen.no_folds:
        print(f"held out, in {FOLDS} folds:", *held_out(records, fitted), sep="\n")


if __name__ == "__main__":
    script.run(main)
