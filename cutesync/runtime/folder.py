"""The folder of the cache: which files are trusted, and how files are written atomically.

The files contain code, so a folder or a file is read only if no other user owns it or can write it. Root may own it, as
root can change everything anyway. CUTESYNC_CACHE_SHARED=1 also trusts other owners and the group. A folder or a file
that everybody can write is never trusted. The checks examine opened descriptors: a path may name another file by the
time it is opened. Links inside the folder are not followed.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from .. import env

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # does not wait if the file is a pipe


class Untrusted(PermissionError):
    """Another user may have written the folder or the file."""


@contextlib.contextmanager
def opened(*, create: bool = False, trusted: bool = True) -> Iterator[int]:
    """Open the folder and yield its descriptor. Raise OSError if it cannot be opened, and Untrusted if ``trusted`` is
    set and another user can write it."""
    path, _ = env.cache_dir(), env.CACHE_SHARED.get()
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if trusted:
            _require_trust(os.fstat(folder))
        yield folder
    finally:
        os.close(folder)


def _require_trust(found: os.stat_result) -> None:
    shared, mode = env.CACHE_SHARED.get() == "1", found.st_mode
    if mode & stat.S_IWOTH:
        raise Untrusted("every user can write it; chmod o-w")
    if not shared and mode & stat.S_IWGRP:
        raise Untrusted("its group can write it; chmod g-w, or CUTESYNC_CACHE_SHARED=1 to trust the group")
    if not shared and found.st_uid not in (0, os.geteuid()):
        raise Untrusted(
            f"user {found.st_uid} owns it and this is user {os.geteuid()}; CUTESYNC_CACHE_SHARED=1 trusts other owners"
        )


def read(folder: int, name: str, limit: int = -1, *, trusted: bool = True) -> bytes:
    """Return a file's bytes, or its first ``limit``. Raise OSError unless it is a plain file that can be read and, if
    ``trusted`` is set, no other user can write it."""
    handle = os.open(name, _OLD, dir_fd=folder)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a plain file")
        if trusted:
            _require_trust(found)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(handle)


def write(name: str, data: bytes) -> None:
    """Write a file under a temporary name and rename it. If this raises OSError, no file is left."""
    with opened(create=True) as folder:
        temporary = f"{name}.{os.urandom(4).hex()}.tmp"
        handle = os.open(temporary, _NEW, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                if env.CACHE_SHARED.get() == "1":
                    _share(handle, os.fstat(folder))
            with contextlib.suppress(FileNotFoundError):  # the folder has been cleared meanwhile
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            remove(folder, temporary)
            raise


def _share(handle: int, folder: os.stat_result) -> None:
    """Let users who can read the folder read a file."""
    with contextlib.suppress(OSError):  # the user is not in the folder's group
        os.fchown(handle, -1, folder.st_gid)
    os.fchmod(handle, 0o600 | folder.st_mode & 0o044)


def remove(folder: int, name: str) -> bool:
    """Delete a file. Return whether it is gone."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True
