"""Member masks of votes, matches, reductions, shuffles and warp barriers, constant and in registers."""

import numpy as np
import pytest

from cutesync.emulator import POLICIES, Settings

from .support import kernel_text, launch, reported

VALUES = np.random.default_rng(4).integers(0, 1 << 20, 32).astype(np.uint32)
HALVES = "\tmov.u32 %r9, 65535;\n\tsetp.gt.u32 %p1, %r0, 15;\n\t@%p1 mov.u32 %r9, 0xffff0000;"
LOW = "\tsetp.lt.u32 %p1, %r0, 5;\n\tvote.sync.ballot.b32 %r9, %p1, -1;"


def out_of(body: str, policy: str) -> list[int]:
    text = kernel_text(
        f"""
\tmov.u32 %r0, %tid.x;
\tmul.wide.u32 %rd1, %r0, 4;
\tadd.u64 %rd2, %rd1, %a1;
\tld.global.b32 %r1, [%rd2];
\tmov.u32 %r5, 0;
{body}
\tadd.u64 %rd2, %rd1, %a0;
\tst.global.b32 [%rd2], %r5;""",
        2,
    )
    out = np.zeros(32, np.uint32)
    launch(text, out, VALUES, settings=Settings(policy))
    return out.tolist()


def halves(function) -> list[int]:
    return [int(function(VALUES[i // 16 * 16 : i // 16 * 16 + 16].tolist())) for i in range(32)]


@pytest.mark.parametrize("policy", ("random", "lagging_lane"))
@pytest.mark.parametrize(
    "instruction, want",
    (
        ("redux.sync.add.u32 %r5, %r1, %r9;", halves(sum)),
        ("redux.sync.max.u32 %r5, %r1, %r9;", halves(max)),
        (
            "setp.gt.u32 %p2, %r1, 500000;\n\tvote.sync.ballot.b32 %r5, %p2, %r9;",
            [sum((int(VALUES[j]) > 500000) << j for j in range(i // 16 * 16, i // 16 * 16 + 16)) for i in range(32)],
        ),
        (
            "setp.gt.u32 %p2, %r0, 15;\n\tvote.sync.all.pred %p3, %p2, %r9;\n\tselp.u32 %r5, 1, 0, %p3;",
            [i // 16 for i in range(32)],
        ),
        (
            "and.b32 %r2, %r0, 1;\n\tmatch.any.sync.b32 %r5, %r2, %r9;",
            [(0x5555 << i % 2) << (i // 16 * 16) for i in range(32)],
        ),
        (
            "shr.u32 %r2, %r0, 4;\n\tmatch.all.sync.b32 %r5|%p2, %r2, %r9;",
            [0xFFFF << (i // 16 * 16) for i in range(32)],
        ),
    ),
    ids=("add", "max", "ballot", "all", "match any", "match all"),
)
def test_lanes_with_different_masks_work_apart(instruction, want, policy):
    assert out_of(f"{HALVES}\n\t{instruction}", policy) == [w & 0xFFFFFFFF for w in want]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_mask_made_by_a_vote(policy):
    first = int(VALUES[:5].sum())
    assert out_of(f"{LOW}\n\t@%p1 redux.sync.add.u32 %r5, %r1, %r9;", policy) == [first] * 5 + [0] * 27


@pytest.mark.parametrize(
    "instruction",
    (
        "redux.sync.add.u32 %r5, %r1, {};",
        "vote.sync.ballot.b32 %r5, %p1, {};",
        "match.any.sync.b32 %r5, %r1, {};",
        "shfl.sync.idx.b32 %r5, %r1, 3, 31, {};",
        "bar.warp.sync {};",
        "elect.sync %r5|%p3, {};",
    ),
)
@pytest.mark.parametrize("mask", ("%r9", "31"), ids=("register", "constant"))
def test_a_lane_outside_its_mask_is_reported(instruction, mask):
    body = f"{LOW}\n\t{instruction.format(mask)}"
    text = reported("convergence", "member mask leaves them out", out_of, body, "random")
    assert "lanes 5-31" in text and "0x0000001f" in text


def test_lanes_of_one_mask_that_disagree_are_reported():
    body = (
        "\tmov.u32 %r9, -1;\n\tsetp.gt.u32 %p1, %r0, 15;\n\t@%p1 mov.u32 %r9, 0xffff0000;\n"
        "\tredux.sync.add.u32 %r5, %r1, %r9;"
    )
    assert "lanes 16-31" in reported("convergence", "with another mask", out_of, body, "random")
