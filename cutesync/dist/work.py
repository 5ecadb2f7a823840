"""A call of a group that is being made."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from ..runtime import call as front_ends

if TYPE_CHECKING:
    from .group import Group
    from .memory import SymmetricMemory


class Together:
    """A context for launches of all devices that may wait for each other. Inside, ``at(rank)`` makes the device of a
    rank current. If the launches fail, the next ones begin anew."""

    __slots__ = ("_group", "_launches", "at")

    at: Callable[[int], None]

    def __init__(self, group: Group) -> None:
        self._group = group
        self._launches = group.at_once()

    def __enter__(self) -> Any:
        self.at = self._launches.__enter__()
        if front_ends.recorders:
            self._watch(front_ends.recorders.get(get_ident()))
        return self

    def _watch(self, recorder: Any) -> None:
        """Tell what observes this thread's call, if anything does, which device is current."""
        at = self.at

        def switch(rank: int) -> None:
            recorder.rank = rank
            at(rank)

        if recorder is not None:
            self.at = switch

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._launches.__exit__(kind, error, trace)
        except BaseException:
            self._group.forget()
            raise
        if kind is not None:
            self._group.forget()


class Work(Together):
    """The launches of a call: its stream on each device, whether the caller gave these (``explicit``), and their
    symmetric memory."""

    __slots__ = ("explicit", "memory", "streams")

    memory: SymmetricMemory

    def __init__(self, group: Group, streams: tuple[int, ...], explicit: bool) -> None:
        self._group, self.streams, self.explicit = group, streams, explicit
        self._launches = group.at_once()
        self.memory = group.memory(streams)
