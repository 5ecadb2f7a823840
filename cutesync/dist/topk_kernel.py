"""The kernel that turns places among the candidates of all parts into indices in the whole array: no thread waits for
another."""

from __future__ import annotations

from cutlass import Int64, cute

from ..kernels.plain import PlainKernel
from ..kernels.tiled import element
from ..monoid import choose
from ..sync.overlap import let_next_start


class LookUp(PlainKernel):
    """Arrays are seen as (rows, length, inner): ``places`` has ``k`` elements along the axis, ``indices`` has those of
    all parts, one after the other."""

    name, threads = "top_indices", 256

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    @cute.jit
    def main(self, places: cute.Pointer, indices: cute.Pointer, numbers: tuple):
        """``numbers``: how many places, k, inner, how many candidates a row has; then of each part its first candidate,
        and the index of its first element in the whole array."""
        let_next_start()
        count, k, inner, candidates, *parts = numbers
        at = Int64(cute.arch.block_idx()[0]) * self.threads + cute.arch.thread_idx()[0]
        if at < count:
            place = Int64(element(places + at))
            offset = Int64(0)
            for first, before in zip(parts[: self.ranks], parts[self.ranks :]):
                offset = choose(place >= first, before, offset)
            index = Int64(element(indices + ((at // (k * inner) * candidates + place) * inner + at % inner)))
            cute.make_tensor(places + at, cute.make_layout((1,)))[0] = index + offset
