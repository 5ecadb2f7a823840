"""Every flag kernel compiles for sm_90a, without a GPU: no local memory, but for a few spills of kernels with limited
registers, no shared memory, vectors in and out."""

from __future__ import annotations

import re

import pytest

import cutesync as cs
from cutesync.dtypes import BY_NAME
from cutesync.kernels.flags.policy import Problem, choose

from ..compiled import dry, needed, verify

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]

BOTH = "flag_heads_and_tails"
STACK = 64  # bytes of a thread, of kernels that limit their registers, which is faster than no spills (their RESIDENT)
FORMS = [
    ("flag_heads", "uint8"),
    ("flag_tails", "uint8"),
    (BOTH, "uint8"),
    ("flag_heads", "int32"),
    ("flag_heads", "bits"),
    (BOTH, "bits"),
    ("adjacent_difference", None),
    ("adjacent_difference", "reverse"),
]
KINDS = [(name, flag, source) for i, (name, flag) in enumerate(FORMS) for source in ("int8", "int32")[i % 2 :][:1]]
KINDS += [(name, flag, source) for name, flag in FORMS[2:6:3] + FORMS[-2:-1] for source in ("float16", "float64")]


SHARED = "TransposedPolicy", "TurnedBitsPolicy", "BoxPolicy", "PackedPolicy"  # policies


def compiled(allocated, name: str, x, *arguments, most: int = 128, **options) -> str:
    """The PTX of the kernel of a call; a thread has ``most`` registers at most. Only the kernels of ``SHARED`` have
    shared memory and a barrier."""
    (spec,) = needed(getattr(cs, name), x, *arguments, **options)
    *_, shared, registers = verify(spec, allocated, stack=STACK if spec.make().blocks_per_sm > 1 else 0)
    ptx, transposes = spec.kernel().ptx, spec.label.startswith(SHARED)
    assert spec.key[0] == name and registers <= most
    assert (shared > 0) == transposes == bool(re.search(r"\.shared\b|\bbar\b", ptx))
    return ptx


@pytest.mark.drawn(7)
@pytest.mark.parametrize(("name", "flag", "source"), KINDS)
def test_every_form(name, flag, source, allocated):
    difference = name == "adjacent_difference"
    ptx = compiled(
        allocated,
        name,
        dry((1 << 28,), source),
        **({"reverse": flag is not None} if difference else {"dtype": flag}),
    )
    into = BY_NAME[source].size
    out = into if difference else 0 if flag == "bits" else BY_NAME[flag].size
    assert bool(re.search(r"ld\.global\.(v4\.b32|v2\.b64)", ptx)) == (into >= out), (
        "the wider side goes in 16-byte vectors"
    )
    assert bool(re.search(r"st\.global\.(v4\.b32|v2\.b64)", ptx)) == (into <= out)


