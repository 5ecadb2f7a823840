"""Instructions that lanes of a warp execute together: shuffles, votes, matches, reductions, ``bar.warp.sync``.

Each waits until every live lane of its member mask has arrived. Only ``bar.warp.sync`` orders memory.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..lanes import count_nonzero as cnz
from ..syntax import Imm
from .registry import accept, handles, int_type, word

_LANES = np.arange(32)
_SHUFFLES = ("up", "down", "bfly", "idx")
_POISON = 0xCDCDCDCD
_EVERYBODY = 0xFFFFFFFF


def members(e, operand) -> str:
    """The member mask as text: a number, or an expression that joins the masks of the active lanes."""
    if isinstance(operand, Imm):
        return str(operand.value & 0xFFFFFFFF)
    return f"int(np.bitwise_or.reduce({e.u(operand, 32)}[f.mask]))"


def convergent(e, operand) -> None:
    """Wait for the lanes of the member mask, and check that the lanes that run the instruction agree on it."""
    if not e.full:
        e.converge(members(e, operand))
    if not (isinstance(operand, Imm) and operand.value & _EVERYBODY == _EVERYBODY):
        e.line(f"{e.bound(check_members, e.site())}(f, {e.mask()}, {e.u(operand, 32)})")


def check_members(site: int, f, active, mask) -> None:
    """Report lanes outside their own mask, or with different masks (undefined in PTX)."""
    outside = active & (mask >> _LANES.astype(np.uint32) & 1 == 0)
    if cnz(outside):
        f.warp.machine.fail(
            "convergence",
            "lanes run an instruction whose member mask leaves them out",
            f.warp,
            np.flatnonzero(outside),
            site,
            [f"the mask of lane {np.flatnonzero(outside)[0]} is {mask[outside][0]:#010x}"],
        )
    for value in np.unique(mask[active]).tolist():
        other = active & (value >> _LANES & 1 == 1) & (mask != value)
        if cnz(other):
            f.warp.machine.fail(
                "convergence",
                f"lanes of the member mask {value:#010x} run the instruction with another mask",
                f.warp,
                np.flatnonzero(other),
                site,
            )


def grouped(e, operand, function, *values: str) -> str:
    """``function(*values, lanes)`` for the lanes that execute together: all active ones, or each member mask's."""
    if isinstance(operand, Imm):
        return e.call(function, *values, e.mask())
    return e.call(by_mask, f"lambda who: {e.call(function, *values, 'who')}", e.u(operand, 32), e.mask())


def by_mask(function, mask: np.ndarray, active: np.ndarray):
    result = None
    for value in np.unique(mask[active]).tolist():
        who = active & (mask == value)
        found = function(who)
        result = found if result is None else np.where(who, found, result)
    return function(active) if result is None else result


