"""Tensor maps: their bytes against what the DSL builds today, their tiles against NumPy slices and CuTe's swizzled
layouts.
"""

from dataclasses import replace

import numpy as np
import pytest

from cutesync.emulator.tensor_map import (
    API_ELEMENTS,
    ELEMENTS,
    TensorMap,
    decode,
    encode,
    from_encode_arguments,
    replace_field,
)
from cutesync.errors import ArgumentValueError

from . import observed_maps

# --- bytes: calibrated against the DSL on every run -------------------------------------------------------------------

BASE = {"shape": (120, 60), "stride": (1, 128), "box": (32, 8)}
OBSERVED = [
    ("u8", {"dtype": "Uint8", **BASE}),
    ("u8", {"dtype": "Int8", **BASE}),
    ("u8", {"dtype": "Float8E4M3FN", **BASE}),
    ("u16", {"dtype": "Uint16", **BASE}),
    ("u32", {"dtype": "Uint32", **BASE}),
    ("u32", {"dtype": "Int32", **BASE}),
    ("u64", {"dtype": "Int64", **BASE}),
    ("f16", {"dtype": "Float16", **BASE}),
    ("bf16", {"dtype": "BFloat16", **BASE}),
    ("f32", {"dtype": "Float32", **BASE}),
    ("f64", {"dtype": "Float64", **BASE}),
    ("tf32", {"dtype": "TFloat32", **BASE}),
    ("f16", {"dtype": "Float16", **BASE, "box": (64, 8), "swizzle": (3, 4, 3)}),
    ("f16", {"dtype": "Float16", **BASE, "swizzle": (2, 4, 3)}),
    ("f32", {"dtype": "Float32", **BASE, "box": (8, 8), "swizzle": (1, 4, 3)}),
    ("f32", {"dtype": "Float32", **BASE, "store": True}),
    ("f32", {"dtype": "Float32", "shape": (1000,), "stride": (1,), "box": (64,)}),
    ("bf16", {"dtype": "BFloat16", "shape": (60, 120), "stride": (128, 1), "box": (8, 64)}),
    ("f16", {"dtype": "Float16", "shape": (128, 5, 6), "stride": (1, 136, 136 * 7), "box": (16, 2, 3)}),
    ("f32", {"dtype": "Float32", "shape": (128, 5, 6, 7), "stride": (1, 128, 640, 4000), "box": (16, 2, 3, 4)}),
    (
        "f32",
        {
            "dtype": "Float32",
            "shape": (128, 5, 6, 7, 9),
            "stride": (1, 1 << 33, 1 << 34, 1 << 35, 1 << 36),
            "box": (16, 2, 1, 1, 1),
        },
    ),
    ("u8", {"dtype": "Uint8", "shape": (1 << 20, 1 << 20), "stride": (1, 1 << 20), "box": (256, 256)}),
]
SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "tf32": 4}


@pytest.mark.parametrize(
    "element,request_", OBSERVED, ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v.values()))
)
def test_the_dsl_still_builds_maps_this_way(element, request_):
    data = observed_maps.observe(**request_)
    order = sorted(range(len(request_["shape"])), key=lambda d: request_["stride"][d])
    want = TensorMap(
        element,
        observed_maps.ADDRESS,
        tuple(request_["shape"][d] for d in order),
        tuple(request_["stride"][d] * SIZES[element] for d in order[1:]),
        tuple(request_["box"][d] for d in order),
        swizzle={1: 32, 2: 64, 3: 128}[request_["swizzle"][0]] if "swizzle" in request_ else 0,
    )
    assert decode(data) == want
    hints = 0xFFFE0000
    word = slice(8, 12)
    differing = [i for i in range(64) if i not in range(8, 12) and data[i] != encode(want)[i]]
    assert not differing, "bytes that decode does not explain"
    assert (int.from_bytes(data[word], "little") ^ int.from_bytes(encode(want)[word], "little")) & ~hints == 0


def test_encode_and_decode_are_inverse():
    for element in ELEMENTS:
        m = TensorMap(
            element, 0x7FFF12345670, (37, 5, 1 << 32), (1 << 20, (1 << 40) - 16), (256, 1, 7), (1, 8, 3), 0, 0, True
        )
        assert decode(encode(m)) == m and len(encode(m)) == 128
    for swizzle in (0, 32, 64, 128):
        m = TensorMap("f16", 0, (5,), (), (16,), swizzle=swizzle)
        assert decode(encode(m)) == m


