"""All environment variables of cutesync. An invalid value is an error; it never falls back to the default silently."""

from __future__ import annotations

import functools
import os
import tempfile
import warnings
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
            raise ArgumentValueError(
                explain(self.name, repr(value), " or ".join(self.allowed), f"unset it for {self.default!r}")
            )
        return value


CACHE_DIR = Variable("CUTESYNC_CACHE_DIR", "", (), "folder of compiled kernels; default $XDG_CACHE_HOME/cutesync")
CACHE = Variable("CUTESYNC_CACHE", "1", ("0", "1"), "0 keeps compiled kernels in memory only")
CACHE_SHARED = Variable(
    "CUTESYNC_CACHE_SHARED", "0", ("0", "1"), "1 trusts other owners of the cache's folder and files, and their group"
)
DEBUG = Variable(
    "CUTESYNC_DEBUG",
    "0",
    ("0", "1"),
    "1 bounds the waits inside kernels: they report and stop; set it before the first call",
)
BACKEND = Variable(
    "CUTESYNC_BACKEND", "auto", ("auto", "gpu", "emulator"), "where kernels run; auto takes the GPU if there is one"
)
MAX_STEPS = Variable(
    "CUTESYNC_MAX_STEPS",
    "",
    (),
    "steps after which the emulator reports a launch as endless; emulate(max_steps=) takes precedence",
)
ALL = (CACHE_DIR, CACHE, CACHE_SHARED, DEBUG, BACKEND, MAX_STEPS)


def cache_dir() -> Path:
    """Return the folder of compiled kernels; it is not created here."""
    chosen = CACHE_DIR.get()
    try:
        if chosen:
            return Path(chosen).expanduser()
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
    except (RuntimeError, KeyError):  # "~" without HOME, and no entry of this user in passwd
        if chosen:
            raise ArgumentValueError(
                explain(CACHE_DIR.name, repr(chosen), "a folder", "write it without ~, whose home folder is not known")
            ) from None
        base = Path()
    return base / "cutesync" if base.is_absolute() else _folder_without_home()


@functools.lru_cache(maxsize=1)
def _folder_without_home() -> Path:
    """Return a folder of this user in the folder for temporary files. It is not used if another user made it (see
    runtime/folder.py)."""
    try:
        base = tempfile.gettempdir()
    except OSError:  # none that can be written
        base = "/tmp"
    found = Path(base) / f"cutesync-{os.getuid()}"
    warnings.warn(f"cutesync cache: no home folder; kernels are kept in {found}; set CUTESYNC_CACHE_DIR", stacklevel=3)
    return found


def max_steps() -> int | None:
    """Return the bound on the emulator's steps; None if it is not set."""
    text = MAX_STEPS.get()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text)):
        raise ArgumentValueError(explain(MAX_STEPS.name, repr(text), "a number of steps, 1 or more"))
    return int(text)
