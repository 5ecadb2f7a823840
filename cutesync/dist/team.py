"""The processes of a group, each with one device: what they tell each other, and the memory that they share.

Every process plans the calls of all ranks, from the shapes and types of all parts, and launches those of its own. The
parts of others are arrays on ``device.REMOTE``, which have no memory here.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import __version__
from ..dtypes import BY_NAME, FLOAT8
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, LaunchError, explain
from ..runtime import arrays, backend, device
from ..runtime.device_array import DeviceArray
from ..runtime.view import View
from .communicators import Communicator
from .memory import MAX_RANKS


class Team:
    """This process among those of ``communicator``; its device is ``ordinal``."""

    def __init__(self, communicator: Communicator, ordinal: int) -> None:
        self.rank, self.size, self._gather = communicator.rank, communicator.size, communicator.allgather
        if not 0 < self.size <= MAX_RANKS:
            came, advice = f"{self.size} ranks", "a communicator of the ranks of one host"
            raise ArgumentValueError(explain("communicator", came, f"1 to {MAX_RANKS} ranks", advice))
        self.ordinal, self.place, self._count = ordinal, backend.of(ordinal), 0
        self.place.connect([ordinal])
        host, number = self.place.identity(ordinal)
        mine = {"host": host, "device": number, "version": __version__, "process": os.getpid()}
        facts = self.told("group", mine | {"name": uuid.uuid4().hex})
        _check_hosts(facts)
        one_process = len({fact["process"] for fact in facts}) == 1
        self.meeting = self.place.meeting(facts[0]["name"] if one_process else None, self.size)
        if one_process and hasattr(communicator, "at_failure"):
            communicator.at_failure(self.meeting.abort)

    @property
    def ordinals(self) -> tuple[int, ...]:
        """The devices by rank, as this process numbers them."""
        return tuple(self.ordinal if rank == self.rank else device.REMOTE for rank in range(self.size))

    def gathered(self, what: str, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks. Raise LaunchError unless all ask for the same thing."""
        self._count += 1
        asked = f"{what} {self._count}".encode()
        found = [told.partition(b"\n") for told in self._gather(asked + b"\n" + data)]
        for rank, (theirs, _, _) in enumerate(found):
            if theirs != asked:
                came = f"rank {rank} at step {theirs.decode()!r}, rank {self.rank} at {asked.decode()!r}"
                raise LaunchError(explain("group", came, "the same calls of all ranks, in one order"))
        return [told for _, _, told in found]

    def told(self, what: str, value: Any) -> list:
        """Return what all ranks tell: values that JSON has."""
        return [json.loads(told) for told in self.gathered(what, json.dumps(value).encode())]

    def share(self, size: int, cleared: int) -> tuple[int, ...]:
        """Make memory of ``size`` bytes on every device, the first ``cleared`` zero. Return its addresses, by rank, for
        kernels of this process."""
        own, handle = self.place.make_shared(size, cleared, self.ordinal)
        handles = self.gathered("memory", handle)
        return tuple(
            own if rank == self.rank else self.place.open_shared(given, self.ordinal)
            for rank, given in enumerate(handles)
        )

    def complete(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        """Return the parts of all ranks, of which this process gives its own: all ranks tell their shapes."""
        view = arrays.checked(self._own(parts), "parts[0]", strided=True, float8=True)
        steps = None if view.contiguous else view.steps
        told = self.told("parts", [view.dtype.name, view.shape, steps, view.ptr & 15])
        return tuple(
            parts[0] if rank == self.rank else _remote(BY_NAME.get(dtype) or FLOAT8[dtype], shape, steps, low)
            for rank, (dtype, shape, steps, low) in enumerate(told)
        )

    def alike(self, parts: Sequence[Any]) -> tuple[Any, ...]:
        """Return the parts of all ranks, which are like that of this process."""
        view: View = arrays.adapter(self._own(parts)).view(parts[0])
        steps = None if view.contiguous else view.steps
        return tuple(
            parts[0] if rank == self.rank else _remote(view.dtype, view.shape, steps, view.ptr & 15)
            for rank in range(self.size)
        )

    def _own(self, parts: Sequence[Any]) -> Any:
        if len(parts) != 1:
            raise ArgumentValueError(explain("parts", f"{len(parts)} arrays", "one, that of this process"))
        return parts[0]

    def hosts(self, host: np.ndarray) -> list[np.ndarray]:
        """Return the NumPy arrays of all ranks, which have one type."""
        shape = json.dumps(host.shape).encode()
        found = [told.partition(b"\n") for told in self.gathered("values", shape + b"\n" + host.tobytes())]
        return [np.frombuffer(data, host.dtype).reshape(json.loads(shape)) for shape, _, data in found]


def _remote(dtype: Any, shape: Sequence[int], steps: Sequence[int] | None, low: int) -> DeviceArray:
    """Return what stands for a part of another rank, whose address has the lowest bits ``low``."""
    given = None if steps is None else tuple(steps)
    address, _ = backend.of(device.REMOTE).allocate(0, device.REMOTE, 0)  # no two of its arrays overlap
    return DeviceArray(address + low, tuple(shape), dtype, device.REMOTE, None, given)


def _check_hosts(facts: list[dict]) -> None:
    """Raise unless the ranks have devices of their own on one host, and the same cutesync."""
    for rank, fact in enumerate(facts):
        if fact["version"] != facts[0]["version"]:
            came = f"cutesync {fact['version']} on rank {rank}, {facts[0]['version']} on rank 0"
            raise ArgumentValueError(explain("communicator", came, "one version"))
        if fact["host"] != facts[0]["host"]:
            advice = "make a group of the ranks of each host, and combine their results with the communicator"
            raise DeviceError(explain("communicator", f"rank {rank} on another host than rank 0", "one host", advice))
        for other in range(rank):
            if fact["device"] == facts[other]["device"]:
                came, advice = f"ranks {other} and {rank} on one device", "give each rank one, as device="
                raise DeviceError(explain("device", came, "a device for each rank", advice))


def own_device(communicator: Any, given: Any) -> int:
    """Return the device of this process: the one given, the communicator's own, or the one with the number of the
    rank."""
    found = backend.current().devices()
    if given is None:
        number = communicator.rank % max(len(found), 1)
        given = number if backend.current().on_host else getattr(communicator, "ordinal", number)
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)):
        raise ArgumentTypeError(explain("device", repr(given), "an int"))
    if not 0 <= given < len(found):
        advice = "cs.emulate(devices=...) sets their number on the emulator"
        raise DeviceError(explain("device", given, f"a number of the {len(found)} devices here", advice))
    return found[given]
