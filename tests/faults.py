"""The mutation harness: faults are edits of a kernel's PTX, and the emulator must report each, with the right kind.

An edit names the text that it changes: a pattern and, where one instruction of several is meant, the text that it comes
``after`` or ``before``. An edit gives one text with the fault planted, or several (``each``). A fault that changes
nothing fails its test: the kernel has changed its form. Kinds are those of ``EmulationError``; ``RESULT`` is a run with
wrong results.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import re
from collections.abc import Callable, Collection, Iterator
from itertools import islice

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.emulator.driver import Executable
from cutesync.runtime import device, workspace

from . import draws
from .compiled import check

RESULT = "result"
DRAWN = 2  # mutants that a fault makes of a text
NOT_PLANTED = "the fault was not planted: the kernel's PTX has changed its form"
LAUNCHES = importlib.import_module("cutesync.emulator.run")  # its ``program`` takes every text that is launched
Edit = Callable[[str], Iterator[str]]
Change = Callable[[re.Match], "str | None"]
Patch = pytest.MonkeyPatch


def op(pattern: str) -> str:
    """The instruction that begins so, to its end."""
    return rf"^[ \t]*{pattern}[^;\n]*;"


def plus(delta: int) -> Change:
    """Adds to the number that the pattern names ``n``; leaves it alone where nothing positive would remain."""

    def change(m: re.Match) -> str | None:
        value, (begin, end), start = int(m["n"]) + delta, m.span("n"), m.start()
        return f"{m[0][: begin - start]}{value}{m[0][end - start :]}" if value > 0 else None

    return change


def _edit(choose: Callable[[list], list[list]], anchored: bool = False):
    """A maker of edits: ``choose`` makes groups of the matches, and each group is one fault. ``anchored``: it must be
    said what the matches come after or before."""

    def make(pattern: str, new: str | Change = "", *, after: str = "", before: str = "") -> Edit:
        assert after or before or not anchored, "first and last of what?"

        def edit(ptx: str) -> Iterator[str]:
            start = re.search(after, ptx, re.M) if after else None
            begin = start.end() if start else 0
            stop = re.compile(before, re.M).search(ptx, begin) if before else None
            if (after and not start) or (before and not stop):
                return
            found = list(re.compile(pattern, re.M).finditer(ptx, begin, stop.start() if stop else len(ptx)))
            for group in choose(found):
                text = ptx
                for m in reversed(group):
                    put = m.expand(new) if isinstance(new, str) else new(m)
                    text = text if put is None else text[: m.start()] + put + text[m.end() :]
                if text != ptx:
                    yield text

        return edit

    return make


def _ends(found: list) -> list[list]:
    """The first and the last of matches with nothing between them: what is true of both is true of all."""
    runs: list[list] = []
    for m in found:
        follows = bool(runs) and not m.string[runs[-1][-1].end() : m.start()].strip()
        runs = [*runs[:-1], [*runs[-1], m]] if follows else [*runs, [m]]
    return [[m] for run in runs for m in run[:: max(1, len(run) - 1)]]


def _only(found: list) -> list[list]:
    assert len(found) < 2, f"{len(found)} matches: not an address"
    return [found]


each = _edit(lambda found: [[m] for m in found])  # one fault for every match
ends = _edit(_ends)  # one for the first and the last of neighbours: barriers of one array, say
every = _edit(lambda found: [found])  # all matches changed, one fault
only = _edit(_only)
first = _edit(lambda found: [found[:1]], anchored=True)
last = _edit(lambda found: [found[-1:]], anchored=True)


class Bench:
    """Something whose kernels can be changed. ``right()`` runs it anew and says whether its results are right, or
    raises AssertionError. Of the kernels as they are, they are."""

    def __init__(self, right: Callable[[], bool], skip: str = "") -> None:
        self.right, self.seen, self.planted = right, {}, {}
        assert self.run(), "wrong without a fault"
        self.texts = [text for text in self.seen if not skip or not re.search(skip, text)]

    def run(self, orders: str = "all") -> bool:
        """``orders``: "all" schedules of each launch, or the "first" or the "last" of them alone."""
        program, record = LAUNCHES.program, Executable.record
        mutant = functools.lru_cache(program.__wrapped__)  # a mutant is kept no longer than this run

        def changed(text: str) -> str:
            self.seen[text] = True
            return self.planted.get(text, text)

        def program_of(text: str, *which):
            new = changed(text)
            return (program if new == text else mutant)(new, *which)

        def run_one(launch, device, how, close, found) -> None:
            LAUNCHES.run_once(launch, device, how, how.schedule(how.schedules - 1 if orders == "last" else 0))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LAUNCHES, "program", program_of)
            patch.setattr(Executable, "record", lambda made, packed, edit=None: record(made, packed, changed))
            if orders != "all":
                patch.setattr(LAUNCHES, "_run_all", run_one)
            return self.right()

    def mutants(self, edit: Edit) -> list[tuple[str, str]]:
        return [(text, changed) for text in self.texts for changed in edit(text)]

    def _drawn(self, mutants: list[tuple[str, str]]) -> set[str]:
        """A few of an edit's mutants of each text: where one instruction of many is changed, the others are alike."""
        drawn = set()
        for text in self.texts:
            own = [changed for original, changed in mutants if original == text]
            drawn |= set(draws.some(own, DRAWN, f"{len(own)} mutants"))
        return drawn

    def judge(self, text: str, changed: str, harmless: bool = False) -> str:
        """What shows the fault: the kind of a report, ``RESULT``, or nothing. Most faults show in the first or the last
        order: the others are run where these show nothing, and not for faults that are known to be ``harmless``."""
        orders = ("first", "last") if harmless else ("first", "last", "all")
        return next(filter(None, (self._shown(text, changed, which) for which in orders)), "")

    def _shown(self, text: str, changed: str, orders: str) -> str:
        self.planted = {text: changed}
        try:
            return "" if self.run(orders) else RESULT
        except emulator.EmulationError as error:
            return error.kind
        except AssertionError:
            return RESULT
        finally:
            self.planted = {}
            workspace.forget(device.HOST, 0)  # a mutant may leave the counters anywhere

    def finds(self, edit: Edit) -> list[str]:
        """What shows each fault that the edit makes."""
        mutants = self.mutants(edit)
        assert mutants, NOT_PLANTED
        return [self.judge(*mutant) for mutant in mutants]

    def changes_nothing(self, edit: Edit) -> None:
        """Nothing shows what the edit makes."""
        found = [self.judge(*mutant, harmless=True) for mutant in self.mutants(edit)]
        assert found and not any(found), f"found {found}"

    def check(self, edit: Edit, kinds: set[str]) -> None:
        """Every fault that the edit makes is shown, in one of these ways, of those that are drawn."""
        mutants = self.mutants(edit)
        assert mutants, NOT_PLANTED
        drawn = self._drawn(mutants)
        found = [self.judge(*mutant) for mutant in mutants if mutant[1] in drawn]
        assert set(found) <= kinds, f"found {found}, expected {kinds}"

    def survivors(self, table: dict[str, tuple[Edit, set[str]]], harmless: Collection[str] = ()) -> list[str]:
        """Plants the faults of a table, no two of the same text; those that nothing shows. Those known to be
        ``harmless`` are run in two orders, and count as such where they are not drawn."""
        alive, done = [], set(self.texts)
        for name, (edit, kinds) in table.items():
            mutants = self.mutants(edit)
            drawn = self._drawn(mutants)
            for number, (text, changed) in enumerate(mutants):
                mutant = f"{name} #{number}"
                if changed in done:
                    continue
                done.add(changed)
                if changed not in drawn:
                    alive += [mutant] if mutant in harmless else []
                    continue
                kind = self.judge(text, changed, mutant in harmless)
                assert kind in {"", *kinds}, f"{mutant}: found {kind}, expected {kinds}"
                if not kind:
                    alive.append(mutant)
        assert len(done) > len(self.texts), "no fault of the table applies"
        return alive


