"""How rare each candidate of the matmul is: marks in ``kernels/matmul/candidates.py``, by which random products do with
few kernels. A rare candidate is chosen only where the model expects a gain of ``model.RARE_COSTS``.

    python perf/usual.py [--seed 1101] [--products 1000] [--write]

Marks are changed one by one, as long as that lessens the loss: how much longer products are expected to take than with
the best candidate, in per cent, and a ``PRICE`` for each kernel that ``OF`` products of a class need (a mean: each is
needed with the chance that any of so many is computed by it). At first ``USUAL`` candidates that most products would
take are usual, and as many others rare. Products of the table take part as layers, so that they lose little."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import script
from matmul import CUBES, LAYERS, OTHERS, SKINNY
from matmul_brute import is_promoted, ranked, workload
from matmul_random import CLASSES, Random, draw

from cutesync.kernels.matmul import candidates, model
from cutesync.kernels.matmul.policy import MatmulPolicy

WITHOUT = ("float32", "invariant", "int8", "tf32")  # have candidates of their own, or those of others
OF = 300
PRICE, PRICE_PROMOTED = 0.3, 0.08  # per cent of the time; of float8, which needs few kernels
CONVEX = 60  # a product that takes 10 % longer counts for seven times as much as that
TABLE = "table"  # the class of its products, which must lose nothing: any kernel that they need is worth its price
WEIGHTS = {"layers": 2, TABLE: 10}  # of classes; 1 of others
USUAL = 48
SWEEPS = 5  # over all candidates, at most

Name = tuple  # of a candidate: ``MatmulPolicy.kernel``; of all whose threads load operands, which are never rare, ()


class Ways(NamedTuple):
    """Of all products of a class: logarithms of the expected clocks over the best, the part of ``RARE_COSTS`` that they
    pay, the numbers of the candidate and of the kernel, and where each product begins."""

    longer: np.ndarray
    pays: np.ndarray
    candidate: np.ndarray
    kernel: np.ndarray
    starts: np.ndarray

    def chosen(self, costs: np.ndarray) -> np.ndarray:
        """What each product takes with these costs of candidates."""
        compared = self.longer + costs[self.candidate] * self.pays
        count = np.diff([*self.starts, len(compared)])
        chosen = np.flatnonzero(compared == np.minimum.reduceat(compared, self.starts).repeat(count))
        return chosen[np.unique(np.searchsorted(self.starts, chosen, side="right"), return_index=True)[1]]

    def loss(self, costs: np.ndarray, price: float) -> float:
        chosen = self.chosen(costs)
        chance = np.bincount(self.kernel[chosen]) / len(self.starts)
        longer = self.longer[chosen] * (1 + CONVEX * self.longer[chosen])
        return 100 * float(longer.mean()) + price * float((1 - (1 - chance) ** OF).sum())


def ways_of(products: list[Random], names: dict[Name, int]) -> Ways:
    """``names`` numbers candidates, and is added to."""
    kernels: dict[tuple, int] = {}
    rows, starts = [], []
    for product in products:
        starts.append(len(rows))
        found = possible(product)
        pays = model.LONG_RARE if model.is_long(workload(product, found[0][1])) else 1
        for clocks, config in found:
            longer = float(np.log(clocks / found[0][0]))
            if longer <= max(model.RARE_COSTS):
                load = workload(product, config)
                name = () if config.own else config.kernel
                kernel = (config.kernel, load.access.own_a, load.access.own_b, load.by_tma)
                rows.append(
                    (longer, pays, names.setdefault(name, len(names)), kernels.setdefault(kernel, len(kernels)))
                )
    longer, pays, candidate, kernel = np.array(rows).T
    return Ways(longer, pays, candidate.astype(int), kernel.astype(int), np.array(starts))


def possible(product: Random) -> list[tuple[float, MatmulPolicy]]:
    """Candidates in all ways, best first: with TMA or copies before, and with own loads."""
    promoted = is_promoted(product)
    usual = candidates.PROMOTED if promoted else candidates.CANDIDATES
    own = candidates.PROMOTED_OWN if promoted else candidates.OWN
    return sorted(
        [pair for pair in ranked(product, usual) if not pair[1].own]
        + [pair for pair in ranked(product, own) if pair[1].own],
        key=lambda pair: pair[0],
    )


def levels(classes: dict[str, Ways], count: int, price: float) -> list[int]:
    """How rare each candidate is, by number, 0 for number 0."""
    costs = np.array(model.RARE_COSTS)
    used = np.zeros(count)
    for ways in classes.values():
        used += np.bincount(ways.candidate[ways.chosen(np.zeros(count))], minlength=count)
    order = np.argsort(-used, kind="stable")
    found = np.minimum(np.argsort(order) // USUAL, len(costs) - 1)
    found[0] = 0
    order = order[order > 0]

    def loss() -> float:
        return sum(
            WEIGHTS.get(group, 1) * ways.loss(costs[found], price * (group != TABLE)) for group, ways in classes.items()
        )

    least = loss()
    for sweep in range(SWEEPS):
        before = least
        for number in order[:: 1 if sweep % 2 == 0 else -1]:
            kept = found[number]
            for level in range(len(costs)):
                found[number] = level
                now = loss()
                if now < least:
                    least, kept = now, level
            found[number] = kept
        if least == before:
            break
    print(f"{np.bincount(found)} of {count} candidates; loss {least:.3f}")
    return found.tolist()


def marked(text: str, of: dict[Name, int]) -> str:
    """The source of the candidates with these marks; what no product takes is as rare as can be."""
    options: dict = {}
    rarest = len(model.RARE_COSTS) - 1

    def line(m: re.Match) -> str:
        if m["name"]:
            options.update(schedule=m["name"].lower(), promoted=bool(m["two"]))
            return m[0]
        tile, words = (int(m["rows"]), int(m["columns"])), m["words"].replace("~", "").split()
        groups: list[list[str]] = [[] for _ in model.RARE_COSTS]
        for word in words:
            config = candidates.parsed(word, tile, **options)
            groups[of.get(config.kernel, rarest)].append(word)
        return f'    {tile}: "{" ~".join(" ".join(["", *group]) for group in groups).strip(" ").rstrip("~ ")}",\n'

    names = r"_(?P<name>COOPERATIVE|PINGPONG)(?P<two>_TWO_SETS)? = [^\n]*\n"
    form = r"    \((?P<rows>\d+), (?P<columns>\d+)\): \"(?P<words>[^\"]*)\",\n"
    return re.sub(f"^(?:{names}|{form})", line, text, flags=re.M)


def main(argv=None) -> None:
    parser = script.parser(__doc__)
    parser.add_argument("--seed", type=int, default=1101)
    parser.add_argument("--products", type=int, default=1000, help="of each class")
    parser.add_argument("--write", action="store_true", help="mark the candidates")
    chosen = parser.parse_args(argv)
    drawn = {
        group: list(itertools.islice(draw(group, chosen.seed), chosen.products))
        for group in CLASSES
        if group not in WITHOUT
    }
    of_table = (*((n, n, n) for n in CUBES), *OTHERS, *SKINNY, *LAYERS)
    drawn[TABLE] = [Random("layers", *extents) for extents in of_table]
    found: dict[Name, int] = {}
    for promoted in (False, True):
        names: dict[Name, int] = {(): 0}
        classes = {group: ways_of(of, names) for group, of in drawn.items() if is_promoted(of[0]) == promoted}
        found |= zip(names, levels(classes, len(names), PRICE_PROMOTED if promoted else PRICE))
    path = Path(candidates.__file__)
    text = marked(path.read_text(encoding="utf-8"), found)
    if chosen.write:
        path.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    script.run(main)
