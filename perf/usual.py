"""Which candidates of the matmul serve most random products nearly as well as the best: the others are marked as rare
in ``kernels/matmul/candidates.py``, and chosen only where the model expects a gain of ``RARE_COST``.

    python perf/usual.py [--seed 1101] [--products 300] [--most 44] [--write]

Kernels are taken one by one, each time that which serves most products that none before serves (greedy cover)."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from pathlib import Path

import script
from matmul_brute import is_promoted, workload
from matmul_random import CLASSES, Random, draw
from matmul_sweep import QUOTAS

from cutesync.kernels.matmul import candidates, model
from cutesync.kernels.matmul.policy import MatmulPolicy

WITHOUT = ("float32", "invariant")  # have candidates of their own


def near(product: Random) -> set[tuple]:
    """The kernels of candidates that take at most ``RARE_COST`` more than the best, by the model, in either way of
    computing the result; of a long product, which pays less, that of the best."""
    forms = (MatmulPolicy((64, 64), "pingpong", swap_ab=swapped) for swapped in (False, True))
    loads = [workload(product, form) for form in forms]
    clocks: dict[tuple, float] = {}
    for ranking in model.shortlists(loads, model.BEST):
        for found, config in ranking:
            clocks[config.kernel] = min(found, clocks.get(config.kernel, found))
    most = min(clocks.values()) * (1 if model.is_long(loads[0]) else 1 + model.RARE_COST)
    return {kernel for kernel, found in clocks.items() if found <= most}


def cover(sets: list[set[tuple]], most: int) -> list[tuple]:
    """At most so many kernels, in the order in which they are taken."""
    serves: dict[tuple, set[int]] = defaultdict(set)
    for number, kernels in enumerate(sets):
        for kernel in kernels:
            serves[kernel].add(number)
    left, taken = set(range(len(sets))), []
    while left and len(taken) < most:
        taken.append(max(sorted(serves), key=lambda kernel: len(serves[kernel] & left)))
        left -= serves.pop(taken[-1])
    print(f"{len(taken)} kernels serve {1 - len(left) / len(sets):.0%} of {len(sets)} products")
    return taken


def marked(text: str, usual: list[tuple]) -> str:
    """The source of the candidates with the rare ones behind "~"."""
    options: dict = {}

    def line(m: re.Match) -> str:
        if m["name"]:
            options.update(schedule=m["name"].lower(), promoted=bool(m["two"]))
            return m[0]
        tile, words = (int(m["rows"]), int(m["columns"])), m["words"].replace("~", "").split()
        rare = [word for word in words if candidates.parsed(word, tile, **options).kernel not in usual]
        found = [word for word in words if word not in rare] + ["~"] * bool(rare) + rare
        return f'    {tile}: "{" ".join(found)}",\n'

    names = r"_(?P<name>COOPERATIVE|PINGPONG)(?P<two>_TWO_SETS)? = [^\n]*\n"
    form = r"    \((?P<rows>\d+), (?P<columns>\d+)\): \"(?P<words>[^\"]*)\",\n"
    return re.sub(f"^(?:{names}|{form})", line, text, flags=re.M)


def main(argv=None) -> None:
    parser = script.parser(__doc__)
    parser.add_argument("--seed", type=int, default=1101)
    parser.add_argument("--products", type=int, default=300, help="of each class, of some more")
    parser.add_argument("--most", type=int, default=44, help="usual kernels of a kind")
    parser.add_argument("--write", action="store_true", help="mark the candidates")
    chosen = parser.parse_args(argv)
    candidates.RARE = frozenset()
    products = [
        product
        for group in CLASSES
        if group not in WITHOUT
        for product in itertools.islice(draw(group, chosen.seed), QUOTAS.get(group, 1) * chosen.products)
    ]
    usual = [
        kernel
        for promoted in (False, True)
        for kernel in cover([near(product) for product in products if is_promoted(product) == promoted], chosen.most)
    ]
    path = Path(candidates.__file__)
    text = marked(path.read_text(encoding="utf-8"), usual)
    if chosen.write:
        path.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
