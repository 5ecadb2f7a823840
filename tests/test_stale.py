"""No call gives a stale answer: in every family a callable whose meaning has changed is a new one, in this process and
in the next."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import cutesync as cs
from cutesync import patterns
from cutesync.runtime import call, compiler

SCALE = 1
X = np.arange(1, 9, dtype=np.int32)
ONES = np.ones((8, 8), np.float16)
CALLS = {
    "reduce, operator": (lambda: cs.reduce(X, lambda a, b: a + b + SCALE), lambda k: 36 + 7 * k),
    "reduce, transform": (lambda: cs.reduce(X, transform=lambda v: v * SCALE), lambda k: k * 36),
    "reduce, axis": (lambda: cs.reduce(X.reshape(2, 4), transform=lambda v: v * SCALE, axis=0)[0], lambda k: k * 6),
    "scan": (lambda: cs.scan(X, lambda a, b: a + b * SCALE)[1], lambda k: 1 + 2 * k),
    "flags": (lambda: cs.flag_heads(X, lambda a, b: b - a >= SCALE)[1], lambda k: k <= 1),
    "pairs of flags": (lambda: cs.flag_heads_and_tails(X, lambda a, b: b - a >= SCALE)[1][0], lambda k: k <= 1),
    "differences": (lambda: cs.adjacent_difference(X, lambda a, b: a - b * SCALE)[1], lambda k: 2 - k),
    "matmul": (lambda: cs.matmul(ONES, ONES, activation=lambda v: v * SCALE)[0, 0], lambda k: 8 * k),
    "patterns": (lambda: patterns.producer_consumer.run(X, lambda v: v * SCALE)[1], lambda k: 2 * k),
    "lists": (lambda: len(patterns.output_list.run(X, lambda v: v > SCALE)), lambda k: 8 - k),
}


@pytest.mark.drawn(5)
@pytest.mark.parametrize("name", CALLS)
def test_a_changed_global_is_seen_by_the_next_call(monkeypatch, name):
    run, expected = CALLS[name]
    for scale in (1, 3, 1):
        monkeypatch.setitem(globals(), "SCALE", scale)
        with cs.emulate(sanitize=False):
            assert run() == expected(scale)


def test_a_callable_written_in_the_call_is_planned_once():
    with cs.emulate(sanitize=False):
        array = cs.asarray(X)
        out = cs.scan(array, lambda a, b: a + b)
        before = len(call._plans), len(compiler._kernels)
        for _ in range(5):
            cs.scan(array, lambda a, b: a + b, out=out)
    assert len(call._plans) <= before[0] + 1 and len(compiler._kernels) == before[1]


def test_an_object_as_operator_is_compiled_once_for_all_lengths():
    class Add:
        def __call__(self, a, b):
            return a + b

    with cs.emulate(sanitize=False):
        cs.reduce(np.ones(3000, np.int32), Add())
        before = len(compiler._kernels)
        for length in (3001, 3002, 3003):
            assert cs.reduce(np.ones(length, np.int32), Add()) == length
    assert len(compiler._kernels) == before


def printed(tmp_path, *arguments: str) -> list[str]:
    """The words that Python prints, on the emulator and with a cache of its own."""
    variables = {
        "CUTESYNC_CACHE_DIR": str(tmp_path / "cache"),
        "CUTESYNC_BACKEND": "emulator",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout.split()


def test_an_edited_module_is_seen_by_the_next_process(tmp_path):
    (tmp_path / "use.py").write_text(
        textwrap.dedent(
            """
            import numpy as np, cutesync as cs, settings

            def importing(v):
                from settings import SCALE
                return v * SCALE

            x = np.ones(4, np.int32)
            scaled = cs.reduce(x, transform=lambda v: v * settings.SCALE)
            combined = cs.scan(x, lambda a, b: settings.combine(a, b))[-1]
            print(scaled, combined, cs.reduce(x, transform=importing))
            """
        )
    )
    answers = []
    for scale in (2, 3):
        (tmp_path / "settings.py").write_text(f"SCALE = {scale}\n\ndef combine(a, b):\n    return a + {scale} * b\n")
        answers.append(printed(tmp_path, "use.py"))
    assert answers == [["8", "7", "8"], ["12", "10", "12"]]


def test_a_copied_pattern_runs_what_its_file_says(tmp_path):
    """And leaves nothing wrong in the cache for the original."""
    source = (
        Path(patterns.phases.__file__)
        .read_text()
        .replace("from ..", "from cutesync.")
        .replace("from .", "from cutesync.patterns.")
    )
    assert "half ^ 1" in source
    (tmp_path / "changed_phases.py").write_text(source.replace("half ^ 1", "half", 1))
    for module, right in (("changed_phases", False), ("cutesync.patterns.phases", True)):
        code = (
            f"import numpy as np, {module} as m; x = np.arange(1000, dtype=np.int32); "
            f"print(np.array_equal(m.run(x, 5), m.reference(x, 5)))"
        )
        assert (printed(tmp_path, "-c", code) == ["True"]) is right
