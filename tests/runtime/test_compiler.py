"""Compiling: once a key, from many threads, with the launch facts read from the PTX."""

from __future__ import annotations

import contextlib
import operator
import re
import tempfile
import time
import types
from pathlib import Path

import cutlass.cute as cute
import numpy as np
import pytest

import cutesync as cs
from cutesync import errors
from cutesync.runtime import compiler
from cutesync.runtime.tracing import quick_tracing

from ..compiled import dry, needed
from ..concurrency import in_threads
from .kernels_host import fill

PACKAGE = Path(cs.__file__).parent


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CUTESYNC_CACHE", "1")
    monkeypatch.setattr(compiler, "_kernels", {})
    monkeypatch.setattr(compiler, "_counts", {"memory": 0, "disk": 0, "compiled": 0})


def kernel(op="add", length=3000, **options):
    (spec,) = needed(cs.reduce, dry((length,), "int32"), op, **options)
    return spec.kernel()


def test_quick_tracing_changes_no_byte(monkeypatch):
    """Machine code and PTX, Python lines included, are those of the DSL left to itself."""
    from cutlass._mlir_helpers.arith import ArithValue

    monkeypatch.setenv("CUTESYNC_CACHE", "0")
    untouched = ArithValue.__init__
    with quick_tracing():
        assert ArithValue.__init__ is not untouched, "the DSL has changed its form: nothing is left out"
    quick = kernel("max", 3000)
    assert ArithValue.__init__ is untouched
    monkeypatch.setattr(compiler, "_kernels", {})
    monkeypatch.setattr(compiler, "quick_tracing", contextlib.nullcontext)
    monkeypatch.setattr(compiler, "valid_names", contextlib.nullcontext)
    whole = kernel("max", 3000)
    assert compiler.counts()["compiled"] == 2
    assert (whole.ptx, whole.cubin) == (quick.ptx, quick.cubin) and ".loc" in whole.ptx


@pytest.mark.parametrize("text", ["", *(pytest.param(c, marks=pytest.mark.slow) for c in ("a+b*c", "\u00e9", "\0"))])
def test_constants_of_any_text(text):
    """The DSL makes the name of a kernel of them: of "1e+38", for example."""
    y = np.zeros(32, np.float32)
    with cs.emulate():
        cs.launch(fill, y, 1e38, text)
    assert (y == np.float32(1e38)).all()


def test_sixteen_threads_want_one_kernel():
    assert len({id(k) for k in in_threads(lambda i: kernel(), 16)}) == 1
    assert compiler.counts()["compiled"] == 1


