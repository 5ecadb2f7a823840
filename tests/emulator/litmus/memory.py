"""Atomic operations, one lane to an address, and the widths and signs of loads and stores."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np

from cutesync.emulator.instructions.arithmetic import operation

from .case import Case
from .scalar import DTYPES, LANES, bits_of, inputs, kernel

WRAPPING: dict[str, Callable] = {
    "add": lambda old, b, c: old + b,
    "and": lambda old, b, c: old & b,
    "or": lambda old, b, c: old | b,
    "xor": lambda old, b, c: old ^ b,
    "exch": lambda old, b, c: b,
    "min": lambda old, b, c: np.minimum(old, b),
    "max": lambda old, b, c: np.maximum(old, b),
    "inc": lambda old, b, c: np.where(old >= b, 0, old + 1),
    "dec": lambda old, b, c: np.where((old == 0) | (old > b), b, old - 1),
    "cas": lambda old, b, c: np.where(old == b, c, old),
}
INTEGER = {
    "add": ("u32", "s32", "u64"),
    "and": ("b32", "b64"),
    "or": ("b32",),
    "xor": ("b64",),
    "exch": ("b32", "b64"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "s64"),
    "inc": ("u32",),
    "dec": ("u32",),
    "cas": ("b16", "b32", "b64"),
}
FLOAT = ("add.f32", "add.f64", "add.noftz.f16", "add.noftz.f16x2", "add.noftz.bf16", "add.noftz.bf16x2")


def atomic_case(space: str, suffix: str, sources: list[np.ndarray], after: Callable) -> Case:
    """Memory holds a; the lane applies b (and c); d is what memory held, and what it holds goes where a was."""
    bits = sources[0].itemsize * 8
    names = ", ".join("bc"[: len(sources) - 1])
    place = (
        f".shared .align 8 .b8 cell[{LANES * 8}];\nmov.u32 t0, cell;\nmul.lo.u32 t1, i, 8;\nadd.u32 t0, t0, t1;"
        if space == "shared"
        else ""
    )
    address = "[t0]" if space == "shared" else "[p0]"
    start = (
        f"st.shared.b{bits} [t0], a;"
        if space == "shared"
        else f"ld.param.u64 p0, [in_a];\nmul.wide.u32 p1, i, {bits // 8};\nadd.u64 p0, p0, p1;"
    )
    finish = "ld.shared" if space == "shared" else "ld.global"
    body = (
        f"{place}\n{start}\natom.relaxed.gpu.{space}.{suffix} d, {address}, {names};\n"
        f"{finish}.b{bits} b, {address};\nxor.b{bits} d, d, b;"
    )
    out = np.zeros(LANES, DTYPES[bits])
    text = kernel(body, [bits] * len(sources), bits)
    return Case(
        f"atom.{space}.{suffix}", text, (*sources, out), len(sources), lambda: after(*sources) ^ sources[0], block=LANES
    )


def applied(name: str, view: np.dtype, old: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    return WRAPPING[name](old.view(view), b.view(view), c).astype(view).view(old.dtype)


def atomic_cases() -> Iterator[Case]:
    for space, name in product(("global", "shared"), INTEGER):
        for kind in INTEGER[name]:
            suffix = f"{name}.{kind}"
            sources = inputs("atom." + suffix, [kind.replace("b", "u")] * (3 if name == "cas" else 2))
            if name in ("cas", "inc", "dec"):
                sources[1] = np.where(np.arange(LANES) % 2, sources[0], sources[1])
            view = np.dtype(f"i{bits_of(kind) // 8}") if kind[0] == "s" else sources[0].dtype
            yield atomic_case(space, suffix, sources, partial(applied, name, view))
    for space, suffix in product(("global", "shared"), FLOAT):
        kind = suffix.split(".")[-1]
        # as the ISA says: subnormals survive in shared memory only
        add = operation(f"add.rn{'.ftz' if (space, kind) == ('global', 'f32') else ''}.{kind}")
        yield atomic_case(space, suffix, _finite(kind, inputs("atom." + suffix, [kind] * 2)), add)


def _finite(kind: str, sources: list[np.ndarray]) -> list[np.ndarray]:
    """The largest exponents cleared: no NaN, no overflow. Subnormals stay."""
    mask = {
        "f32": 0xBFFFFFFF,
        "f64": 0xBFFFFFFFFFFFFFFF,
        "f16": 0xBFFF,
        "bf16": 0xBFFF,
        "f16x2": 0xBFFFBFFF,
        "bf16x2": 0xBFFFBFFF,
    }[kind]
    return [s & s.dtype.type(mask) for s in sources]


def loaded(a: np.ndarray, kind: str) -> np.ndarray:
    return (
        a.view(np.dtype(f"{kind[0].replace('s', 'i')}{int(kind[1:]) // 8}"))[:LANES].astype(np.int64).astype(np.uint32)
    )


def stored(a: np.ndarray, size: int) -> np.ndarray:
    """The byte goes to byte 1 of 4, the half to the upper half."""
    shift, mask = (8, 0xFF) if size == 1 else (16, 0xFFFF)
    return np.uint32(0x11223344 & ~(mask << shift)) | ((a & np.uint32(mask)) << np.uint32(shift))


CELL = f".shared .align 4 .b8 cell[{LANES * 4}];\nmov.u32 t0, cell;\nmul.lo.u32 t1, i, 4;\nadd.u32 t0, t0, t1;\n"
KNOWN = "mov.b32 t1, 0x11223344;\nst.shared.b32 [t0], t1;\n"
STORES = {
    1: f"{CELL}{KNOWN}st.shared.b8 [t0+1], a;\nld.shared.b32 d, [t0];",
    2: f".reg .b16 h;\n{CELL}{KNOWN}cvt.u16.u32 h, a;\nst.shared.b16 [t0+2], h;\nld.shared.b32 d, [t0];",
}


def width_case(name: str, inputs_of: str, body: str, expected: Callable) -> Case:
    (a,) = inputs(inputs_of, ["u32"])
    return Case(name, kernel(body, [32], 32), (a, np.zeros(LANES, np.uint32)), 1, lambda: expected(a), block=LANES)


def width_cases() -> Iterator[Case]:
    """Narrow loads extend by their type; narrow stores keep the rest of memory."""
    for kind in ("s8", "u8", "s16", "u16"):
        place = f"ld.param.u64 p0, [in_a];\nmul.wide.u32 p1, i, {int(kind[1:]) // 8};\nadd.u64 p0, p0, p1;"
        yield width_case(
            f"ld.{kind}", "width." + kind, f"{place}\nld.global.{kind} d, [p0];", partial(loaded, kind=kind)
        )
    for size, body in STORES.items():
        yield width_case(f"st.b{8 * size}", f"store.{size}", body, partial(stored, size=size))


def cases() -> Iterator[Case]:
    yield from atomic_cases()
    yield from width_cases()