def test_the_arguments_of_the_driver_call():
    made = [from_encode_arguments(i, 16, (64, 8), (256,), (16, 4), (1, 1), 0, 3, 1).element for i in range(13)]
    assert made == list(API_ELEMENTS) and sorted(made) == sorted(ELEMENTS)
    m = from_encode_arguments(6, 0x100, (64, 8), (256,), (16, 4), (1, 2), 0, 1, 0)
    assert m == TensorMap("f16", 0x100, (64, 8), (256,), (16, 4), (1, 2), 0, 32, False)


def test_fields_are_replaced_one_by_one():
    data = encode(TensorMap("f16", 0x100, (64, 8), (256,), (16, 4)))
    for field, value, ordinal in (
        ("global_address", 0x200, 0),
        ("global_dim", 100, 1),
        ("global_stride", 512, 0),
        ("box_dim", 32, 0),
        ("swizzle_mode", 2, 0),
        ("elemtype", 10, 0),
        ("fill_mode", 1, 0),
        ("element_stride", 2, 1),
    ):
        data = replace_field(data, field, value, ordinal)
    assert decode(data) == TensorMap("bf16", 0x200, (64, 100), (512,), (32, 4), (1, 2), 0, 64, True)
    deeper = decode(replace_field(data, "rank", 2))
    assert deeper.rank == 3 and deeper.extents == (64, 100, 1)
    with pytest.raises(ArgumentValueError, match="colour"):
        replace_field(data, "colour", 1)


@pytest.mark.parametrize(
    "change",
    [
        {"element": "f8"},
        {"address": 8},
        {"extents": (0, 8)},
        {"strides": (24,)},
        {"strides": (1 << 40,)},
        {"box": (257, 1)},
        {"box": (4, 4)},
        {"element_strides": (1, 9)},
        {"swizzle": 16},
        {"swizzle": 32, "box": (32, 4)},
        {"interleave": 1},
        {"strides": ()},
        {"extents": (1,) * 6},
    ],
)
def test_maps_that_cannot_exist_are_refused(change):
    fields = {"element": "f16", "address": 0, "extents": (64, 8), "strides": (256,), "box": (16, 4)} | change
    with pytest.raises(ArgumentValueError, match="tensor map"):
        TensorMap(**fields)


def test_bytes_that_are_no_map_are_refused():
    for data in (b"\0" * 128, b"\xff" * 128, b"\0" * 32):
        with pytest.raises(ArgumentValueError, match="tensor map"):
            decode(data)


# --- tiles ------------------------------------------------------------------------------------------------------------


def load(m: TensorMap, memory: np.ndarray, at: tuple[int, ...], shared_address: int = 0) -> np.ndarray:
    """The box as a load brings it, undone from its swizzle by CuTe's definition of Swizzle<bits, 4, 3> on byte
    addresses.
    """
    copy = m.transfer(at, shared_address)
    shared = np.zeros(1 << 16, np.uint8)
    byte = np.arange(m.element_bytes)
    values = np.zeros((copy.in_bounds.size, m.element_bytes), np.uint8)
    values[copy.in_bounds] = memory[copy.global_addresses[copy.in_bounds][:, None] + byte]
    shared[copy.shared_addresses[:, None] + byte] = values
    bits = {0: 0, 32: 1, 64: 2, 128: 3}[m.swizzle]
    straight = np.arange(shared_address, shared_address + copy.transaction_bytes)
    mask = ((1 << bits) - 1) << 7
    return shared[straight ^ ((straight & mask) >> 3)].view(np.uint8).reshape(*m.box[::-1], m.element_bytes)


TILES = [
    ((100,), (32,), (88,), 0),
    ((100,), (32,), (-8,), 0),
    ((60, 40), (32, 8), (8, 5), 64),
    ((60, 40), (32, 8), (48, 36), 64),
    ((60, 40), (64, 24), (-8, -3), 128),
    ((60, 40), (16, 8), (0, 0), 32),
    ((50, 7, 9), (32, 4, 5), (32, -2, 6), 0),
    ((50, 7, 9), (64, 8, 3), (-8, 4, 3), 128),
    ((20, 5, 4, 6), (8, 3, 2, 4), (16, 3, -1, 4), 0),
    ((20, 5, 4, 3, 6), (8, 3, 2, 2, 3), (16, -1, 3, 2, 4), 0),
    ((3, 2), (16, 8), (0, 0), 0),
    ((40, 40), (16, 8), (104, 100), 32),
]


