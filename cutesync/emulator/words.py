"""The words of which opcodes are made (PTX ISA 9.0, the syntax of each instruction). Others are not PTX."""

from __future__ import annotations

import re
from functools import lru_cache

_OPCODE = re.compile(r"[a-z][a-z0-9_]*(?:(?:\.|::)[A-Za-z0-9_]+)*", re.A)
_NUMBERED = re.compile(
    r"[usbf](?:2|4|8|16|32|64|128|1024)(?:x2|x4)?|bf16(?:x2)?|tf32|u?e[2-8]m[0-3](?:x2|x4)?|s2f6x2|b1"
    r"|b4x16(?:_p64)?|b6x16_p32|b6p2x16"
    r"|m\d{1,3}n\d{1,3}(?:k\d{1,3})?|\d{1,3}x\d{1,3}b|x\d{1,3}|v[248]|[1-5]d|a[12]d|(?:64|128|256)[Bb]"
    r"|[12346]|[124]X|128",
    re.A,
)
_TEXT = (
    # types, rounding, comparison and arithmetic
    "pred rn rz rm rp rna rs rni rzi rmi rpi sat satfinite ftz noftz approx full wide hi lo cc relu oob xorsign abs "
    "nan NaN num scaled "
    "eq ne lt le gt ge ls hs equ neu ltu leu gtu geu and or xor not add sub mul min max inc dec exch cas popc "
    "clamp wrap l r shiftamt f4e b4e rc8 ecl ecr rc16 mode to finite infinite number notanumber normal subnormal pack "
    # warps and control
    "sync aligned arrive wait red warp cta cluster any all uni ballot idx up down bfly reduce mask launch_dependents "
    "noreturn "
    # state spaces, order, caches
    "global shared local const param generic entry func weak relaxed acquire release acq_rel sc volatile mmio gpu sys "
    "ca cg cs lu cv wb wt nc unified L1 L2 evict_normal evict_unchanged evict_first evict_last no_allocate cache_hint "
    "gl fractional range cvt proxy alias async tensormap mbarrier_init sync_restrict acc vec ld_reduce st ld "
    # barriers and asynchronous copies
    "mbarrier init inval arrive_drop test_wait try_wait parity pending_count expect_tx complete_tx noinc noComplete "
    "bytes one layout "
    "bulk tensor commit_group wait_group wait_all read prefetch bulk_group multicast tile im2col im2col_no_offs w "
    "gather4 scatter4 "
    "tile_gather4 cp_mask ignore_oob cta_group tx cp "
    "replace cp_fenceproxy global_address rank box_dim global_dim global_stride element_stride elemtype "
    "interleave_layout swizzle_mode "
    "fill_mode swizzle_atomicity "
    # matrices
    "load store a b c d "
    "mma_async mma sp ordered_metadata fence trans row col kind block_scale scale_vec f8f6f4 mxf4 mxf4nvf4 mxf8f6f4 "
    "i8"
)
_WORDS = frozenset(_TEXT.split())


@lru_cache(maxsize=4096)
def opcode(text: str) -> tuple[str, ...] | None:
    """An opcode split at its dots; None if the text is not one."""
    if not _OPCODE.fullmatch(text):
        return None
    first, *modifiers = text.split(".")
    known = all(word in _WORDS or _NUMBERED.fullmatch(word) for part in modifiers for word in part.split("::"))
    return (first, *modifiers) if known else None
