# pyright: standard, reportUnnecessaryTypeIgnoreComment=true
"""A user's file for mypy and pyright: every public function, with the types that its arguments and results have.

It is checked, not run. A line with ``type: ignore`` is a mistake that the checkers must find: where a function has lost
its signature, the comment is unnecessary, which is an error too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import cutesync as cs
from cutesync import errors

x: npt.NDArray[np.float32] = np.ones((8, 32), np.float32)
keys: npt.NDArray[np.int32] = np.arange(32, dtype=np.int32)
on_device: cs.DeviceArray = cs.asarray(x)
out: cs.DeviceArray = cs.empty((8,), "float32")
shape: tuple[int, ...] = on_device.shape


def add(a: float, b: float) -> float:
    return a + b


total: object = cs.reduce(x, add, axis=1, keepdims=True, dtype="float32", identity=0)
squares: object = cs.reduce(on_device, "add", axis=(0, 1), transform=lambda v: v * v, init=1.0, out=out, stream=0)
sums: tuple[object, ...] = (cs.sum(x), cs.prod(x, 0), cs.min(x, axis=1), cs.max(x), cs.any(x), cs.all(x))
places: tuple[object, object] = (cs.argmin(x, axis=1), cs.argmax(x, axis=-1, keepdims=True))
scanned: object = cs.scan(x, "max", axis=0, exclusive=True, reverse=True, init=0)
running: tuple[object, object] = (cs.cumsum(x, axis=1), cs.cumprod(x, dtype="float64"))
moments: tuple[object, ...] = (cs.mean(x), cs.var(x, 0, ddof=1), cs.std(x, axis=1), cs.logsumexp(x, (0, 1)))
extremes: tuple[tuple[object, object], ...] = (cs.minmax(x, axis=1), cs.cummax(x), cs.cummin(x, 0))
filled: tuple[object, ...] = (cs.ffill(x, reverse=True), cs.linear_recurrence(x, x, 0, init=1.0), cs.count_nonzero(x))
heads: object = cs.flag_heads(keys, "ne", predecessor=3, dtype="bits", tile=8)
tails: object = cs.flag_tails(keys, lambda a, b: a != b, successor=3)
both: object = cs.flag_heads_and_tails(keys, dtype="bool")
chosen: cs.Selected = cs.select(x, x > 0, indices=True, axis=-1, packed=True)
halves: cs.Selected = cs.partition(x, lambda v: v > 0, indices=True)
indices: tuple[object, object] = (cs.nonzero(x), cs.argwhere(x, size=5, fill_value=-1))
runs: object = cs.unique_consecutive(keys, return_counts=True, axis=0)
steps: object = cs.adjacent_difference(keys, "sub", reverse=True)
counts: object = cs.bincount(keys, keys, length=8)
binned: tuple[object, object] = cs.histogram(x, 10, (0.0, 1.0), density=True, weights=x)
best: tuple[object, object] = cs.topk(x, 3, 0, largest=False, out=None)
where: object = cs.argtopk(keys, 3, n=7)
group: cs.dist.Group = cs.dist.Group.local(2)
sharded: cs.dist.Sharded = group.shard(x, axis=1, lengths=[30, 2])
of_parts: tuple[object, ...] = (cs.sum(sharded), cs.cumsum(sharded, 1, n=5), cs.flag_heads(sharded, axis=1, n=5))
best_of_parts: tuple[object, object] = cs.topk(sharded, 3, 1, largest=False)
runs_of_parts: tuple[object, ...] = (cs.reduce_by_key(sharded, sharded).values, cs.argtopk(sharded, 3, 0))
cs.launch(add, x, on_device, 3, stream=0)
prepared: cs.Compiled = cs.compile(add, x, 2.0)
prepared(x, 3.0, stream=None)
policy: cs.MatmulPolicy = cs.MatmulPolicy(tile=(128, 128), schedule="pingpong", cluster=(2, 1))
tile: tuple[int, int] = policy.tile
product: object = cs.matmul(x, x.T, alpha=0.5, bias=np.ones(8, np.float32), activation="gelu", config=policy)
lower: object = cs.matmul(x, x.T, product, beta=2.0, out_dtype="float16", precision="tf32", batch_invariant=True)
gated, before, largest = cs.matmul(x, x.T, x, activation=lambda v, c: v * c, pre_activation=True, amax=True)
compiled: int = cs.warm(["reduce", "scan"], ["float32"], ["add"])
version: str = cs.__version__

with cs.emulate("random", seed=1, schedules=4, trace="run.json"):
    emulated: object = cs.sum(x)
with cs.emulator.emulate(schedules=2, roles={"load": [0], "mma": range(4, 12)}) as run:
    executed: int = run.steps

try:
    cs.sum(x, axis=7)
except errors.ArgumentValueError as error:
    refused: ValueError = error
    ours: errors.CutesyncError = error

cs.sum(x, axs=1)  # type: ignore[call-arg]
cs.scan(x, "add", inclusive=True)  # type: ignore[call-arg]
cs.matmul(x)  # type: ignore[call-arg]
wrong: str = cs.asarray(x)  # type: ignore[assignment]
