"""Elements become the type that is computed in as by NumPy's ``astype``: all 13 types from all 13, in every kernel."""

from __future__ import annotations

import cutlass.cute as cute
import numpy as np
import pytest
from cutlass import Float32, Int32

import cutesync as cs
from cutesync import dtypes, reference
from cutesync.monoid import Monoid
from cutesync.ops import operator

from .block.kernels import run
from .cases import DTYPES, STAND_FOR_ALL, everywhere, fits, numpy_dtype, places, same

LANES, VECTOR = 32, 16  # lanes, each with a vector of 16 bytes
SPECIAL = (
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    0.5,
    -0.5,
    -0.99,
    2.7,
    -2.7,
    127.9,
    128,
    -128.9,
    -129,
    255.5,
    256,
    32768,
    -32769,
    65504,
    65536,
    2**31,
    -(2**31),
    -(2**31) - 1,
    2**32,
    2**53 + 2,
    2**63,
    -(2**63),
    2**64,
    1e30,
    -1e30,
    1e-7,
)


def values(source: str, count: int) -> np.ndarray:
    """The ends of ranges, what lies beyond those of other types, and random elements."""
    element, random = dtypes.dtype(source), np.random.default_rng(7)
    if element.kind == "b":
        return random.random(count) < 0.5
    if element.kind == "f":
        with np.errstate(over="ignore"):
            special = np.array(SPECIAL, np.float64).astype(numpy_dtype(source))
        return np.concatenate(
            [special, (random.standard_normal(max(0, count - len(special))) * 1000).astype(special.dtype)]
        )[:count]
    info = np.iinfo(source)
    ends = np.array(
        [info.min, info.max, info.min + 1, info.max - 1, info.max // 2 + 1, 0, 1, 5, 3 if element.kind == "u" else -3],
        source,
    )
    return np.concatenate(
        [ends, random.integers(info.min, info.max, max(0, count - len(ends)), source, endpoint=True)]
    )[:count]


def folds(source: str, target: str) -> str:
    """An operator that is exact: packed sums among the integers."""
    return "max" if "f" in (dtypes.dtype(source).kind, dtypes.dtype(target).kind) else "add"


class Converted:
    """Each lane's first element in all types, as named operators take it and as callables do, and its vector's fold in
    all types."""

    FORMS = 3

    def __init__(self, source: str) -> None:
        self.source = dtypes.dtype(source)
        self.each = VECTOR // self.source.size

    @cute.jit
    def __call__(self, x: cute.Pointer, out: cute.Pointer, stream):
        self.kernel(x, out).launch(grid=(1, 1, 1), block=(LANES, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, x: cute.Pointer, out: cute.Pointer):
        lane, _, _ = cute.arch.thread_idx()
        self.body(lane, x.toint() + lane * VECTOR, out.toint())

    def body(self, lane, mine, out) -> None:
        words = cute.make_rmem_tensor((VECTOR // 4,), Int32)
        cute.autovec_copy(self.at(mine, Int32, VECTOR // 4), words)
        elements = self.at(mine, self.source.cutlass, self.each)
        for t, name in enumerate(DTYPES):
            target = dtypes.dtype(name)
            named, called = (
                Monoid(operator(op), self.source, target.accumulator, target)
                for op in (folds(self.source.name, name), lambda a, b: a)
            )
            states = (
                (named, named.lift(elements[0], 0)),
                (called, called.lift(elements[0], 0)),
                (named, named.fold(words, 0)),
            )
            for form, (monoid, state) in enumerate(states):
                self.at(out + ((t * self.FORMS + form) * LANES + lane) * 8, target.cutlass, 1)[0] = monoid.lower(state)

    @staticmethod
    def at(address, kind, count: int):
        return cute.make_tensor(
            cute.make_ptr(kind, address, cute.AddressSpace.gmem, assumed_align=8 if count == 1 else VECTOR),
            cute.make_layout((count,)),
        )


@everywhere("source", DTYPES, emulator=lambda source: source in (*STAND_FOR_ALL, "uint16", "int64"))
def test_every_type_from_every_type(place, source):
    x = values(source, LANES * VECTOR // numpy_dtype(source).itemsize).reshape(LANES, -1)
    out = run(
        place,
        Converted(source),
        x.view(np.uint8).reshape(-1),
        np.zeros(len(DTYPES) * Converted.FORMS * LANES, np.int64),
        schedules=1,
    )[1]
    rows = out.view(np.uint8).reshape(len(DTYPES), Converted.FORMS, LANES, 8)
    for t, target in enumerate(DTYPES):
        kind = numpy_dtype(target)
        named, called, folded = (
            rows[t, form, :, : kind.itemsize].copy().view(kind).reshape(-1) for form in range(Converted.FORMS)
        )
        wanted = reference.reduce(x[:, :1], "max", axis=1, dtype=target)
        same(named, wanted, f"{source} to {target}")
        same(called, wanted, f"{source} to {target} for a callable")
        same(
            folded,
            reference.reduce(x, folds(source, target), axis=1, dtype=target),
            f"{folds(source, target)} of {source} in {target}",
        )


def plus(a, b):
    return a + b


FORMS = {  # the shape of x, and options of reduce or scan
    "row": (cs.reduce, (37,), {}),
    "segments": (cs.reduce, (1100,), {}),
    "rows": (cs.reduce, (20, 37), {"axis": 1}),
    "whole rows": (cs.reduce, (2, 520), {"axis": 1}),
    "columns": (cs.reduce, (30, 36), {"axis": 0}),
    "narrow": (cs.reduce, (150, 5), {"axis": 0}),
    "stages": (cs.reduce, (5, 6, 7), {"axis": (0, 2)}),
    "levels": (cs.reduce, (1100,), {"algorithm": "multi_launch"}),
    "atomic": (cs.reduce, (1100,), {"algorithm": "atomic"}),
    "callable": (cs.reduce, (150,), {"op": plus}),
    "transform": (cs.reduce, (150,), {"transform": lambda v: v}),
    "long": (cs.reduce, (70001,), {}),
    "scan short rows": (cs.scan, (20, 37), {}),
    "scan rows": (cs.scan, (1100,), {}),
    "scan columns": (cs.scan, (30, 36), {"axis": 0}),
    "scan narrow": (cs.scan, (150, 5), {"axis": 0}),
    "scan tiers": (cs.scan, (1100,), {"algorithm": "tiered"}),
    "scan callable": (cs.scan, (150,), {"op": plus}),
    "scan wave": (cs.scan, (70001,), {}),
    "scan pipeline": (cs.scan, (1 << 24,), {}),
    "scan slabs": (cs.scan, (1 << 20, 5), {"axis": 0}),
}
EXTENDED = [
    (s, t) for s in ("int8", "int16", "int32") for t in ("uint16", "uint32", "uint64") if int(s[3:]) < int(t[4:])
]
OTHERS = [
    ("float32", "int8"),
    ("float64", "uint64"),
    ("float16", "uint16"),
    ("uint8", "int64"),
    ("float32", "bool"),
    ("bool", "float16"),
]
PAIRS = [(s, t) for s in DTYPES for t in DTYPES if s != t]


def suits(form: str, source: str, target: str) -> bool:
    """Callables add integers, and so do atomics, of at least 4 bytes."""
    least = {"atomic": 4, "callable": 2, "scan callable": 2}.get(form, 0)
    return not least or (folds(source, target) == "add" and numpy_dtype(target).itemsize >= least)


def agrees(form: str, source: str, target: str) -> None:
    """The form of a sum, or of the largest element. Running results of long arrays are NumPy's own."""
    call, shape, options = FORMS[form]
    options, x = (
        {"op": folds(source, target), "dtype": target, **options},
        values(source, int(np.prod(shape))).reshape(shape),
    )
    ours = {name: option for name, option in options.items() if name != "algorithm"}
    if call is cs.scan and x.size > 3000:
        elements = reference.reduce(x[..., None], "max", axis=-1, dtype=target)
        fn = np.maximum if options["op"] == "max" else np.logical_or if target == "bool" else np.add
        with np.errstate(over="ignore"):
            wanted = fn.accumulate(elements, axis=options.get("axis", -1), dtype=elements.dtype)
    else:
        wanted = (reference.reduce if call is cs.reduce else reference.scan)(x, **ours)
    same(np.asarray(call(cs.asarray(x), **options)), wanted, f"{form}: {options} of {source}")


@pytest.mark.drawn(3)
@places(
    "form, pairs",
    gpu=[(form, EXTENDED) for form in FORMS],
    emulator=[(form, [("int8", "uint64")]) for form in list(FORMS)[::4] if fits(FORMS[form][1])],
)
def test_signed_integers_keep_their_sign_in_every_kernel(place, form, pairs):
    for source, target in pairs:
        if suits(form, source, target):
            agrees(form, source, target)


FEW_FORMS = ["segments", "scan columns"]


@pytest.mark.drawn(4)
@places(
    "source, target, forms",
    gpu=[(*pair, FEW_FORMS) for pair in EXTENDED[:-1]] + [(*pair, list(FORMS)) for pair in OTHERS],
    emulator=[(*pair, [FEW_FORMS[i % 2]]) for i, pair in enumerate((*EXTENDED[:-1:3], *OTHERS))],
)
def test_the_kinds_of_conversion_in_some_kernel(place, source, target, forms):
    for form in forms:
        if suits(form, source, target):
            agrees(form, source, target)


def test_what_callables_return(place):
    """In another type than that of the call."""
    x, nan = np.arange(1, 38), lambda a, b: Float32(a) * float("nan")
    for call, wanted, what in (
        (
            lambda x: cs.reduce(x, "min", dtype="uint64", transform=lambda v: Int32(v) - 100),
            np.uint64(2**64 - 99),
            "int32 in uint64",
        ),
        (
            lambda x: cs.scan(x, lambda a, b: Int32(b) - 100, dtype="uint64"),
            (x - np.where(x == 1, 0, 100)).astype(np.uint64),
            "int32 in uint64",
        ),
        (
            lambda x: cs.reduce(x, "max", axis=(), dtype="int8", transform=lambda v: (Float32(v) - 20.5) * 40.0),
            np.clip((x - 20.5) * 40, -128, 127).astype(np.int8),
            "float32 in int8",
        ),
        (lambda x: cs.adjacent_difference(x, nan), np.where(x == 1, 1, 0), "NaN in int64"),
        (lambda x: cs.flag_heads(x, nan), np.ones(37, np.uint8), "NaN as a flag"),
    ):
        same(np.asarray(call(cs.asarray(x))), wanted, what)


@pytest.mark.gpu
@pytest.mark.parametrize(("source", "target"), PAIRS[::2], ids=lambda name: name)
def test_each_pair_in_some_kernel(source, target):
    forms = [form for form in FORMS if suits(form, source, target) and np.prod(FORMS[form][1]) < 100_000]
    agrees(forms[(3 * DTYPES.index(source) + 5 * DTYPES.index(target)) % len(forms)], source, target)
