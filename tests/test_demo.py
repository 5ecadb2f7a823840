"""``python -m cutesync demo``: exit codes, wording, what it covers, and that it notices a wrong result."""

from __future__ import annotations

import types

import numpy as np
import pytest

import cutesync as cs
from cutesync import cli
from cutesync.cli import demo, demo_reduce, demo_scan
from cutesync.identity import identify

from .compiled import needed


def _case(expected, **changes) -> demo.Case:
    """A case that needs no kernel: a copy of three numbers."""
    fields = {
        "operation": "copy",
        "dtype": "float32",
        "size": "3",
        "make": lambda generator: (np.array([1, 2, 4], np.float32),),
        "call": lambda x, out=None: np.asarray(x),
        "expected": lambda x: expected(x),
    }
    return demo.Case(**fields | changes)


@pytest.fixture
def only(monkeypatch):
    """Make the demo consist of the given cases, each run twice on the host."""

    def choose(*cases: demo.Case) -> None:
        def run_twice(case, inputs):
            return 1e-6, 24, [np.asarray(case.call(*inputs)) for _ in range(2)]

        monkeypatch.setattr(demo, "FAMILIES", {"one": lambda place: cases})
        monkeypatch.setattr(demo, "where", lambda: ("emulator", "a test"))
        monkeypatch.setattr(demo, "_time_once", run_twice)

    return choose


def test_agreement_is_exit_code_0(only, capsys):
    only(_case(lambda x: x))
    assert cli.main(["demo"]) == 0
    assert "all agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"expected": lambda x: x + 1}, "MISMATCH"),
        ({"expected": lambda x: x[:2]}, "MISMATCH"),
        ({"expected": lambda x: x.astype(np.float64)}, "MISMATCH"),
        ({"call": lambda x, out=None: x / 0 if out else 1 // 0}, "FAILED"),
        (
            {"call": lambda x, out=None: x + np.random.random(3).astype(np.float32) * 1e-3, "tolerance": 1.0},
            "two runs differ",
        ),
    ],
)
def test_whatever_is_wrong_is_exit_code_1(only, capsys, changes, word):
    only(_case(lambda x: x), _case(**{"expected": lambda x: x} | changes))
    assert cli.main(["demo"]) == 1
    out = capsys.readouterr().out
    assert word in out and "1 DISAGREE OR FAILED" in out


@pytest.mark.parametrize(
    ("got", "want", "tolerance", "wrong"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0, False),
        ([1.0, 2.001], [1.0, 2.0], 1e-5, True),
        ([1.0, 2.001], [1.0, 2.0], 1e-2, False),
        ([np.nan, 1.0], [np.nan, 1.0], 0, False),
        ([1.0, 1.0], [np.nan, 1.0], 1, True),
        ([np.nan, 1.0], [2.0, 1.0], 1, True),
        ([np.inf, 1.0], [-np.inf, 1.0], 1, True),
        ([1e-30, 1.0], [0.0, 1.0], 1e-5, True),
    ],
)
def test_error_of_floats(got, want, tolerance, wrong):
    assert demo.compare(np.array(got, np.float32), np.array(want, np.float32), tolerance)[0] is wrong


def test_error_of_integers_counts():
    assert demo.compare(np.array([1, 2, 3]), np.array([1, 0, 0]), 1.0) == (True, "2 of 3 differ")


