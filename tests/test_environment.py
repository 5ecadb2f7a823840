"""Environment variables, and what importing the package costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cutesync
from cutesync import env, errors
from cutesync.runtime import device


def python(script: str, **environment) -> subprocess.CompletedProcess:
    """Run a script in a new process."""
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
        cwd=Path(cutesync.__file__).parent.parent,
    )


@pytest.mark.parametrize("variable", [v for v in env.ALL if v.allowed], ids=lambda v: v.name)
def test_nonsense_is_an_error_that_says_what_is_allowed(variable, monkeypatch):
    monkeypatch.setenv(variable.name, "perhaps")
    with pytest.raises(
        errors.ArgumentValueError, match=rf"{variable.name}: got 'perhaps'; needs .*{variable.allowed[0]}.*unset it"
    ):
        variable.get()


@pytest.mark.parametrize("variable", env.ALL, ids=lambda v: v.name)
def test_unset_and_empty_mean_the_default(variable, monkeypatch):
    monkeypatch.delenv(variable.name, raising=False)
    assert variable.get() == variable.default
    monkeypatch.setenv(variable.name, "")
    assert variable.get() == variable.default
    for value in variable.allowed:
        monkeypatch.setenv(variable.name, value)
        assert variable.get() == value


def test_every_variable_of_the_source_is_declared():
    import re

    used = set()
    for path in Path(cutesync.__file__).parent.rglob("*.py"):
        used |= set(re.findall(r"CUTESYNC_[A-Z_]+[A-Z]", path.read_text()))
    assert used == {variable.name for variable in env.ALL}


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", str(tmp_path / "here"))
    assert env.cache_dir() == tmp_path / "here"
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", "~/there")
    assert env.cache_dir() == Path.home() / "there"
    monkeypatch.delenv("CUTESYNC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert env.cache_dir() == tmp_path / "cutesync"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert env.cache_dir() == Path.home() / ".cache" / "cutesync"
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize("environment", [{}, {"XDG_CACHE_HOME": "relative"}, {"XDG_CACHE_HOME": "~/x"}])
def test_without_a_home_the_folder_is_a_private_one_said_once(environment, tmp_path):
    """A container with a bare uid: no HOME, and no entry in passwd."""
    script = (
        "import os, pwd, warnings\n"
        "for name in ('HOME', 'XDG_CACHE_HOME', 'CUTESYNC_CACHE_DIR'): os.environ.pop(name, None)\n"
        f"os.environ.update({environment!r})\n"
        "def nobody(*_): raise KeyError\n"
        "pwd.getpwuid = pwd.getpwnam = nobody\n"
        "from cutesync import env\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        "    print(env.cache_dir(), env.cache_dir() == env.cache_dir(), len(said), os.getuid())\n"
    )
    found = python(script, TMPDIR=str(tmp_path))
    assert found.stdout.split() == [f"{tmp_path}/cutesync-{os.getuid()}", "True", "1", str(os.getuid())], found.stderr


def test_a_home_folder_that_nobody_has_is_an_error(monkeypatch):
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", "~no_such_user/x")
    with pytest.raises(errors.ArgumentValueError, match="CUTESYNC_CACHE_DIR.*without ~"):
        env.cache_dir()


def test_importing_loads_neither_the_dsl_nor_a_driver():
    found = python(
        "import sys, cutesync\n"
        "heavy = [m for m in ('cutlass', 'cuda', 'cuda.bindings', 'torch', 'cupy', 'numpy') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
        "import cutesync.kernels.reduce.call, cutesync.reference, cutesync.runtime.compiler\n"
        "cutesync.reduce, cutesync.errors, cutesync.asarray, dir(cutesync)\n"
        "heavy = [m for m in ('cutlass', 'cuda.bindings', 'torch', 'cupy') if m in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    assert found.returncode == 0, found.stderr


def test_a_process_that_finds_its_kernels_on_disk_never_loads_the_dsl(tmp_path):
    script = (
        "import sys, cutesync as cs\n"
        "from cutesync.runtime.kernel import collect\n"
        "with collect() as found: cs.reduce(cs.empty(3000, 'float32'))\n"
        "(spec,) = found.values()\n"
        "print(spec.kernel().name, 'cutlass' in sys.modules)\n"
    )
    for expected in ("cutesync_reduce_0 True", "cutesync_reduce_0 False"):
        found = python(script, CUTESYNC_CACHE_DIR=str(tmp_path), CUTESYNC_CACHE="1")
        assert found.stdout.strip() == expected, found.stderr


def test_reduce_stays_the_function():
    """The folder of the same name does not replace it, in whatever order things are imported."""
    for order in (
        "import cutesync as cs; cs.reduce; import cutesync.kernels.reduce.policy",
        "import cutesync.kernels.reduce.policy; import cutesync as cs",
        (
            "from cutesync.kernels.reduce.plan import plan; import cutesync as cs; from cutesync "
            "import reduce; assert callable(reduce)"
        ),
    ):
        found = python(order + "\nassert callable(cs.reduce) and cs.reduce.__name__ == 'reduce', cs.reduce")
        assert found.returncode == 0, order + found.stderr


def test_every_public_name_resolves():
    for name in cutesync.__all__:
        assert getattr(cutesync, name) is not None
    assert set(cutesync.__all__) <= set(dir(cutesync))
    with pytest.raises(AttributeError, match="no_such_name"):
        cutesync.no_such_name  # noqa: B018


@pytest.mark.skipif(device.unavailable() is None, reason="there is a GPU")
def test_asking_for_a_gpu_where_there_is_none_names_the_emulator():
    found = python(
        "import numpy as np, cutesync as cs\ncs.reduce(np.arange(10, dtype=np.int32))", CUTESYNC_BACKEND="gpu"
    )
    last = found.stderr.strip().splitlines()[-1]
    assert found.returncode == 1
    assert "NoGpuError" in last and "GPU: got" in last and "CUTESYNC_BACKEND=emulator" in last


@pytest.mark.skipif(device.unavailable() is None, reason="there is a GPU")
def test_a_machine_without_gpu_says_why():
    assert "GPU" in device.unavailable()


def test_another_gpu_than_hopper_is_refused(monkeypatch):
    monkeypatch.setattr(device, "capability", lambda ordinal: (8, 0))
    monkeypatch.setattr(device, "name", lambda ordinal: "A100")
    with pytest.raises(errors.NoGpuError, match=r"A100 \(sm_80\); needs a Hopper GPU.*CUTESYNC_BACKEND=emulator"):
        device.require_hopper(0)


def test_explain_says_what_came_what_is_allowed_and_what_to_do():
    assert errors.explain("x", "None", "an array", "use np.asarray") == "x: got None; needs an array; use np.asarray"
    assert errors.explain("x", "None", "an array") == "x: got None; needs an array"


def test_every_error_is_a_cutesync_error_and_a_built_in():
    own = [
        e
        for e in vars(errors).values()
        if isinstance(e, type) and issubclass(e, errors.CutesyncError) and e is not errors.CutesyncError
    ]
    assert len(own) >= 8
    for error in own:
        assert any(
            base.__module__ == "builtins" and base not in (Exception, object, BaseException) for base in error.__mro__
        ), error