def of_function(function, arguments, wanted: dict, schedules: int) -> Bench:
    """A host function. ``wanted``: {number of an output: what it must be, or None for what it is at first}."""
    wanted = dict(wanted)

    def right() -> bool:
        fresh = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        check(function, *fresh, schedules=schedules)
        for i, value in wanted.items():
            wanted[i] = fresh[i] if value is None else np.asarray(value, fresh[i].dtype)
        return all(np.array_equal(fresh[i], value) for i, value in wanted.items())

    return Bench(right)


def of_tiles(force: Callable[[Patch], None], right: Callable[[], bool], schedules: int = 9) -> Bench:
    """Calls that ``right`` makes, of kernels whose blocks take tiles by tickets and which ``force`` makes small: few
    blocks fit. They should be two on one workspace, and use every stage again."""

    def small() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            force(patch)
            with cs.emulate(), emulator.emulate(schedules=schedules, seed=3, resident=2):
                return right()

    return Bench(small)


# Faults in the source that is traced, which a GPU can run, too


def place_of(what: str) -> tuple[object, str]:
    module, _, path = what.partition(":")
    *owners, name = path.split(".")
    return functools.reduce(getattr, owners, importlib.import_module(module)), name


def without(what: str, which: int | None = None) -> Callable[[Patch], None]:
    """The traced function ``what``, a "module:name", does nothing, or not the ``which``-th time it is called."""

    def plant(patch: Patch) -> None:
        owner, name = place_of(what)
        plain, calls = getattr(owner, name), itertools.count()

        def planted(*arguments, **options):
            return None if which is None or next(calls) == which else plain(*arguments, **options)

        patch.setattr(owner, name, planted)

    return plant


