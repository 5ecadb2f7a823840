"""The policies that the model chooses among: those that random products need on an H200, few enough that a product of a
new shape rarely meets a kernel that is not compiled.

A tile has its clusters and slices of K in short: "2x1/4" is two blocks along M that share loads, K in four slices.
"""

from dataclasses import replace
from typing import Any

from .policy import MAX_OWN_ACCUMULATORS, MAX_PROMOTED_ACCUMULATORS, MatmulPolicy

_COOPERATIVE = {
    (128, 16): "1x1 1x1/3",
    (128, 32): "4x1 4x1/3",
    (128, 80): "2x1",
    (128, 96): "1x1/2 2x1 2x2/2 4x2",
    (128, 160): "2x1",
    (128, 224): "1x1 2x1 4x1",
    (128, 240): "1x1 2x4",
    (128, 256): "1x1 1x2 2x1",
    (256, 144): "1x1 1x2",
    (256, 160): "1x2",
    (256, 176): "1x1 2x2",
    (256, 192): "1x2",
}
_PINGPONG = {
    (64, 16): "1x1 1x1/2 1x2/3 1x2/4 1x4/2 2x1/2 2x1/4 2x2 2x2/2 2x4",
    (64, 32): "1x1 1x1/2 1x1/8 2x1/3 2x2 2x4 4x1 4x2",
    (64, 48): "1x2 1x2/4 1x4 2x1/3 2x2/2",
    (64, 64): "1x1 1x1/2 2x1 2x1/4 4x1 4x1/2 4x2",
    (64, 80): "2x2/2 2x2/4",
    (64, 96): "1x1 1x4 1x4/2 2x2/2 2x4 4x1 4x1/2 4x2",
    (64, 112): "2x1/4 2x2/2",
    (64, 128): "1x1 1x4 2x2/2 2x4 4x2",
    (64, 144): "1x1",
    (64, 160): "1x1 2x1 2x4 4x1 4x1/2 4x2",
    (64, 192): "2x1 2x4 4x1",
    (128, 96): "1x1 2x4",
    (128, 112): "1x1 2x2/2 2x4",
    (128, 128): "1x1 4x2",
    (128, 144): "2x4",
    (128, 160): "1x1 2x4 4x1 4x2",
    (128, 192): "1x1 2x1 2x4 4x2",
    (192, 96): "1x2 2x4 4x2",
    (192, 112): "1x2",
}
_TURNSTILES = "1x1/12 1x1/16 1x1/24 1x1/32"  # few tiles, a long K: a kernel for all of them
_MANY_SLICES = {(64, 32): _TURNSTILES, (64, 64): _TURNSTILES, (64, 128): _TURNSTILES}


def _policies(schedule: str, forms: dict[tuple[int, int], str], **options: Any) -> tuple[MatmulPolicy, ...]:
    found = []
    for tile, words in forms.items():
        for word in words.split():
            cluster, _, splits = word.partition("/")
            m, n = cluster.split("x")
            found.append(MatmulPolicy(tile, schedule, (int(m), int(n)), splits=int(splits or 1), **options))
    return tuple(found)


CANDIDATES = _policies("cooperative", _COOPERATIVE) + _policies("pingpong", _PINGPONG)
CANDIDATES += _policies("pingpong", _MANY_SLICES)
# with a second set of accumulators
_COOPERATIVE_TWO_SETS = {
    (128, 96): "1x4",
    (128, 112): "1x2",
    (128, 128): "1x1 1x1/2 1x2 1x4 2x2 2x4",
    (128, 160): "1x1 1x2 2x4 4x2",
    (128, 176): "2x4",
    (128, 192): "1x2 2x1 2x2 4x1",
}
PROMOTED = _policies("cooperative", _COOPERATIVE_TWO_SETS, promoted=True)
# others are better there: of 64x192 nobody hides the additions, 1.3 to 1.6 times the time of the best, from 20 us on
_PINGPONG_ONE_SET = {
    (64, 48): "2x1/3",
    (64, 96): "2x2/2 4x2",
    (64, 160): "2x1",
    (64, 192): _PINGPONG[64, 192],
    (128, 96): _PINGPONG[128, 96],
}
_ONE_SET = _policies("pingpong", _PINGPONG_ONE_SET) + _policies("cooperative", {(128, 96): "2x1"})
PROMOTED += tuple(
    replace(config, promoted=True)
    for config in CANDIDATES
    if config.accumulators <= MAX_PROMOTED_ACCUMULATORS and config not in _ONE_SET
)
# operands that the producer's threads load
OWN = _policies("cooperative", {(128, 128): "1x1", (128, 96): "1x1"})
OWN += _policies("pingpong", {(64, 128): "1x1", (64, 64): "1x1 1x1/2 1x1/4", (64, 32): "1x1 1x1/8", (64, 16): "1x1"})
PROMOTED_OWN = tuple(
    replace(config, promoted=True) for config in OWN if config.accumulators <= MAX_OWN_ACCUMULATORS // 2
)
# float32, split into parts in the kernel: with a third set
_SPLIT = "1x1 1x1/2 1x1/3 1x1/4 1x1/6 1x1/8"
_PARTS = {"promoted": True, "parts": True}
PARTS = _policies("cooperative", dict.fromkeys(((128, 128), (128, 64), (128, 32)), _SPLIT), **_PARTS)
PARTS += _policies("pingpong", dict.fromkeys(((64, 64), (64, 32), (64, 16)), f"{_SPLIT} {_TURNSTILES}"), **_PARTS)
