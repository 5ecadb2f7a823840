"""Each pattern file runs when it is copied, and the fault that patterns/README.md plants in it is reported."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import cutesync as cs
from cutesync import patterns

from .cases import numbers, same, thirds, triple

FOLDER = Path(patterns.__file__).parent
FILES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
ROWS = re.findall(
    r"^\| `(\w+)` \| [^|]* \| `(.*?)` \| (?:`(.*?)`|\(removed\)) \| (\S+) \|$",
    (FOLDER / "README.md").read_text(encoding="utf-8"),
    re.M,
)

X = numbers(600)
# file: what it makes of X, and what NumPy says
CALLS = {
    "divergence": lambda m: (m.run(X, work=2), m.reference(X, work=2)),
    "reductions": lambda m: (m.run(X), m.reference(X)),
    "phases": lambda m: (m.run(X, 9, threads=64), m.reference(X, 9, 64)),
    "early_exit": lambda m: (m.run(X % 7), m.reference(X % 7)),
    "completion": lambda m: (m.run(X), m.reference(X)),
    "warp_entanglement": lambda m: (m.run(7)[0], m.reference(7)),
    "round_trip": lambda m: (len(m.run(3, threads=64)), len(m.WAYS)),
    "transactions": lambda m: (m.run(X), m.reference(X)),
    "two_buffers": lambda m: (m.run(X, triple, buffer=64, blocks=1), m.reference(X, triple)),
    "streaming": lambda m: (m.run(X, triple, stages=2, buffer=512, consumers=1, blocks=1), m.reference(X, triple)),
    "producer_consumer": lambda m: (m.run(X, triple), m.reference(X, triple)),
    "ping_pong": lambda m: (m.run(X), m.reference(X)),
    "tiered_scan": lambda m: (m.run(X), m.reference(X)),
    "channel": lambda m: (m.Channel(100).give(X).size, 100),
    "output_list": lambda m: (m.run(X, thirds, ordered=True), m.reference(X, thirds)),
    "primes": lambda m: (np.sort(m.run(600)), m.reference(600)),
    "relay": lambda m: (np.sort(m.run(X[:90], 16, items=60)), m.reference(X[:90])),
}


def copied(name: str, folder: Path, line: str = "", instead: str = ""):
    """The module of a copied file, in which ``line``, which is there once, has become ``instead``."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    if line:
        text, count = re.subn(rf"(?<= ){re.escape(line)}$|^{re.escape(line)}$", instead, text, flags=re.M)
        assert count == 1, f"{name}.py has {count} lines {line!r}"
    path = folder / f"my_{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_has_every_file_with_a_kernel_of_its_own():
    assert {"producer_consumer", "tiered_scan"} == set(CALLS) - {name for name, *_ in ROWS}
    assert set(patterns.NAMES) | {"channel"} == set(CALLS)


@pytest.mark.drawn(12)
@pytest.mark.parametrize("name", FILES)
def test_a_copy_runs(name, tmp_path):
    module = copied(name, tmp_path)
    with cs.emulate("random", seed=3):
        assert name not in CALLS or same(*CALLS[name](module), True)


@pytest.mark.parametrize(("name", "line", "instead", "report"), ROWS, ids=[name for name, *_ in ROWS])
def test_the_planted_fault_is_reported(name, line, instead, report, tmp_path):
    module = copied(name, tmp_path, line, instead)
    with (
        pytest.raises(cs.emulator.EmulationError, match=f"^({report.replace('/', '|')})"),
        cs.emulate(schedules=9, seed=3),
    ):
        CALLS[name](module)
