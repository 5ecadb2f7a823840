"""``bar`` / ``barrier``, ``barrier.cluster``, ``mapa`` and ``mbarrier``."""

from __future__ import annotations

import numpy as np

from ..barriers import CLUSTER_SCOPE, CTA_SCOPE, ClusterBarrier, MBarrier, NamedBarrier
from ..clocks import ACTORS
from ..memory import RANK_SHIFT, SHARED_BITS, SHARED_START
from ..syntax import SINK, Instr, Mem
from .moves import address_operand
from .registry import handles, unknown

cnz = np.count_nonzero


# --- named barriers
# -----------------------------------------------------------------------------------------------------


def named(machine, f, number: int) -> NamedBarrier:
    block = f.warp.block
    barrier = block.named.get(number)
    if barrier is None:
        barrier = block.named[number] = NamedBarrier(machine, block, number)
    return barrier


def one_value(machine, f, vector: np.ndarray, what: str, site: int) -> int:
    """The value that all active lanes agree on."""
    active = vector[f.mask]
    if cnz(active != active[0]):
        machine.fail("barrier", f"lanes of one warp give different {what}", f.warp, np.flatnonzero(f.mask), site)
    return int(active[0])


def bar_maker(machine, site: int, mode: str, operator: str, slot: int):
    """``bar.sync``, ``bar.arrive`` and ``bar.red``: ``run(f, next, number, count or None, predicate or None)``."""

    def finish(f, votes):
        total = sum(n for n, _ in votes)
        population = sum(c for _, c in votes)
        value = {
            "popc": np.full(32, population, np.uint32),
            "and": np.full(32, population == total),
            "or": np.full(32, population > 0),
        }[operator]
        f.warp.R[slot] = np.where(f.mask, value, f.warp.R[slot])

    def run(f, following, number, count, predicate=None):
        number = one_value(machine, f, number, "barrier numbers", site)
        if number > 15:
            machine.fail(
                "barrier",
                f"there is no named barrier {number}: they are numbered 0 to 15",
                f.warp,
                np.flatnonzero(f.mask),
                site,
            )
        barrier = named(machine, f, number)
        barrier.arrive(f, None if count is None else one_value(machine, f, count, "barrier counts", site), site)
        if mode == "arrive":
            barrier.check()
            return following
        if mode == "red":
            barrier.votes.append((f.count, cnz(predicate & f.mask)))
        return barrier.wait(f, following, site, finish if mode == "red" else None)

    return run


@handles("bar", "barrier", switch=True)
def bar(e, instr):
    parts = [p for p in instr.parts if p != "cta"]
    mode = parts[1]
    if mode not in ("sync", "arrive", "red"):
        raise unknown(instr)
    e.converge("f.warp.live")
    if mode == "red":
        operator, slot = parts[2], e.program.slot(instr.args[0])
        sources = instr.args[1:-1]
        predicate = [e.p(instr.args[-1])]
    else:
        operator, slot, sources, predicate = "", -1, instr.args, []
    number = e.u(sources[0], 32) if sources else e.const(0, "u", 32)
    count = e.u(sources[1], 32) if len(sources) > 1 else "None"
    e.blocking(e.op(bar_maker, e.site(), mode, operator, slot), number, count, *predicate)


def cluster_of(machine, block) -> ClusterBarrier:
    first = block.peers[0]
    if first.cluster_barrier is None:
        first.cluster_barrier = ClusterBarrier(machine, block.peers)
    return first.cluster_barrier


def cluster_maker(machine, site: int, mode: str, ordered: bool):
    def run(f, following, index=0):
        barrier = cluster_of(machine, f.warp.block)
        if mode == "arrive":
            barrier.arrive(f, site, ordered)
            return following
        return barrier.wait(f, index, following, site, ordered)

    return run


