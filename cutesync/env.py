"""Every environment variable of cutesync, declared once. A value that is not understood is an error, never a silent default."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .errors import ArgumentValueError, explain


@dataclass(frozen=True)
class Variable:
    """One variable: its name, its default as text, the texts allowed (empty: any), and what it means."""

    name: str
    default: str
    allowed: tuple[str, ...]
    meaning: str

    def get(self) -> str:
        value = os.environ.get(self.name, "") or self.default
        if self.allowed and value not in self.allowed:
            raise ArgumentValueError(explain(self.name, repr(value), " or ".join(self.allowed), f"unset it for {self.default!r}"))
        return value


CACHE_DIR = Variable("CUTESYNC_CACHE_DIR", "", (), "folder of compiled kernels; default $XDG_CACHE_HOME/cutesync")
CACHE = Variable("CUTESYNC_CACHE", "1", ("0", "1"), "0 keeps compiled kernels in memory only")
DEBUG = Variable("CUTESYNC_DEBUG", "0", ("0", "1"), "1 bounds every wait inside a kernel: it reports and stops instead of hanging")
BACKEND = Variable("CUTESYNC_BACKEND", "auto", ("auto", "gpu", "emulator"), "where kernels run; auto takes the GPU if there is one")
MAX_STEPS = Variable("CUTESYNC_MAX_STEPS", "", (), "steps after which the emulator calls a launch endless")
ALL = (CACHE_DIR, CACHE, DEBUG, BACKEND, MAX_STEPS)


def cache_dir() -> Path:
    """The folder of compiled kernels. It is not created here."""
    if CACHE_DIR.get():
        return Path(CACHE_DIR.get()).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).expanduser() / "cutesync"


def max_steps() -> int | None:
    """The bound on steps of the emulator, if one is set."""
    text = MAX_STEPS.get()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentValueError(explain(MAX_STEPS.name, repr(text), "a number of steps, 1 or more"))
    return int(text)
