"""The cache's folder: whose files are read from it, and files written whole or not at all.

What lies there is code, so nothing is read from a folder or a file that another user owns or can write. Root may own
it, who can do anything here in any case. With CUTESYNC_CACHE_SHARED=1 other owners and the group are trusted as well;
what everybody can write never is. What has been opened is looked at, not a path, which may be another file by then;
links are not followed inside the folder.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from .. import env

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe in place of a file is no reason to wait


class Untrusted(PermissionError):
    """Another user may have written this."""


@contextlib.contextmanager
def opened(*, create: bool = False, trusted: bool = True) -> Iterator[int]:
    """A descriptor of the folder. OSError if it cannot be opened, Untrusted if it is ``trusted`` only in hope."""
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
    """A file's bytes, or its first ``limit``. OSError for what is not a plain file that can be read."""
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
    """Write a file under a temporary name and move it into place; OSError if that fails, and then nothing is left."""
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
    """Let those read a file who may read its folder."""
    with contextlib.suppress(OSError):  # a group that this user is not in
        os.fchown(handle, -1, folder.st_gid)
    os.fchmod(handle, 0o600 | folder.st_mode & 0o044)


def remove(folder: int, name: str) -> bool:
    """Delete a file; whether it is gone."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True