@handles("barrier.cluster", switch=True)
def barrier_cluster(e, instr):
    if "aligned" in instr.parts:
        e.converge("f.warp.live")
    mode = "arrive" if "arrive" in instr.parts else "wait"
    e.blocking(e.op(cluster_maker, e.site(), mode, "relaxed" not in instr.parts), str(e.index))


@handles("mapa")
def mapa(e, instr):
    """The shared address of the same variable in another block of the cluster."""
    bits = int(instr.parts[-1][1:])
    address, rank = e.u(instr.args[1], bits), e.u(instr.args[2], 32)
    rank_bits = f"(({rank} + {e.const(1, 'u', 32)}).astype(u{bits}) << {e.const(RANK_SHIFT, 'u', bits)})"
    keep = ~(0xFF << RANK_SHIFT)
    e.set(instr.args[0], f"({address} & {e.const(keep, 'u', bits)}) | {rank_bits}", "u", bits)


@handles("getctarank")
def getctarank(e, instr):
    bits = int(instr.parts[-1][1:])
    held = e.temp(
        f"(({e.u(instr.args[1], bits)} >> {e.const(RANK_SHIFT, 'u', bits)}).astype(u32) & {e.const(0xFF, 'u', 32)})"
    )
    own = e.temp("f.warp.sreg('cluster_ctarank')")
    e.set(instr.args[0], f"where({held} == 0, {own}, {held} - {e.const(1, 'u', 32)})", "u", 32)


# --- mbarriers
# ----------------------------------------------------------------------------------------------------------


def find_barrier(machine, f, lanes, address: int, site: int) -> MBarrier:
    """The mbarrier at an address that these lanes are about to use."""
    block, offset = f.warp.block.block_at(address & SHARED_BITS)
    barrier = block.mbarriers.get(offset - SHARED_START) if block else None
    if barrier is None:
        machine.fail(
            "barrier",
            f"no mbarrier has been initialised at shared address {address & SHARED_BITS:#x}",
            f.warp,
            lanes,
            site,
        )
    if not block.live_warps:
        machine.fail(
            "barrier", f"{barrier.name} is used from another block after its own block has exited", f.warp, lanes, site
        )
    if machine.sanitizer is not None:
        check_initialised(machine, f, lanes, barrier, site)
    return barrier


