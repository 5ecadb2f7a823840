"""The policies that the model chooses among: those that random products need on an H200, few enough that a product of a
new shape rarely meets a kernel that is not compiled.

A tile has its clusters and slices of K in short: "2x1/4" is two blocks along M that share loads, K in four slices.
Those behind "~" are rare, those behind a second "~" rarer: products that gain little by them take another. Where
threads load operands or store results, as TMA refuses them, all without a star are rare; where they load one operand
alone, all without a plus. Each takes several kernels there. (``python perf/usual.py`` marks them.)
"""

import contextlib
from dataclasses import replace
from functools import cache
from typing import Any

from ...errors import ArgumentValueError
from .policy import MAX_OWN_ACCUMULATORS, MatmulPolicy

STAR, PLUS = "*", "+"
_COOPERATIVE = {
    (64, 96): "~ ~ 1x1",
    (64, 144): "~ ~ 1x1 4x1",
    (64, 160): "~ ~ 1x1",
    (128, 32): "~ ~ 4x1/3 4x1",
    (128, 48): "~ ~ 1x1",
    (128, 72): "~ ~ 1x2/4",
    (128, 80): "1x1 ~ 2x1",
    (128, 88): "1x4",
    (128, 96): "4x2 ~ ~ 1x1/2 1x2 4x2/3",
    (128, 104): "~ ~ 4x1 1x2",
    (128, 112): "~ ~ 2x1",
    (128, 120): "~ ~ 2x2 1x1",
    (128, 128): "~ ~ 4x2/3",
    (128, 136): "~ ~ 2x1",
    (128, 144): "~ ~ 2x2/2",
    (128, 152): "~ ~ 4x1",
    (128, 160): "~ ~ 4x1/2 1x4 4x1 4x2/3",
    (128, 168): "~ ~ 2x1 1x1",
    (128, 192): "~ ~ 2x1/2",
    (128, 224): "2x1 ~ ~ 4x1",
    (128, 256): "~ 2x1 1x1",
    (192, 144): "~ ~ 2x2 1x2",
    (192, 176): "~ ~ 2x2",
    (192, 192): "~ ~ 1x2",
    (192, 208): "~ ~ 1x2",
    (256, 104): "~ ~ 1x2 1x1",
    (256, 144): "~ ~ 1x2",
    (256, 160): "~ ~ 1x2",
    (256, 176): "~ ~ 1x2",
}
_PINGPONG = {
    (64, 16): "1x2/4 2x2 ~ 1x1/2 2x1/2 4x1 ~ 2x1/4 1x1 2x4 1x2/3* 2x2/2",
    (64, 24): "~ ~ 1x1*",
    (64, 32): "1x1/2 ~ 1x1 ~ 4x1 2x2 2x4 1x1/6* 1x1/4 1x2/4 1x2/2",
    (64, 40): "1x1* ~ ~ 2x2",
    (64, 48): "1x2/4 ~ 1x1 ~ 2x1/3 1x2 1x4 1x1/8 1x1/4",
    (64, 56): "2x2 1x1 ~ ~ 4x1 4x2 1x4",
    (64, 64): "2x1/4 ~ 1x1 4x1/2 ~ 4x1 1x4 1x1/2 4x2 1x1/6 2x1",
    (64, 72): "~ ~ 2x1/4* 2x2",
    (64, 80): "~ ~ 2x2/2 1x1 1x2 2x1 1x1/8 1x1/4",
    (64, 88): "4x1* 1x1 ~ ~ 1x4 2x1 4x1/3",
    (64, 96): "4x1/2 1x1 ~ 4x1 2x4 ~ 1x4 2x2/2 1x2/4 2x1 1x4/2",
    (64, 104): "4x1* ~ ~ 1x1 2x1 1x4",
    (64, 112): "2x1/4 ~ ~ 2x2/2",
    (64, 120): "~ ~ 4x1/2* 2x1/4",
    (64, 128): "4x1/2 4x1 1x1 2x2/2 ~ ~ 2x4 4x2 2x1",
    (64, 136): "~ ~ 1x1* 1x2 4x1",
    (64, 152): "~ ~ 2x1",
    (64, 160): "4x1 ~ ~ 2x4 4x1/2 2x1",
    (64, 184): "~ ~ 2x1*",
    (64, 192): "~ ~ 4x1 2x4 1x1",
    (64, 224): "~ ~ 1x1",
    (128, 80): "~ ~ 1x4/3 1x4/4",
    (128, 88): "~ ~ 1x4/2",
    (128, 96): "~ ~ 2x4 1x1",
    (128, 104): "~ ~ 1x1",
    (128, 112): "1x1 ~ ~ 2x4 2x2/2",
    (128, 120): "~ ~ 1x4/2",
    (128, 128): "4x2* ~ ~ 1x1 4x1",
    (128, 136): "~ ~ 1x1* 4x2",
    (128, 144): "~ 1x1 ~ 2x4",
    (128, 160): "1x1* 4x2 2x1 ~ ~ 4x1 2x4",
    (128, 168): "~ ~ 1x1",
    (128, 176): "~ ~ 2x4",
    (128, 184): "~ ~ 1x1* 4x2*",
    (128, 192): "2x1 1x1 ~ ~ 4x2 1x2",
    (128, 200): "2x1",
    (192, 80): "~ ~ 1x4/2",
    (192, 88): "1x4",
    (192, 96): "1x4 ~ ~ 1x2 2x4 1x1",
    (192, 112): "~ ~ 1x2",
    (192, 128): "~ ~ 1x4 1x2",
}
_TURNSTILES = "1x1/12 1x1/16 1x1/24 1x1/32"  # few tiles, a long K: a kernel for all of them
_MANY_SLICES = {(64, 32): _TURNSTILES, (64, 64): _TURNSTILES, (64, 128): _TURNSTILES}


