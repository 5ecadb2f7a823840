"""Symmetric memory: the same layout on every device of a group, at addresses that kernels of all devices can access.

Layout, in bytes from the start of a device's memory: the counters of ``sync.gather.enter`` (8 bytes, zero at first); at
``GATHER``, such counters once more, of reductions that exchange their result themselves; at ``ENDED``, how many blocks
of a launch have ended; at ``HEADERS`` and at ``FAREWELLS``, for either parity of the epoch, a word for each rank; at
``SLOTS``, for either parity and each rank, ``capacity`` words; then the ``GATHER_SLOTS`` words of these reductions. All
words have 64 bits: a tag, which holds the epoch, and 32 bits of content. Only the counters must be zero before the
first launch.

A device writes its header and its values into the memory of every other device, and reads only its own memory. The
memory belongs to one stream a device, or to one graph: two launches never use it at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime import backend, workspace

if TYPE_CHECKING:
    from .team import Team

MAX_RANKS = 8
GATHER, ENDED = 128, 192
HEADERS, FAREWELLS = 256, 512
SLOTS = 1024
CAPACITY = 1 << 14  # words a rank: 64 KiB of values
GATHER_SLOTS = 1 << 13

_given_up: list[tuple[int, int]] = []  # device and address of memory that no group has any more


class Call(NamedTuple):
    """The numbers of a launch, each an Int32: its rank, how many states are exchanged, how many words of the memory a
    rank has, a bit for each rank whose states are combined, whether the device has states itself, and the signature
    that the launches of all ranks have."""

    rank: Any
    count: Any
    capacity: Any
    take: Any
    own: Any
    signature: Any


class SymmetricMemory:
    """The memory of a group. ``bases`` are its addresses, by rank. It is freed some time after the last reference to it
    is gone, unless it is that of a graph, which may be replayed for ever, or other processes have it."""

    def __init__(self, ordinals: tuple[int, ...], of_graph: bool, team: Team | None = None) -> None:
        workspace.free(_given_up)
        self.ordinals, self.team = ordinals, team
        self.lasts = of_graph or team is not None
        self._staged: tuple[int, tuple[int, ...]] = 0, ()  # bytes, and addresses
        # The sanitizer keeps many times as much beside the emulator's memory.
        self.capacity = CAPACITY >> 4 if backend.of(ordinals[0]).on_host else CAPACITY
        self.gather_slots = SLOTS + 2 * len(ordinals) * self.capacity * 8
        size = self.gather_slots + GATHER_SLOTS * 8
        if team is not None:
            self.bases = team.share(size, HEADERS)
        else:
            self.bases = tuple(backend.of(ordinal).make_workspace(size, HEADERS, ordinal) for ordinal in ordinals)

    def staging(self, team: Team, size: int) -> tuple[int, ...]:
        """Return the addresses of ``size`` bytes for parts that other processes read, by rank."""
        held, bases = self._staged
        if held < size:
            held = 1 << max(size - 1, 1 << 12).bit_length()
            bases = team.share(held, 0)
            self._staged = held, bases
        return bases

    def __del__(self, given_up: list = _given_up) -> None:
        if hasattr(self, "bases") and not self.lasts:
            given_up.extend(zip(self.ordinals, self.bases))
