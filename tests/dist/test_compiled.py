"""The kernels between eight devices compile for sm_90a, without a GPU, and spill nothing."""

from __future__ import annotations

import pytest

from cutesync.dist import topk
from cutesync.dist.by_key import RunSeam
from cutesync.dist.exchange import kernel_spec
from cutesync.dist.memory import MAX_RANKS
from cutesync.dtypes import BY_NAME
from cutesync.kernels.segments.spec import Heads
from cutesync.kernels.states import States
from cutesync.ops import operator

from ..compiled import cubin_figures, tell_figures, verify

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]
REPORTS = 48  # bytes of stack: the arguments of the reports of ranks that are late


@pytest.mark.parametrize(("keys", "values"), [(("int32",), ("float32",)), (("float16", "int64"), ("float64", "int8"))])
def test_runs_across_seams(keys, values):
    sources, states = (tuple(BY_NAME[name] for name in names) for names in (keys, values))
    seam = RunSeam(Heads("keys", sources), States(operator("add"), states, states, states))
    registers, frame = cubin_figures(kernel_spec(seam, MAX_RANKS, None, True).kernel().cubin)
    assert frame <= REPORTS and registers <= 255


def test_indices_of_the_top(allocated, capsys):
    tell_figures(capsys, [verify(topk.kernel_spec(MAX_RANKS), allocated)])
