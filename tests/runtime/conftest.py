"""A kernel cache of its own for a test, and an entry in it."""

import pytest

from cutesync.runtime import cache

from .cases import CUBIN, FACTS, KEY, PTX


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUTESYNC_CACHE", "1")
    return tmp_path / "cache"


@pytest.fixture
def entry():
    cache.store(KEY, FACTS, CUBIN, PTX)
    (path,) = cache.entries()
    return path
