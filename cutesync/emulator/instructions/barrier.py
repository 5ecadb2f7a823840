"""``bar`` / ``barrier``, ``barrier.cluster``, ``mapa`` and ``mbarrier``."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import route
from ..async_copy import Issue
from ..barriers import CLUSTER_SCOPE, CTA_SCOPE, MARK, ClusterBarrier, MBarrier, NamedBarrier
from ..clocks import ACTORS, each
from ..lanes import count_nonzero as cnz
from ..memory import RANK_SHIFT, SHARED_BITS, SHARED_START
from ..syntax import SINK, Instr, Mem
from .moves import address_operand
from .registry import accept, handles

_LANES = np.arange(32)


# --- named barriers ---------------------------------------------------------------------------------------------------


def one_value(f, vector: np.ndarray, what: str, site: int) -> int:
    """The value that all active lanes agree on."""
    active = vector if f.lanes is None else vector[f.lanes]
    data = active.tobytes()
    if data != data[: active.itemsize] * len(active):
        f.fail("barrier", f"lanes of one warp give different {what}", site)
    return active.item(0)


def named_barrier(site: int, mode: str, slot: int, f, following, number, count, predicate=None):
    """``bar.sync``, ``bar.arrive`` and ``bar.red`` (``mode``: its operator; ``slot``: of its destination)."""
    number, block = one_value(f, number, "barrier numbers", site), f.warp.block
    if number > 15:
        f.fail("barrier", f"there is no named barrier {number}: they are numbered 0 to 15", site)
    if number not in block.named:
        block.named[number] = NamedBarrier(f.warp.machine, block, number)
    barrier = block.named[number]
    barrier.arrive(f, None if count is None else one_value(f, count, "barrier counts", site), site)
    if mode == "arrive":
        barrier.check()
        return following
    if predicate is None:
        return barrier.wait(f, following, site)
    barrier.votes.append((f.count, cnz(predicate & f.mask)))
    return barrier.wait(f, following, site, partial(count_votes, mode, slot))


def count_votes(operator: str, slot: int, f, votes) -> None:
    """Set the destination of ``bar.red`` from ``votes``: of each warp its threads, and those whose predicate holds."""
    total, population = map(sum, zip(*votes))
    value = {
        "popc": np.full(32, population, np.uint32),
        "and": np.full(32, population == total),
        "or": np.full(32, population > 0),
    }[operator]
    f.warp.R[slot] = np.where(f.mask, value, f.warp.R[slot])


@handles("bar", "barrier", switch=True)
def bar(e, instr):
    parts = [p for p in instr.parts if p != "cta"]
    mode, slot, sources, predicate = parts[1], -1, instr.args, []
    accept(instr, mode in ("sync", "arrive", "red"))
    e.converge("f.warp.live")
    if mode == "red":
        mode, slot = parts[2], e.program.slot(instr.args[0])
        sources, predicate = instr.args[1:-1], [e.p(instr.args[-1])]
    number = e.u(sources[0], 32) if sources else e.const(0, "u", 32)
    count = e.u(sources[1], 32) if len(sources) > 1 else "None"
    e.blocking(e.bound(named_barrier, e.site(), mode, slot), number, count, *predicate)


def cluster(site: int, mode: str, ordered: bool, f, following, index):
    first = f.warp.block.peers[0]
    if first.cluster_barrier is None:
        first.cluster_barrier = ClusterBarrier(f.warp.machine, first.peers)
    if mode == "wait":
        return first.cluster_barrier.wait(f, index, following, site, ordered)
    first.cluster_barrier.arrive(f, site, ordered)
    return following


@handles("barrier.cluster", switch=True)
def barrier_cluster(e, instr):
    if "aligned" in instr.parts:
        e.converge("f.warp.live")
    mode = "arrive" if "arrive" in instr.parts else "wait"
    e.blocking(e.bound(cluster, e.site(), mode, "relaxed" not in instr.parts), str(e.index))


@handles("mapa")
def mapa(e, instr):
    """The shared address of the same variable in another block of the cluster."""
    bits = int(instr.parts[-1][1:])
    address, rank = e.u(instr.args[1], bits), e.u(instr.args[2], 32)
    rank_bits = f"(({rank} + {e.const(1, 'u', 32)}).astype(u{bits}) << {e.const(RANK_SHIFT, 'u', bits)})"
    e.set(instr.args[0], f"({address} & {e.const(~(0xFF << RANK_SHIFT), 'u', bits)}) | {rank_bits}", "u", bits)


@handles("getctarank")
def getctarank(e, instr):
    bits = int(instr.parts[-1][1:])
    held = e.temp(
        f"(({e.u(instr.args[1], bits)} >> {e.const(RANK_SHIFT, 'u', bits)}).astype(u32) & {e.const(0xFF, 'u', 32)})"
    )
    own = e.temp("f.warp.sreg('cluster_ctarank')")
    e.set(instr.args[0], f"where({held} == 0, {own}, {held} - {e.const(1, 'u', 32)})", "u", 32)


# --- mbarriers --------------------------------------------------------------------------------------------------------


def find_barrier(warp, lanes, address: int, site: int) -> MBarrier:
    """The mbarrier at an address that these lanes are about to use."""
    machine = warp.machine
    block, offset = warp.block.block_at(address & SHARED_BITS)
    barrier: Any = block.mbarriers.get(offset - SHARED_START) if block else None
    if barrier is None:
        machine.fail(
            "barrier",
            f"no mbarrier has been initialised at shared address {address & SHARED_BITS:#x}",
            warp,
            lanes,
            site,
        )
    if not block.live_warps:
        machine.fail(
            "barrier", f"{barrier.name} is used from another block after its own block has exited", warp, lanes, site
        )
    if machine.sanitizer is not None:
        check_initialised(warp, lanes, barrier, site)
        if block.shared.units[8].item(barrier.offset // 8) != MARK:
            machine.fail("barrier", f"{barrier.name} has been overwritten", warp, lanes, site, barrier.overwritten_by())
    return barrier


def by_address(address: np.ndarray, lanes: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """``(address, its lanes)`` for the addresses of these lanes."""
    wanted = address[lanes]
    if not cnz(wanted != wanted[0]):
        return [(int(wanted[0]), lanes)]
    return [(target, lanes[wanted == target]) for target in np.unique(wanted).tolist()]


def check_initialised(warp, lanes, barrier: MBarrier, site: int) -> None:
    """The initialisation must be ordered before this use. If it was fenced, it need not be visible (``invisible``)."""
    if (warp.block.number, warp.index) in barrier.known_to:
        return
    owner, who, time = barrier.init_event
    number, actor = owner.block.number, owner.index * ACTORS + who
    others = [lane for lane in lanes if owner is not warp or lane != who]
    clocks = {id(c): c for c in map(warp.clock.of, others)} if warp.clock.single else {0: warp.clock.common}
    for clock in clocks.values() if others else ():
        tables = [clock.known] + ([clock.invisible.known] if clock.invisible and barrier.fenced else [])
        if not any(number in table and table[number][actor] >= time for table in tables):
            warp.machine.fail(
                "barrier",
                f"{barrier.name} is used without being ordered after its initialisation",
                warp,
                others,
                site,
                [
                    f"initialised at {warp.machine.program.sites[barrier.site - 1].where()}",
                    *route.since_time(owner, time),
                ],
            )
    if others and not warp.clock.single:
        barrier.known_to.add((warp.block.number, warp.index))


def init(site: int, f, lanes, address, count) -> None:
    machine = f.warp.machine
    for lane in each(lanes):
        issue = Issue(f.warp, lane, site)
        block, offset = f.warp.block.block_at(int(address[lane]) & SHARED_BITS)
        offset -= SHARED_START
        if block is None or offset < 0 or offset % 8 or offset + 8 > block.shared.high:
            issue.fail(
                "misaligned" if offset % 8 else "out-of-bounds",
                f"an mbarrier needs 8 aligned bytes of shared memory, not {offset}",
            )
        old = block.mbarriers.get(offset)
        if old is not None:
            issue.fail(
                "barrier",
                f"{old.name} is initialised again without mbarrier.inval",
                [f"first at {machine.program.sites[old.site - 1].where()}"],
            )
        if not 1 <= int(count[lane]) < 1 << 20:
            issue.fail("barrier", f"an mbarrier cannot expect {int(count[lane])} arrivals")
        block.shared.mark_valid(offset, offset + 8)
        block.shared.units[8][offset // 8] = MARK
        block.mbarriers[offset] = MBarrier(machine, block, offset, int(count[lane]), f, lane, site)
    f.warp.clock.time += 1
    machine.effects += 1


def inval(site: int, f, lanes, address) -> None:
    for lane in each(lanes):
        barrier = find_barrier(f.warp, [lane], int(address[lane]), site)
        if barrier.watchers:
            barrier.machine.fail(
                "barrier", f"{barrier.name} is invalidated while threads wait on it", f.warp, [lane], site
            )
        del barrier.block.mbarriers[barrier.offset]


def arrive_maker(machine, site: int, scope: int, release: bool, drop: bool, expects: bool, completes: bool):
    """All arrivals: ``run(f, lanes, address, count, bytes)`` gives tokens: the phase, above it the pending arrivals."""

    def run(f, lanes, address, count, size):
        tokens = np.zeros(32, np.uint64)
        for target, who in by_address(address, _LANES if lanes is None else lanes):
            barrier = find_barrier(f.warp, who.tolist(), target, site)
            if expects:
                for lane in who.tolist():
                    barrier.expect(f, [lane], int(size[lane]), site)
            one_phase = int(count[who].sum()) <= barrier.pending  # else the lanes arrive one after the other
            for batch in [who] if one_phase else np.split(who, len(who)):
                before = barrier.pending
                barrier.observe(f, batch)
                phase = barrier.arrive(f, batch, int(count[batch].sum()), site, scope, release, drop=drop)
                tokens[batch] = before << 32 | phase
                if completes:
                    barrier.complete_if_done()
                    barrier.observe(f, batch)
        return tokens

    return run


def transaction(site: int, complete: bool, f, lanes, address, size) -> None:
    """``expect_tx`` and ``complete_tx``."""
    for lane in each(lanes):
        barrier = find_barrier(f.warp, [lane], int(address[lane]), site)
        if complete:
            barrier.complete_bytes(int(size[lane]), None, Issue(f.warp, lane, site))
        else:
            barrier.expect(f, [lane], int(size[lane]), site)
            if barrier.pending == 0 and barrier.tx == 0:  # the bytes and the last arrival came before
                barrier.complete_if_done()


def check_parity(f, lanes, barrier: MBarrier, parities, site: int) -> None:
    """A parity names the running or the last phase: a thread further behind would take a later phase for its own."""
    for parity in set((parities & 1).tolist()):
        who = lanes[parities & 1 == parity]
        if barrier.ambiguous(f, who, parity):
            behind = barrier.phase - (2 if barrier.phase & 1 == parity else 3)
            f.warp.machine.fail(
                "barrier",
                f"waits with parity {parity} on {barrier.name}, which is in phase {barrier.phase}, and may mean phase "
                f"{behind}: a parity names the running or the last phase, and nothing ordered before this wait shows "
                "that it is one of them",
                f.warp,
                who,
                site,
                barrier.history_lines(),
            )


def check_state(f, lanes, barrier: MBarrier, phases, site: int) -> None:
    if cnz(phases < barrier.phase - 1):
        f.warp.machine.fail(
            "barrier",
            f"waits for phase {int(phases.min())} of {barrier.name}, which is in phase {barrier.phase}: only the "
            "running and the last phase can be waited for",
            f.warp,
            lanes,
            site,
            barrier.history_lines(),
        )


def wait(site: int, parity: bool, scope: int, f, lanes, address, state):
    """``test_wait`` / ``try_wait`` of a state or parity: a truth vector. ``scope`` of the acquire; 0: relaxed.

    A ``try_wait`` may give up only while its phase is not complete (PTX: it waits until then, or until a time limit).
    Here it does so at once.
    """
    machine, result = f.warp.machine, np.zeros(32, bool)
    for target, who in by_address(address, _LANES if lanes is None else lanes):
        barrier = find_barrier(f.warp, who.tolist(), target, site)
        wanted = (state[who] & 0xFFFFFFFF).astype(np.int64)
        if parity:
            done = (barrier.phase & 1) != (wanted & 1)
            if machine.sanitizer is not None:
                check_parity(f, who, barrier, wanted, site)
        else:
            done = wanted < barrier.phase
            check_state(f, who, barrier, wanted, site)
        result[who] = done
        if cnz(done):
            passed = who[done]
            barrier.observe(f, passed)
            f.warp.waited.append((barrier, barrier.phase - 1, passed))
            if scope:
                barrier.learn(f, None if len(passed) == 32 else passed, scope)
        if cnz(done) < len(who):
            f.waits = f"waits for {'parity' if parity else 'phase'} {int(wanted[~done][0])}"
            f.note_poll(barrier, (barrier.version, result.tobytes()))
    return result


def scope_of(instr: Instr) -> int:
    return CLUSTER_SCOPE if "cluster" in instr.parts else CTA_SCOPE


def barrier_address(e, mem: Mem) -> str:
    bits = getattr(mem.base, "bits", 32)
    return address_operand(e, mem, bits if bits in (32, 64) else 32)


@handles("mbarrier.init", "mbarrier.expect_tx", "mbarrier.complete_tx", switch=True)
def mbarrier_update(e, instr):
    verb, (address, value) = instr.parts[1], instr.args
    operation = e.bound(init, e.site()) if verb == "init" else e.bound(transaction, e.site(), verb == "complete_tx")
    e.effect(operation, barrier_address(e, address), e.u(value, 32))


@handles("mbarrier.inval", switch=True)
def mbarrier_inval(e, instr):
    e.effect(e.bound(inval, e.site()), barrier_address(e, instr.args[0]))


@handles("mbarrier.pending_count", switch=True)
def pending_count(e, instr):
    e.set(instr.args[0], f"({e.u(instr.args[1], 64)} >> {e.const(32, 'u', 64)})", "u", 64)


@handles("mbarrier.test_wait", "mbarrier.try_wait", switch=True)
def phase_wait(e, instr):
    destination, mem, state = instr.args[:3]
    parity, scope = "parity" in instr.parts, 0 if "relaxed" in instr.parts else scope_of(instr)
    operation = e.bound(wait, e.site(), parity, scope)
    result = e.result(operation, barrier_address(e, mem), e.u(state, 32 if parity else 64))
    e.set_result(destination, result, result)


@handles("mbarrier.arrive", "mbarrier.arrive_drop", switch=True)
def arrival(e, instr):
    parts, at = instr.parts, int(not isinstance(instr.args[0], Mem))  # the token's register may be left out
    destination, mem, rest = instr.args[:at], instr.args[at], instr.args[at + 1 :]
    expects, drop = "expect_tx" in parts, parts[1] == "arrive_drop"
    value = e.u(rest[0], 32) if rest else e.const(1, "u", 32)
    size, count = (value, e.const(1, "u", 32)) if expects else (e.const(0, "u", 32), value)
    ordered, completes = "relaxed" not in parts, "noComplete" not in parts
    operation = e.op(arrive_maker, e.site(), scope_of(instr), ordered, drop, expects, completes)
    result = e.result(operation, barrier_address(e, mem), count, size)
    if destination and destination[0] != SINK:
        e.set_result(destination[0], result, result, "u", 64)
