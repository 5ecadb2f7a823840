"""One GPU that stands for two: what several streams and the copy engine do there."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group, overlap
from cutesync.runtime import device
from cutesync.runtime.copy_engine import CopyEngine

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)], ids=["gather", "ring"])
def test_copies_beside_products(axes, monkeypatch):
    """The same bits by copy engines and by kernels; floats whose sums depend on the order."""
    monkeypatch.setattr(overlap, "MIN_PIECE", 0)
    groups, streams = [Group((0, 0)) for _ in range(2)], CopyEngine((0, 0)).kernels
    monkeypatch.setattr(groups[1], "copy_engine", lambda streams: None)
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(shape).astype("float16") for shape in ((256, 128), (128, 192)))
    found = []
    for group in (groups[0], groups[0], groups[1]):
        given = group.shard(a, axes[0]), group.shard(b, axes[1])
        found.append(cs.matmul(*given, stream=list(streams)))
        for stream in streams:
            device.synchronize(stream)
    hosts = [np.asarray(y) for y in found]
    assert np.allclose(hosts[0], a.astype("float32") @ b.astype("float32"), atol=0.2, rtol=0.01)
    assert all(np.array_equal(hosts[0], host) for host in hosts[1:])
    assert {overlap.GatherPlan, overlap.RingPlan} & {type(call.plan) for call in groups[0].plans.values()}
