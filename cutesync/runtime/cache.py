"""Compiled kernels on disk, one zip file each (cubin, PTX, and a JSON that describes the kernel; for a host function,
its module in place of the cubin); and notes, a small JSON file each.

The file name is a hash of everything that decides the machine code; see ``fingerprint``. An entry is read only if no
other user can write the folder and the file (see folder.py), and only if it contains the key that is asked for. Each
kind of problem is reported once per folder by a warning, and the call goes on: an entry that cannot be read is compiled
again, and a kernel that cannot be written is kept in memory.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from .. import env
from ..errors import ArgumentValueError, explain
from . import folder

_KERNEL, _NOTE = ".kernel", ".note"
# The last alternative: temporary files of earlier versions.
_NAMES = re.compile(r"[0-9a-f]{40}\.(kernel|note)(\.[0-9a-f]{8}\.tmp)?|(tmp[a-z0-9_]{8}\.tmp)")
_DSL = ("", "-libs-base", "-libs-core", "-libs-cu12", "-libs-cu13")


def fingerprint() -> tuple[str, ...]:
    """Return what decides machine code besides a kernel's own key: this package's source, the versions of the DSL and
    of Python, and the debug mode."""
    return (*_versions(), f"debug{env.DEBUG.get()}")


@functools.lru_cache(maxsize=1)
def _versions() -> tuple[str, ...]:
    digest = hashlib.sha256()
    package = Path(__file__).resolve().parent.parent
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return (digest.hexdigest(), *dsl_versions(), f"python{sys.version_info[0]}.{sys.version_info[1]}")


def dsl_versions() -> tuple[str, ...]:
    """Return ``name==version`` of every installed distribution of the DSL."""
    found = []
    for suffix in _DSL:
        try:
            found.append(f"nvidia-cutlass-dsl{suffix}=={metadata.version('nvidia-cutlass-dsl' + suffix)}")
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def _name(key: tuple, suffix: str) -> str:
    return hashlib.sha256(repr((key, fingerprint())).encode()).hexdigest()[:40] + suffix


def _label(key: tuple) -> dict:
    """Return the key and the versions that an entry stores, in the form that JSON restores."""
    return {"key": [str(part) for part in key], "made_with": list(fingerprint())}


_said: set[tuple] = set()


def _say(kind: str, words: str) -> None:
    """Warn once per folder and kind of problem."""
    what = (kind, str(env.cache_dir()))
    if what not in _said:
        _said.add(what)
        warnings.warn(f"cutesync cache: {words}", stacklevel=4)


def _read(name: str) -> bytes | None:
    """Return the bytes of a file of the cache; None if it is absent. Warn and return None if it cannot be read or
    trusted."""
    if env.CACHE.get() == "0":
        return None
    try:
        with folder.opened() as place:
            try:
                return folder.read(place, name)
            except FileNotFoundError:
                return None
            except OSError as error:
                _say("file", f"{name} in {env.cache_dir()} is not read ({_reason(error)}); compiling instead")
                return None
    except (FileNotFoundError, NotADirectoryError):  # no folder yet; ``_write`` reports what prevents it
        return None
    except OSError as error:
        _say("folder", f"{env.cache_dir()} is not used ({_reason(error)}); kernels are kept in memory")
        return None


def _write(name: str, data: bytes) -> None:
    """Write a file, whole or not at all. Warn if the folder cannot be written; the call goes on."""
    if env.CACHE.get() == "0":
        return
    try:
        folder.write(name, data)
    except folder.Untrusted as error:
        _say("folder", f"{env.cache_dir()} is not used ({_reason(error)}); kernels are kept in memory")
    except OSError as error:
        _say(
            "write",
            f"cannot write {env.cache_dir()} ({_reason(error)}); kernels are kept in memory; set CUTESYNC_CACHE_DIR",
        )


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def load(key: tuple) -> tuple[dict, bytes, str] | None:
    """Return ``(facts, cubin, ptx)`` of an entry; None if there is no valid one."""
    name = _name(key, _KERNEL)
    data = _read(name)
    if data is None:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as entry:
            facts, cubin, ptx = (
                json.loads(entry.read("facts.json")),
                entry.read("kernel.cubin"),
                entry.read("kernel.ptx").decode(),
            )
        if missing := {"name", "block", "smem", "params", "cluster"} - facts.keys():
            raise ValueError(f"no {', '.join(sorted(missing))}")
        if facts | _label(key) != facts:
            raise ValueError("it is another kernel's")
        return facts, cubin, ptx
    except Exception as error:  # a broken entry of any kind is a miss
        warnings.warn(f"cutesync cache: {name} is broken ({type(error).__name__}); compiling again", stacklevel=2)
        with contextlib.suppress(OSError), folder.opened() as place:
            folder.remove(place, name)
        return None


def store(key: tuple, facts: dict, cubin: bytes, ptx: str) -> None:
    """Write an entry."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as entry:
        entry.writestr("facts.json", json.dumps(_label(key) | facts, indent=1))
        entry.writestr("kernel.cubin", cubin)
        entry.writestr("kernel.ptx", ptx)
    _write(_name(key, _KERNEL), file.getvalue())