def parsed(word: str, tile: tuple[int, int], schedule: str, **options: Any) -> MatmulPolicy:
    cluster, _, splits = word.rstrip(STAR + PLUS).partition("/")
    m, n = cluster.split("x")
    return MatmulPolicy(tile, schedule, (int(m), int(n)), splits=int(splits or 1), **options)


_levels: dict[tuple, int] = {}  # how rare kernels are, by ``MatmulPolicy.kernel``
_usual_by_threads: set[tuple] = set()  # ``name`` of those with a star, or a plus
_made_from: dict[tuple, tuple] = {}  # kernels with a given number of slices, and those of the candidates they come from


def _policies(schedule: str, forms: dict[tuple[int, int], str], **options: Any) -> tuple[MatmulPolicy, ...]:
    found = []
    for tile, words in forms.items():
        for level, group in enumerate(words.split("~")):
            for word in group.split():
                found.append(parsed(word, tile, schedule, **options))
                _levels.setdefault(found[-1].kernel, level)
                for mark, own in ((STAR, 2 * found[-1].own), (PLUS, 1)):
                    if mark in word:
                        _usual_by_threads.add(name(found[-1], own))
    return tuple(found)


def name(config: MatmulPolicy, own: int) -> tuple:
    """What is marked: a kernel of a candidate, whose threads load so many operands."""
    return _made_from.get(config.kernel, config.kernel), own


def rarity(config: MatmulPolicy) -> int:
    """How many "~" its kernel is behind; own loads are behind none."""
    return 0 if config.own else _levels.get(name(config, 0)[0], 0)


def usual_by_threads(config: MatmulPolicy, own: int) -> bool:
    """Whether it is not rare where threads load so many operands or store results. Of those with more sets of
    accumulators none is."""
    return config.promoted or name(config, own) in _usual_by_threads


