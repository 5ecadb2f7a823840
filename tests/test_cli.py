"""``python -m cutesync``: exit codes, wording, what it imports, and that the demo notices a wrong result."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import types

import numpy as np
import pytest

import cutesync as cs
from cutesync import cli, errors
from cutesync.cli import demo, demo_reduce, demo_scan, info
from cutesync.cli.warm import jobs, warm
from cutesync.identity import identify
from cutesync.runtime import cache, compiler


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(compiler, "_kernels", {})
    return tmp_path / "kernels"


def _case(expected, **changes) -> demo.Case:
    """A case that needs no kernel: a copy of three numbers."""
    fields = {
        "operation": "copy",
        "dtype": "float32",
        "size": "3",
        "make": lambda generator: (np.array([1, 2, 4], np.float32),),
        "call": lambda x, out=None: np.asarray(x),
        "expected": lambda x: expected(x),
        "kernels": lambda: [1],
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
    monkeypatch.setattr(demo, "FAMILIES", {"one": lambda place: [_case(lambda x: x, kernels=lambda: 1 // 0)]})
    assert cli.main(["demo", "--compile-only"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_a_gpu_that_is_asked_for_and_absent(monkeypatch):
    monkeypatch.setattr(demo.device, "backend", lambda: "gpu")
    monkeypatch.setattr(demo.device, "unavailable", lambda: "no GPU")
    assert demo.where() == ("nowhere", "no GPU")


def test_an_emulator_that_takes_no_launch(monkeypatch):
    import cutesync as cs

    def no_driver(x):
        raise OSError("libcuda.so.1: cannot open")

    monkeypatch.setattr(demo.device, "backend", lambda: "emulator")
    monkeypatch.setattr(cs, "sum", no_driver, raising=False)
    place, why = demo.where()
    assert place == "nowhere" and "libcuda" in why


def test_a_missing_package_is_said_in_one_line(monkeypatch, capsys):
    def no_dsl(x):
        raise ModuleNotFoundError("No module named 'cutlass'")

    import cutesync as cs

    monkeypatch.setattr(demo.device, "backend", lambda: "emulator")
    monkeypatch.setattr(cs, "sum", no_dsl, raising=False)
    assert cli.main(["demo"]) == 1
    assert "No module named 'cutlass'; python -m cutesync info says" in capsys.readouterr().err


def test_timing_on_a_gpu(monkeypatch):
    """The timing code against a driver that answers 2 ms for every batch: inputs are rotated, and a call's share is what is shown."""

    class Driver:
        def __getattr__(self, name):
            answer = {"cuEventCreate": (0, object()), "cuEventElapsedTime": (0, 2.0)}.get(name, (0,))
            return lambda *arguments: answer

    case, calls = next(demo_reduce.cases("emulator")), []
    monkeypatch.setattr(demo, "device", types.SimpleNamespace(driver=Driver, check=demo.device.check))
    monkeypatch.setattr(demo, "_ROTATION_BYTES", 4 << 18)
    counted = demo.Case(**vars(case) | {"call": lambda x, out=None: calls.append(x.ptr) or x[:1].reshape(())})
    seconds, moved, _ = demo._time_on_gpu(counted, case.make(np.random.default_rng(0)))
    assert seconds == 2e-3 / 4 and moved == (4 << 16) + 4
    assert len(set(calls)) == 4 and len(calls) == 2 + 4 * (demo._WARM_UP + demo._BATCHES)


def test_demo_functions_can_be_cached():
    for function in (demo_reduce.successors, demo_reduce.compose, demo_reduce.square):
        assert identify(function)


def test_fold_by_rows_keeps_the_order():
    x = np.random.default_rng(0).integers(0, 2**64, 1000, np.uint64)
    expected = x[0]
    for value in x[1:]:
        expected = demo_reduce.compose(np.array([expected]), np.array([value]))[0]
    assert demo_reduce._fold_by_rows(x, demo_reduce.compose, 7) == expected


def test_scan_by_rows_is_the_reference():
    for dtype, op in (("uint64", demo_scan.compose), ("int32", "add"), ("float32", "max"), ("int8", "mul")):
        for n in (1, 255, 256, 70_001 if op == "add" else 1000):
            x = np.random.default_rng(n).integers(0, 100, n).astype(dtype)
            expected = np.cumsum(x, dtype=dtype) if op == "add" else cs.reference.scan(x, op)
            assert np.array_equal(demo_scan._by_rows(x, op), expected)


@pytest.mark.parametrize("place", ["gpu", "emulator", "nowhere"])
def test_demo_scans_what_it_should(place):
    cases = list(demo_scan.cases(place))
    assert {
        "running sum",
        "running max",
        "running sum, axis 0",
        "running sum, axis 1",
        "Python: affine maps in order",
    } <= {case.operation for case in cases}
    assert {"float16", "float32", "float64", "int8", "int32"} <= {case.dtype for case in cases}
    assert place == "emulator" or {"2^24", "10^7+19"} <= {case.size for case in cases}


