"""Loads, stores, atomics and fences."""

from __future__ import annotations

from functools import partial

import numpy as np

from .. import rounding
from ..accesses import load, packed, store
from ..async_copy import Operation
from ..clocks import GLOBAL, SHARED
from ..memory import DIRECT, UNSIGNED, Place, Port
from ..shadow import GPU, ORDINARY, SCOPES, SYS, Access, Order
from ..syntax import PARAM, SINK, SIZES, Instr, Mem, Reg, Special, Symbol, items
from . import arithmetic
from .moves import address_operand
from .registry import accept, handles

_ATOMICS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
_SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local", "param", "const")


def space_of(instr: Instr) -> str:
    """global, shared::cta, shared::cluster, local, param or generic."""
    found = next((p for p in instr.parts[1:] if p in _SPACES or p.startswith("param")), "generic")
    return {"shared": "shared::cta", "const": "global"}.get(found, "param" if found.startswith("param") else found)


def order_of(instr: Instr) -> Order:
    parts = set(instr.parts)
    if parts & {"volatile", "mmio"}:
        return Order(SYS, volatile="volatile" in parts)
    strong = parts & {"relaxed", "acquire", "release", "acq_rel", "sc"}
    if not strong and instr.parts[0] not in ("atom", "red"):
        return ORDINARY
    return Order(
        scope_of(instr), bool(parts & {"acquire", "acq_rel", "sc"}), bool(parts & {"release", "acq_rel", "sc"})
    )


def scope_of(instr: Instr) -> int:
    return next((SCOPES[p] for p in instr.parts if p in SCOPES), GPU)


def address_of(e, instr, mem: Mem, space: str) -> str:
    accept(instr, not isinstance(mem.base, (Symbol, Special)) or space != "param", "an address in parameter space")
    bits = 32 if space.startswith("shared") and getattr(mem.base, "bits", 32) == 32 else 64
    return address_operand(e, mem, bits)


def placed(e, instr, mem: Mem, space: str) -> tuple[str, Place]:
    """The register that an address counts from, and how."""
    if not isinstance(mem.base, Reg):
        return address_of(e, instr, mem, space), DIRECT
    shared = e.program.bases[mem.base.name] > 1
    base = Mem(mem.base, 0)
    return address_of(e, instr, base, space), Place(
        e.program.slot(mem.base) if shared else None, mem.offset, mem.base.name in e.program.steady
    )


def call_parameter(mem: Mem) -> bool:
    """Whether the operand is a parameter of a call, which the parser has made a register."""
    return isinstance(mem.base, Reg) and mem.base.name.startswith(PARAM)


def parameter_maker(machine, offset: int, width: int):
    """The value of a kernel parameter in this launch, as a vector."""
    value = int.from_bytes(machine.parameters.data[offset : offset + width].tobytes(), "little")
    return np.full(32, value, np.dtype(f"u{width}"))


def unread(e, destination) -> tuple[int, ...]:
    """The elements of a vector load that nothing reads: compilers merge loads and fill the gaps between them."""
    elements = items(destination)
    found = tuple(i for i, item in enumerate(elements) if item == SINK or e.program.uses[item.name] == 1)
    return found if len(found) < len(elements) else ()


@handles("ld", "ldu")
def ld(e, instr):
    destination, mem = instr.args[:2]
    kind = instr.parts[-1]
    width = SIZES[kind]
    space, count = space_of(instr), len(items(destination))
    sign = "s" if kind.startswith("s") else "u"
    if space == "param" and isinstance(mem.base, Symbol):
        offset = e.program.symbols[mem.base.name] + mem.base.offset + mem.offset
        for i, item in enumerate(items(destination)):
            value = e.op(parameter_maker, offset + i * width, width)
            e.set(item, value if sign == "u" else f"{value}.view(s{8 * width})", sign, 8 * width)
        return
    if call_parameter(mem):
        return e.set(destination, e.value(mem.base, sign, mem.base.bits), sign, mem.base.bits)
    address, place = placed(e, instr, mem, space)
    access = e.site(), space, width, count, place
    operation = e.op(load, access, order_of(instr), unread(e, destination))
    e.set_items(destination, e.result(operation, address), sign, 8 * width)