@pytest.mark.parametrize("extents,box,at,swizzle", TILES)
def test_tiles_are_slices_of_a_padded_array(extents, box, at, swizzle):
    """u16 elements; the box is cut with NumPy, zero where an index is outside."""
    array = np.arange(1, np.prod(extents) + 1, dtype=np.uint16).reshape(extents[::-1])
    rows = -(-extents[0] * 2 // 16) * 16
    memory = np.full((*extents[:0:-1], rows), 0xEE, np.uint8)
    memory[..., : extents[0] * 2] = array.view(np.uint8)
    strides = [rows * int(np.prod(extents[1 : 1 + d])) for d in range(len(extents) - 1)]
    m = TensorMap("u16", 0, extents, tuple(strides), box, swizzle=swizzle)
    lattice = [np.arange(c, c + b) for c, b in zip(at, box)][::-1]
    inside = [(i >= 0) & (i < e) for i, e in zip(lattice, extents[::-1])]
    picked = array[np.ix_(*(np.clip(i, 0, e - 1) for i, e in zip(lattice, extents[::-1])))]
    want = np.where(np.logical_and.reduce(np.meshgrid(*inside, indexing="ij")), picked, 0)
    got = load(m, memory.reshape(-1), at, 1024)
    assert np.array_equal(got.view(np.uint16)[..., 0], want)
    assert m.transfer(at, 0).transaction_bytes == np.prod(box) * 2


def test_element_strides_keep_every_nth():
    array = np.arange(60 * 60, dtype=np.uint32).reshape(60, 60)
    m = TensorMap("u32", 0, (60, 60), (240,), (16, 20), (4, 3))
    copy = m.transfer((4, 10), 0)
    assert m.tile == (16, 7) and copy.transaction_bytes == 16 * 7 * 4
    picked = array.reshape(-1)[copy.global_addresses // 4].reshape(7, 16)
    assert np.array_equal(picked, array[10:30:3, 4:20])
    late = m.transfer((4, 50), 0)
    assert late.in_bounds.reshape(7, 16).all(axis=1).tolist() == [True] * 4 + [False] * 3
    assert np.array_equal(copy.shared_addresses, np.arange(112) * 4)


def test_swizzle_follows_the_shared_address():
    """The same box at another address has another pattern: the swizzle uses address bits, not offsets in the box."""
    m = TensorMap("u8", 0, (256, 64), (256,), (128, 16), swizzle=128)
    at_zero, at_384 = m.transfer((0, 0), 0).shared_addresses, m.transfer((0, 0), 384).shared_addresses
    rows = np.arange(16)
    assert np.array_equal(at_zero.reshape(16, 128)[:, 0], rows * 128 + (rows % 8) * 16)
    assert np.array_equal(at_384.reshape(16, 128)[:, 0] - 384, rows * 128 + ((rows + 3) % 8) * 16)


FILLS = {"f16": 0x7FF7, "bf16": 0x7FF7, "f32": 0x7FF77FF7, "tf32": 0x7FF77FF7, "f64": 0x7FF77FF77FF77FF7, "u16": 0}


@pytest.mark.parametrize("element, nan, want", [("f16", False, 0), *((e, True, fill) for e, fill in FILLS.items())])
def test_fill_values(element, nan, want):
    assert TensorMap(element, 0, (8,), (), (16,), nan_fill=nan).transfer((0,), 0).fill == want


@pytest.mark.parametrize(
    "element, codes, want",
    [
        (
            "tf32",
            [0x3F801001, 0xBF800FFF, 0x7FFFFFFF, 0xFF800001],
            [0x3F802000, 0xBF800000, 0x7FFFE000, 0x7FFFE000],
        ),
        ("tf32_ftz", [0x7F800000, 0xFF800000, 0, 1 << 31], [0x7F800000, 0xFF800000, 0, 1 << 31]),
        # ties to even, as on an H200
        ("tf32", [0x3F801000, 0x3F803000, 0xBF801000, 0x3FBF], [0x3F800000, 0x3F804000, 0xBF800000, 0x4000]),
        ("f32_ftz", [1, 0x80000001, 0x3F800001, 0x7F800001], [1, 0x80000001, 0x3F800001, 0x7F800001]),
    ],
)
def test_loads_round_to_tf32(element, codes, want):
    loaded = TensorMap(element, 0, (8,), (), (4,)).loaded(np.array(codes, np.uint32).view(np.uint8))
    assert loaded.view(np.uint32).tolist() == want


def test_stores_write_whole_multiples_of_16_bytes():
    """The elements between the end of a row and the next multiple of 16 bytes go out too; rows beyond the tensor do
    not.
    """
    m = TensorMap("f16", 0, (50, 7), (128,), (16, 4))
    assert m.transfer((48, 5), 0).in_bounds.reshape(4, 16).sum(1).tolist() == [2, 2, 0, 0]
    kept = m.transfer((48, 5), 0, store=True).in_bounds.reshape(4, 16)
    assert kept.sum(1).tolist() == [8, 8, 0, 0] and kept[0, :8].all()


@pytest.mark.parametrize("element,fine,wrong", [("u8", 16, 8), ("f16", -8, 4), ("f32", 4, -5), ("u64", 2, 1)])
def test_boxes_start_at_multiples_of_16_bytes(element, fine, wrong):
    m = TensorMap(element, 0, (64, 64), (512,), (16, 8))
    m.transfer((fine, 3), 0)
    with pytest.raises(ArgumentValueError, match="inner coordinate"):
        m.transfer((wrong, 3), 0)


def test_stores_start_inside():
    m = TensorMap("f32", 0, (64, 64), (256,), (16, 8))
    m.check_corner((60, 63), store=True)
    for at in ((-4, 0), (0, -1)):
        m.check_corner(at)
        with pytest.raises(ArgumentValueError, match="store"):
            m.check_corner(at, store=True)


def test_misuse_of_a_transfer_is_refused():
    m = TensorMap("u8", 0, (256, 64), (256,), (128, 16))
    with pytest.raises(ArgumentValueError, match="coordinates"):
        m.transfer((0,), 0)
    with pytest.raises(ArgumentValueError, match="128"):
        m.transfer((0, 0), 64)


def test_addresses_wrap_around():
    """The map of a ragged tensor: rows 20 to 22 of an array, as the last three of 2**30 rows of a dimension whose
    stride, times 2**30, is a multiple of 2**64; the base may lie outside of all buffers."""
    big, row, rows = 1 << 30, 64, 3
    shifted = TensorMap("u32", (1 << 64) - big * row, (16, big, 1 << 31), (row, row), (16, 8, 1))
    inverse = TensorMap("u32", 0, (16, big, 1 << 31, 1 << 31), (row, (1 << 34) - row, row), (16, 8, 1, 1))
    for m, start in ((shifted, (0, big - rows, 20 + rows)), (inverse, (0, big - rows, big, 20 + rows))):
        copy = decode(encode(m)).transfer(start, 0)
        assert copy.in_bounds.reshape(8, 16).sum(1).tolist() == [16] * rows + [0] * (8 - rows)
        assert np.array_equal(copy.global_addresses[copy.in_bounds], 20 * row + 4 * np.arange(rows * 16))


@pytest.mark.parametrize(
    "want",
    [
        TensorMap("f16", 0x7F0012345670, (100, 60), (256,), (32, 16), (1, 2), 0, 64, True),
        TensorMap("tf32", 64, (3, 5, 7, 9, 1 << 32), (1 << 38, 16, (1 << 39) + 32, 48), (4, 2, 3, 4, 256), (), 0, 0),
    ],
)
def test_a_map_that_a_kernel_makes_from_zeros(want):
    """As Triton does: every field is replaced. Zeros alone are no map."""
    elements, swizzles = ELEMENTS.index(want.element), (0, 32, 64, 128).index(want.swizzle)
    fields: list = [("global_address", want.address, 0), ("rank", want.rank - 1, 0), ("elemtype", elements, 0)]
    fields += [("interleave_layout", 0, 0), ("swizzle_mode", swizzles, 0), ("fill_mode", int(want.nan_fill), 0)]
    for name, values in (
        ("box_dim", want.box),
        ("global_dim", want.extents),
        ("global_stride", want.strides),
        ("element_stride", want.element_strides),
    ):
        fields += [(name, value, i) for i, value in enumerate(values)]
    data = bytes(128)
    with pytest.raises(ArgumentValueError):
        decode(data)
    for name, value, ordinal in fields:
        data = replace_field(data, name, value, ordinal)
    assert decode(data) == want
    assert decode(replace_field(data, "global_address", 128)) == replace(want, address=128)
