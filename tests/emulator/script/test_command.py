"""``python -m cutesync check SCRIPT.py``: scripts run unmodified, and faults planted in them are reported."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def check(tmp_path):
    """Runs the command with ``options`` on a script of the folder. Returns exit code, output and the JSON."""

    def run(script, *arguments, options=("--schedules", "3")):
        file = tmp_path / "out.json"
        command = [sys.executable, "-m", "cutesync", "check", *options, "--json", str(file), str(SCRIPTS / script)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr, json.loads(file.read_text())

    return run


def kinds(result):
    return {f["kind"] for f in result["findings"] if not f["allowed"]}


def test_a_script_runs_unmodified(check, tmp_path):
    trace = tmp_path / "trace.json"
    options = ("--schedules", "2", "--sms", "5", "--trace", str(trace))
    code, text, result = check("reverse.py", options=options)
    assert (code, result["clean"], result["launches"]) == (0, True, 3), text
    assert "done with 5 multiprocessors" in text and "nothing found" in text
    for note in ("benchmark at reverse.py:", "NumPy array at reverse.py:"):
        assert any(text.startswith(note) for text in result["notes"]), result["notes"]
    assert "kernel" in trace.read_text()


def test_faults_are_found_and_the_script_goes_on(check):
    code, text, result = check("reverse.py", "--fault", "both")
    assert (code, result["failure"], kinds(result)) == (1, "", {"race", "out-of-bounds"}), text
    lines = (SCRIPTS / "reverse.py").read_text().split("\n")
    for statement in ("    tile[i] = x[i]", "    y[i] = tile[63 - i]"):
        assert f"reverse.py:{lines.index(statement) + 1} " in text, text
    assert "float32[32] made at reverse.py:" in text, "a tensor ends where it ends"
    assert "done with" in text


@pytest.mark.parametrize(
    ("arguments", "found", "words"),
    [
        ("--crash --fault", {"out-of-bounds"}, "ended by SIGSEGV in host code"),
        ("--refused", set(), "not nodes that a script adds itself"),
    ],
)
def test_the_driver_is_answered_until_the_script_fails(check, arguments, found, words):
    """What it found before is reported all the same."""
    options = ("--sms", "3", "--schedules", "1")
    code, text, result = check("host_calls.py", *arguments.split(), options=options)
    assert (code, result["launches"], kinds(result)) == (1, 5, found) and words in text, text


@pytest.mark.parametrize(("arguments", "found"), [((), set()), (("--fault",), {"race"})])
def test_kernels_that_a_script_compiles_by_nvrtc(check, arguments, found):
    """Of machine code the PTX is run; CuPy's kernels are compiled here."""
    from cuda.bindings import nvrtc

    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        pytest.skip(f"NVRTC: {error}".split("\n")[0][:60])
    code, text, result = check("compiled.py", *arguments)
    assert (code, kinds(result), result["launches"]) == (int(bool(found)), found, 3) and "done" in text, text
    assert not found or ("at reverse.cu:4 (st.shared" in text and "at reverse.cu:6 (ld.shared" in text), text


def test_a_script_that_does_not_end(check):
    code, text, result = check("host_calls.py", "--sleep", options=("--sms", "3", "--timeout", "1"))
    assert (code, result["clean"]) == (1, False) and "stopped after 1 s" in text, text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("check nothing.py", "script: got nothing.py"),
        ("check --allow rice {}", "--allow"),
        ("check --policy fair {}", "round_robin"),
        ("check --timeout -1 {}", "--timeout: got -1"),
        ("check scan {}", "families or a script"),
        ("check --initcheck", "--initcheck: got no script"),
    ],
)
def test_wrong_usage(line, words, capsys):
    from cutesync import cli

    assert cli.main(line.format(SCRIPTS / "reverse.py").split()) == 2
    assert words in capsys.readouterr().err


def test_tensors_of_torch(check, torch):
    code, text, result = check("tensors.py")
    assert (code, result["clean"], result["notes"]) == (0, True, []) and "done" in text, text


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "found"), [((), set()), (("--fault",), {"out-of-bounds"})])
def test_graphs_of_torch(check, torch, arguments, found):
    """A captured kernel is checked when the graph is launched."""
    code, text, result = check("graphs.py", *arguments)
    assert (code, kinds(result)) == (int(bool(found)), found), text
    assert found or ("done" in text and result["launches"] == 3), text


@pytest.mark.slow
@pytest.mark.parametrize("limit, errors", [(100, set()), (101, {"out-of-bounds"})])
def test_a_script_of_triton(check, limit, errors):
    """A store beyond the end is found at its line. A copy of an element that is read late is a warning."""
    pytest.importorskip("torch"), pytest.importorskip("triton")
    _, text, result = check("scaled.py", "--limit", str(limit))
    assert {f["kind"] for f in result["findings"] if f["severity"] == "error"} == errors, text
    assert {f["kind"] for f in result["findings"] if f["severity"] == "warning"} == {"race"}, text
    assert (bool(result["failure"]), "scaled.py:19" in text) == (bool(errors), bool(errors)), text


@pytest.mark.slow
def test_gradients_that_torch_makes_itself(check):
    pytest.importorskip("torch")
    code, text, _ = check("gradients.py")
    assert code == 0, text


def test_the_script_ends_with_the_command():
    command = [sys.executable, "-m", "cutesync", "check", "--sms", "3", str(SCRIPTS / "host_calls.py"), "--sleep"]
    parent = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    children, script, end = Path(f"/proc/{parent.pid}/task/{parent.pid}/children"), None, time.monotonic() + 30
    while script is None:
        assert time.monotonic() < end, "the script has not started"
        time.sleep(0.02)
        found = [Path("/proc", number) for number in children.read_text().split()]
        script = next((path for path in found if b"script.child" in (path / "cmdline").read_bytes()), None)
    parent.kill()
    parent.wait()
    while script.exists() and (script / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < end, "the script goes on"
        time.sleep(0.02)
