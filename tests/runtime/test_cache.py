"""Compiled kernels on disk: whatever is wrong with an entry or its folder, the call goes on."""

import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import cutesync
from cutesync import errors
from cutesync.runtime import cache, compiler

from .cases import CUBIN, FACTS, KEY, PTX

pytestmark = pytest.mark.usefixtures("folder")


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
    """Any warning of the cache is an error in all tests."""
    assert cache.load(KEY) is None and cache.entries() == []


def archive(**files: bytes | str) -> bytes:
    """A zip of these files, whose names are those of an entry's."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, content in files.items():
            file.writestr({"facts": "facts.json"}.get(name, f"kernel.{name}"), content)
    return made.getvalue()


BREAKAGES = {
    "empty": lambda b: b"",
    "no zip": lambda b: b"not a zip" * 40,
    "half": lambda b: b[: len(b) // 2],
    "no end": lambda b: b[:-10],
    "flipped bits": lambda b: b[:200] + bytes(c ^ 0x55 for c in b[200:260]) + b[260:],
    "zeros": lambda b: bytes(len(b)),
    "no kernel": lambda b: archive(facts="{}"),
    "facts that are no JSON": lambda b: archive(**dict.fromkeys(("facts", "cubin", "ptx"), "nonsense")),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_entry_is_a_miss_said_once_and_deleted(entry, breakage):
    entry.write_bytes(BREAKAGES[breakage](entry.read_bytes()))
    with pytest.warns(UserWarning, match="broken") as said:
        assert cache.load(KEY) is None
    assert len(said) == 1 and not entry.exists()
    assert cache.load(KEY) is None  # silently: any warning of the cache is an error in all tests
    cache.store(KEY, FACTS, CUBIN, PTX)
    assert cache.load(KEY)[1] == CUBIN


def test_an_entry_whose_facts_lack_a_name_does_not_break_the_call(entry, monkeypatch):
    """Valid zip, valid JSON, and not what a kernel needs: also a broken entry."""
    entry.write_bytes(archive(facts="{}", cubin=CUBIN, ptx=PTX))
    monkeypatch.setattr(compiler, "_kernels", {})
    monkeypatch.setattr(compiler, "_compile", lambda key, build: "compiled")
    with pytest.warns(UserWarning, match="broken"):
        assert compiler.get(KEY, lambda: ()) == "compiled"


@pytest.mark.parametrize("change", ["source", "dsl", "python", "debug"])
def test_a_stale_entry_is_a_miss(entry, change, monkeypatch):
    """The fingerprint is part of the name: another version never reads it."""
    now = list(cache.fingerprint())
    now[{"source": 0, "dsl": 1, "python": -2, "debug": -1}[change]] += "x"
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
        assert cache.load(KEY) is None
        cache.store(KEY, FACTS, CUBIN, PTX)
    assert len(said) == 1
    assert cache.entries() == []


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
