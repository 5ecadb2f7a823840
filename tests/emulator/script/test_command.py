"""``python -m cutesync check SCRIPT.py``: scripts run unmodified, and faults planted in them are reported."""

import json
import re
import subprocess
import sys
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
    assert (code, result["clean"], result["launches"]) == (0, True, 2), text
    assert "done with 5 multiprocessors" in text and "nothing found" in text
    assert any("benchmark at reverse.py:" in note for note in result["notes"]), "and makes one call"
    assert "kernel" in trace.read_text()


def test_a_race_is_found_and_the_script_goes_on(check):
    code, text, result = check("reverse.py", "--fault", "race")
    assert (code, result["failure"], kinds(result)) == (1, "", {"race"}), text
    assert re.search(r"at .*reverse\.py:1[69] ", text) and "done with" in text
    code, text, result = check("reverse.py", "--fault", "race", options=("--schedules", "2", "--allow", "race"))
    assert (code, result["clean"]) == (0, True), text


def test_a_tensor_ends_where_it_ends(check):
    code, text, result = check("reverse.py", "--fault", "short")
    assert (code, kinds(result)) == (1, {"out-of-bounds"}), text
    assert "float32[32]" in text and "made at reverse.py:" in text


def test_the_driver_is_answered(check):
    code, text, result = check("host_calls.py", options=("--sms", "3", "--schedules", "2"))
    assert (code, result["launches"]) == (0, 2), text
    code, text, result = check("host_calls.py", "--fault", options=("--sms", "3", "--schedules", "2"))
    assert (code, kinds(result)) == (1, {"out-of-bounds"}) and "cuMemAlloc" in text, text


@pytest.mark.parametrize(
    ("argument", "words"), [("--crash", "ended by SIGSEGV in host code"), ("--refused", "cuGraphCreate")]
)
def test_a_script_that_does_not_end_well(check, argument, words):
    """What it found before is reported all the same."""
    code, text, result = check("host_calls.py", argument, "--fault", options=("--sms", "3", "--schedules", "1"))
    assert (code, result["launches"], kinds(result)) == (1, 2, {"out-of-bounds"}) and words in text, text


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
