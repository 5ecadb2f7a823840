"""Dealing work to blocks, warps and lanes by index alone."""

import cutlass
from cutlass import Int32


def share(total, index, parts):
    """Bounds of part ``index`` when ``total`` items are dealt to ``parts`` in order. The first parts get one more."""
    each = total // parts
    extra = total - each * parts
    begin = each * index + cutlass.min(index, extra)
    return begin, begin + each + cutlass.select_(index < extra, Int32(1), Int32(0))