def test_sixteen_threads_want_different_kernels():
    lengths = [3000, 9000, 100, 40]
    ops = ["add", "max"]
    found = in_threads(lambda i: kernel(ops[i % 2], lengths[i // 2 % 4]), 16)
    assert len({id(k) for k in found}) == compiler.counts()["compiled"] == 8


def test_threads_with_operators_that_have_no_key():
    table = [1]

    def op(a, b):
        return a + b * table[0]

    in_threads(lambda i: kernel(op, length=50), 16)
    assert compiler.counts()["compiled"] >= 1


def test_only_one_thread_is_in_the_compiler_at_a_time(monkeypatch):
    inside, most = [0], [0]

    def slow(key, build):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.01)
        inside[0] -= 1
        return key

    monkeypatch.setattr(compiler, "_compile", slow)
    in_threads(lambda i: compiler.get(("test", i), lambda: ()), 16)
    assert most[0] == 1


def test_a_failed_compilation_leaves_no_trace():
    def broken(a, b):
        raise ValueError("once")

    for _ in range(2):
        with pytest.raises(TypeError, match="once"):
            kernel(broken, length=50)
    assert compiler._kernels == {} and compiler.counts()["compiled"] == 0
    assert not compiler._lock.locked()
    assert kernel(length=50).name.startswith("cutesync")


def test_memory_then_disk_then_compiler(monkeypatch):
    first = kernel()
    assert compiler.counts() == {"memory": 0, "disk": 0, "compiled": 1}
    assert kernel() is first
    assert compiler.counts() == {"memory": 1, "disk": 0, "compiled": 1}
    monkeypatch.setattr(compiler, "_kernels", {})
    again = kernel()
    assert compiler.counts() == {"memory": 1, "disk": 1, "compiled": 1}
    same = operator.attrgetter("cubin", "ptx", "name", "block", "smem", "params", "cluster")
    assert same(again) == same(first)


def test_equal_lambdas_share_a_kernel_and_different_ones_do_not():
    one = kernel(lambda a, b: a + b, length=50)
    assert kernel(lambda a, b: a + b, length=50) is one
    assert kernel(lambda a, b: a * b, length=50) is not one
    assert compiler.counts()["compiled"] == 2


def test_operators_that_differ_by_value_never_share_a_kernel():
    """Not even where one is gone, and another lies at its address."""
    found = []
    for value in range(4):
        box = [value]
        found.append(kernel(lambda a, b, box=box: a + b + box[0], length=50))
    assert len({id(k) for k in found}) == 4
    assert kernel(lambda a, b, box=[3]: a + b + box[0], length=51) is found[3]


def test_one_callable_with_two_identities_is_one_kernel():
    """The identity serves empty axes on the host side and is no part of the machine code."""

    def op(a, b):
        return a + b

    assert len({id(kernel(op, 50, identity=identity)) for identity in (None, 0, 7)}) == 1


def test_entry_point_reads_names_and_sizes():
    ptx = (
        ".visible .entry cutesync_x_0(\n\t.param .u64 .ptr .global .align 4 p_0,\n"
        "\t.param .f32 p_1,\n\t.param .u16 p_2,\n\t.param .align 64 .b8 p_3[128]\n)\n"
        ".reqntid 32, 1, 1\n{}"
    )
    assert compiler.entry_point(ptx) == ("cutesync_x_0", [8, 4, 2, 128])


def test_only_one_place_calls_the_dsls_compiler():
    """Inside ``alone()``, so that no two threads are ever in it: ``check`` and its engine too."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"cute\.compile\((?!\))|cute\.compile\[", path.read_text())
    }
    assert found == {"runtime/compiler.py"}
    engines = {
        path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if "ExecutionEngine(" in path.read_text()
    }
    assert engines == {"emulator/driver.py", "runtime/host_code.py"}
    assert "with compiler.alone():" in (PACKAGE / "emulator/run.py").read_text()
    assert (
        "with alone(), device.using(ordinal):\n        error = code.load(" in (PACKAGE / "runtime/gpu.py").read_text()
    )


def test_check_and_calls_wait_for_each_other(on_emulator, monkeypatch):
    inside, most, real = [0], [0], compiler.compile_alone

    def counted(*arguments):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        try:
            return real(*arguments)
        finally:
            inside[0] -= 1

    monkeypatch.setattr(compiler, "compile_alone", counted)

    def work(i):
        if i % 2:
            return kernel("max", [50, 100, 3000][i // 2]).name
        x = np.zeros(32, np.int32)
        cs.emulator.check(count_up, x, schedules=1)
        return x.tolist() == [1] * 32

    assert in_threads(work, 4)[::2] == [True, True] and most[0] == 1


@cute.kernel
def count_up_kernel(x: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    x[thread] = x[thread] + 1


@cute.jit
def count_up(x: cute.Tensor):
    count_up_kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def count_up_and_sum(x: cute.Tensor):
    cs.sum(SMALL)
    count_up_kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))


SMALL = np.ones(3, np.int32)
NESTED = {
    "a call with its kernel ready": lambda: cs.sum(SMALL),
    "a call with a kernel to compile": lambda: cs.reduce(SMALL, lambda a, b: a + b + 77),
    "a scan": lambda: cs.scan(SMALL),
    "a product": lambda: cs.matmul(np.ones((8, 8), np.float32), np.ones((8, 8), np.float32)),
    "check": lambda: cs.emulator.check(count_up, np.zeros(32, np.int32), schedules=1),
    "PTX": lambda: cs.emulator.launch("", 1, 1, b""),
}
OUTER = {
    "reduce": lambda op: cs.reduce(SMALL, lambda a, b: op() or a + b),
    "scan": lambda op: cs.scan(SMALL, lambda a, b: op() or a + b),
    "flags": lambda op: cs.flag_heads(SMALL, lambda a, b: op() or a != b),
    "matmul": lambda op: cs.matmul(
        np.ones((8, 8), np.float32), np.ones((8, 8), np.float32), activation=lambda v: op() or v
    ),
    "patterns": lambda op: cs.patterns.producer_consumer.run(SMALL, lambda v: op() or v),
}


@pytest.mark.parametrize(
    ("outer", "nested"),
    [
        *(("reduce", name) for name in NESTED),
        *((name, "a call with a kernel to compile") for name in OUTER if name != "reduce"),
    ],
)
def test_a_callable_that_calls_cutesync_is_an_error(on_emulator, outer, nested):
    cs.sum(SMALL)
    with pytest.raises(errors.OperatorError, match="a call of cutesync while it is traced"):
        OUTER[outer](NESTED[nested])
    assert not compiler._lock.locked() and compiler.compiling == [0]
    assert cs.sum(SMALL) == 3


def test_a_kernel_that_calls_cutesync_is_an_error(on_emulator):
    with pytest.raises(errors.OperatorError, match="a call of cutesync while it is traced"):
        cs.emulator.check(count_up_and_sum, np.zeros(32, np.int32), schedules=1)
    assert not compiler._lock.locked()


@pytest.mark.parametrize("name", ["with space", "quote'd", "brace{d", 'double"', "komma,=;$é"])
def test_odd_names_of_the_temporary_folder(name, tmp_path, monkeypatch):
    """They work, or the error says what to change."""
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    if set(name) & set("'{"):
        with pytest.raises(errors.CutesyncError, match="without quotes and braces.*TMPDIR"):
            kernel(length=50)
    else:
        assert ".entry" in kernel(length=50).ptx
    assert list((tmp_path / name).iterdir()) == []


def test_a_temporary_folder_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(errors.CutesyncError, match="no folder for temporary files.*TMPDIR"):
        kernel(length=50)


def test_ptx_that_was_not_written_is_an_error(monkeypatch):
    """As on a full disk, where the DSL takes the name of the file for its text."""
    compiled = types.SimpleNamespace(
        __ptx__="/tmp/x/kernel.sm_90a.ptx", __cubin__="/tmp/x/kernel.cubin", kernel_info="any"
    )
    monkeypatch.setattr(cute, "compile", lambda *_, **__: compiled)
    with pytest.raises(errors.CutesyncError, match="no whole PTX.*TMPDIR"):
        kernel(length=50)