def shuffle_sources(mode: str, distance: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(source lane, in range) of ``shfl`` for every lane."""
    segment, clamp = (control >> 8) & 31, control & 31
    lowest = _LANES & segment
    last = lowest | (clamp & ~segment)
    source = {
        "up": _LANES - distance,
        "down": _LANES + distance,
        "bfly": _LANES ^ distance,
        "idx": lowest | (distance & ~segment),
    }[mode]
    inside = source >= last if mode == "up" else source <= last
    return np.where(inside, source, _LANES), inside


def shuffle(mode: str, value: np.ndarray, distance: np.ndarray, control: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    source, inside = known_sources(mode, distance.tobytes(), control.tobytes())
    return value[source], inside


@lru_cache(maxsize=1024)
def known_sources(mode: str, distance: bytes, control: bytes) -> tuple[np.ndarray, np.ndarray]:
    distances, controls = (np.frombuffer(x, np.uint32).astype(np.int64) for x in (distance, control))
    return shuffle_sources(mode, distances & 31, controls)


@handles("shfl", together=True)
def shfl(e, instr):
    destination, value, distance, control = instr.args[:4]
    accept(instr, instr.parts[1] == "sync", "shuffles without .sync")
    mode = word(instr, 2, _SHUFFLES)
    convergent(e, instr.args[4])
    fixed = isinstance(distance, Imm) and isinstance(control, Imm)
    kind, a = e.moved(value, bits=32) if fixed and e.full else ("u", e.u(value, 32))
    if fixed:
        found = shuffle_sources(mode, np.full(32, distance.value & 31), np.full(32, control.value))
        source, inside = map(e.program.bind_array, found)
        moved = e.temp(f"{a}[{source}]")
    else:
        both = e.temp(e.call(shuffle, f"'{mode}'", a, e.u(distance, 32), e.u(control, 32)))
        moved, inside, source = f"{both}[0]", f"{both}[1]", ""
    if not e.full and source:
        moved = e.temp(f"where(f.mask[{source}], {moved}, {e.const(_POISON, 'u', 32)})")
    e.set_pair(destination, moved, inside, 32, kind)


def ballot(predicate: np.ndarray, active: np.ndarray) -> np.ndarray:
    bits = int.from_bytes(np.packbits(predicate & active, bitorder="little").tobytes(), "little")
    return np.full(32, bits, np.uint32)


def vote_all(predicate: np.ndarray, active: np.ndarray) -> np.ndarray:
    return np.full(32, not cnz(active & ~predicate))


def vote_any(predicate: np.ndarray, active: np.ndarray) -> np.ndarray:
    return np.full(32, cnz(active & predicate) > 0)


def vote_uni(predicate: np.ndarray, active: np.ndarray) -> np.ndarray:
    n = cnz(active & predicate)
    return np.full(32, n == 0 or n == cnz(active))


_VOTES = {"ballot": ballot, "all": vote_all, "any": vote_any, "uni": vote_uni}


@handles("vote", together=True)
def vote(e, instr):
    mode = word(instr, 2, _VOTES)
    convergent(e, instr.args[2])
    result = grouped(e, instr.args[2], _VOTES[mode], e.p(instr.args[1]))
    e.set(instr.args[0], result, "u", 32 if mode == "ballot" else None)


@handles("activemask")
def activemask(e, instr):
    e.set(instr.args[0], "np.full(32, f.bits, u32)", "u", 32)


def match_any(value: np.ndarray, active: np.ndarray) -> np.ndarray:
    equal = (value[:, None] == value[None, :]) & active[None, :]
    return np.packbits(equal, axis=1, bitorder="little").view(np.uint32).reshape(32)


def match_all(value: np.ndarray, active: np.ndarray) -> np.ndarray:
    """The mask of ``active`` if all its values are the same, else 0, which is the predicate as well."""
    same = len(np.unique(value[active])) == 1
    return ballot(active, active) if same else np.zeros(32, np.uint32)


@handles("match", together=True)
def match(e, instr):
    destination, operand, mask = instr.args
    convergent(e, mask)
    value = e.u(operand, int(instr.parts[-1][1:]))
    result = e.temp(grouped(e, mask, match_any if instr.parts[1] == "any" else match_all, value))
    e.set_pair(destination, result, f"{result} != 0", 32)


_REDUCE = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduce_lanes(name: str, value: np.ndarray, active: np.ndarray) -> np.ndarray:
    chosen = value[active]
    return np.full(32, _REDUCE[name].reduce(chosen, dtype=value.dtype) if len(chosen) else 0, value.dtype)


@handles("redux", together=True)
def redux(e, instr):
    convergent(e, instr.args[2])
    kind, bits = int_type(instr)
    value = e.value(instr.args[1], kind, bits)
    e.set(instr.args[0], grouped(e, instr.args[2], reduce_lanes, f"'{word(instr, 2, _REDUCE)}'", value), kind, bits)


def elected(member_bits: int, live: int) -> tuple[np.ndarray, np.ndarray]:
    """(number of the elected lane, predicate): the lowest live member, the same one every time."""
    leader = (member_bits & live & -(member_bits & live)).bit_length() - 1
    return np.full(32, leader, np.uint32), np.equal(_LANES, leader)


@handles("elect", together=True)
def elect(e, instr):
    destination, mask = instr.args
    convergent(e, mask)
    if e.full and isinstance(mask, Imm) and mask.value & 0xFFFFFFFF == 0xFFFFFFFF:
        leader, chosen = e.const(0, "u", 32), e.program.bind_array(_LANES == 0)
    else:
        both = e.temp(e.call(elected, members(e, mask), "f.warp.live"))
        leader, chosen = f"{both}[0]", f"{both}[1]"
    e.set_pair(destination, leader, chosen, 32)


def meet(f) -> None:
    if f.warp.machine.sanitizer is not None:
        f.warp.clock.synchronize(f.lanes, f.bits == f.warp.live)


@handles("bar.warp.sync", together=True)
def bar_warp_sync(e, instr):
    convergent(e, instr.args[0])
    e.line(e.call(meet, "f"))