CANDIDATES = _policies("cooperative", _COOPERATIVE) + _policies("pingpong", _PINGPONG)
CANDIDATES += _policies("pingpong", _MANY_SLICES)
# with a second set of accumulators: the warpgroups of a block share its only tile, if there are few
_COOPERATIVE_TWO_SETS = {
    (64, 80): "~ 1x2",
    (64, 96): "~ 2x1/4 ~ 2x2 4x2 2x1/2",
    (64, 128): "4x1 1x1 ~ 1x1/2",
    (64, 160): "~ ~ 4x2",
    (64, 176): "~ 1x1",
    (64, 192): "~ 2x1",
    (64, 256): "~ ~ 1x2",
    (128, 40): "~ 1x1",
    (128, 64): "~ 1x2 ~ 2x2",
    (128, 80): "~ ~ 1x4/2",
    (128, 88): "1x1 ~ ~ 2x2/3",
    (128, 96): "2x2/2 ~ ~ 1x4 4x2",
    (128, 104): "1x2 1x4",
    (128, 112): "~ 1x2 ~ 2x1",
    (128, 120): "~ 2x2/2",
    (128, 128): "2x4 ~ 1x1 2x2 1x2",
    (128, 136): "~ 4x2 ~ 2x4",
    (128, 144): "~ ~ 1x2/2 4x2 1x1",
    (128, 152): "1x2",
    (128, 160): "2x1 4x2 ~ 4x1 ~ 2x4 1x1",
    (128, 176): "~ ~ 2x1 2x4",
    (128, 184): "1x2 2x1",
    (128, 192): "2x1 ~ 2x2 2x4 ~ 1x2",
    (192, 96): "~ ~ 1x2",
    (256, 80): "1x4 ~ 1x2 ~ 2x1",
    (256, 96): "~ ~ 1x1",
}
_PINGPONG_TWO_SETS = {
    (64, 16): "2x2 ~ 1x2/4 1x2/3 1x1 2x2/2",
    (64, 24): "~ ~ 1x1",
    (64, 32): "~ 1x1/2 1x1/4 1x1 1x1/6 ~ 1x1/8 2x2 2x4 4x2",
    (64, 40): "1x1",
    (64, 48): "1x2/4 ~ 1x1/4 ~ 1x1/6 2x2/2 1x1",
    (64, 56): "2x2 1x1 ~ 1x4",
    (64, 64): "1x1 ~ 4x2 2x1/4 4x1/2 4x1",
    (64, 80): "2x2/2",
    (64, 88): "1x4 4x1 2x1",
    (64, 96): "4x1/2 ~ 4x1 2x4 1x1 ~ 1x4 4x2 1x1/6",
    (64, 104): "2x2 1x1",
    (64, 112): "2x2/2 ~ 2x1/4",
    (64, 128): "~ 1x1 1x4 ~ 4x2 2x4",
    (64, 160): "~ 4x1/2 ~ 4x1 4x2 2x4",
    (64, 184): "~ ~ 4x2",
    (64, 192): "~ 2x1 ~ 1x1",
    (128, 96): "~ ~ 2x4",
}
PROMOTED = _policies("cooperative", _COOPERATIVE_TWO_SETS, promoted=True)
PROMOTED += _policies("pingpong", _PINGPONG_TWO_SETS, promoted=True)
PROMOTED += _policies("pingpong", _MANY_SLICES, promoted=True)
# operands that the producer's threads load
LOADS = {"load_a": "own", "load_b": "own"}
_COOPERATIVE_OWN = {
    (128, 32): "1x1",
    (128, 48): "1x1",
    (128, 96): "1x1*",
    (128, 128): "1x1",
}
_PINGPONG_OWN = {
    (64, 16): "1x1* 1x1/2* 1x1/3 1x1/4",
    (64, 32): "1x1* 1x1/3 1x1/8*",
    (64, 48): "1x1 1x1/2 1x1/6",
    (64, 64): "1x1* 1x1/2* 1x1/4*",
    (64, 128): "1x1*+ 1x1/8+",
}
OWN = _policies("cooperative", _COOPERATIVE_OWN, **LOADS) + _policies("pingpong", _PINGPONG_OWN, **LOADS)
PROMOTED_OWN = tuple(
    replace(config, promoted=True) for config in OWN if config.accumulators <= MAX_OWN_ACCUMULATORS // 2
)
# float32, split into parts in the kernel: with a third set
SPLIT: dict[str, Any] = {"promoted": True, "parts": True}
_COOPERATIVE_PARTS = {
    (128, 64): "~ ~ 1x1/3 1x1 1x1/2 1x1/4 1x1/8",
    (128, 80): "1x1/2 1x1/4 ~ 1x1/3 ~ 1x1 1x1/8",
    (128, 96): "1x1/8 1x1 ~ ~ 1x1/2 1x1/4 1x1/3",
    (128, 112): "1x1/2 ~ ~ 1x1 1x1/8 1x1/3",
    (128, 128): "1x1 1x1/2 1x1/3 1x1/4 ~ ~ 1x1/8",
}
_PINGPONG_PARTS = {
    (64, 16): "~ ~ 1x1/2 1x1",
    (64, 32): "1x1/2 ~ ~ 1x1 1x1/8 1x1/3 1x1/4",
    (64, 48): "1x1/3 1x1/8 ~ 1x1 1x1/4",
    (64, 64): "~ ~ 1x1/3 1x1/4 1x1/8",
    (64, 80): "~ 1x1/2 ~ 1x1/3 1x1 1x1/4",
    (64, 96): "1x1 1x1/2 1x1/8 ~ ~ 1x1/4",
    (64, 112): "1x1/4 ~ 1x1/8 ~ 1x1 1x1/2",
    (64, 128): "1x1 1x1/2 ~ ~ 1x1/4",
}
PARTS = _policies("cooperative", _COOPERATIVE_PARTS, **SPLIT) + _policies("pingpong", _PINGPONG_PARTS, **SPLIT)
PARTS += _policies("pingpong", _MANY_SLICES, **SPLIT)
# K in so many slices, whatever the number of rows (``batch_invariant``), beside the forms above
_OF_ANY_ROWS = _policies("cooperative", {(128, 128): "1x1"})
_OF_ANY_ROWS += _policies("pingpong", dict.fromkeys(((64, 16), (64, 32), (64, 64), (64, 96), (128, 96)), "1x1"))
# the same one behind the other, which needs a second set: large tiles for many rows
_IN_TURN_FORMS = {
    (128, 112): "1x2",
    (128, 128): "1x1 1x2",
    (128, 136): "2x4",
    (128, 144): "1x1",
    (128, 160): "1x1 2x1 2x4 4x2",
    (128, 176): "2x1",
    (128, 192): "2x1 1x2",
}
_IN_TURN = _policies("cooperative", _IN_TURN_FORMS)


