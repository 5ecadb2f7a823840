"""What a call on Sharded arrays does on each device: the arrays that it makes, and its launches.

An address is recorded as the array in which it lies, and its distance from that array's own. Calls in which an address
lies in no array are not recorded, nor are those whose arrays overlap in part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..kernels.args import Bits
from ..runtime import arrays, call as front_ends
from ..runtime.launch import Launch, Run
from ..runtime.repeat import CURRENT
from ..runtime.view import View

if TYPE_CHECKING:
    from .group import Group


def observer() -> Recorder | None:
    """Return what observes this thread's call, if anything does."""
    found = front_ends.recorders.get(get_ident()) if front_ends.recorders else None
    return found if isinstance(found, Recorder) else None


def observed(run: Run) -> Run:
    """Return the run of a launch that this package makes itself. Every one must be observed."""

    def launch(addresses: Sequence[int], stream: int) -> None:
        run(addresses, stream)  # type: ignore[arg-type]
        if front_ends.recorders:
            recorder = observer()
            if recorder is not None:
                recorder.launch(run, addresses, stream)

    return launch


def launcher(*given: Any, **named: Any) -> Run:
    """Return the run of a ``Launch``, observed."""
    return observed(Launch(*given, **named).run)


def allocator(library: Any, shape: tuple[int, ...], dtype: Any, ordinal: int) -> Callable[..., Any]:
    """Return the library's function that makes such arrays, observed."""
    empty = library.allocator(shape, dtype, ordinal)

    def make(stream: int, other: bool = False) -> Any:
        y = empty(stream, other)
        if front_ends.recorders:
            recorder = observer()
            if recorder is not None:
                recorder.make(library, empty, y)
        return y

    return make


class Recorder:
    """Observes the launches of a call, and what arrays it makes. ``given`` are the views of its arrays. ``rank`` is
    that of the current device.

    ``events``: the rank; what makes an array, the function that returns its address, and None; or a launch, None, and
    its addresses: each an array (of those given, then those made) and a distance, or a number."""

    def __init__(self, group: Group, streams: tuple[int, ...], given: list[View]) -> None:
        self.group, self.streams = group, streams
        self.rank, self.numbers = 0, CURRENT.numbers
        self.views, self.given = given, len(given)
        self.kernels: Sequence[int] = ()  # streams beside those of the call
        self.made: list[Any] = []  # held, so that no two lie at the same addresses
        self.events: list[tuple] = []
        self.same, self.whole = _alike(given)

    def observe(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call that is observed."""
        CURRENT.taken = False
        try:
            with front_ends.recording(self):
                return call()
        finally:
            self.whole = self.whole and not CURRENT.taken

    def note(self, plans: dict, plan: Any, library: Any, stream: Any, given: tuple) -> None:
        """Add the call of a front end (see ``runtime.repeat.Recorder.note``)."""
        inputs, outs, found = given
        if plan is None or plan.ordinal != self.group.ordinals[self.rank]:
            self.whole = False
            return
        new = [y for y, was in zip(found, outs) if was is None]
        for y, empty in zip(new, plan.more.empties):
            self.make(library, empty, y)
        addresses = [0 if x is None else arrays.adapter(x).identify_strided(x)[0] for x in (*inputs, *found)]
        run = plan.run if CURRENT.numbers is self.numbers else _with_numbers(plan.run, CURRENT.numbers)
        self.launch(run, addresses, library.stream(plan.ordinal) if stream is None else arrays.stream_handle(stream))

    def make(self, library: Any, empty: Callable, y: Any) -> None:
        """Add an array that is made on the current device."""
        self.made.append(y)
        view = library.view(y)
        self.events.append((self.rank, empty, library.address, None))
        self.whole = self.whole and not _overlaps(view, self.views)
        self.views.append(view)

    def beside(self, kernels: Sequence[int]) -> None:
        """Take launches on other streams, too, one a device; the call lets its own streams wait for them at its end."""
        self.kernels = kernels

    def launch(self, run: Run, addresses: Sequence[int], stream: int) -> None:
        """Add a launch on the current device."""
        if stream != self.streams[self.rank]:
            self.whole = self.whole and stream in self.kernels[self.rank : self.rank + 1]
            run = _on(run, stream)
        self.events.append((self.rank, run, None, [self._place(address) for address in addresses]))

    def _place(self, address: int) -> Any:
        """Return what an address is recorded as: an array and a distance, the number that it has the bits of, or 0."""
        if isinstance(address, Bits):
            return address if address.numbers is self.numbers else int(address)
        for i, view in enumerate(self.views):
            start, stop = view.span
            if start <= address < stop:
                return i, address - view.ptr
        for i, view in enumerate(self.views):
            if address == view.ptr:  # an array without elements
                return i, 0
        self.whole = self.whole and address == 0
        return 0


def _alike(views: list[View]) -> tuple[list[tuple[int, int]], bool]:
    """Return which arrays lie at the same addresses, and whether none overlap otherwise, as such
    cannot be told apart."""
    spans, same, whole = [view.span for view in views], [], True
    for j, (start, stop) in enumerate(spans):
        for i, (first, last) in enumerate(spans[:j]):
            if start < last and first < stop:
                same.append((i, j))
                whole = whole and (first, last) == (start, stop) and views[i].ptr == views[j].ptr
    return same, whole


def _overlaps(view: View, others: list[View]) -> bool:
    start, stop = view.span
    return any(start < last and first < stop for first, last in (other.span for other in others))


def _on(run: Run, stream: int) -> Run:
    """Return a run that is always on this stream."""
    return lambda addresses, _: run(addresses, stream)


def _with_numbers(run: Run, numbers: tuple) -> Run:
    """Return a run whose run-time arguments are always these."""

    def with_numbers(addresses: tuple[int, ...], stream: int) -> None:
        before, CURRENT.numbers = CURRENT.numbers, numbers
        try:
            run(addresses, stream)
        finally:
            CURRENT.numbers = before

    return with_numbers
