"""What only a GPU can show: arrays of other libraries, and more than 2**32 elements."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.runtime import device

from ..cases import same
from ..libraries import MAKERS, RESULTS, host
from .cases import keys

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_every_library_goes_in_and_its_own_comes_out(library, dtype):
    x = keys((45, 203), dtype)
    array = MAKERS[library](x)
    for found, wanted in zip(cs.flag_heads_and_tails(array), reference.flag_heads_and_tails(x)):
        assert type(found).__module__.partition(".")[0] == RESULTS.get(library, "cutesync")
        same(host(found), wanted)
    same(host(cs.flag_heads(array, dtype="bits")), reference.flag_heads(x, dtype="bits"))


def test_bfloat16_of_torch(torch):
    x = torch.randint(0, 3, (70001,), device="cuda").to(torch.bfloat16)
    flags = cs.flag_heads(x, dtype="bool")
    assert flags[0].item() and torch.equal(flags[1:], x[1:] != x[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["uint8", "bits"])
def test_more_than_2_to_the_32_items(flag):
    """Zeros, but for a few ones: the heads are at each one and behind it."""
    count = (1 << 32) + 37
    x = cs.empty(count, "int8")
    cu = device.driver()
    device.check(cu.cuMemsetD8(x.ptr, 0, count), "filling")
    ones = [5, (1 << 31) - 1, (1 << 31) + 7, (1 << 32) - 2, (1 << 32) + 35]
    for place in ones:
        device.check(cu.cuMemsetD8(x.ptr + place, 1, 1), "marking")
    wanted = sorted({0, *ones, *(place + 1 for place in ones)})
    flags = np.asarray(cs.flag_heads(x, dtype=flag)).view(np.uint8)
    found = [int(at) for at in np.flatnonzero(flags)]
    if flag == "bits":
        found = [8 * at + bit for at in found for bit in range(8) if flags[at] >> bit & 1]
    assert found == wanted
    seen = np.flatnonzero(np.asarray(cs.flag_heads(x, lambda a, b, index: index == (1 << 32) + 3)))
    assert seen.tolist() == [0, (1 << 32) + 3]
