"""The policies that the model chooses among."""

from dataclasses import replace

from .policy import MatmulPolicy

COOPERATIVE = tuple(
    MatmulPolicy(tile, "cooperative", cluster)
    for tile in ((128, 256), (256, 128), (256, 160), (256, 192), (128, 224), (128, 128))
    for cluster in ((2, 1), (1, 2), (1, 1))
)
PINGPONG = tuple(
    MatmulPolicy(tile, "pingpong", cluster)
    for tile in ((128, 128), (128, 160), (128, 192), (128, 208), (64, 256), (64, 128), (64, 64))
    for cluster in ((1, 2), (2, 1), (1, 1))
)
# for small results of operands whose rows are no cache lines: the fewest loads
STRADDLING = (MatmulPolicy((64, 160), "pingpong", (4, 1)),)
# for results of few columns, and of few rows, which are computed as columns
_NARROW = (
    ((64, 16), "pingpong"),
    ((64, 32), "pingpong"),
    ((128, 16), "cooperative"),
    ((128, 32), "cooperative"),
    ((128, 64), "cooperative"),
)
SKINNY = tuple(MatmulPolicy(tile, schedule, cluster) for tile, schedule in _NARROW for cluster in ((2, 1), (1, 1)))
CANDIDATES = COOPERATIVE + PINGPONG + SKINNY + STRADDLING
_TWO_SETS = (
    ((128, 192), "cooperative"),
    ((128, 160), "cooperative"),
    ((128, 128), "cooperative"),
    ((64, 192), "pingpong"),
    ((64, 128), "pingpong"),
    ((64, 64), "pingpong"),
)
PROMOTED = tuple(
    MatmulPolicy(tile, schedule, cluster, promoted=True)
    for tile, schedule in _TWO_SETS
    for cluster in ((2, 1), (1, 2), (1, 1))
) + tuple(replace(config, promoted=True) for config in SKINNY)
SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
