"""The emulator's table of mutations, and those of the waits and atomics of ``cutesync.sync``, whose PTX has another form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from cutesync import emulator

from ..emulator import mutations
from ..emulator.mutations import Mutation, drop, swap

_WAIT = r"(mbarrier\.try_wait\.parity[^\n]*\], )(%r\d+);"
OWN = (
    Mutation(
        "parity flipped",
        rf"^([ \t]*){_WAIT}",
        lambda m: f"{m[1]}{{ .reg .b32 flip; xor.b32 flip, {m[3]}, 1; {m[2]}flip; }}",
    ),
    Mutation("constant parity", _WAIT, lambda m: f"{m[1]}0;"),
    swap("a relaxed wait", r"^[^\n]*mbarrier\.try_wait[^\n]*;", ".acquire", ".relaxed"),
    swap(
        "a relaxed arrival",
        r"^\s*mbarrier\.arrive\.shared\.b64[^\n]*;",
        "arrive.shared.b64",
        "arrive.relaxed.cta.shared::cta.b64",
    ),
    swap("a drop that only arrives", r"^\s*mbarrier\.arrive_drop[^\n]*;", "arrive_drop", "arrive"),
    swap("an atomic that releases nothing", r"^\s*atom[^\n;]*\.release[^\n;]*;", ".release", ".relaxed"),
    drop("no wait", r"(bar\.sync \t[1-9]|cp\.async\.bulk\.wait_group)"),
    Mutation(
        "no look at the barrier",
        r"^(\s*)mbarrier\.try_wait[^\n]* (%p\d+), [^\n]*;",
        lambda m: f"{m[1]}setp.eq.u32 {m[2]}, 0, 0;",
    ),
)


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """``(name, changed PTX)``: no two of the same text."""
    seen = {text}
    fences = re.compile(r"^\s*fence\.mbarrier_init[^\n]*", re.M)
    if len(fences.findall(text)) > 1:
        yield "no init fence at all", fences.sub("", text)
    for mutation in (*mutations.TABLE, *OWN):
        for number, match in enumerate(re.finditer(mutation.pattern, text, re.M)):
            replacement = mutation.change(match)
            if replacement is not None and number < mutation.most:
                changed = text[: match.start()] + replacement + text[match.end() :]
                if changed not in seen:
                    seen.add(changed)
                    yield f"{mutation.name} #{number}", changed


def survivors(text: str, right: Callable[[str], bool]) -> list[str]:
    """The mutants that ``right(text)`` calls right: it runs one and says whether the result is; it may raise EmulationError."""
    alive, count = [], 0
    for name, changed in mutants(text):
        count += 1
        try:
            if right(changed):
                alive.append(name)
        except emulator.EmulationError:
            continue
    assert count, "no mutation applies"
    return alive