def test_a_demo_scan_compiles(cache_folder):
    case = next(case for case in demo_scan.cases("nowhere") if case.operation == "running product")
    (kernel,) = case.kernels()
    assert ".target sm_90a" in kernel.ptx and kernel.name.startswith("cutesync_scan")


@pytest.mark.parametrize("place", ["gpu", "emulator", "nowhere"])
def test_demo_covers_what_it_should(place):
    cases = list(demo_reduce.cases(place))
    assert {"sum", "argmax", "sum of squares", "sum, axis 0", "sum, axis 1", "Python: affine maps in order"} <= {
        case.operation for case in cases
    }
    assert {"float16", "float32", "float64", "int8", "int32", "bool"} <= {case.dtype for case in cases}
    assert place == "emulator" or {"2^24", "10^7+19"} <= {case.size for case in cases}


def test_a_demo_case_compiles(cache_folder):
    case = next(case for case in demo_reduce.cases("nowhere") if case.operation == "max, axes 0 and 2")
    kernels = case.kernels()
    assert len(kernels) == 2 and all(".target sm_90a" in kernel.ptx for kernel in kernels)


@pytest.mark.slow
def test_the_demo_itself(capsys):
    assert cli.main(["demo"]) == 0
    print(capsys.readouterr().out)


WRONG = [
    "",
    "dance",
    "demo --seed x",
    "cache everything",
    "demo --seed -1",
    "demo --seed=-1",
    "demo --seed 1e3",
    f"demo --seed {2**64}",
    f"demo --seed {'9' * 5000}",
    "check --seed -1",
    "check --schedules 0",
    "check --schedules -5",
    f"check --schedules {10**12}",
    "check --schedules",
    "check --schedules nan",
    "warm --dtypes",
    "cache --cl",
    "cache --c",
    "cache --clear=yes",
    "demo --compile",
    "--vers",
    "info --seed 1",
    "demo --seed",
    "check --policy",
]


@pytest.mark.parametrize("line", WRONG, ids=lambda line: line[:30])
def test_wrong_usage_is_one_line_and_exit_code_2(line, capsys, cache_folder):
    """An abbreviation of --clear deletes nothing."""
    cache.note(("kept",), {})
    with pytest.raises(SystemExit) as stop:
        cli.main(line.split())
    out, error = capsys.readouterr()
    assert stop.value.code == 2 and out == "" and error.count("\n") == 1 and len(error) < 400
    assert len(list(cache_folder.iterdir())) == 1


@pytest.mark.parametrize("command", ["info", "cache", "--help", "--version", "cache --clear"])
def test_a_full_disk_is_one_line_and_exit_code_1(command, cache_folder):
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "cutesync", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (found.returncode, found.stderr.count("\n")) == (1, 1) and "No space left" in found.stderr


def test_a_folder_with_letters_that_the_terminal_lacks(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", str(tmp_path / "gr\u00fc\u00df\udcff"))
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    found = subprocess.run([sys.executable, "-m", "cutesync", "cache"], capture_output=True, text=True, check=True)
    assert "gr\\xfc\\xdf\\udcff: 0 kernels" in found.stdout


@pytest.mark.skipif(demo.device.unavailable() is None, reason="there is a GPU")
def test_a_demo_on_a_gpu_that_is_not_there_fails(monkeypatch, capsys):
    monkeypatch.setattr(demo.device, "backend", lambda: "gpu")
    assert cli.main(["demo"]) == 1
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and "nothing can run" in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "sort"], "'reduce'"),
        (["check", "sort"], "'scan'"),
        (["warm", "sort"], "'reduce'"),
        (["check", "--policy", "fair"], "round_robin"),
        (["warm", "--dtypes", "float33"], "float32"),
        (["warm", "--ops", "plus"], "argmax"),
        (["warm", "--layouts", "cubes"], "'columns'"),
    ],
)
def test_unknown_names_are_exit_code_2_and_say_what_is_known(arguments, words, capsys):
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert repr(arguments[-1]) in error and words in error


def test_warm_fills_the_cache_and_cache_shows_and_clears_it(cache_folder, capsys):
    work = jobs(("reduce",), ("float32",), ("add",), ("whole",))
    assert 5 <= len(work) <= 40 and len({label for label, _ in work}) == len(work)
    work[0][1]()
    assert len(cache.entries()) == 1
    assert cli.main(["cache"]) == 0
    assert re.search(r"1 kernels, 0\.\d MB", capsys.readouterr().out)
    assert cli.main(["cache", "--clear"]) == 0
    assert (
        re.search(r"1 kernels deleted, 0 notes, 0 temporary files: 0\.\d MB", capsys.readouterr().out)
        and not cache.entries()
    )


