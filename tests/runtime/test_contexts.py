"""A compilation leaves nothing of the DSL behind: processes that compile thousands of kernels would grow by them."""

import gc
import weakref

import numpy as np
from cutlass._mlir import ir

from cutesync.emulator.check import call, compile_for_emulator
from cutesync.emulator.run import executable
from cutesync.runtime import contexts

from ..emulator import kernels_basic as basic


def arguments() -> tuple:
    return np.zeros(32, np.int32), 1, 1, 2, 64


def live(kind: type) -> int:
    gc.collect()
    return sum(isinstance(x, kind) for x in gc.get_objects())


def test_no_context_lives_on():
    compile_for_emulator(basic.named, *arguments())
    before = live(ir.Context)
    compile_for_emulator(basic.named, *arguments())
    assert live(ir.Context) == before


def test_the_caches_are_those_of_contexts():
    compile_for_emulator(basic.named, *arguments())
    found = [clear.__self__ for clear in contexts._caches()]
    assert len(found) > 10 and all(cache.cache_info().currsize == 0 for cache in found)


def test_the_host_engine_goes_with_its_function():
    compiled = compile_for_emulator(basic.exchange, np.zeros(32, np.int32))
    call(compiled, basic.exchange, np.zeros(32, np.int32))
    calls = weakref.ref(executable(compiled).calls)
    del compiled
    gc.collect()
    assert calls() is None


def test_memory_is_returned_where_a_process_has_grown(monkeypatch):
    calls = []
    sizes = iter([100, 350, 400, 120, 300, 390, 130])
    monkeypatch.setattr(contexts, "_size", 0)
    monkeypatch.setattr(contexts, "MOST_GROWTH", 256)
    monkeypatch.setattr(contexts, "_resident", lambda: next(sizes))
    monkeypatch.setattr(contexts, "_return_memory", lambda: calls.append(1))
    found = []
    for _ in range(5):
        contexts.forget()
        found.append(len(calls))
    assert found == [0, 0, 1, 1, 2]
    assert list(sizes) == []