def instead(what: str, value) -> Callable[[Patch], None]:
    """``value`` in the place of ``what``."""
    return lambda patch: patch.setattr(*place_of(what), value)


# Faults of any kernel

_WAIT = r"(mbarrier\.try_wait\.parity[^\n;]*\], )(%r\d+|0)((?:, \d+)?;)"
_WRAP = r"setp\.eq\.b32 \t%p\d+, %r\d+, (?P<n>[1-9]\d*);\n\s*selp\.b32 \t%r\d+, 0,"  # the ring's index goes back to 0
_FENCE = op(r"fence\.mbarrier_init")
_ARRIVE = op(r"mbarrier\.arrive\.(?!expect)")


def shifted(instruction: str, by: int, make: Callable[..., Edit] = each) -> Edit:
    """The last operand of an instruction, plus ``by``."""
    block = rf"{{ .reg .b32 other; add.s32 other, \2, {by}; \1other; }}"
    return make(rf"^([ \t]*{instruction}[^;\n]*, )(%r\d+);", block)


def swap(pattern: str, old: str, new: str) -> Edit:
    """``new`` in the place of ``old`` in instructions that begin so, one at a time."""
    return each(op(pattern), lambda m: m[0].replace(old, new, 1))


TABLE: dict[str, tuple[Edit, set[str]]] = {
    "init count +1": (shifted(r"mbarrier\.init", 1, ends), {"deadlock"}),
    "init count -1": (shifted(r"mbarrier\.init", -1, ends), {"barrier", "race", "livelock", "uninitialised"}),
    "expect_tx +16": (shifted(r"mbarrier\.arrive\.expect_tx", 16), {"transaction", "deadlock"}),
    "expect_tx -16": (shifted(r"mbarrier\.arrive\.expect_tx", -16), {"transaction", "uninitialised"}),
    "no mbarrier init": (ends(op(r"mbarrier\.init")), {"barrier"}),
    "no init fence": (each(_FENCE), {"barrier"}),
    "no init fence at all": (every(_FENCE), {"barrier"}),
    "no proxy fence": (each(op(r"fence\.proxy\.async")), {"proxy", "proxy-read"}),
    "no sync_warp": (each(op(r"bar\.warp\.sync")), {"race", "barrier"}),
    "no block barrier": (each(op(r"bar\.sync \t0")), {"barrier", "race", "uninitialised"}),
    "no wait for the launch before": (each(op(r"griddepcontrol\.wait")), {"race"}),
    "no arrive": (each(_ARRIVE), {"deadlock"}),
    "double arrive": (each(_ARRIVE, r"\g<0>\g<0>"), {"race", "barrier", "deadlock", "uninitialised"}),
    "no wgmma wait": (each(op(r"wgmma\.wait_group")), {"race", "registers"}),
    "no wgmma fence": (each(op(r"wgmma\.fence")), {"registers"}),
    "no bulk wait": (each(op(r"cp\.async\.bulk\.wait_group")), {"race", "barrier"}),
    "no cluster barrier": (each(op(r"barrier\.cluster\.(arrive|wait)")), {"barrier", "uninitialised", "out-of-bounds"}),
    "no wait at a named barrier": (each(op(r"bar\.sync \t[1-9]")), {"race", "uninitialised"}),
    "no store": (lambda ptx: islice(each(op(r"st\.global"))(ptx), 2), {RESULT, "uninitialised"}),
    "no commit": (each(op(r"(cp\.async\.bulk|wgmma)\.commit_group")), {"race", "registers"}),
    "no look at the barrier": (
        each(r"mbarrier\.try_wait[^\n;]* (\S+), \[[^\n;]*;", r"setp.eq.u32 \1, 0, 0;"),
        {"barrier", "uninitialised", "race"},
    ),
    "parity flipped": (
        each(_WAIT, r"{ .reg .b32 flip; xor.b32 flip, \2, 1; \1flip\3 }"),
        {"barrier", "uninitialised", "race", "deadlock"},
    ),
    "constant parity": (each(_WAIT, r"\g<1>0\3"), {"barrier", "uninitialised", "race", "deadlock"}),
    "parity not flipped on wrap": (
        each(r"(selp\.b32 \t(%r\d+), 1, 0, %p\d+;\n\s*)xor\.b32 \t(%r\d+), (%r\d+), \2;", r"\1mov.b32 \3, \4;"),
        {"barrier", "race", "uninitialised"},
    ),
    "one stage fewer than declared": (each(_WRAP, plus(-1)), {"deadlock", "barrier", "race"}),
    "one stage more than declared": (each(_WRAP, plus(1)), {"barrier", "out-of-bounds", "race", RESULT}),
    "release to relaxed": (swap(r"(st|atom|red|mbarrier\.arrive)[^\n;]*\.release", ".release", ".relaxed"), {"race"}),
    "acq_rel to relaxed": (swap(r"(atom|red)[^\n;]*\.acq_rel", ".acq_rel", ".relaxed"), {"race"}),
    "acquire to relaxed": (swap(r"ld[^\n;]*\.acquire", ".acquire", ".relaxed"), {"race"}),
    "a relaxed wait": (swap(r"[^\n;]*mbarrier\.try_wait", ".acquire", ".relaxed"), {"race"}),
    "a relaxed arrival": (
        swap(r"mbarrier\.arrive\.shared\.b64", "arrive.shared.b64", "arrive.relaxed.cta.shared::cta.b64"),
        {"race"},
    ),
    "a drop that only arrives": (swap(r"mbarrier\.arrive_drop", "arrive_drop", "arrive"), {"deadlock"}),
    "gpu to cta scope": (swap(r"(ld|st|atom|red)[^\n;]*\.gpu", ".gpu", ".cta"), {"race"}),
    "cluster to cta scope": (
        swap(r"mbarrier\.arrive[^\n;]*\.cluster\.shared", ".cluster.shared", ".cta.shared"),
        {"race"},
    ),
    "named barrier number": (
        each(r"(bar\.(?:sync|arrive) \t)([1-9])(?=, )", lambda m: f"{m[1]}{3 - int(m[2])}"),
        {"race", "uninitialised", "deadlock", "barrier"},
    ),
    "named barrier count +32": (each(r"bar\.(?:sync|arrive) \t[1-9], (?P<n>\d+);", plus(32)), {"barrier", "deadlock"}),
    "named barrier count -32": (
        each(r"bar\.(?:sync|arrive) \t[1-9], (?P<n>\d+);", plus(-32)),
        {"race", "barrier", "deadlock"},
    ),
}