def torn_store(machine, access: tuple[int, str, int, int, Place], order: Order):
    """A strong store of a vector: one access an element, in no order (PTX memory model, "Vector Data-types").

    ``run(f, next, address, values)``. Sometimes the schedule lets other threads run between two of them.
    """
    port = Port(machine, *access)
    site, space, width, count, place = access
    whole = store(machine, access, order)
    elements = [
        store(machine, (site, space, width, 1, Place(None, place.offset + i * width)), order) for i in range(count)
    ]

    def run(f, following, address, values):
        if not machine.schedule.tears():
            whole(f, f.lanes, address, values)
            return following
        port.locate(f, f.lanes, address)  # the vector is aligned as a whole
        turns = machine.schedule.random.sample(range(count), count)
        parts = values.view(UNSIGNED[width]).reshape(32, count)

        def put(turns):
            for i in turns:
                elements[i](f, f.lanes, address, parts[:, i].copy())

        put(turns[:1])
        rest = Operation(f.warp, int(np.flatnonzero(f.mask)[0]), site, "the other elements of a vector store")
        rest.pieces = [partial(put, turns[1:])]
        rest.watchers.append(f)
        stop = f.block_on("is in the middle of a vector store", rest, following, site)
        rest.start()
        return stop

    return run


@handles("st")
def st(e, instr):
    mem, source = instr.args[:2]
    width, count = SIZES[instr.parts[-1]], len(items(source))
    values = [e.u(item, 8 * width) for item in items(source)]
    data = values[0] if count == 1 else e.temp(e.call(packed, *values))
    if call_parameter(mem):
        return e.set(mem.base, data, "u", 8 * width)
    space, order = space_of(instr), order_of(instr)
    address, place = placed(e, instr, mem, space)
    static = (e.site(), space, width, count, place), order
    if order.scope and count > 1:
        return e.blocking(e.op(torn_store, *static), address, data)
    return e.effect(e.op(store, *static), address, data)


# --- atomics ----------------------------------------------------------------------------------------------------------


def combiner(name: str, kind: str, space: str = "global"):
    """``f(old, operand, other)`` on the bits of values. Sums of f32 flush subnormals in global memory only."""
    if kind[0] in "usb" and kind not in ("bf16", "bf16x2"):
        bits = int(kind[1:])
        mask, half = (1 << bits) - 1, 1 << (bits - 1)

        def signed(x: int) -> int:
            return (x ^ half) - half if kind[0] == "s" else x

        table = {
            "add": lambda a, b, c: (a + b) & mask,
            "exch": lambda a, b, c: b,
            "cas": lambda a, b, c: c if a == b else a,
            "and": lambda a, b, c: a & b,
            "or": lambda a, b, c: a | b,
            "xor": lambda a, b, c: a ^ b,
            "min": lambda a, b, c: a if signed(a) <= signed(b) else b,
            "max": lambda a, b, c: a if signed(a) >= signed(b) else b,
            "inc": lambda a, b, c: 0 if a >= b else a + 1,
            "dec": lambda a, b, c: b if a == 0 or a > b else a - 1,
        }
        return table.get(name)
    if name not in ("add", "min", "max"):
        return None
    rounding = (".rn.ftz" if kind == "f32" and space == "global" else ".rn") if name == "add" else ""
    function = arithmetic.operation(f"{name}{rounding}.{kind}")
    dtype = np.dtype(f"u{SIZES[kind]}")
    return lambda a, b, c: int(function(np.array([a], dtype), np.array([b], dtype))[0])


def wide_integer(value: np.complex128) -> int:
    return int.from_bytes(value.tobytes(), "little")


def wide_value(number: int) -> np.complex128:
    """128 bits as memory and registers hold them: moved, never computed with."""
    return np.frombuffer(number.to_bytes(16, "little"), np.complex128)[0]


