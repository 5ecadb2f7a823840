"""``python -m cutesync check SCRIPT.py``: runs a script in a child process, and reports what was found."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...arguments import choice
from ...errors import ArgumentValueError, explain
from .. import roles
from ..report import KINDS
from ..schedule import POLICIES
from .child import OPTIONS
from .findings import read
from .session import Options

_SIGNAL_AT_PARENTS_END = 1  # PR_SET_PDEATHSIG of Linux's prctl


def run(script: str, arguments: Sequence[str], given: Any) -> int:
    """Run the command: ``given`` has the options as attributes, None where they were left out."""
    if not Path(script).is_file():
        raise ArgumentValueError(explain("script", script, "a file"))
    for kind in given.allow or ():
        choice(kind, "--allow", KINDS)
    if given.policy is not None:
        choice(given.policy, "--policy", POLICIES)
    for name, least in (("sms", 1), ("jobs", 1), ("max_steps", 1), ("timeout", 0)):
        value = getattr(given, name)
        if value is not None and not value >= least:
            raise ArgumentValueError(explain("--" + name.replace("_", "-"), value, f"{least} or more"))
    options = Options(
        schedules=given.schedules or (5 if given.policy else len(POLICIES)),
        seed=given.seed,
        policy=given.policy,
        sms=given.sms or Options.sms,
        jobs=given.jobs or 1,
        max_steps=given.max_steps,
        initcheck=given.initcheck,
        co_resident=given.co_resident,
        allow=tuple(given.allow or ()),
        trace=given.trace,
        roles={name: list(warps) for name, warps in roles.parse(given.roles).items()} if given.roles else {},
    )
    return check_script(script, arguments, options, timeout=given.timeout, json_path=given.json)


def check_script(
    script: str,
    arguments: Sequence[str] = (),
    options: Options | None = None,
    *,
    timeout: float | None = None,
    json_path: str | None = None,
) -> int:
    """Run a script on the emulator and print a report. Return 0 if it ran to its end and nothing was found, else 1."""
    options = options or Options()
    with tempfile.TemporaryDirectory(prefix="cutesync-") as folder:
        events = Path(folder) / "events"
        facts = dataclasses.asdict(dataclasses.replace(options, events=str(events)))
        before = time.perf_counter()
        ended = _run(script, arguments, facts, timeout)
        result = _result(read(events), ended, time.perf_counter() - before)
    if json_path:
        Path(json_path).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(_text(script, result), flush=True)
    return 0 if result["clean"] else 1


def _run(script: str, arguments: Sequence[str], options: dict[str, Any], timeout: float | None) -> str:
    """Run the child. Return how it ended, empty if by itself."""
    command = [sys.executable, "-m", "cutesync.emulator.script.child", script, *arguments]
    root = str(Path(__file__).resolve().parents[3])  # the child finds the package that this process runs
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, OPTIONS: json.dumps(options), "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""}
    ends_with_this = functools.partial(ctypes.CDLL(None).prctl, _SIGNAL_AT_PARENTS_END, int(signal.SIGKILL))
    child = subprocess.Popen(command, env=environment, preexec_fn=ends_with_this)
    try:
        code = child.wait(timeout)
    except subprocess.TimeoutExpired:
        return f"stopped after {timeout:g} s (--timeout)"
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    return f"ended by {signal.Signals(-code).name} in host code, see above" if code < 0 else ""


def _result(events: list[dict[str, Any]], ended: str, seconds: float) -> dict[str, Any]:
    """What the events say, as ``--json`` writes it."""
    findings = [e for e in events if e["event"] == "finding"]
    end = next((e for e in events if e["event"] == "end"), None)
    failure = ended or (end["failure"] if end else "the process ended before the script did")
    launches = [e["kernel"] for e in events if e["event"] == "launch"]
    return {
        "clean": not failure and all(e["allowed"] for e in findings),
        "failure": failure,
        "launches": len(launches),
        "kernels": sorted(set(launches)),
        "findings": findings,
        "notes": [e["text"] for e in events if e["event"] == "note"],
        "seconds": round(seconds, 1),
    }


def _text(script: str, result: dict[str, Any]) -> str:
    lines = [""]
    for finding in result["findings"]:
        allowed = finding["allowed"] and finding["severity"] != "note"
        lines += [finding["text"] + (" (allowed)" if allowed else ""), ""]
    lines += [f"note: {text}" for text in result["notes"]]
    if result["failure"]:
        lines.append(f"the script failed: {result['failure']}")
    counts = f"{result['launches']} launches of {len(result['kernels'])} kernels, {result['seconds']} s"
    wrong = [f for f in result["findings"] if not f["allowed"]]
    verdict = f"{len(wrong)} finding{'s' * (len(wrong) > 1)}" if wrong else "nothing found"
    return "\n".join([*lines, f"{script}: {counts}: {verdict}"])