# Faults of kernels whose blocks take tiles by tickets

READ = r"ld\.relaxed\.gpu\.global\.b64"
TILES = {name: fault for name, fault in TABLE.items() if name not in ("gpu to cta scope", "named barrier number")}
# the stages that say that there are no more tiles bring no bytes
TILES["expect_tx -16"] = (TABLE["expect_tx -16"][0], {*TABLE["expect_tx -16"][1], "transaction"})
ONE_FENCE = [f"no init fence #{i}" for i in range(4)]  # the fence of one barrier serves the others, too
WITHOUT_COPIES = ["no proxy fence #0", "no sync_warp #0"]  # of strided arrays: what orders copies is not needed
# one of a class, for a kernel whose rings and roles are those of another that is tested with all
VARIANT = {
    name: TILES[name]
    for name in (
        "init count +1",
        "expect_tx +16",
        "no proxy fence",
        "no sync_warp",
        "no block barrier",
        "no wait for the launch before",
        "no arrive",
        "no wait at a named barrier",
        "no store",
        "no look at the barrier",
        "parity flipped",
        "a relaxed arrival",
        "named barrier count +32",
        "named barrier count -32",
    )
}
OF_TILES: dict[str, tuple[Edit, set[str]]] = {
    "a state published by a plain store": (each(r"st\.relaxed\.gpu(\.global\.b64)", r"st\1"), {"race"}),
    "states read by plain loads": (every(READ, "ld.global.b64"), {"race"}),
    "the epoch never raised": (only(r"^[ \t]*atom\.global\.add\.u64 [^;]*, %rd\d+;"), {"out-of-bounds", RESULT}),
}