def atomic(machine, site: int, space: str, name: str, kind: str, count: int, order: Order):
    """The function behind ``atom`` and ``red``: lanes one after the other, in an order the schedule picks."""
    width = SIZES[kind]
    size = width * count
    port, access = Port(machine, site, space, width, count), Access(site, size, "write", order, update=True)
    combine, adds = combiner(name, kind, space), rounding.summed(name, kind)
    check = None if machine.sanitizer is None else machine.sanitizer.atomics(access)
    integer, stored = (wide_integer, wide_value) if width == 16 else (int, int)

    def run(f, lanes, address, operand, other=None):
        old = np.zeros((32, count), np.dtype(UNSIGNED[width]))
        operand = operand.reshape(32, count)
        numbers = np.arange(32) if lanes is None else lanes
        for region, rows, who, _ in port.locate(f, lanes, address):
            if region.sealed:
                region.unseal(machine, f.warp, [0 if who is None else int(who[0])], site)
            if region.valid is not None and 0 in region.valid_units[size][rows].tobytes():
                title = f"an atomic operation on {width} bytes of {region.name} that nobody has written"
                machine.unwritten(region, title, f.warp, [int(numbers[0])], site)
            if check is not None:
                check(f, who, region, rows)
            view = region.view(width, count)
            pairs = list(zip((numbers if who is None else who).tolist(), rows.tolist()))
            if len(pairs) > 1:
                machine.schedule.random.shuffle(pairs)
            region.sums = adds or region.sums
            for lane, row in pairs:
                for i in range(count):
                    at = row if count == 1 else (row, i)
                    before, compared = integer(view[at]), 0 if other is None else integer(other[lane])
                    old[lane, i] = view[at]
                    view[at] = stored(combine(before, integer(operand[lane, i]), compared))
            if view[rows].tobytes() == old[numbers if who is None else who].tobytes():
                f.polled(region, rows, size, view[rows])
            else:
                f.poll = None
                region.changed(machine, rows, size)
        return old[:, 0].copy() if count == 1 else old.T.copy()

    return run


@handles("atom", "red", switch=True)
def atom(e, instr):
    destination, mem, *operands = instr.args if instr.parts[0] == "atom" else (SINK, *instr.args)
    kind = instr.parts[-1]
    name = next((p for p in instr.parts[1:] if p in _ATOMICS), "")
    moved_only = kind == "b128" and name not in ("exch", "cas")
    accept(instr, kind in SIZES and not moved_only and combiner(name, kind) is not None)
    bits = 8 * SIZES[kind]
    space = space_of(instr)
    data = e.stacked(operands[0], bits)
    operation = e.op(atomic, e.site(), space, name, kind, len(items(operands[0])), order_of(instr))
    extra = [e.u(operands[1], bits)] if name == "cas" else []
    e.set_items(destination, e.result(operation, address_of(e, instr, mem, space), data, *extra), "u", bits)


# --- fences -----------------------------------------------------------------------------------------------------------


def thread_fence(scope: int, f, lanes, sequential: bool = False) -> None:
    if f.warp.machine.sanitizer is not None:
        f.warp.machine.sanitizer.fence(f, lanes, scope, sequential)


def async_fence(spaces: tuple[int, ...], f, lanes) -> None:
    if f.warp.machine.sanitizer is not None:
        f.warp.fence_proxy(lanes, spaces)
        fence_barriers(f, lanes)


def fenced_spaces(parts: tuple[str, ...]) -> tuple[int, ...]:
    """The state spaces whose generic accesses a ``fence.proxy.async`` orders before those of the async proxy.

    The acquire form orders none by itself: it is the other half of a release.
    """
    if "acquire" in parts:
        return ()
    text = ".".join(parts)
    return (SHARED,) if "shared" in text else (GLOBAL,) if "global" in text else (SHARED, GLOBAL)


def fence_barriers(f, lanes) -> None:
    """The mbarriers that this warp has initialised may now be used by asynchronous operations and by other blocks."""
    for barrier in f.warp.block.mbarriers.values():
        if barrier.init_event[0] is f.warp:
            barrier.fenced = True


@handles("fence.proxy.async", "fence.proxy.async::generic")  # no switch point: alone it synchronizes with nobody
def proxy_fence(e, instr):
    e.effect(e.bound(async_fence, fenced_spaces(instr.parts)))


@handles("fence", "membar", switch=True)
def fence(e, instr):
    if "mbarrier_init" in instr.parts:
        e.effect(e.bound(fence_barriers))
    elif "proxy" not in instr.parts:  # membar is fence.sc (PTX ISA 9.7.13.4)
        sequential = instr.parts[0] == "membar" or not {"acq_rel", "acquire", "release"} & set(instr.parts)
        e.effect(e.bound(thread_fence, scope_of(instr)), str(sequential))
