"""How rare each candidate of the matmul is: marks in ``kernels/matmul/candidates.py``, by which random products do with
few kernels. A rare candidate is chosen only where the model expects a gain of ``model.RARE_COSTS``, or where threads
load or store, of ``model.RARE_BY_THREADS`` if it has no star.

    python perf/usual.py [--seed 1101] [--products 1000] [--prune] [--write]

Marks are changed one by one, as long as that lessens the loss: how much longer products are expected to take than with
the best candidate, in per cent, and a price for each kernel that ``OF`` products of a class need (a mean: each is
needed with the chance that any of so many is computed by it). At first ``USUAL`` candidates that most products would
take are usual, and as many others rare. Products of the table take part as layers, so that they lose little."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import script
from matmul import CUBES, LAYERS, OTHERS, SKINNY
from matmul_brute import is_full, is_promoted, ranked, workload
from matmul_random import CLASSES, SIZES, Random, draw

from cutesync.kernels.matmul import candidates, model
from cutesync.kernels.matmul.policy import MatmulPolicy
from cutesync.kernels.matmul.problem import FEW_ROWS, MIXED_K_TILES

OF = 300
PRICE = 0.5  # of a kernel, in per cent of the time
CONVEX = 60  # a product that takes 10 % longer counts for seven times as much as that
TABLES = {"table": "layers", "float8 table": "float8"}  # must lose nothing: kernels that they need are worth it
WEIGHTS = {"layers": 2} | dict.fromkeys(TABLES, 10)  # of classes; 1 of others
# of a kernel of some classes, so that they need some 60
PRICES = {
    "float8": 0.15,
    "any": 1.5,
    "gelu": 5.0,
    "tf32": 4.0,
    "invariant": 1.2,
    "float32": 7.0,
    "layers": 0.7,
    "eights": 1.8,
    "float16": 0.8,
    "batches": 0.8,
    "int8": 1.0,
}
PRICES |= dict.fromkeys(TABLES, 0)
MOST = {"layers": 55, "eights": 51, "float16": 54, "batches": 51, "tf32": 51}  # as many as ``Ways.needed`` counts:
# a tenth fewer than are compiled, as results are stored in several ways
GONE = 9.0  # what a candidate costs that is taken out
USUAL = 48
SWEEPS = 5  # over all candidates, at most
WORDS, PAIRS = (model.vector_instructions(load, 2) for load in ("words", "pairs"))  # one kernel copies both

FORM = r"    \((?P<rows>\d+), (?P<columns>\d+)\): \"(?P<words>[^\"]*)\",\n"  # a line of the candidates

Mark = tuple  # ``candidates.name``, and whether threads load or store; (): never rare


class Ways(NamedTuple):
    """Of all products of a class: logarithms of the expected clocks over the best, the part of the costs that they
    pay, the numbers of the mark and of the kernel, and where each product begins."""

    longer: np.ndarray
    pays: np.ndarray
    mark: np.ndarray
    kernel: np.ndarray
    starts: np.ndarray

    def chosen(self, costs: np.ndarray) -> np.ndarray:
        """What each product takes with these costs of marks."""
        compared = self.longer + costs[self.mark] * self.pays
        count = np.diff([*self.starts, len(compared)])
        chosen = np.flatnonzero(compared == np.minimum.reduceat(compared, self.starts).repeat(count))
        return chosen[np.unique(np.searchsorted(self.starts, chosen, side="right"), return_index=True)[1]]

    def needed(self, chosen: np.ndarray) -> float:
        """Kernels of ``OF`` products that take these."""
        chance = np.bincount(self.kernel[chosen]) / len(self.starts)
        return float((1 - (1 - chance) ** OF).sum())

    def loss(self, costs: np.ndarray, price: float) -> float:
        chosen = self.chosen(costs)
        longer = self.longer[chosen] * (1 + CONVEX * self.longer[chosen])
        return 100 * float(longer.mean()) + price * self.needed(chosen)


def ways_of(products: list[Random], numbers: dict[Mark, int]) -> Ways:
    """``numbers`` numbers the marks, and is added to."""
    kernels: dict[tuple, int] = {}
    rows, starts = [], []
    for product in products:
        starts.append(len(rows))
        found = possible(product)
        for clocks, config in found:
            longer = float(np.log(clocks / found[0][0]))
            if longer <= max(*model.RARE_COSTS, model.RARE_BY_THREADS):
                load = workload(product, config)
                mark = (candidates.name(config, int(load.owned)), bool(model.is_by_threads(load)))
                mark = () if load.promoted and load.own else mark
                loads = (WORDS if own == PAIRS else own for own in (load.access.own_a, load.access.own_b))
                kernel = (config.kernel, *loads, load.by_tma)
                numbered = [of.setdefault(one, len(of)) for of, one in ((numbers, mark), (kernels, kernel))]
                of_kernel = 1 - model.copy_cost(load.copies, load.copied) / clocks
                rows.append((longer, float(model.paid(load)) * of_kernel, *numbered))
    longer, pays, mark, kernel = np.array(rows).T
    return Ways(longer, pays, mark.astype(int), kernel.astype(int), np.array(starts))


def possible(product: Random) -> list[tuple[float, MatmulPolicy]]:
    """Candidates in all ways, best first: with TMA or copies before, and with own loads."""
    promoted, slices = is_promoted(product), workload(product, MatmulPolicy()).slices
    usual, own = (candidates.of_kind(promoted, False, loads, slices) for loads in (False, True))
    found = [pair for pair in ranked(product, usual) if not (pair[1].own or pair[1].parts)]
    if is_full(product):
        found += [pair for pair in ranked(product, candidates.PARTS) if pair[1].parts]
    found += [pair for pair in ranked(product, own) if pair[1].own and not mixes_in_vain(product, pair[1])]
    return sorted(found, key=lambda pair: pair[0])


def mixes_in_vain(product: Random, config: MatmulPolicy) -> bool:
    """Whether one operand is packed and the other not, which the package then does not try."""
    load = workload(product, config)
    packed = load.n if load.access.own_a else load.m
    few = packed <= FEW_ROWS and load.instructions < model.vector_instructions("vectors", SIZES[product.dtype])
    return load.copies > 0 and load.instructions > 0 and load.k_tiles > MIXED_K_TILES and not few


def costs_of(by_threads: bool) -> tuple[float, ...]:
    """What each level costs."""
    return (0, model.RARE_BY_THREADS) if by_threads else model.RARE_COSTS


def levels(classes: dict[str, Ways], marks: list[Mark]) -> list[int]:
    """How rare each is, 0 for the first."""
    used = sum(
        np.bincount(ways.mark[ways.chosen(np.zeros(len(marks)))], minlength=len(marks)) for ways in classes.values()
    )
    order = np.argsort(-used, kind="stable")
    costs = [costs_of(mark[-1]) if mark else (0,) for mark in marks]
    found = [min(rank // USUAL, len(of) - 1) for rank, of in zip(np.argsort(order), costs)]
    now = np.array([of[level] for of, level in zip(costs, found)])

    def loss(group: str) -> float:
        return WEIGHTS.get(group, 1) * classes[group].loss(now, PRICES.get(group, PRICE))

    losses = {group: loss(group) for group in classes}
    concerned = [
        [group for group, ways in classes.items() if (ways.mark == number).any()] for number in range(len(marks))
    ]
    for sweep in range(SWEEPS):
        before = sum(losses.values())
        for number in order[:: 1 if sweep % 2 == 0 else -1]:
            tried = []
            for cost in costs[number]:
                now[number] = cost
                tried.append({group: loss(group) for group in concerned[number]})
            found[number] = min(
                range(len(tried)), key=lambda level: (sum(tried[level].values()), level != found[number])
            )
            now[number] = costs[number][found[number]]
            losses.update(tried[found[number]])
        if sum(losses.values()) == before:
            break
    print(f"{np.bincount(found)} of {len(marks)} marks; loss {sum(losses.values()):.3f}")
    return found


def present(mark: Mark) -> float:
    """What a mark costs as the candidates are marked now."""
    if not mark:
        return 0.0
    (kernel, own), by_threads = mark
    if by_threads:
        return 0.0 if mark[0] in candidates._usual_by_threads else model.RARE_BY_THREADS
    return model.RARE_COSTS[0 if own else candidates._levels.get(kernel, len(model.RARE_COSTS) - 1)]


def pruned(classes: dict[str, Ways], marks: list[Mark]) -> list[tuple]:
    """The kernels to take out (see ``candidates.name``)."""
    now = np.array([present(mark) for mark in marks])
    numbers: dict[tuple, list[int]] = {}
    for number, mark in enumerate(marks):
        if mark and mark[0][1] == 0:
            numbers.setdefault(mark[0], []).append(number)
    rare = {name: of for name, of in numbers.items() if any(now[i] > 0 and not marks[i][-1] for i in of)}
    out: list[tuple] = []

    def state(group: str, costs: np.ndarray) -> tuple[float, float]:
        return WEIGHTS.get(group, 1) * classes[group].loss(costs, 0.0), classes[group].needed(
            classes[group].chosen(costs)
        )

    states = {group: state(group, now) for group in classes}
    while over := [group for group in classes if states[group][1] > MOST.get(group, OF)]:
        tried = {}
        for name in rare.keys() - set(out):
            costs = now.copy()
            costs[rare[name]] = GONE
            after = {
                group: state(group, costs) for group, ways in classes.items() if np.isin(ways.mark, rare[name]).any()
            }
            fewer = sum(states[group][1] - after[group][1] for group in over if group in after)
            if fewer > 0:
                tried[name] = sum(of[0] - states[group][0] for group, of in after.items()) / fewer, after
        if not tried:
            break
        name = min(tried, key=lambda name: tried[name][0])
        states |= tried[name][1]
        now[rare[name]] = GONE
        out.append(name[0])
    print({group: round(of[1], 1) for group, of in states.items()})
    return out


def without(text: str, kernels: list[tuple]) -> str:
    """The source of the candidates without these kernels; those with two sets of accumulators or parts stay."""

    def line(m: re.Match) -> str:
        tile, kept = (int(m["rows"]), int(m["columns"])), []
        for word in m["words"].split():
            if word == "~" or candidates.parsed(word, tile, schedule).kernel not in kernels:
                kept.append(word)
        words = " ".join(kept).rstrip("~ ")
        return f'    {tile}: "{words}",\n' if words else ""

    for schedule in ("cooperative", "pingpong"):
        begin = text.index(f"_{schedule.upper()} = {{\n")
        end = text.index("\n}\n", begin) + 1
        text = text[:begin] + re.sub(FORM, line, text[begin:end], flags=re.M) + text[end:]
    return text


def marked(text: str, of: dict[Mark, int]) -> str:
    """The source of the candidates with these marks; what no product takes is as rare as can be."""
    options: dict = {}
    rarest = len(model.RARE_COSTS) - 1

    def line(m: re.Match) -> str:
        if m["name"]:
            options.clear()
            options.update(schedule=m["name"].lower(), promoted=m["more"] == "_TWO_SETS")
            options.update({"_OWN": candidates.LOADS, "_PARTS": candidates.SPLIT}.get(m["more"], {}))
            return m[0]
        tile, words = (int(m["rows"]), int(m["columns"])), m["words"].replace("~", "").split()
        groups: list[list[str]] = [[] for _ in model.RARE_COSTS]
        for word in words:
            config = candidates.parsed(word, tile, **options)
            level = 0 if config.own else of.get((candidates.name(config, 0), False), rarest)
            groups[level].append(word.rstrip(candidates.STAR + candidates.PLUS))
            for sign, own in ((candidates.STAR, 2 * config.own), (candidates.PLUS, 1)):
                usual = of.get((candidates.name(config, own), True)) == 0
                groups[level][-1] += sign * (usual and (config.own or own == 0))
        return f'    {tile}: "{" ~".join(" ".join(["", *group]) for group in groups).strip(" ").rstrip("~ ")}",\n'

    names = r"_(?P<name>COOPERATIVE|PINGPONG)(?P<more>_TWO_SETS|_OWN|_PARTS)? = [^\n]*\n"
    return re.sub(f"^(?:{names}|{FORM})", line, text, flags=re.M)


def main(argv=None) -> None:
    parser = script.parser(__doc__)
    parser.add_argument("--seed", type=int, default=1101)
    parser.add_argument("--products", type=int, default=1500, help="of each class")
    parser.add_argument("--prune", action="store_true", help="take out rare ones that are not worth their kernels")
    parser.add_argument("--write", action="store_true", help="mark the candidates, or take them out")
    chosen = parser.parse_args(argv)
    drawn = {group: list(itertools.islice(draw(group, chosen.seed), chosen.products)) for group in CLASSES}
    of_table = (*((n, n, n) for n in CUBES), *OTHERS, *SKINNY, *LAYERS)
    for name, group in TABLES.items():
        like = drawn[group][0]
        drawn[name] = [replace(like, m=m, n=n, k=k) for m, n, k in of_table]
    path = Path(candidates.__file__)
    text = path.read_text(encoding="utf-8")
    found: dict[Mark, int] = {}
    for promoted in (False, True)[: 1 if chosen.prune else 2]:
        numbers: dict[Mark, int] = {(): 0}
        classes = {group: ways_of(of, numbers) for group, of in drawn.items() if is_promoted(of[0]) == promoted}
        if chosen.prune:
            text = without(text, pruned(classes, list(numbers)))
        else:
            found |= zip(numbers, levels(classes, list(numbers)))
    text = text if chosen.prune else marked(text, found)
    if chosen.write:
        path.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    script.run(main)