@cache
def of_kind(promoted: bool, parts: bool, own: bool, slices: int) -> tuple[MatmulPolicy, ...]:
    """The policies for a kind of problems (see ``workload.Workload``)."""
    of_own = PROMOTED_OWN if promoted else OWN
    if slices <= 1:
        return of_own if own else PARTS if parts else PROMOTED if promoted else CANDIDATES
    usual = () if own or parts else PROMOTED if promoted else CANDIDATES
    forms: list[tuple[MatmulPolicy, dict[str, Any]]]
    forms = [(config, {"splits": slices}) for config in usual if config.splits > 1]
    one_slice: dict[str, Any] = {"promoted": promoted, "parts": parts, "splits": slices}
    forms += [(config, one_slice) for config in (of_own if own else _OF_ANY_ROWS) if config.splits == 1]
    if not promoted:  # the slices one behind the other in a block, for many rows
        forms += [(config, {"slices": slices}) for config in (*usual, *_IN_TURN) if config.splits == 1]
    found: dict[MatmulPolicy, None] = {}
    for config, change in forms:
        with contextlib.suppress(ArgumentValueError):  # where the registers do not suffice for further sets
            made = replace(config, **change)
            found.setdefault(made)
            if made.kernel not in _levels:
                _made_from.setdefault(made.kernel, config.kernel)
    return tuple(found)
