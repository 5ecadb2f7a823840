"""The policies that the model chooses among: those that random products need on an H200, few enough that a product of a
new shape rarely meets a kernel that is not compiled."""

from dataclasses import replace

from .policy import MatmulPolicy

_ONE, _ALONG_M, _ALONG_N, _FOUR = (1, 1), (2, 1), (1, 2), (4, 1)
_COOPERATIVE = {
    (128, 256): (_ALONG_M, _ALONG_N, _ONE),
    (256, 128): (_ALONG_M, _ALONG_N, _ONE),
    (256, 160): (_ALONG_M, _ONE),
    (256, 192): (_ALONG_M, _ALONG_N),
    (128, 224): (_ALONG_M, _ONE, _FOUR),
    (128, 160): (_FOUR,),
    (128, 128): (_ALONG_M, _ONE),
    (128, 112): (_ONE,),
    (128, 80): (_ALONG_M, _ALONG_N),
    (128, 64): (_ALONG_M, _ONE),
    (128, 32): (_ALONG_M, _ONE),
    (128, 16): (_ALONG_M, _ONE),
}
_PINGPONG = {
    (128, 208): (_ALONG_M, _ONE),
    (128, 192): (_ALONG_M, _ONE, _FOUR),
    (128, 160): (_ALONG_M, _ONE),
    (128, 128): (_ALONG_M, _ALONG_N, _ONE),
    (128, 96): (_ALONG_M, _ONE),
    (192, 128): (_ALONG_N,),
    (192, 96): (_ALONG_N,),
    (64, 256): (_ALONG_N,),
    (64, 192): (_ALONG_M, _FOUR),
    (64, 160): (_ALONG_M, _ONE, _FOUR),
    (64, 128): (_ALONG_M, _ONE, _FOUR),
    (64, 96): (_ALONG_M, _ONE, _FOUR),
    (64, 64): (_ALONG_M, _ALONG_N, _ONE, _FOUR),
    (64, 48): (_ONE,),
    (64, 32): (_ALONG_N, _ONE, _FOUR),
    (64, 16): (_ALONG_N, _ONE),
}


def _policies(schedule: str, clusters: dict, promoted: bool = False) -> tuple[MatmulPolicy, ...]:
    return tuple(
        MatmulPolicy(tile, schedule, cluster, promoted=promoted)
        for tile, of_tile in clusters.items()
        for cluster in of_tile
    )


COOPERATIVE, PINGPONG = _policies("cooperative", _COOPERATIVE), _policies("pingpong", _PINGPONG)
CANDIDATES = COOPERATIVE + PINGPONG
_THREE = (_ALONG_M, _ALONG_N, _ONE)
_TWO_SETS = _policies("cooperative", dict.fromkeys(((128, 192), (128, 160), (128, 128)), _THREE), True)
_TWO_SETS += _policies("pingpong", dict.fromkeys(((64, 192), (64, 128), (64, 64)), _THREE), True)
# with a second set of accumulators
PROMOTED = _TWO_SETS + tuple(replace(config, promoted=True) for config in CANDIDATES if config.tile[1] <= 64)
SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
