"""Results that would be stored one by one down the rows, as threads in their own order have them, agree with the
reference."""

from __future__ import annotations

import numpy as np

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import gathered_policy, strided_policy
from cutesync.kernels.flags.order import pace_out
from cutesync.runtime import call

from ..cases import same
from .cases import keys


def test_results_in_their_own_order(place, monkeypatch):
    """Threads of small arrays whose results would be stored one by one: several rows, or one; others have low tiles."""
    chosen, choose = [], strided_policy.fit_tiles
    monkeypatch.setattr(strided_policy, "fit_tiles", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    for least, most, axis, rows in ((0, 1 << 22, 0, 4), (1 << 15, 1 << 22, 1, 1), (0, 0, 0, 4), (0, 0, 2, 4)):
        monkeypatch.setattr(call, "_plans", {})
        monkeypatch.setattr(gathered_policy, "FEWEST_THREADS", least)
        for name in ("MAX_GATHERED", "MAX_RUNS"):
            monkeypatch.setattr(gathered_policy, name, most)
        host = keys((9, 5, 7), "int32")
        ours, theirs = cs.asarray(host).transpose(2, 1, 0), host.transpose(2, 1, 0)
        both = zip(cs.flag_heads_and_tails(ours, axis=axis), reference.flag_heads_and_tails(theirs, axis=axis))
        for found, wanted in both:
            same(np.asarray(found), wanted)
        policy = chosen[-1].policy
        assert (policy.columns, policy.rows, pace_out(chosen[-1].axes[0]) == 1) == (1, rows, most > 0)