def test_compile_only_says_that_nothing_ran(monkeypatch, capsys):
    monkeypatch.setattr(demo, "FAMILIES", {"one": lambda place: [_case(lambda x: x)]})
    assert cli.main(["demo", "--compile-only"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("NOTHING RAN") and "sm_90a" in out


def test_a_kernel_that_does_not_compile_is_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(demo, "FAMILIES", {"one": lambda place: [_case(lambda x: x, call=lambda x: 1 // 0)]})
    assert cli.main(["demo", "--compile-only"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_a_gpu_that_is_asked_for_and_absent(monkeypatch):
    monkeypatch.setattr(demo.device, "backend", lambda: "gpu")
    monkeypatch.setattr(demo.device, "unavailable", lambda: "no GPU")
    assert demo.where() == ("nowhere", "no GPU")


def test_an_emulator_that_takes_no_launch(monkeypatch):
    def no_driver(x):
        raise OSError("libcuda.so.1: cannot open")

    monkeypatch.setattr(demo.device, "backend", lambda: "emulator")
    monkeypatch.setattr(cs, "sum", no_driver, raising=False)
    place, why = demo.where()
    assert place == "nowhere" and "libcuda" in why


def test_a_missing_package_is_said_in_one_line(monkeypatch, capsys):
    def no_dsl(x):
        raise ModuleNotFoundError("No module named 'cutlass'")

    monkeypatch.setattr(demo.device, "backend", lambda: "emulator")
    monkeypatch.setattr(cs, "sum", no_dsl, raising=False)
    assert cli.main(["demo"]) == 1
    assert "No module named 'cutlass'; python -m cutesync info says" in capsys.readouterr().err


def test_timing_on_a_gpu(monkeypatch):
    """The timing code against a driver that answers 2 ms for every batch: inputs are rotated, and a call's share is
    what is shown."""

    class Driver:
        def __getattr__(self, name):
            answer = {"cuEventCreate": (0, object()), "cuEventElapsedTime": (0, 2.0)}.get(name, (0,))
            return lambda *arguments: answer

    case, calls = next(demo_reduce.cases("emulator")), []
    monkeypatch.setattr(demo, "device", types.SimpleNamespace(driver=Driver, check=demo.device.check))
    monkeypatch.setattr(demo, "_ROTATION_BYTES", 4 << 16)
    counted = demo.Case(**vars(case) | {"call": lambda x, out=None: calls.append(x.ptr) or x[:1].reshape(())})
    seconds, moved, _ = demo._time_on_gpu(counted, case.make(np.random.default_rng(0)))
    assert seconds == 2e-3 / 4 and moved == (4 << 14) + 4
    assert len(set(calls)) == 4 and len(calls) == 2 + 4 * (demo._WARM_UP + demo._BATCHES)


def test_demo_functions_can_be_cached():
    for function in (demo_reduce.successors, demo_reduce.compose, demo_reduce.square):
        assert identify(function)


def test_reduce_by_rows_keeps_the_order():
    x = np.random.default_rng(0).integers(0, 2**64, 1000, np.uint64)
    expected = x[0]
    for value in x[1:]:
        expected = demo_reduce.compose(np.array([expected]), np.array([value]))[0]
    assert demo_reduce._reduce_by_rows(x, demo_reduce.compose, 7) == expected


def test_scan_by_rows_is_the_reference():
    for dtype, op in (("uint64", demo_scan.compose), ("int32", "add"), ("float32", "max"), ("int8", "mul")):
        for n in (1, 255, 256, 70_001 if op == "add" else 1000):
            x = np.random.default_rng(n).integers(0, 100, n).astype(dtype)
            expected = np.cumsum(x, dtype=dtype) if op == "add" else cs.reference.scan(x, op)
            assert np.array_equal(demo_scan._by_rows(x, op), expected)


SHOWN = {
    demo_reduce: ({"sum", "argmax", "sum of squares", "sum, axis 0", "sum, axis 1"}, {"bool"}),
    demo_scan: ({"running sum", "running max", "running sum, axis 0", "running sum, axis 1"}, set()),
}


@pytest.mark.parametrize("place", ["gpu", "emulator", "nowhere"])
@pytest.mark.parametrize("family", SHOWN, ids=["reduce", "scan"])
def test_demo_covers_what_it_should(family, place):
    cases, (operations, dtypes) = list(family.cases(place)), SHOWN[family]
    assert operations | {"Python: affine maps in order"} <= {case.operation for case in cases}
    assert dtypes | {"float16", "float32", "float64", "int8", "int32"} <= {case.dtype for case in cases}
    assert place == "emulator" or {"2^24", "10^7+19"} <= {case.size for case in cases}


@pytest.mark.parametrize(
    ("family", "operation", "count"),
    [(demo_scan, "running product", 1), (demo_reduce, "max, axes 0 and 2", 1)],
    ids=["scan", "reduce"],
)
def test_a_demo_case_compiles(family, operation, count, cache_folder):
    kernels = [
        spec.kernel()
        for case in family.cases("nowhere")
        if case.operation == operation
        for spec in needed(case.prepare)
    ]
    assert len(kernels) == count and all(".target sm_90a" in kernel.ptx for kernel in kernels)
    assert all(kernel.name.startswith("cutesync") for kernel in kernels)


@pytest.mark.slow
def test_the_demo_itself(capsys, monkeypatch, some):
    """Seven cases of each family."""
    for name, cases in demo.FAMILIES.items():
        monkeypatch.setitem(demo.FAMILIES, name, lambda place, cases=cases: some(cases(place), 7))
    assert cli.main(["demo"]) == 0
    print(capsys.readouterr().out)


@pytest.mark.skipif(demo.device.unavailable() is None, reason="there is a GPU")
def test_a_demo_on_a_gpu_that_is_not_there_fails(monkeypatch, capsys):
    monkeypatch.setattr(demo.device, "backend", lambda: "gpu")
    assert cli.main(["demo"]) == 1
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and "nothing can run" in error
