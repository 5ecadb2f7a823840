"""What a run of the whole suite leaves out, and that every case has its turn."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from . import draws


class Item:
    """A test, with the names and arguments of its marks."""

    def __init__(self, nodeid: str, **marks) -> None:
        self.nodeid, self.marks = nodeid, {name: SimpleNamespace(args=args) for name, args in marks.items()}

    def get_closest_marker(self, name: str):
        return self.marks.get(name)

    def iter_markers(self, name: str):
        return [self.marks[name]] if name in self.marks else []


@pytest.fixture
def draws_of(monkeypatch):
    """``draws_of(items)``: for each of ten seeds, the numbers of those that run."""

    def of(items: list) -> list[list[int]]:
        found = []
        for seed in range(10):
            monkeypatch.setattr(draws, "seed", str(seed))
            gone = draws.left_out(items)
            assert gone == draws.left_out(items)
            found.append([i for i, item in enumerate(items) if item not in gone])
        return found

    return of


def test_so_many_cases_run_and_every_one_has_its_turn(draws_of):
    ran = draws_of([Item(f"tests/test_a.py::test_b[{i}]", drawn=(3,)) for i in range(7)])
    assert {len(one) for one in ran} == {3} and set().union(*ran) == set(range(7))


def test_slow_cases_are_drawn_apart_and_those_for_a_gpu_all_run(draws_of):
    items = [
        Item(f"tests/test_a.py::test_b[{i}]", drawn=(2,), **{mark: ()}) for mark in ("slow", "gpu") for i in (0, 1, 2)
    ]
    items += [Item(f"tests/test_a.py::test_b[q{i}]", drawn=(2,)) for i in range(3)]
    for one in draws_of(items):
        assert [sum(i // 3 == kind for i in one) for kind in range(3)] == [2, 3, 2]


def test_three_of_five_tests_of_a_kernel_run_but_all_of_its_schedules_and_faults(draws_of):
    names = [f"test_{letter}" for letter in "abcde"] + ["test_hostile_schedules", "test_no_mutant_survives"]
    ran = draws_of([Item(f"tests/scan/test_rows.py::{name}[{i}]") for name in names for i in (0, 1)])
    for one in ran:
        assert len(one) == 2 * (3 + 2) and {10, 11, 12, 13} <= set(one)
    assert set().union(*ran) == set(range(14))


def test_runs_of_a_commit_draw_alike():
    assert draws.of_commit() == draws.of_commit() != "all"


def test_all_runs_all(monkeypatch):
    items = [Item(f"tests/scan/test_rows.py::test_a[{i}]", drawn=(1,)) for i in range(4)]
    monkeypatch.setattr(draws, "seed", "all")
    assert draws.left_out(items) == set() and draws.some("abc", 1, "") == list("abc")


def test_what_is_drawn_keeps_its_order(some, monkeypatch):
    monkeypatch.setattr(draws, "seed", "3")
    assert some(range(9), 4) == sorted(some(range(9), 4)) != list(range(4))