@pytest.mark.drawn(7)
@pytest.mark.parametrize(
    ("shape", "offset", "options"),
    [
        ((1 << 28,), 0, {"tile": 7}),
        ((1 << 20, 37), 0, {}),
        ((64, 1 << 22), 0, {}),
        ((9, 1000), 0, {"tile": 7}),
        ((1 << 28,), 0, {"predecessor": 1, "successor": 2}),
        ((1 << 28,), 4, {}),
        ((1 << 28,), 8, {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("flag", ["uint8", "bits"])
def test_every_layout(shape, offset, options, flag, allocated):
    *rows, length = shape
    result = ((*rows, -(-length // 32)), "uint32") if flag == "bits" else (shape, "uint8")
    out = tuple(dry(*result, offset, base) for base in (1 << 50, 1 << 60))
    most = 144 if flag == "bits" and length < 64 else 128  # of short rows tiles are transposed in registers
    compiled(allocated, BOTH, dry(shape, "int32", offset), most=most, dtype=flag, out=out, **options)


@pytest.mark.parametrize("op", [lambda a, b: a + 1 < b, lambda a, b, i: (a != b) & (i > 3)], ids=["values", "index"])
def test_callables(op, allocated):
    compiled(allocated, BOTH, dry((1 << 28,), "int32"), op)


@pytest.mark.parametrize("length", [1 << 12, 1 << 18])
def test_small_arrays_spread_over_the_gpu(length):
    """One vector a lane, so that as many warps as there can be take part."""
    choice = choose(Problem(1, length, length, 4, 1, 16, 16))
    assert choice.policy.unroll == 1 and choice.grid == length // 128 // choice.policy.warps


@pytest.mark.parametrize("rows", [3, 1 << 20, (1 << 33) - 1, 1 << 33, 1 << 35])
def test_a_grid_holds_as_many_rows_as_memory_does(rows):
    choice = choose(Problem(rows, 1, 1, 1, 0, 1, 16))
    assert 0 < choice.grid < 1 << 31 and choice.grid * choice.policy.warps >= rows


@pytest.mark.parametrize(("source", "loads", "flags"), [("int8", "v4.b32", "v4"), ("int16", "b32", "v2")])
def test_misaligned_keys_are_loaded_in_vectors_or_words_that_hold_them(source, loads, flags, allocated):
    ptx = compiled(allocated, "flag_heads", dry((1 << 28,), source, BY_NAME[source].size))
    assert f"ld.global.{loads}" in ptx and f"st.global.{flags}.b32" in ptx


def test_misaligned_keys_of_words_are_loaded_one_by_one_and_their_flags_stored_whole(allocated):
    ptx = compiled(allocated, "flag_heads", dry((1 << 28,), "int32", 4))
    assert "ld.global.b32" in ptx and "ld.global.v" not in ptx and "st.global.b32" in ptx


TILES = ("TilePolicy", "TransposedPolicy")
STRIDED = {
    "columns": ("TilePolicy", lambda x: x((4096, 4096)), {"axis": 0}),
    "a third axis, stored down": (TILES, lambda x: x((256, 256, 4096)).transpose(1, 2, 0), {"axis": 1}),
    "stored down": (TILES, lambda x: x((4096, 4096)).T, {"axis": 0}),
    "boxes": ("BoxPolicy", lambda x: x((696, 327, 236, 2)).transpose(2, 1, 0, 3), {"axis": 0}),
    "stepped": ("FlatPolicy", lambda x: x((1 << 24,))[::2], {}),
    "a middle axis": (("FlatPolicy", "SinglesPolicy"), lambda x: x((4096, 128, 3)), {"axis": 1}),
    "a pitch": ("FlatPolicy", lambda x: x((4096, 40))[:, 1:31], {}),
    "long rows": ("RowPolicy", lambda x: x((4096, 4096))[:, :4000], {}),
    "counted": ("FlatPolicy", lambda x: x((1 << 24,)), {"n": 5}),
}


@pytest.mark.drawn(7)
@pytest.mark.parametrize(
    ("source", "flag", "layout"),
    [
        (*types, layout)
        for types, layouts in (
            (("float64", "uint8"), list(STRIDED)),
            (("int8", "uint8"), list(STRIDED)[::3]),
            (("int16", "bits"), list(STRIDED)[::2]),
        )
        for layout in layouts
    ],
)
def test_strided_kernels(layout, source, flag, allocated):
    """No stack, no local memory; and the policy that the layout is meant for."""
    kind, view, options = STRIDED[layout]
    x = view(lambda shape: dry(shape, source))
    if flag == "bits":
        compiled(allocated, "flag_heads", x, dtype="bits", most=224, **options)
        return
    (spec,) = needed(cs.flag_heads, x, **options)
    assert spec.label.startswith(kind)
    compiled(allocated, BOTH, x, dtype=flag, most=224, **options)
    compiled(allocated, "adjacent_difference", x, most=224, **options)
    compiled(allocated, BOTH, x, lambda a, b, i: (a != b) & (i > 3), dtype=flag, tile=1000, most=224, **options)


VECTORS = {
    "short rows": ("flag_heads", lambda x: x((1 << 22, 4)), {"dtype": "bits"}, "st.global.v4.b32"),
    "elements apart": (BOTH, lambda x: x((1 << 24,))[::2], {}, "ld.global.v4.b32"),
    "periods": (BOTH, lambda x: x((64, 512, 128, 3))[:, ::-1], {}, "ld.global.v4.b32"),
}


@pytest.mark.parametrize("source", ["int8", "float16"])
@pytest.mark.parametrize("layout", VECTORS)
def test_short_rows_and_elements_apart_are_vectors(layout, source, allocated):
    call, view, options, access = VECTORS[layout]
    assert access in compiled(allocated, call, view(lambda shape: dry(shape, source)), most=80, **options)


APART = {
    "few columns": ("BallotPolicy", "float16", lambda x: x((208, 13, 4689, 2)), {"axis": 2, "dtype": "bits"}, 96),
    "words of columns": ("TilePolicy", "uint16", lambda x: x((4096, 32768)).T, {"axis": 1, "dtype": "bits"}, 224),
    "odd rows of bits": ("PackedPolicy", "int8", lambda x: x((495249, 371)), {"axis": 1, "dtype": "bits"}, 96),
    "rows of bytes apart": ("PitchedPolicy", "int8", lambda x: x((1 << 14, 1799))[:, :1227], {"axis": 0}, 96),
    "two keys at once": ("TilePolicy", "bfloat16", lambda x: x((2048, 16384)), {"axis": 0}, 64),
    "joined neighbours": ("FlatPolicy", "float32", lambda x: x((15, 1501245)), {"axis": 0}, 64),
    "words anywhere": ("TransposedPolicy", "uint16", lambda x: x((4097, 4096)).T, {"axis": 0}, 128),
    "runs": ("TransposedPolicy", "uint16", lambda x: x((13, 500, 700)).transpose(1, 2, 0), {"axis": 0}, 96),
    "odd lanes": ("TransposedPolicy", "uint16", lambda x: x((9000, 56, 33)).transpose(0, 2, 1), {"axis": 2}, 96),
    "odd columns": ("TilePolicy", "int8", lambda x: x((4096, 4095)), {"axis": 0, "dtype": "bits"}, 128),
    "bits backwards": ("PackedPolicy", "float16", lambda x: x((1 << 22,))[::-1], {"axis": 0, "dtype": "bits"}, 96),
    "single results": ("SinglesPolicy", "float64", lambda x: x((1 << 20, 9)), {"axis": 0}, 64),
    "bits of few rows": ("TilePolicy", "uint32", lambda x: x((2, 83835155)), {"axis": 0, "dtype": "bits"}, 64),
    "bits of short odd rows": ("PackedPolicy", "int32", lambda x: x((288235, 35)), {"axis": 1, "dtype": "bits"}, 96),
    "turned bits": (
        "TurnedBitsPolicy",
        "float16",
        lambda x: x((1341, 1384, 2)).transpose(2, 1, 0),
        {"axis": 0, "dtype": "bits"},
        96,
    ),
    "boxes of short rows": ("BoxPolicy", "int32", lambda x: x((3, 25015, 10)).transpose(2, 1, 0), {"axis": 2}, 96),
}


@pytest.mark.parametrize("layout", APART)
def test_kernels_of_few_columns_and_of_rows_apart(layout, allocated):
    """No stack, few registers; and the policy that the layout is meant for."""
    kind, source, view, options, most = APART[layout]
    x = view(lambda shape: dry(shape, source))
    (spec,) = needed(getattr(cs, BOTH), x, **options)
    assert spec.label.startswith(kind)
    compiled(allocated, BOTH, x, most=most, **options)
