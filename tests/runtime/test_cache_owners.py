"""Whose entries of the kernel cache are loaded, and what the system refuses: the call goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cutesync
from cutesync.runtime import cache

from .cases import CUBIN, FACTS, KEY, PTX

pytestmark = pytest.mark.usefixtures("folder")


def give_away(path: Path, monkeypatch) -> None:
    """Let another user own it: really, or in our eyes."""
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        mine = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: mine + 1)


STRANGERS = {
    "everybody writes the folder": (lambda entry, _: entry.parent.chmod(0o707), "every user can write it", False),
    "a sticky folder": (lambda entry, _: entry.parent.chmod(0o1777), "every user can write it", False),
    "the group writes the folder": (
        lambda entry, _: entry.parent.chmod(0o770),
        "its group can write it.*CUTESYNC_CACHE_SHARED",
        True,
    ),
    "another owns the folder": (
        lambda entry, patch: give_away(entry.parent, patch),
        "owns it.*CUTESYNC_CACHE_SHARED",
        True,
    ),
    "everybody writes the file": (lambda entry, _: entry.chmod(0o602), "every user can write it", False),
    "the group writes the file": (lambda entry, _: entry.chmod(0o660), "its group can write it", True),
    "another owns the file": (lambda entry, patch: give_away(entry, patch), "owns it", True),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_what_another_user_can_write_is_not_loaded(entry, stranger, monkeypatch):
    """Nor is anything else from there; the shared cache trusts owners and groups, and never everybody."""
    cache.note(KEY, {"tile": 1})
    change, words, shareable = STRANGERS[stranger]
    change(entry, monkeypatch)
    with pytest.warns(UserWarning, match=words) as said:
        assert cache.load(KEY) is None and cache.load(KEY) is None
        if "folder" in stranger:
            assert cache.recall(KEY) is None
            cache.store(("other",), FACTS, CUBIN, PTX)
            assert len(cache.entries()) == 1
    assert len(said) == 1
    monkeypatch.setenv("CUTESYNC_CACHE_SHARED", "1")
    assert (cache.load(KEY) is not None) is shareable


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to make a file of root's")
def test_root_may_own_the_cache(entry):
    script = (
        "import os; from cutesync.runtime import cache; cache.fingerprint(), "
        "b'a'.decode('cp437'); os.setegid(12345); os.seteuid(12345); "
        "print(cache.load(('reduce', 'segments', 4, False)) is not None)"
    )
    for path, mode in (
        (entry, 0o644),
        (entry.parent, 0o755),
        *((parent, 0o755) for parent in entry.parent.parents[:-2]),
    ):
        path.chmod(mode)
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=Path(cutesync.__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert found.stdout == "True\n", found.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become other users")
def test_two_users_share_a_folder(folder, tmp_path):
    """As README says: the folder is their group's, and each sees the other's kernels."""
    folder.mkdir()
    os.chown(folder, 12345, 777)
    folder.chmod(0o2770)
    for parent in (tmp_path, *list(tmp_path.parents)[:-2]):
        parent.chmod(0o755)
    script = textwrap.dedent(
        """
        import os, sys
        from cutesync.runtime import cache
        cache.fingerprint(), b"a".decode("cp437")  # Python's own files may be root's alone
        user, stores = int(sys.argv[1]), sys.argv[2] == "store"
        os.setgroups([777]); os.setgid(user); os.setuid(user); os.umask(0o077)
        facts = {"name": "k", "block": [1, 1, 1], "smem": 0, "params": [8], "cluster": [1, 1, 1]}
        if stores: cache.store(("k",), facts, b"cubin", "ptx"); cache.note(("k",), {"by": user})
        print(cache.load(("k",)) is not None, cache.recall(("k",)))
        """
    )
    for user, task, by in (
        (12345, "store", 12345),
        (12346, "look", 12345),
        (12346, "store", 12346),
        (12345, "look", 12346),
    ):
        found = subprocess.run(
            [sys.executable, "-W", "error", "-c", script, str(user), task],
            cwd=Path(cutesync.__file__).parent.parent,
            env=os.environ | {"CUTESYNC_CACHE_SHARED": "1"},
            capture_output=True,
            text=True,
        )
        assert found.stdout == f"True {{'by': {by}}}\n", found.stderr


def test_the_folder_is_private_and_so_are_entries(folder, monkeypatch):
    before = os.umask(0)
    try:
        cache.store(KEY, FACTS, CUBIN, PTX)
    finally:
        os.umask(before)
    (path,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700 and path.stat().st_mode & 0o777 == 0o600


IN_THE_WAY = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a link": lambda path: path.symlink_to(__file__),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "itself": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("thing", IN_THE_WAY)
def test_what_is_no_plain_file_is_a_miss_said_once(entry, thing):
    entry.unlink()
    IN_THE_WAY[thing](entry)
    with pytest.warns(UserWarning, match="is not read") as said:
        assert cache.load(KEY) is None and cache.load(KEY) is None
    assert len(said) == 1


@pytest.mark.parametrize("error", [13, 5, 116, 24])
@pytest.mark.parametrize("function", ["open", "replace", "unlink"])
def test_whatever_the_system_refuses_is_a_miss(entry, function, error, monkeypatch):
    if function == "unlink":
        entry.write_bytes(b"broken")

    def refuse(*arguments, **options):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, function, refuse)
    with pytest.warns(UserWarning, match="cutesync cache"):
        assert (cache.load(KEY) is None) is (function != "replace")
        assert cache.recall(KEY) is None
        cache.store(KEY, FACTS, CUBIN, PTX)
        cache.entries()


@pytest.mark.parametrize("path", ["x" * 300, "y/" * 3000, "/proc/nobody/may", "/dev/null/below"])
def test_a_folder_that_cannot_be_is_said_once(path, monkeypatch):
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", path)
    with pytest.warns(UserWarning, match="cutesync cache") as said:
        for _ in range(2):
            assert cache.load(KEY) is None and cache.recall(KEY) is None and cache.entries() == []
            cache.store(KEY, FACTS, CUBIN, PTX)
    assert 1 <= len(said) <= 2 and len({str(w.message) for w in said}) == len(said)
    assert cache.problem() or path.startswith("/proc")


def test_processes_that_write_and_read_at_once(folder):
    script = textwrap.dedent(
        """
        import sys, warnings
        warnings.simplefilter("error")
        from cutesync.runtime import cache
        facts = {"name": "k", "block": [1, 1, 1], "smem": 0, "params": [8], "cluster": [1, 1, 1]}
        for turn in range(150):
            for key in range(3):
                cache.store((key,), facts, bytes([key]) * 20000, "ptx")
                found = cache.load((key,))
                assert found is not None and found[1] == bytes([key]) * 20000
        """
    )
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script], cwd=Path(cutesync.__file__).parent.parent, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for worker in workers:
        assert worker.wait(120) == 0, worker.stderr.read()
        worker.stderr.close()
    assert len(list(folder.iterdir())) == 3