def by_address(address: np.ndarray, lanes: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """``(address, its lanes)`` for the addresses of these lanes."""
    wanted = address[lanes]
    if not cnz(wanted != wanted[0]):
        return [(int(wanted[0]), lanes)]
    return [(target, lanes[wanted == target]) for target in np.unique(wanted).tolist()]


def check_initialised(machine, f, lanes, barrier: MBarrier, site: int) -> None:
    """The initialisation must be ordered before this use. Where it has been fenced, order is enough (``Clock.seen``)."""
    warp, who, time = barrier.init_event
    number, actor = warp.block.number, warp.index * ACTORS + who
    others = [lane for lane in lanes if warp is not f.warp or lane != who]
    clocks = (
        {id(c): c for c in map(f.warp.clock.of, others)}.values()
        if f.warp.clock.single
        else [f.warp.clock.common] * (len(others) > 0)
    )
    for clock in clocks:
        sources = [clock.known] + ([clock.seen.known] if clock.seen and barrier.fenced else [])
        if not any(number in source and source[number][actor] >= time for source in sources):
            machine.fail(
                "barrier",
                f"{barrier.name} is used without being ordered after its initialisation",
                f.warp,
                others,
                site,
                [f"initialised at {machine.program.sites[barrier.site - 1].where()}"],
            )


def init_maker(machine, site: int):
    def run(f, lanes, address, count):
        for lane in range(32) if lanes is None else lanes.tolist():
            block, offset = f.warp.block.block_at(int(address[lane]) & SHARED_BITS)
            offset -= SHARED_START
            if block is None or offset < 0 or offset % 8 or offset + 8 > block.shared.high:
                machine.fail(
                    "misaligned" if offset % 8 else "out-of-bounds",
                    f"an mbarrier needs 8 aligned bytes of shared memory, not {offset}",
                    f.warp,
                    [lane],
                    site,
                )
            old = block.mbarriers.get(offset)
            if old is not None:
                machine.fail(
                    "barrier",
                    f"{old.name} is initialised again without mbarrier.inval",
                    f.warp,
                    [lane],
                    site,
                    [f"first at {machine.program.sites[old.site - 1].where()}"],
                )
            if not 1 <= int(count[lane]) < 1 << 20:
                machine.fail("barrier", f"an mbarrier cannot expect {int(count[lane])} arrivals", f.warp, [lane], site)
            block.shared.mark_valid(offset, offset + 8)
            block.mbarriers[offset] = MBarrier(machine, block, offset, int(count[lane]), f, lane, site)
        f.warp.clock.time += 1
        machine.effects += 1

    return run


def inval_maker(machine, site: int):
    def run(f, lanes, address, _=None):
        for lane in range(32) if lanes is None else lanes.tolist():
            barrier = find_barrier(machine, f, [lane], int(address[lane]), site)
            if barrier.watchers:
                machine.fail("barrier", f"{barrier.name} is invalidated while threads wait on it", f.warp, [lane], site)
            del barrier.block.mbarriers[barrier.offset]

    return run


def arrive_maker(machine, site: int, scope: int, release: bool, drop: bool, expects: bool, settles: bool):
    """All the arrivals: ``run(f, lanes, address, count, bytes)`` gives the tokens: the phase, and above it the arrivals
    then pending.
    """

    def run(f, lanes, address, count, size):
        tokens = np.zeros(32, np.uint64)
        numbers = np.arange(32) if lanes is None else lanes
        for target, who in by_address(address, numbers):
            barrier = find_barrier(machine, f, who.tolist(), target, site)
            if expects:
                for lane in who.tolist():
                    barrier.expect(f, [lane], int(size[lane]), site)
            total = int(count[who].sum())
            batches = (
                [who] if total <= barrier.pending else [[lane] for lane in who.tolist()]
            )  # more than one phase takes: in turn
            for batch in batches:
                before = barrier.pending
                barrier.observe(f, batch)
                phase = barrier.arrive(f, batch, int(count[batch].sum()), site, scope, release, drop=drop)
                tokens[batch] = before << 32 | phase
                if settles:
                    barrier.settle()
                    barrier.observe(f, batch)
        return tokens

    return run


def tx_maker(machine, site: int, complete: bool):
    def run(f, lanes, address, size):
        for lane in range(32) if lanes is None else lanes.tolist():
            barrier = find_barrier(machine, f, [lane], int(address[lane]), site)
            if complete:
                barrier.complete_bytes(int(size[lane]), None, f.warp, lane, site)
            else:
                barrier.expect(f, [lane], int(size[lane]), site)
                if barrier.pending == 0 and barrier.tx == 0:  # the bytes came first, and then the last arrival
                    barrier.settle()

    return run


def check_phase(machine, f, lanes, barrier: MBarrier, parities, site: int) -> None:
    """A parity stands for the running or the last phase: a thread that may be further behind takes a later phase for
    its own.
    """
    for parity in set((parities & 1).tolist()):
        who = lanes[parities & 1 == parity]
        if barrier.unclear(f, who, parity):
            behind = barrier.phase - (2 if barrier.phase & 1 == parity else 3)
            machine.fail(
                "barrier",
                f"waits with parity {parity} on {barrier.name}, which is in phase {barrier.phase}, "
                f"and may mean phase {behind}: "
                "a parity names the running or the last phase, and nothing ordered before this wait shows that it is "
                "one of them",
                f.warp,
                who,
                site,
                barrier.history_lines(),
            )


def wait_maker(machine, site: int, parity: bool, may_fail: bool, scope: int, acquire: bool):
    """``test_wait`` / ``try_wait``: ``run(f, lanes, address, state or parity)`` gives a truth vector."""

    def run(f, lanes, address, state):
        result = np.zeros(32, bool)
        numbers = np.arange(32) if lanes is None else lanes
        for target, who in by_address(address, numbers):
            barrier = find_barrier(machine, f, who.tolist(), target, site)
            wanted = state[who] & 0xFFFFFFFF
            if parity:
                done = (barrier.phase & 1) != (wanted & 1)
                if machine.sanitizer is not None:
                    check_phase(machine, f, who, barrier, wanted, site)
            else:
                done = wanted.astype(np.int64) < barrier.phase
                if cnz(wanted.astype(np.int64) < barrier.phase - 1):
                    machine.fail(
                        "barrier",
                        f"waits for phase {int(wanted.min())} of {barrier.name}, which is in phase {barrier.phase}: "
                        "only the "
                        "running and the last phase can be waited for",
                        f.warp,
                        who,
                        site,
                        barrier.history_lines(),
                    )
            spurious = may_fail and cnz(done) and machine.schedule.spurious()
            if spurious:
                f.poll = None
                continue
            result[who] = done
            if cnz(done):
                passed = who[done]
                barrier.observe(f, passed)
                if acquire:
                    barrier.learn(f, None if len(passed) == 32 else passed, scope)
            if cnz(done) < len(who):
                f.waits = f"waits for {'parity ' if parity else 'phase '}{int(wanted[~done][0])} of {barrier.name}"
                f.note_poll(barrier, (barrier.version, result.tobytes()))
        return result

    return run


def scope_of(instr: Instr) -> int:
    return CLUSTER_SCOPE if "cluster" in instr.parts else CTA_SCOPE


def barrier_address(e, mem: Mem) -> str:
    bits = getattr(mem.base, "bits", 32)
    return address_operand(e, mem, bits if bits in (32, 64) else 32)


@handles("mbarrier", switch=True)
def mbarrier(e, instr):
    verb = instr.parts[1]
    args = list(instr.args)
    if verb == "init":
        return e.effect(e.op(init_maker, e.site()), barrier_address(e, args[0]), e.u(args[1], 32))
    if verb == "inval":
        return e.effect(e.op(inval_maker, e.site()), barrier_address(e, args[0]), "None")
    if verb in ("expect_tx", "complete_tx"):
        return e.effect(e.op(tx_maker, e.site(), verb == "complete_tx"), barrier_address(e, args[0]), e.u(args[1], 32))
    if verb in ("arrive", "arrive_drop"):
        return arrival(e, instr, verb == "arrive_drop")
    if verb in ("test_wait", "try_wait"):
        parity, acquire = "parity" in instr.parts, "relaxed" not in instr.parts
        operation = e.op(wait_maker, e.site(), parity, verb == "try_wait", scope_of(instr), acquire)
        result = e.result(operation, barrier_address(e, args[1]), e.u(args[2], 32 if parity else 64))
        return e.set_result(args[0], result, result)
    if verb == "pending_count":
        return e.set(args[0], f"({e.u(args[1], 64)} >> {e.const(32, 'u', 64)})", "u", 64)
    raise unknown(instr)


def arrival(e, instr, drop: bool) -> None:
    args = list(instr.args)
    destination = SINK if isinstance(args[0], Mem) else args.pop(0)
    mem, rest = args[0], args[1:]
    expects = "expect_tx" in instr.parts
    one, none = e.const(1, "u", 32), e.const(0, "u", 32)
    size = e.u(rest[0], 32) if expects else none
    count = e.u(rest[0], 32) if rest and not expects else one
    operation = e.op(
        arrive_maker,
        e.site(),
        scope_of(instr),
        "relaxed" not in instr.parts,
        drop,
        expects,
        "noComplete" not in instr.parts,
    )
    result = e.result(operation, barrier_address(e, mem), count, size)
    if destination != SINK:
        e.set_result(destination, result, result, "u", 64)
