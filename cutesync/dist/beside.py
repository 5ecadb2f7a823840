"""Copies by copy engines, and kernels on a second stream, beside those of a call; observed, so that the call can be
made again from its record."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from ..runtime.copy_engine import CopyEngine
from .recorder import observed, observer
from .work import Work

if TYPE_CHECKING:
    from .group import Group

CALL, COPIES, KERNELS = "call", "copies", "kernels"  # the streams of a device: that of the call, and two beside it


class Beside:
    """The streams of each device, and the events between them. The caller makes the device of a rank current."""

    def __init__(self, engine: CopyEngine, work: Work) -> None:
        self._engine, self._streams = engine, {CALL: work.streams, COPIES: engine.copies, KERNELS: engine.kernels}

    @classmethod
    def of(cls, work: Work, group: Group) -> Beside | None:
        """Return that of a call; None where kernels copy: between processes, on the emulator, and in captures."""
        engine = group.copy_engine(work.streams)
        if engine is None:
            return None
        recorder = observer()
        if recorder is not None:
            recorder.beside(engine.kernels)
        return cls(engine, work)

    def stream(self, rank: int, lane: str) -> int:
        """Return a stream of a device."""
        return self._streams[lane][rank]

    def record(self, name: Hashable, rank: int, lane: str) -> None:
        """Record an event on a stream of a device."""
        self._do(rank, lane, lambda stream: self._engine.record(name, stream))

    def wait(self, name: Hashable, rank: int, lane: str) -> None:
        """Let a stream of a device wait for an event."""
        self._do(rank, lane, lambda stream: self._engine.wait(name, stream))

    def copy(self, rank: int, places: tuple[int, int], size: int) -> None:
        """Copy so many bytes to a device; ``places`` are the addresses to copy to and from."""
        engine = self._engine
        observed(lambda at, _: engine.copy(rank, at[0], at[1], size))(places, self._streams[CALL][rank])

    def join(self, rank: int) -> None:
        """Let later work of the call wait for the kernels beside it."""
        self.record(("done", rank), rank, KERNELS)
        self.wait(("done", rank), rank, CALL)

    def _do(self, rank: int, lane: str, operation: Callable[[int], Any]) -> None:
        """Do something with a stream. Later calls have other streams of their own, and the same ones beside them."""
        stream = self._streams[lane][rank]
        run = (lambda _, own: operation(own)) if lane == CALL else (lambda _, own: operation(stream))
        observed(run)((), self._streams[CALL][rank])
