"""Mutations: small edits of a kernel's PTX, each of which plants one synchronization fault. ``mutants(ptx)`` yields
every one that applies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True)
class Mutation:
    """Each match of ``pattern`` (the first ``most`` of them) makes one mutant, where ``change`` gives its replacement
    (None: leave this match alone).
    """

    name: str
    pattern: str
    change: Callable[[re.Match], str | None]
    most: int = 100


def drop(name: str, pattern: str, most: int = 100) -> Mutation:
    return Mutation(name, rf"^\s*{pattern}[^;\n]*;", lambda m: ";", most)


def swap(name: str, pattern: str, old: str, new: str) -> Mutation:
    return Mutation(name, pattern, lambda m: m.group(0).replace(old, new, 1))


def _immediate(delta: int):
    def change(m: re.Match) -> str | None:
        value = int(m.group(2)) + delta
        return f"{m.group(1)}{value}{m.group(3)}" if value > 0 else None

    return change


def _constant_of(instruction: str) -> str:
    """Matches the ``mov.b32 %r, constant`` that sets the last operand of the instruction after it."""
    between = r"(?:\s*(?:\.loc|elect|not|@|mov|mbarrier)[^\n]*\n|\$[^\n]*\n)*?"
    return rf"(mov\.b32 \t(%r\d+), )(\d+)(;\n{between}\s*{instruction}[^\n;]*, \2;)"


def _named(delta: int):
    def change(m: re.Match) -> str | None:
        value = int(m.group(3)) + delta
        return f"{m.group(1)}{m.group(2)}{value};" if value > 0 else None

    return change


def _shift_constant(delta: int):
    def change(m: re.Match) -> str | None:
        value = int(m.group(3)) + delta
        return f"{m.group(1)}{value}{m.group(4)}" if value > 0 else None

    return change


_WRAP = r"(setp\.eq\.b32 \t%p\d+, %r\d+, )(\d+)(;\n\s*selp\.b32 \t%r\d+, 0,)"  # the ring's index goes back to 0
TABLE = (
    Mutation("init count +1", _constant_of(r"mbarrier\.init\.shared\.b64"), _shift_constant(1)),
    Mutation("init count -1", _constant_of(r"mbarrier\.init\.shared\.b64"), _shift_constant(-1)),
    Mutation("expect_tx +16", _constant_of(r"mbarrier\.arrive\.expect_tx\.shared\.b64"), _shift_constant(16)),
    Mutation("expect_tx -16", _constant_of(r"mbarrier\.arrive\.expect_tx\.shared\.b64"), _shift_constant(-16)),
    drop("no mbarrier init", r"mbarrier\.init"),
    drop("no init fence", r"fence\.mbarrier_init"),
    drop("no proxy fence", r"fence\.proxy\.async"),
    drop("no sync_warp", r"bar\.warp\.sync"),
    drop("no block barrier", r"bar\.sync \t0"),
    drop("no wait for the launch before", r"griddepcontrol\.wait"),
    drop("no arrive", r"mbarrier\.arrive\.(?!expect)"),
    drop("no wgmma wait", r"wgmma\.wait_group"),
    drop("no wgmma fence", r"wgmma\.fence"),
    drop("no bulk wait", r"cp\.async\.bulk\.wait_group\.read"),
    drop("no cluster barrier", r"barrier\.cluster\.(arrive|wait)"),
    drop("no store", r"st\.global", most=2),
    drop("no commit", r"(cp\.async\.bulk|wgmma)\.commit_group"),
    Mutation("double arrive", r"^\s*mbarrier\.arrive\.shared\.b64 [^;\n]*;", lambda m: m.group(0) * 2),
    Mutation(
        "parity flipped",
        r"^([ \t]*)(mbarrier\.try_wait\.parity[^\n]*\], )(%r\d+)(, \d+;)",
        lambda m: f"{m.group(1)}{{ .reg .b32 flip; xor.b32 flip, {m.group(3)}, 1; {m.group(2)}flip{m.group(4)} }}",
    ),
    Mutation(
        "constant parity",
        r"(mbarrier\.try_wait\.parity[^\n]*\], )(%r\d+)(, \d+;)",
        lambda m: f"{m.group(1)}0{m.group(3)}",
    ),
    Mutation(
        "parity not flipped on wrap",
        r"(selp\.b32 \t(%r\d+), 1, 0, %p\d+;\n\s*)xor\.b32 \t(%r\d+), (%r\d+), \2;",
        lambda m: f"{m.group(1)}mov.b32 {m.group(3)}, {m.group(4)};",
    ),
    Mutation("one stage fewer than declared", _WRAP, _immediate(-1)),
    Mutation("one stage more than declared", _WRAP, _immediate(1)),
    swap("release to relaxed", r"^\s*(st|atom|red|mbarrier\.arrive)[^\n;]*\.release[^\n;]*;", ".release", ".relaxed"),
    swap("acq_rel to relaxed", r"^\s*(atom|red)[^\n;]*\.acq_rel[^\n;]*;", ".acq_rel", ".relaxed"),
    swap("acquire to relaxed", r"^\s*ld[^\n;]*\.acquire[^\n;]*;", ".acquire", ".relaxed"),
    swap("gpu to cta scope", r"^\s*(ld|st|atom|red)[^\n;]*\.gpu[^\n;]*;", ".gpu", ".cta"),
    swap(
        "cluster to cta scope",
        r"^\s*(mbarrier\.arrive)[^\n;]*\.cluster\.shared[^\n;]*;",
        ".cluster.shared",
        ".cta.shared",
    ),
    Mutation(
        "named barrier number",
        r"(bar\.(?:sync|arrive) \t)()([1-9]), ",
        lambda m: f"{m.group(1)}{3 - int(m.group(3))}, ",
    ),
    Mutation("named barrier count +32", r"(bar\.(?:sync|arrive) \t[1-9], )()(\d+);", _named(32)),
    Mutation("named barrier count -32", r"(bar\.(?:sync|arrive) \t[1-9], )()(\d+);", _named(-32)),
)


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """``(name, changed PTX)`` for every mutation at every place where it applies."""
    for mutation in TABLE:
        for number, match in enumerate(islice(re.finditer(mutation.pattern, text, re.M), mutation.most)):
            replacement = mutation.change(match)
            if replacement is not None and replacement != match.group(0):
                yield f"{mutation.name} #{number}", text[: match.start()] + replacement + text[match.end() :]
