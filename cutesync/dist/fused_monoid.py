"""Device code of ``fused``: what the thread does that stores the result of a part."""

from __future__ import annotations

from typing import Any

from cutlass import Int32, Int64, cute

from ..sync.gather import Entry
from .link import Link, chosen
from .memory import Call


class FusedMonoid:
    """The members are those of the part's own reduction, but for ``results_of``, which exactly one thread of a launch
    calls: it exchanges the state, and returns the results of the whole array."""

    def __init__(self, fused: Any) -> None:
        self.own, self.last, self.ranks = fused.first.monoid(), fused.last.monoid(), fused.ranks
        self.arg_count, self.results = len(fused.args), self.last.results
        self.call: tuple = ()
        self.peers: tuple = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def bind(self, args) -> None:
        args = tuple(args)
        first, last = self.own.arg_count, self.own.arg_count + self.last.arg_count
        self.own.bind(args[:first])
        self.last.bind(args[first:last])
        self.call, self.peers = args[last : -self.ranks], args[-self.ranks :]

    def results_of(self, state) -> tuple:
        call = Call(*map(Int32, self.call))
        mine = chosen(self.peers, call.rank)
        counters = cute.make_ptr(Int64, mine, cute.AddressSpace.gmem, assumed_align=8)
        word = cute.arch.load(counters, Int64, sem="relaxed", scope="gpu")
        link = Link(self.peers, mine, Entry(word, Int32(0)).tag, call)
        for peer in self.peers:
            link.greet(peer)
        link.send(self.last.types, self.last.lift(*self.own.results_of(state), Int64(1)), 0)
        total, late = link.combined(self.last, 0)
        link.meet(range(self.ranks), late)
        cute.arch.store(counters, word + (Int64(1) << 32), sem="relaxed", scope="gpu")
        return self.last.results_of(total)
