"""Im2col maps: their bytes against what the DSL builds today, their columns against a convolution's patches cut with
NumPy.
"""

import numpy as np
import pytest

from cutesync.emulator.im2col import Im2colMap, encode_im2col
from cutesync.emulator.tensor_map import decode, replace_field
from cutesync.errors import ArgumentValueError

from . import observed_maps

OBSERVED = [
    {
        "extents": (64, 20, 16, 4),
        "pixels": 64,
        "channels": 64,
        "lower": (-1, -2),
        "upper": (-1, -3),
        "strides": (2, 3),
        "swizzle": (3, 4, 3),
    },
    {
        "extents": (64, 20, 16, 6, 4),
        "pixels": 128,
        "channels": 32,
        "lower": (-1, -2, -3),
        "upper": (-1, -3, -4),
        "strides": (1, 1, 2),
        "swizzle": (2, 4, 3),
    },
    {
        "extents": (32, 2000, 4),
        "pixels": 16,
        "channels": 16,
        "lower": (-300,),
        "upper": (-477,),
        "strides": (1,),
        "swizzle": (1, 4, 3),
    },
]


@pytest.mark.parametrize("request_", OBSERVED, ids=lambda r: f"{len(r['extents'])}d")
def test_the_dsl_still_builds_maps_this_way(request_):
    data = observed_maps.observe_im2col("Float16", **request_)
    extents = request_["extents"]
    strides = tuple(2 * int(np.prod(extents[: d + 1])) for d in range(len(extents) - 1))
    want = Im2colMap(
        "f16",
        observed_maps.ADDRESS,
        extents,
        strides,
        request_["lower"],
        request_["upper"],
        request_["channels"],
        request_["pixels"],
        (1, *request_["strides"], 1),
        {1: 32, 2: 64, 3: 128}[request_["swizzle"][0]],
    )
    assert decode(data) == want
    unexplained = [i for i in range(64) if i not in (9, 10, 11) and data[i] != encode_im2col(want)[i]]
    assert not unexplained


def test_encode_and_decode_are_inverse():
    m = Im2colMap(
        "bf16",
        0x1000,
        (40, 20, 16, 8, 4),
        (80, 1600, 1 << 20, 1 << 38),
        (-16, 15, 0),
        (3, -1, 7),
        40,
        1024,
        (1, 2, 3, 4, 1),
        128,
        True,
    )
    assert decode(encode_im2col(m)) == m
    with pytest.raises(ArgumentValueError, match="im2col"):
        replace_field(encode_im2col(m), "rank", 2)


@pytest.mark.parametrize(
    "pad,filters,stride,dilation",
    [((1, 1), (3, 3), (1, 1), (1, 1)), ((2, 0), (4, 2), (2, 1), (1, 3)), ((0, 3), (2, 5), (3, 2), (2, 1))],
)
def test_columns_are_the_patches_of_a_convolution(pad, filters, stride, dilation):
    """Row m of the column for filter tap (s, r) is the padded image at output pixel m, shifted by the tap."""
    images, height, width, channels = 3, 9, 11, 16
    array = np.arange(1, images * height * width * channels + 1, dtype=np.uint16).reshape(
        images, height, width, channels
    )
    padded = np.pad(array, ((0, 0), (pad[1], pad[1]), (pad[0], pad[0]), (0, 0)))
    lower = tuple(-p for p in pad)
    upper = tuple(p - (f - 1) * d for p, f, d in zip(pad, filters, dilation))
    sizes = [
        (e + 2 * p - (f - 1) * d - 1) // s + 1 for e, p, f, d, s in zip((width, height), pad, filters, dilation, stride)
    ]
    total = images * sizes[0] * sizes[1]
    pixels, first = min(40, total - 5), 5
    m = Im2colMap(
        "u16",
        0,
        (channels, width, height, images),
        (32, 32 * width, 32 * width * height),
        lower,
        upper,
        channels,
        pixels,
        (1, *stride, 1),
        32,
    )
    image, row, column = first // (sizes[0] * sizes[1]), first // sizes[0] % sizes[1], first % sizes[0]
    start = (0, lower[0] + column * stride[0], lower[1] + row * stride[1], image)
    for s in range(filters[0]):
        for r in range(filters[1]):
            copy = m.transfer(start, 1024, (s * dilation[0], r * dilation[1]))
            values = np.zeros(copy.in_bounds.size, np.uint16)
            values[copy.in_bounds] = array.reshape(-1)[copy.global_addresses[copy.in_bounds] // 2]
            x, y = s * dilation[0] + stride[0] * np.arange(sizes[0]), r * dilation[1] + stride[1] * np.arange(sizes[1])
            patches = padded[:, y[:, None], x[None, :]].reshape(total, channels)
            assert np.array_equal(values.reshape(pixels, channels), patches[first : first + pixels])
    place = copy.shared_addresses.reshape(pixels, channels)
    assert np.array_equal(place[:, 0] - 1024, np.arange(pixels) * 32 + np.arange(pixels) // 4 % 2 * 16)
    assert copy.transaction_bytes == pixels * 32


def test_channels_beyond_the_tensor_are_filled():
    m = Im2colMap("f32", 0, (20, 5, 2), (80, 400), (0,), (0,), 8, 4, nan_fill=True)
    copy = m.transfer((16, 3, 0), 0)
    assert copy.in_bounds.reshape(4, 8).tolist() == [[True] * 4 + [False] * 4] * 4 and copy.fill == 0x7FF77FF7
    assert m.transfer((16, 0, 0), 0, store=True).in_bounds.reshape(4, 8).tolist() == [[True] * 4 + [False] * 4] * 4
    assert (
        m.transfer((-4, 3, 1), 0).in_bounds.reshape(4, 8).tolist() == [[False] * 4 + [True] * 4] * 2 + [[False] * 8] * 2
    )


@pytest.mark.parametrize(
    "change",
    [
        {"lower": (0, 0)},
        {"lower": (1 << 15,)},
        {"channels": 0},
        {"pixels": 1025},
        {"channels": 24},
        {"swizzle": 32},
        {"address": 4},
        {"extents": (64, 20)},
    ],
)
def test_maps_that_cannot_exist_are_refused(change):
    fields = {
        "element": "f16",
        "address": 0,
        "extents": (64, 20, 4),
        "strides": (128, 2560),
        "lower": (0,),
        "upper": (0,),
        "channels": 32,
        "pixels": 8,
    } | change
    if change == {"channels": 24}:
        fields["swizzle"] = 32
    with pytest.raises(ArgumentValueError):
        Im2colMap(**fields)
    with pytest.raises(ArgumentValueError, match="coordinates"):
        Im2colMap("f16", 0, (64, 20, 4), (128, 2560), (0,), (0,), 32, 8).transfer((0, 0), 0)
