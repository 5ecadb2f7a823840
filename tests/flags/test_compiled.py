"""Every flag kernel compiles for sm_90a, without a GPU: no spills, no local memory, no shared memory, vectors in and
out."""

from __future__ import annotations

import re

import pytest

from cutesync.dtypes import BY_NAME
from cutesync.kernels.flags.plan import Marking, kernel_for
from cutesync.kernels.flags.policy import Problem, choose
from cutesync.ops import COMPARISONS, DIFFERENCES, neighbour_operator

from ..compiled import assert_overlaps, cubin_figures

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]


def compiled(form: str, op, source: str, flag: str, *, shape=(1, 1 << 28), tile=None, aligned=16, ends=False):
    """The kernel that a call of this kind launches."""
    bits = flag == "bits"
    result = BY_NAME["uint32" if bits else flag]
    marking = Marking(
        form,
        neighbour_operator(op, DIFFERENCES if form in ("left", "right") else COMPARISONS),
        BY_NAME[source],
        result,
        bits,
        ends,
        ends,
    )
    size = BY_NAME[source].size
    return kernel_for(
        choose(
            Problem(
                *shape,
                tile or shape[1],
                size,
                0 if bits else result.size,
                max(aligned, size),
                max(aligned, result.size),
            )
        ),
        marking,
    )


def verify(kernel, registers: int = 128) -> str:
    ptx = kernel.ptx
    assert re.findall(r"^\.target (.*)$", ptx, re.M) in (["sm_90a"], ["sm_90a, debug"])
    assert re.findall(r"\.entry (\w+)", ptx) == [kernel.name] and kernel.name.startswith(
        ("cutesync_flag_", "cutesync_adjacent_difference")
    )
    assert_overlaps(ptx)
    assert not re.search(r"\.local\b|\.shared\b|\bbar\b|\bcall\b|\btrap\b", ptx)
    used, frame = cubin_figures(kernel.cubin)
    assert frame == 0 and used <= registers, f"{used} registers, {frame} bytes of stack"
    return ptx


FORMS = [
    ("heads", "uint8"),
    ("tails", "uint8"),
    ("both", "uint8"),
    ("heads", "int32"),
    ("heads", "bits"),
    ("both", "bits"),
    ("left", None),
    ("right", None),
]


KINDS = [(form, flag, source) for form, flag in FORMS for source in ("int8", "int32")]
KINDS += [(form, flag, source) for form, flag in FORMS[2:6:3] + FORMS[-2:-1] for source in ("float16", "float64")]


@pytest.mark.parametrize(("form", "flag", "source"), KINDS)
def test_every_form(form, flag, source):
    ptx = verify(compiled(form, "sub" if flag is None else "ne", source, flag or source))
    into, out = BY_NAME[source].size, 0 if flag == "bits" else BY_NAME[flag or source].size
    assert bool(re.search(r"ld\.global\.(v4\.b32|v2\.b64)", ptx)) == (into >= out), (
        "the wider side goes in 16-byte vectors"
    )
    assert bool(re.search(r"st\.global\.(v4\.b32|v2\.b64)", ptx)) == (into <= out)


@pytest.mark.parametrize(
    "options",
    [
        {"tile": 7},
        {"shape": (1 << 20, 37)},
        {"shape": (64, 1 << 22)},
        {"shape": (9, 1000), "tile": 7},
        {"ends": True},
        {"aligned": 4},
        {"aligned": 8},
    ],
    ids=str,
)
@pytest.mark.parametrize("flag", ["uint8", "bits"])
def test_every_layout(options, flag):
    verify(compiled("both", "ne", "int32", flag, **options))


@pytest.mark.parametrize("op", [lambda a, b: a + 1 < b, lambda a, b, i: (a != b) & (i > 3)], ids=["values", "index"])
def test_callables(op):
    verify(compiled("both", op, "int32", "uint8"))


@pytest.mark.parametrize("length", [1 << 12, 1 << 18])
def test_small_arrays_spread_over_the_gpu(length):
    """One vector a lane, so that as many warps as there can be take part."""
    config = choose(Problem(1, length, length, 4, 1, 16, 16))
    assert config.kernel[4] == 1 and config.grid == length // 128 // config.kernel[5]


@pytest.mark.parametrize("rows", [3, 1 << 20, (1 << 33) - 1, 1 << 33, 1 << 35])
def test_a_grid_holds_as_many_rows_as_memory_does(rows):
    config = choose(Problem(rows, 1, 1, 1, 0, 1, 16))
    assert 0 < config.grid < 1 << 31 and config.grid * config.kernel[-1] >= rows


@pytest.mark.parametrize(("source", "piece"), [("int8", "b8"), ("int16", "b16"), ("int32", "b32")])
def test_misaligned_keys_are_loaded_in_pieces_and_their_flags_stored_whole(source, piece):
    size = BY_NAME[source].size
    config = choose(Problem(1, 1 << 28, 1 << 28, size, 1, size, 16))
    ptx = verify(
        kernel_for(config, Marking("heads", neighbour_operator("ne", COMPARISONS), BY_NAME[source], BY_NAME["uint8"]))
    )
    assert f"ld.global.{piece}" in ptx and "ld.global.v" not in ptx and "st.global.b32" in ptx
