"""Compiled kernels on disk: one zip file an entry (cubin, PTX, and a JSON that says in words what it is); and small answers, a JSON each.

Entries are written under a temporary name and moved into place, so two processes never see half a file. An entry that cannot be
read is a miss: it is deleted and said once. The key names everything that decides the machine code; see ``fingerprint``.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import tempfile
import warnings
import zipfile
from importlib import metadata
from pathlib import Path

from .. import env

_NOTE = ".note"
_DSL = ("", "-libs-base", "-libs-core", "-libs-cu12", "-libs-cu13")


def fingerprint() -> tuple[str, ...]:
    """What besides the kernel's own key decides its code: this package's source, the DSL's distributions, Python, debug mode."""
    return (*_versions(), f"debug{env.DEBUG.get()}")


@functools.lru_cache(maxsize=1)
def _versions() -> tuple[str, ...]:
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parent.parent
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return (digest.hexdigest(), *dsl_versions(), f"python{sys.version_info[0]}.{sys.version_info[1]}")


def dsl_versions() -> tuple[str, ...]:
    """``name==version`` of every installed distribution of the DSL."""
    found = []
    for suffix in _DSL:
        try:
            found.append(f"nvidia-cutlass-dsl{suffix}=={metadata.version('nvidia-cutlass-dsl' + suffix)}")
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def _path(key: tuple) -> Path:
    digest = hashlib.sha256(repr((key, fingerprint())).encode()).hexdigest()
    return env.cache_dir() / f"{digest[:40]}.kernel"


def load(key: tuple) -> tuple[dict, bytes, str] | None:
    """``(facts, cubin, ptx)`` of the entry, or None."""
    if env.CACHE.get() == "0":
        return None
    path = _path(key)
    try:
        with zipfile.ZipFile(path) as entry:
            facts, cubin, ptx = json.loads(entry.read("facts.json")), entry.read("kernel.cubin"), entry.read("kernel.ptx").decode()
            if missing := {"name", "block", "smem", "params", "cluster"} - facts.keys():
                raise ValueError(f"no {', '.join(sorted(missing))}")
            return facts, cubin, ptx
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # a broken entry of any kind is a miss
        warnings.warn(f"cutesync cache: {path.name} is broken ({type(error).__name__}); compiling again", stacklevel=2)
        path.unlink(missing_ok=True)
        return None


def store(key: tuple, facts: dict, cubin: bytes, ptx: str) -> None:
    """Write the entry."""

    def fill(file) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as entry:
            entry.writestr("facts.json", json.dumps({"key": [str(part) for part in key], "made_with": fingerprint()} | facts, indent=1))
            entry.writestr("kernel.cubin", cubin)
            entry.writestr("kernel.ptx", ptx)

    _write(_path(key), fill)


def _write(path: Path, fill) -> None:
    """``fill(file)`` writes it, whole or not at all. A folder that cannot be written is said once and does not stop the call."""
    if env.CACHE.get() == "0":
        return
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            fill(file)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        warnings.warn(f"cutesync cache: cannot write {path.parent} ({error}); set CUTESYNC_CACHE_DIR", stacklevel=2)


def recall(key: tuple) -> dict | None:
    """What ``note`` was told, by any process with this version of the package; None if nothing, or nothing that can be read."""
    if env.CACHE.get() == "0":
        return None
    try:
        return json.loads(_path(key).with_suffix(_NOTE).read_bytes())["value"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def note(key: tuple, value: dict) -> None:
    """Keep a small answer beside the kernels."""
    text = json.dumps({"key": [str(part) for part in key], "made_with": fingerprint(), "value": value}, indent=1)
    _write(_path(key).with_suffix(_NOTE), lambda file: file.write(text.encode()))


def entries() -> list[Path]:
    """The files of the cache, oldest first."""
    folder = env.cache_dir()
    return sorted(folder.glob("*.kernel"), key=lambda path: path.stat().st_mtime) if folder.is_dir() else []


def clear() -> int:
    """Delete every entry and note; the number of entries deleted."""
    found = entries()
    for path in (*found, *env.cache_dir().glob("*" + _NOTE)):
        path.unlink(missing_ok=True)
    return len(found)
