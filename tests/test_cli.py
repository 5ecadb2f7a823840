"""``python -m cutesync``: exit codes, wording, what it imports, and that the demo notices a wrong result."""

import itertools
import re
import subprocess
import sys
import time
import types

import numpy as np
import pytest

import cutesync as cs
from cutesync import cli, errors
from cutesync.cli import info
from cutesync.cli.warm import jobs, warm
from cutesync.runtime import cache

from .compiled import dry, needed

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
        (["warm", "--part", "3/2"], "from 1 to N"),
    ],
)
def test_unknown_names_are_exit_code_2_and_say_what_is_known(arguments, words, capsys):
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert repr(arguments[-1]) in error and words in error


def test_warm_fills_the_cache_and_cache_shows_and_clears_it(cache_folder, capsys):
    work = jobs(("reduce",), ("float32",), ("add",), ("whole",))
    assert 5 <= len(work) <= 40 and len({label for label, _ in work}) == len(work)
    work[0][1].kernel()
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
    pair = [(name, types.SimpleNamespace(kernel=lambda k=k: compiled.append(k))) for k, name in enumerate("ab", 1)]
    monkeypatch.setitem(module.FAMILIES, "pair", lambda *_: iter(pair))
    assert warm(["pair"], progress=lambda *step: done.append(step)) == 2
    assert done == [(1, 2, "a"), (2, 2, "b")] and compiled == [1, 2]


REDUCED = [(1000,), (1 << 24,), (10**7 + 19,), (4099, 4097), (1, 4099, 4097), (1 << 22, 3), (1, 1 << 22, 3)]
SCANNED = [
    (1000,),
    (1 << 18,),
    (1 << 24,),
    (10**7 + 19,),
    (65536, 256),
    (1, 4096, 65536),
    (1 << 22, 3),
    (1, 1 << 22, 3),
]


@pytest.mark.parametrize(
    ("call", "shapes"),
    [pytest.param(cs.reduce, REDUCED, marks=pytest.mark.slow, id="reduce"), pytest.param(cs.scan, SCANNED, id="scan")],
)
def test_warm_covers_what_calls_use(call, shapes):
    """The kernels of such calls are among those that ``warm`` lists."""
    listed = {spec.key for _, spec in jobs((call.__name__,), ("float32",), ("add",), ("whole", "rows", "columns"))}
    for shape, offset in [*itertools.product(shapes, (0,)), *itertools.product(shapes[::2], (4,))]:
        axis = min(1, len(shape) - 1)
        assert {spec.key for spec in needed(call, dry(shape, "float32", offset), axis=axis)} <= listed, shape


def test_warm_in_several_processes(monkeypatch, cache_folder):
    """Each process compiles its part; together they are all kernels. The worst exit code counts."""
    started = []

    def start(command):
        started.append(command)
        return types.SimpleNamespace(wait=lambda: len(started) % 2)

    monkeypatch.setattr(cli.subprocess, "Popen", start)
    assert cli.main(["warm", "reduce", "scan", "--dtypes", "int8", "--processes", "3"]) == 1
    command = [sys.executable, "-m", "cutesync", "warm", "reduce", "scan", "--dtypes", "int8", "--ops", "add"]
    assert [of[: len(command)] for of in started] == [command] * 3
    assert [of[-2:] for of in started] == [["--part", f"{i}/3"] for i in (1, 2, 3)]
    pair = [(name, types.SimpleNamespace(kernel=lambda name=name: started.append(name))) for name in "abc"]
    monkeypatch.setitem(sys.modules["cutesync.cli.warm"].FAMILIES, "pair", lambda *_: iter(pair))
    for part in ("1/2", "2/2"):
        assert cli.main(["warm", "pair", "--part", part]) == 0
    assert started[3:] == ["a", "c", "b"]
    monkeypatch.setenv("CUTESYNC_CACHE", "0")
    assert cli.main(["warm", "reduce", "--dtypes", "int8", "--processes", "2"]) == 2


def test_warm_covers_most_products():
    """Of random extents that it does not know, aligned and odd."""
    listed = {spec.key for _, spec in jobs(("matmul",), ("bfloat16",), ("add",), ("whole",))}
    random, known = np.random.default_rng(5), []
    for step in (8, 8, 8, 1):
        for _ in range(40):
            m, n, k = (max(step, int(np.exp(random.uniform(3, 9))) // step * step) for _ in range(3))
            keys = {
                spec.key for spec in needed(cs.matmul, dry((m, k), "bfloat16"), dry((k, n), "bfloat16", 0, 2 << 40))
            }
            known.append(keys <= listed)
    assert np.mean(known) > 0.9, f"{np.mean(known):.2f} of {len(known)} products"


def test_a_running_sum_is_warmed_in_the_type_that_numpy_gives_it():
    assert {label.split(":")[0] for label, _ in jobs(("scan",), ("int8",), ("add", "sum", "argmax"), ("whole",))} == {
        "scan add int8",
        "scan sum int8",
    }


@pytest.mark.parametrize(("name", "inputs"), [("var", 1), ("minmax", 1), ("cummax", 1), ("linear_recurrence", 2)])
def test_warm_knows_operators_with_names(name, inputs):
    family = "reduce" if name in ("var", "minmax") else "scan"
    listed = {spec.key for _, spec in jobs((family,), ("float32",), (name,), ("whole",))}
    for length, offset in ((1 << 24, 0), (10**7 + 19, 4)):
        arrays = [dry((length,), "float32", offset)] * inputs
        found = {spec.key for spec in needed(getattr(cs, name), *arrays, axis=None)}
        assert found and found <= listed, length


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
        assert word in text


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
    code = (
        "import sys; from cutesync.cli import main; main(['info']); print(sorted({'cutlass', "
        "'torch', 'cuda.core'} & set(sys.modules)))"
    )
    started = time.perf_counter()
    answer = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"
    assert time.perf_counter() - started < 5  # under 1 s on an idle machine
