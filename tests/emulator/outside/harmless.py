"""Planted faults that are not reported, because they change nothing: why, for the versions and shapes of the table."""

from __future__ import annotations

_FEW = "it never waits: no more copies are pending than it allows"
_LAST = "nothing that it orders follows"
_OWN = "each thread copies to what it has itself written before"
_ROWS = "each warpgroup overwrites the rows that its own products have read, and it has waited for them"
_FREE = "the stage is free since the tile before has waited for all its stores"
_TAIL = "the repair of this example waits for all stores at the end of each tile, before a barrier of both warpgroups"

# script, fault and number of its place -> why
HARMLESS = {
    ("dense_gemm.py", "no wait_group", 0): _FEW,
    ("dense_gemm.py", "no named barrier", 15): _LAST,
    ("fmha.py", "no wait_group", 6): "the loop before has waited for all products",
    ("fmha.py", "no wait_group", 0): _TAIL,
    ("fmha.py", "no wait_group", 1): _TAIL,
    ("fmha.py", "no named barrier", 3): _TAIL,
    ("grouped_gemm.py", "no block barrier", 0): (
        "named barrier 2, of the loading warp and the consumers, precedes every use of the mbarriers (in the mode "
        "without it, --tensormap_update_mode GMEM, the fault is reported)"
    ),
    ("tensorop_gemm.py", "no wait for cp.async", 2): "the loop has waited for all groups that hold copies",
    ("tensorop_gemm.py", "no block barrier", 0): _OWN,
    ("sgemm.py", "no named barrier", 2): _LAST,
    ("quack_gemm.py", "no wait_group", 0): f"{_FEW} (a tile ends with a wait for all stores)",
    ("quack_gemm.py", "no named barrier", 15): _FREE,
    ("forward.py", "no named barrier", 3): _ROWS,
    ("backward.py", "no wait_group", 2): (
        "the loading warp waits for the stage of Q first, which is released after a wait for all products"
    ),
    ("backward.py", "no wait_group", 3): _FEW,
}
