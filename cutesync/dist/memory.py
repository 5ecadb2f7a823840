"""Symmetric memory: the same layout on every device of a group, at addresses that kernels of all devices can access.

Layout, in bytes from the start of a device's memory: the counters of ``sync.gather.enter`` (8 bytes, zero at first); at
``HEADERS``, for either parity of the epoch, a word for each rank; at ``SLOTS``, for either parity and each rank,
``capacity`` words. All words have 64 bits: a tag, which holds the epoch, and 32 bits of content. Only the counters must
be zero before the first launch.

A device writes its header and its values into the memory of every other device, and reads only its own memory. The
memory belongs to one stream a device, or to one graph: two launches never use it at the same time.
"""

from __future__ import annotations

from ..runtime import backend

MAX_RANKS = 8
HEADERS = 256
SLOTS = 1024
CAPACITY = 1 << 14  # words a rank: 64 KiB of values


class SymmetricMemory:
    """The memory of a group. ``bases`` are its addresses, by rank."""

    def __init__(self, ordinals: tuple[int, ...]) -> None:
        self.ordinals = ordinals
        # The sanitizer keeps many times as much beside the emulator's memory.
        self.capacity = CAPACITY >> 4 if backend.of(ordinals[0]).on_host else CAPACITY
        size = SLOTS + 2 * len(ordinals) * self.capacity * 8
        self.bases = tuple(backend.of(ordinal).make_workspace(size, HEADERS, ordinal) for ordinal in ordinals)

    def free(self) -> None:
        for base, ordinal in zip(self.bases, self.ordinals):
            backend.of(ordinal).free_workspace(base, ordinal)
