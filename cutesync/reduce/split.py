"""Dealing work to blocks and warps by index alone, and the states that blocks leave for the last one of them."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64


def share(total, index, parts):
    """Bounds of part ``index`` when ``total`` items are dealt to ``parts`` in order, the first ones getting one more."""
    each = total // parts
    extra = total - each * parts
    begin = each * index + cutlass.min(index, extra)
    return begin, begin + each + cutlass.select_(index < extra, Int32(1), Int32(0))


def workspace_states(types, states, first, total):
    """The workspace as a state array that begins at slot ``first`` of ``total``: one run of 8-byte slots a member."""
    members, offset = [], Int64(first)
    for t in types:
        base = cute.make_ptr(t, (states + offset).toint(), cute.AddressSpace.gmem, assumed_align=8)
        members.append(cute.make_tensor(base, cute.make_layout((1 << 20,), stride=(64 // t.width,))))
        offset += Int64(total)
    return tuple(members)