def test_clear_says_what_it_leaves_and_refuses_what_is_no_cache(cache_folder, monkeypatch, capsys):
    cache_folder.mkdir()
    (cache_folder / "todo.note").write_text("mine")
    assert cli.main(["cache", "--clear"]) == 2
    assert "none written by the cache" in capsys.readouterr().err
    cache.note(("known",), {})
    assert cli.main(["cache", "--clear"]) == 0
    assert (
        "1 notes" in (out := capsys.readouterr().out) and "1 other files were not written by the cache and stay" in out
    )
    assert [path.name for path in cache_folder.iterdir()] == ["todo.note"]
    cache.note(("known",), {})
    monkeypatch.setattr(cache.folder, "remove", lambda *_: False)
    assert cli.main(["cache", "--clear"]) == 1
    assert "1 files of the cache may not be deleted" in capsys.readouterr().err


def test_a_folder_that_is_not_used_is_shown_as_such(cache_folder, capsys):
    cache_folder.mkdir()
    cache_folder.chmod(0o777)
    assert cli.main(["cache"]) == 0
    assert "not used: every user can write it" in capsys.readouterr().out
    assert "not used: every user can write it" in "\n".join(info.report())


def test_warm_reports_progress(monkeypatch):
    module = sys.modules["cutesync.cli.warm"]
    done, compiled = [], []
    monkeypatch.setitem(
        module.FAMILIES, "pair", lambda *_: iter([("a", lambda: compiled.append(1)), ("b", lambda: compiled.append(2))])
    )
    assert warm(["pair"], progress=lambda *step: done.append(step)) == 2
    assert done == [(1, 2, "a"), (2, 2, "b")] and compiled == [1, 2]


def test_warm_covers_what_calls_use(cache_folder):
    """The kernels of whole arrays that ``warm`` lists are those that the calls' own configurations name."""
    from cutesync.kernels.reduce.policy import Problem, choose

    listed = {
        label.partition(": ")[2] for label, _ in jobs(("reduce",), ("float32",), ("add",), ("whole", "rows", "columns"))
    }
    for shape in (
        (1, 1000, 1),
        (1, 1 << 24, 1),
        (1, 10**7 + 19, 1),
        (4099, 4097, 1),
        (1, 4099, 4097),
        (1 << 22, 3, 1),
        (1, 1 << 22, 3),
    ):
        assert " ".join(map(str, choose(Problem(*shape, 4, 1, True, True)).kernel)) in listed


def test_warm_covers_what_scans_use(cache_folder):
    from cutesync.kernels.scan.policy import Problem, choose

    listed = {
        label.partition(": ")[2] for label, _ in jobs(("scan",), ("float32",), ("add",), ("whole", "rows", "columns"))
    }
    for shape in (
        (1, 1000, 1),
        (1, 1 << 18, 1),
        (1, 1 << 24, 1),
        (1, 10**7 + 19, 1),
        (65536, 256, 1),
        (1, 4096, 65536),
        (1 << 22, 3, 1),
        (1, 1 << 22, 3),
    ):
        for x in (0, 4):
            assert " ".join(map(str, choose(Problem(*shape, 4, 4, x, 0)).kernel)) in listed


def test_a_running_sum_is_warmed_in_the_type_that_numpy_gives_it():
    assert {label.split(":")[0] for label, _ in jobs(("scan",), ("int8",), ("add", "sum", "argmax"), ("whole",))} == {
        "scan add int8",
        "scan sum int8",
    }


def test_warm_leaves_out_what_has_no_meaning():
    assert jobs(("reduce", "scan"), ("float32",), ("xor",), ("whole",)) == []
    with pytest.raises(errors.ArgumentTypeError):
        jobs(("reduce",), ("float32",), (3,), ("whole",))


def test_info_names_everything():
    text = "\n".join(info.report())
    for word in (
        "cutesync",
        "python",
        "numpy",
        "nvidia-cutlass-dsl-libs-base",
        "cuda-python",
        "cuda-core",
        "DSL flavour",
        "driver",
        "backend",
    ):
        assert word in text
    for name in (
        "CUTESYNC_CACHE_DIR",
        "CUTESYNC_CACHE",
        "CUTESYNC_DEBUG",
        "CUTESYNC_BACKEND",
        "torch",
        "cupy",
        "ml_dtypes",
        "matplotlib",
        "cuda-cccl",
    ):
        assert name in text


def test_info_survives_everything(monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("broken on purpose")

    for module, names in (
        (info.device, ("backend", "unavailable", "count", "driver")),
        (info.cache, ("entries", "dsl_versions")),
        (info.env, ("cache_dir",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, broken)
    monkeypatch.setattr(info.metadata, "version", broken)
    monkeypatch.setattr(info.importlib.util, "find_spec", broken)
    text = "\n".join(info.report())
    assert "broken on purpose" in text and "Environment" in text


def test_info_shows_a_wrong_setting(monkeypatch, capsys):
    monkeypatch.setenv("CUTESYNC_DEBUG", "maybe")
    monkeypatch.setenv("CUTESYNC_BACKEND", "tpu")
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    assert "'maybe'" in out and "'tpu'" in out


def test_info_is_quick_and_loads_no_dsl():
    code = "import sys; from cutesync.cli import main; main(['info']); print(sorted({'cutlass', 'torch', 'cuda.core'} & set(sys.modules)))"
    started = time.perf_counter()
    answer = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"
    assert time.perf_counter() - started < 5  # under 1 s on an idle machine
