"""Declarations of PTX: size, alignment and name of a parameter, and variables with their initial content."""

from __future__ import annotations

import re
from math import prod

from .syntax import SIZES, Variable

_TYPE = r"\.(b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f16|f32|f64|b128)\b"
_MAX_LOCAL, _MAX_BYTES = 512 << 10, 1 << 31


def split(text: str) -> list[str]:
    """Split at commas outside brackets, braces and parentheses."""
    parts, depth, start = [], 0, 0
    for i, ch in enumerate(text):
        if ch in "[{(":
            depth += 1
        elif ch in "]})":
            depth -= 1
        elif ch == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    if last or parts:
        parts.append(last)
    return parts


def found(pattern: str, text: str) -> re.Match[str]:
    """The first match, which a well-formed text has."""
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"nothing matches {pattern}")
    return match


def declared(piece: str) -> tuple[int, int, str]:
    """(size, alignment, name) of one parameter declaration."""
    unit = SIZES[found(_TYPE, piece)[1]]
    name, count = found(r"^([$\w]+)(?:\[(\d+)\])?$", piece.split()[-1]).groups()
    return unit * int(count or 1), _alignment(piece if ".ptr" not in piece else "", unit), name


def _alignment(declaration: str, default: int) -> int:
    match = re.search(r"\.align\s+(\d+)", declaration)
    if not match:
        return default
    align = int(match.group(1))
    if not 1 <= align <= 4096 or align & (align - 1):
        raise ValueError(f"an alignment of {align}")
    return align


def variable(s: str) -> Variable:
    left, _, right = s.partition("=")
    space, size = found(r"\.(global|const|shared|local)\b", left)[1], SIZES[re.findall(_TYPE, left)[-1]]
    name, dimensions = found(r"([$\w]+)((?:\[\d*\])*)\s*$", left.strip()).groups()
    count = prod(int(dimension or 0) for dimension in re.findall(r"\[(\d*)\]", dimensions))
    init = None
    if right.strip():
        values = split(right.strip().strip("{}")) if "{" in right else [right.strip()]
        init = b"".join((int(v, 0) & ((1 << 8 * size) - 1)).to_bytes(size, "little") for v in values)
    if size * count > (_MAX_LOCAL if space == "local" else _MAX_BYTES):
        raise ValueError(f"{size * count} bytes of {space} memory")
    return Variable(name, space, size * count, _alignment(left, size), init)
