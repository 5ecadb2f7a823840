"""Of many cases that differ little, each run takes a few: the same ones for a commit, other ones for the next.

``@pytest.mark.drawn(count)``: so many of a test's cases run, of those that are ``slow`` and of the others. In a test,
``some(cases, count)`` from the fixture of that name. And of a module with many tests of one kernel, three of five run,
of slow ones half; those of schedules, planted faults and refusals all do.

This is for runs of the whole suite: where files or tests are named, all of them runs, and so do cases for a GPU.
``--draw SEED`` draws again what a run drew, which names its seed in its last lines; ``--draw all`` runs everything.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

FAMILIES = "block|callables|dist|flags|histogram|matmul|patterns|reduce|scan|segments|select|sync|topk"
IN_TURN = re.compile(rf"tests/(({FAMILIES})/test_\w+|test_states)\.py")
ALWAYS = re.compile("schedule|fault|mutant|deadlock|progress|resident|refus|bad_|wrong|error")


def of_commit() -> str:
    """The seed of a run that names none."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip() or "0"
    except (OSError, subprocess.TimeoutExpired):
        return "0"


seed = "all"  # of this run; ``conftest`` sets it, the same in all its processes


def some(cases: Iterable, count: int, name: str) -> list:
    """So many of these, in their order; ``name`` stands for who asks."""
    cases = list(cases)
    if seed == "all" or len(cases) <= count:
        return cases
    return [cases[i] for i in sorted(random.Random(f"{seed} {name}").sample(range(len(cases)), count))]


def left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """The cases of these tests that are not drawn."""
    cases: dict[tuple[str, bool], list[pytest.Item]] = {}  # of each test, slow ones and others
    tests: dict[tuple[str, bool], dict[str, None]] = {}  # of each module whose tests run in turn
    for item in items:
        if not (item.get_closest_marker("gpu") or item.get_closest_marker("multi_gpu")):
            name, slow = item.nodeid.partition("[")[0], item.get_closest_marker("slow") is not None
            cases.setdefault((name, slow), []).append(item)
            module, _, test = name.partition("::")
            if IN_TURN.fullmatch(module) and not ALWAYS.search(test):
                tests.setdefault((module, slow), {})[name] = None
    gone: set[pytest.Item] = set()
    for (module, slow), names in tests.items():
        count = -(-len(names) // 2) if slow else -(-3 * len(names) // 5)
        for name in names.keys() - set(some(names, count, module)):
            gone |= set(cases[name, slow])
    for (name, _), group in cases.items():
        for mark in group[0].iter_markers("drawn"):
            gone |= set(group) - set(some(group, mark.args[0], name))
    return gone
