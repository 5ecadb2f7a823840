"""Every fault of ``faults.TABLE``, planted in correct kernels, causes a report of the right kind or a wrong result.

A mutant may survive only if it is listed in ``HARMLESS``, with the reason why it changes nothing that could go wrong.
"""

import pytest

from cutesync.emulator import POLICIES

from .. import faults
from .cases import KERNELS

pytestmark = pytest.mark.slow

SCHEDULES = 2 * len(POLICIES)

# whether one of these is found depends on the schedule
TAIL = "the producer's tail: needed only where other blocks may still arrive on this block's barriers"
CLUSTER = "the cluster barrier releases the initialisation to the other block's threads; no copy is involved"
NO_DATA = "the turns hand over nothing in memory"
GROUP = (
    "three warps arrive for four: each knows the reads of its warpgroup to be over, and the ring wraps only a few times"
)
HARMLESS = {
    **{("stream_tiles", f"no look at the barrier #{i}"): TAIL for i in (1, 2, 3)},
    ("stream_tiles", "constant parity #3"): TAIL,
    ("stream_tiles", "parity not flipped on wrap #1"): TAIL,
    ("stream_tiles", "one stage more than declared #1"): TAIL,
    **{
        ("matmul", f"{fault} #{i}"): TAIL
        for i in (1, 2)
        for fault in ("no look at the barrier", "parity flipped", "constant parity")
    },
    ("matmul", "parity not flipped on wrap #1"): TAIL,
    ("matmul", "one stage more than declared #1"): TAIL,
    ("multicast", "no look at the barrier #1"): TAIL,
    ("multicast", "constant parity #2"): "the parity is 0 there",
    ("matmul", "init count -1 #2"): GROUP,
    ("matmul", "init count -1 #3"): GROUP,
    ("matmul", "no sync_warp #0"): "only the tensor cores read the stage, and every lane has waited for them",
    ("matmul", "no wgmma wait #1"): "every step of the loop has waited already",
    ("product", "no wgmma wait #0"): "it bounds how many groups are in flight; the last wait precedes every use",
    (
        "take_turns",
        "no init fence #0",
    ): "no copy and no other block uses the barriers; the block barrier orders the rest",
    ("take_turns", "constant parity #2"): "the parity is 0 there",
    ("take_turns", "no look at the barrier #2"): NO_DATA,
    ("take_turns", "a relaxed arrival #0"): NO_DATA,
    ("take_turns", "a relaxed arrival #1"): NO_DATA,
    ("gather", "no cluster barrier #3"): "nobody writes to a block that has received all four numbers",
    ("hand_over", "no cluster barrier #3"): "block 1 has received everything, and nobody touches block 0",
    ("hand_over", "no init fence #0"): CLUSTER,
}


@pytest.mark.parametrize("name", KERNELS)
def test_no_mutant_survives(name):
    harmless = [mutant for kernel, mutant in HARMLESS if kernel == name]
    alive = faults.of_function(*KERNELS[name], SCHEDULES).survivors(faults.TABLE, harmless)
    assert not [mutant for mutant in alive if (name, mutant) not in HARMLESS]
    excused = [mutant for (kernel, mutant), why in HARMLESS.items() if kernel == name and why is not TAIL]
    assert not [mutant for mutant in excused if mutant not in alive], "killed after all: take it off the list"
