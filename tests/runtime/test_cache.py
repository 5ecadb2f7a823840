"""Compiled kernels on disk: whatever is wrong with an entry or its folder, the call goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

import cutesync
from cutesync import errors
from cutesync.runtime import cache

KEY = ("reduce", "segments", 4, False)
FACTS = {"name": "cutesync_reduce_0", "block": (128, 1, 1), "smem": 2048, "params": (8, 8), "cluster": (1, 1, 1)}
CUBIN, PTX = bytes(range(256)) * 50, "// a kernel with a letter beyond ASCII: µ\n" * 20


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUTESYNC_CACHE", "1")
    return tmp_path / "cache"


@pytest.fixture
def entry():
    cache.store(KEY, FACTS, CUBIN, PTX)
    (path,) = cache.entries()
    return path


def test_what_is_stored_is_loaded(entry):
    facts, cubin, ptx = cache.load(KEY)
    assert (cubin, ptx) == (CUBIN, PTX)
    assert {name: tuple(facts[name]) if isinstance(facts[name], list) else facts[name] for name in FACTS} == FACTS
    assert entry.suffix == ".kernel" and [p for p in entry.parent.iterdir() if p != entry] == []


def test_an_entry_says_in_words_what_it_is(entry):
    facts, *_ = cache.load(KEY)
    assert facts["key"] == [str(part) for part in KEY]
    assert any("nvidia-cutlass-dsl==" in part for part in facts["made_with"])


def test_another_key_is_a_miss(entry):
    assert cache.load((*KEY[:-1], True)) is None
    assert cache.load(("reduce", "segments", "4", False)) is None


def test_nothing_stored_is_a_silent_miss():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.load(KEY) is None
    assert cache.entries() == []


BREAKAGES = {
    "empty": lambda b: b"",
    "no zip": lambda b: b"not a zip" * 40,
    "half": lambda b: b[: len(b) // 2],
    "no end": lambda b: b[:-10],
    "flipped bits": lambda b: b[:200] + bytes(c ^ 0x55 for c in b[200:260]) + b[260:],
    "zeros": lambda b: bytes(len(b)),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_entry_is_a_miss_said_once_and_deleted(entry, breakage):
    entry.write_bytes(BREAKAGES[breakage](entry.read_bytes()))
    with pytest.warns(UserWarning, match="broken") as said:
        assert cache.load(KEY) is None
    assert len(said) == 1 and not entry.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.load(KEY) is None
        cache.store(KEY, FACTS, CUBIN, PTX)
        assert cache.load(KEY)[1] == CUBIN


def test_an_entry_that_lacks_a_file_is_a_miss(entry):
    import zipfile

    with zipfile.ZipFile(entry, "w") as file:
        file.writestr("facts.json", "{}")
    with pytest.warns(UserWarning, match="KeyError"):
        assert cache.load(KEY) is None


def test_an_entry_whose_facts_are_not_json_is_a_miss(entry):
    import zipfile

    with zipfile.ZipFile(entry, "w") as file:
        for name in ("facts.json", "kernel.cubin", "kernel.ptx"):
            file.writestr(name, "nonsense")
    with pytest.warns(UserWarning, match="broken"):
        assert cache.load(KEY) is None


def test_an_entry_whose_facts_lack_a_name_does_not_break_the_call(entry, monkeypatch):
    """Valid zip, valid JSON, and not what a kernel needs: also a broken entry."""
    import zipfile

    from cutesync.runtime import compiler

    with zipfile.ZipFile(entry, "w") as file:
        file.writestr("facts.json", "{}")
        file.writestr("kernel.cubin", CUBIN)
        file.writestr("kernel.ptx", PTX)
    monkeypatch.setattr(compiler, "_kernels", {})
    monkeypatch.setattr(compiler, "_compile", lambda key, build: "compiled")
    with pytest.warns(UserWarning, match="broken"):
        assert compiler.get(KEY, lambda: ()) == "compiled"


@pytest.mark.parametrize("change", ["source", "dsl", "python", "debug"])
def test_a_stale_entry_is_a_miss(entry, change, monkeypatch):
    """The fingerprint is part of the name: another version never reads it."""
    now = list(cache.fingerprint())
    place = {"source": 0, "dsl": 1, "python": -2, "debug": -1}[change]
    now[place] += "x"
    monkeypatch.setattr(cache, "fingerprint", lambda: tuple(now))
    assert cache.load(KEY) is None


def test_the_fingerprint_names_everything_that_decides_the_code(monkeypatch):
    found = cache.fingerprint()
    assert f"python{sys.version_info[0]}.{sys.version_info[1]}" in found
    assert any(part.startswith("nvidia-cutlass-dsl==") for part in found)
    assert any(part.startswith("nvidia-cutlass-dsl-libs") for part in found)
    monkeypatch.setenv("CUTESYNC_DEBUG", "1")
    assert cache.fingerprint() != found


def test_a_changed_source_file_changes_the_fingerprint(tmp_path):
    """Run from a copy of the package, then from one with a comment more."""
    import shutil

    package = tmp_path / "cutesync"
    shutil.copytree(Path(cutesync.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    script = "from cutesync.runtime import cache; print(cache.fingerprint()[0])"
    found = []
    for _ in range(2):
        found.append(
            subprocess.run(
                [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
            ).stdout
        )
        with open(package / "monoid.py", "a") as file:
            file.write("# changed\n")
    assert found[0] != found[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_warns_and_goes_on(folder):
    folder.mkdir()
    folder.chmod(0o500)
    with pytest.warns(UserWarning, match="CUTESYNC_CACHE_DIR"):
        cache.store(KEY, FACTS, CUBIN, PTX)
    folder.chmod(0o700)


def test_a_folder_that_is_a_file_warns_and_goes_on(folder):
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("in the way")
    with pytest.warns(UserWarning, match="CUTESYNC_CACHE_DIR") as said:
        cache.store(KEY, FACTS, CUBIN, PTX)
    assert len(said) == 1
    assert cache.entries() == []


def test_loading_from_a_folder_that_is_a_file_does_not_break_the_call(folder):
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("in the way")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert cache.load(KEY) is None


def test_a_full_disk_leaves_no_half_entry(folder, monkeypatch):
    def full(*arguments, **folders):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="No space left"):
        cache.store(KEY, FACTS, CUBIN, PTX)
    assert cache.load(KEY) is None
    assert list(folder.glob("*")) == [], "a temporary file was left behind"


def test_the_cache_can_be_switched_off(entry, folder, monkeypatch):
    monkeypatch.setenv("CUTESYNC_CACHE", "0")
    assert cache.load(KEY) is None
    entry.unlink()
    cache.store(KEY, FACTS, CUBIN, PTX)
    assert list(folder.iterdir()) == []


def test_clear_deletes_what_the_cache_wrote_and_nothing_else(entry, folder):
    """By content: a name says nothing, a link is not followed, and a folder named so does not stop it."""
    own = "0" * 40
    theirs = {
        "mine.txt": b"keep",
        "todo.note": b"{}",
        "weights.kernel": b"PK\3\4",
        f"{own}.kernel": b"no zip",
        f"{own}.note": b'{"value": 1}',
        "tmpabcdefgh.tmp": b"mine",
        f"{own}.kernel.zzzzzzzz.tmp": b"",
    }
    for name, content in theirs.items():
        (folder / name).write_bytes(content)
    (folder / f"{'1' * 40}.kernel").mkdir()
    (folder / f"{'2' * 40}.kernel").symlink_to(entry)
    cache.store(("other",), FACTS, CUBIN, PTX)
    cache.note(("tuned",), {"tile": 1})
    left = {
        f"{own}.kernel.0123abcd.tmp": b"",
        f"{own}.note.0123abcd.tmp": b'{\n "key": [',
        "tmpabcd_123.tmp": entry.read_bytes()[:100],
    }  # by killed writers
    for name, content in left.items():
        (folder / name).write_bytes(content)
    assert len(cache.entries()) == 2 and 0 < cache.size() < sum(
        path.stat().st_size for path in folder.iterdir() if path.is_file()
    )
    done = cache.clear()
    assert (done.kernels, done.notes, done.temporary, done.refused, done.others) == (
        2,
        1,
        3,
        0,
        len(theirs) + 2,
    ) and done.size > 1000
    assert {path.name for path in folder.iterdir()} == {*theirs, f"{'1' * 40}.kernel", f"{'2' * 40}.kernel"}
    assert all((folder / name).read_bytes() == content for name, content in theirs.items())


def test_clear_of_no_cache_is_refused(folder):
    folder.mkdir()
    assert cache.clear() == (0,) * 6
    (folder / "mine.txt").write_text("keep")
    with pytest.raises(errors.ArgumentValueError, match="none written by the cache.*CUTESYNC_CACHE_DIR"):
        cache.clear()
    (folder / "mine.txt").unlink()
    folder.rmdir()
    assert cache.clear() == (0,) * 6
    folder.write_text("in the way")
    with pytest.raises(errors.ArgumentValueError, match="Not a directory"):
        cache.clear()


def test_an_entry_under_another_name_is_a_miss(entry):
    cache.store(("other",), FACTS, CUBIN, PTX)
    (other,) = (path for path in cache.entries() if path != entry)
    os.replace(other, entry)
    with pytest.warns(UserWarning, match="broken"):
        assert cache.load(KEY) is None


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
    script = "import os; from cutesync.runtime import cache; cache.fingerprint(), b'a'.decode('cp437'); os.setegid(12345); os.seteuid(12345); print(cache.load(('reduce', 'segments', 4, False)) is not None)"
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
