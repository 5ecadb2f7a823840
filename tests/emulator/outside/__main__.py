"""``python -m tests.emulator.outside FOLDER [word ...]``: only scripts whose names hold one of the words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from .harmless import HARMLESS
from .kernels import KERNELS, Outside
from .lines import leads_to

_TIMEOUT = 900


def version(folder: Path, project: str) -> str:
    command = ["git", "-C", str(folder / project), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "version unknown"


def planted(folder: Path, kernel: Outside, scratch: Path) -> list[dict]:
    """The faults of one kernel, each with its verdict."""
    out = scratch / f"{Path(kernel.script).stem}.json"
    projects = "quack", "flash-attention", "cutlass/examples/python/CuTeDSL"  # the last has helpers of its examples
    paths = [str(Path.cwd()), *(str(folder / name) for name in projects)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "QUACK_CACHE_ENABLED": "0"}
    file = kernel.file(folder, scratch)
    command = [sys.executable, "-m", "tests.emulator.outside.plant", str(out), kernel.kernel, str(file)]
    log = scratch / f"{Path(kernel.script).stem}.log"
    with log.open("w") as output:
        try:
            code = subprocess.run(
                [*command, *kernel.arguments.split()], env=environment, stdout=output, stderr=output, timeout=_TIMEOUT
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
    if code:
        print(f"{kernel.script} ended with {code}: {log.read_text()[-600:]}", file=sys.stderr)
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def main(folder: Path, words: list[str]) -> None:
    wanted = [k for k in KERNELS if (folder / k.project).is_dir() and (not words or any(w in k.script for w in words))]
    print("| kernel | fault | places | planted | not run | reported | near | between | as |\n" + 9 * "|---" + "|")
    missed = []
    with tempfile.TemporaryDirectory() as name:
        for kernel in wanted:
            found = planted(folder, kernel, Path(name))
            for fault in dict.fromkeys(f["fault"] for f in found):
                some = [f for f in found if f["fault"] == fault]
                kinds = Counter(f["kind"] or "nothing" for f in some if f["run"])
                idle = sum(not f["run"] for f in some)
                text = ", ".join(f"`{kind}` {count}" for kind, count in kinds.most_common())
                reported = sum(bool(f["kind"]) for f in some)
                count = sum(f["of"] for f in some if f["place"] == 0)
                led = Counter(leads_to(f["report"], f["lines"]) for f in some if f["kind"])
                row = kernel.script, fault, count, len(some), idle, reported, led["near"], led["between"], text
                print(f"| {' | '.join(map(str, row))} |", flush=True)
                for f in some:
                    if f["run"] and not f["kind"]:
                        why = HARMLESS.get((Path(kernel.script).name, fault, f["place"]), "NOT EXPLAINED")
                        line = f["lines"][-1]
                        missed.append(f"{kernel.script}: {fault}, place {f['place']} of {f['of']}, {line}: {why}")
    print("\nversions: " + ", ".join(f"{name} {version(folder, name)}" for name in {k.project for k in wanted}))
    print("\n".join(["run and not reported:", *missed]) if missed else "all that run are reported")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