def recall(key: tuple) -> dict | None:
    """Return the value that ``note`` stored under ``key`` in any process with this version of the package; None if
    there is none that can be read."""
    try:
        found = json.loads(_read(_name(key, _NOTE)) or b"{}")
        return found["value"] if found | _label(key) == found else None
    except (ValueError, KeyError, TypeError):
        return None


def note(key: tuple, value: dict) -> None:
    """Store a small value beside the kernels."""
    _write(_name(key, _NOTE), json.dumps(_label(key) | {"value": value}, indent=1).encode())


def problem() -> str | None:
    """Return why the folder is not used at present; None if it is."""
    try:
        with folder.opened():
            return None
    except FileNotFoundError:
        return None
    except OSError as error:
        return _reason(error)


def entries() -> list[Path]:
    """Return the paths of the cached kernels, oldest first."""
    found = []
    with contextlib.suppress(OSError), folder.opened(trusted=False) as place:
        for name, kind in _files(place):
            with contextlib.suppress(OSError):
                if kind == "kernel":
                    found.append((os.stat(name, dir_fd=place).st_mtime, env.cache_dir() / name))
    return [path for _, path in sorted(found)]


def size() -> int:
    """Return the total size of the cached kernels in bytes."""
    total = 0
    for path in entries():
        with contextlib.suppress(OSError):  # deleted meanwhile
            total += path.stat().st_size
    return total


def _files(place: int) -> Iterator[tuple[str, str]]:
    """Yield ``(name, kind)`` of every file of the folder: "kernel", "note", "temporary", or "other" for files that the
    cache has not written."""
    for name in sorted(os.listdir(place)):
        kind, match = "other", _NAMES.fullmatch(name)
        if match:
            with contextlib.suppress(OSError):
                begin = folder.read(place, name, 64, trusted=False)
                zipped, noted = (
                    begin[:4] == b"PK\3\4" and begin[30:40] == b"facts.json",
                    begin.startswith(b'{\n "key": ['),
                )
                if match[2] or match[3]:
                    kind = "temporary" if zipped or noted or (match[2] and not begin) else kind
                elif zipped if match[1] == "kernel" else noted:
                    kind = match[1]
        yield name, kind


class Cleared(NamedTuple):
    """How many files ``clear`` has deleted, their size in bytes, and how many files remain."""

    kernels: int
    notes: int
    temporary: int
    size: int
    refused: int  # the cache's own, which this user may not delete
    others: int  # not the cache's


def clear() -> Cleared:
    """Delete the files that the cache has written, including temporary files of killed processes. Raise if the folder
    holds only other files."""
    counts = dict.fromkeys(("kernel", "note", "temporary", "refused", "other"), 0)
    freed = 0
    try:
        with folder.opened(trusted=False) as place:
            for name, kind in _files(place):
                size = 0
                if kind != "other":
                    with contextlib.suppress(OSError):
                        size = os.stat(name, dir_fd=place, follow_symlinks=False).st_size
                    if not folder.remove(place, name):
                        kind, size = "refused", 0
                counts[kind] += 1
                freed += size
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _no_cache(f"({_reason(error)})") from None
    found = Cleared(counts["kernel"], counts["note"], counts["temporary"], freed, counts["refused"], counts["other"])
    if found.others and not any(found[:3]) and not found.refused:
        raise _no_cache(f"with {found.others} files, none written by the cache")
    return found


def _no_cache(why: str) -> ArgumentValueError:
    return ArgumentValueError(
        explain("cache", f"{env.cache_dir()} {why}", "a folder of compiled kernels", "set CUTESYNC_CACHE_DIR")
    )
