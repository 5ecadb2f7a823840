"""The stored answers of a Hopper GPU, replayed: every instruction of the emulator that has one must agree with it."""

import os
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from cutesync.errors import CutesyncError

from .litmus import all_cases, emulated, worker
from .litmus.store import ANSWERS, Answers, load, save

with np.errstate(all="ignore"):
    CASES = {case.name: case for case in all_cases()}
STORED = load() if ANSWERS.exists() else None
needs_answers = pytest.mark.skipif(
    STORED is None, reason="no stored answers: run python -m tests.emulator.litmus --out on a Hopper GPU"
)
FAMILIES = sorted({name.split(".")[0] for name in CASES})


def of(family: str) -> dict:
    return {name: case for name, case in CASES.items() if name.split(".")[0] == family}


def disagreement(case, got: np.ndarray, want: np.ndarray) -> list[str]:
    agreed = case.agree(got, want)
    return [] if agreed.all() else [f"{case.name}: {int((~agreed).sum())} of {agreed.size}"]


def test_names_are_unique_and_inputs_are_reproducible():
    with np.errstate(all="ignore"):
        again = list(all_cases())
    assert len(again) == len(CASES)
    assert all(CASES[case.name].fingerprint == case.fingerprint for case in again)


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_have_the_shape_of_the_output(family):
    for name, case in of(family).items():
        if case.expected:
            want, output = case.expected(), case.arguments[case.output]
            assert (want.shape, want.dtype) == (output.shape, output.dtype), name
            assert case.agree(want, want).all(), name


def test_store_round_trip(tmp_path):
    arrays = {"a": np.arange(6, dtype=np.uint16).reshape(2, 3), "b": np.array([1 << 63], np.uint64)}
    answers = Answers("some GPU", arrays, {"c": "illegal instruction"}, {"a": 1, "b": 2, "c": 3})
    save(tmp_path / "x.npz", answers)
    back = load(tmp_path / "x.npz")
    assert (back.device, back.faults, back.fingerprints) == (answers.device, answers.faults, answers.fingerprints)
    assert all(np.array_equal(back.arrays[n], arrays[n]) and back.arrays[n].dtype == arrays[n].dtype for n in arrays)


def stored(case):
    """The GPU's answer; None where there is none: the case faulted, or it has changed since, or no file."""
    current = STORED is not None and STORED.fingerprints.get(case.name) == case.fingerprint
    return STORED.arrays.get(case.name) if current else None


def test_a_file_may_lack_answers(monkeypatch):
    cases = {name: case for name, case in CASES.items() if name.startswith("mbarrier.tx")}
    old, faulted, *rest = cases.values()
    fingerprints = {case.name: case.fingerprint for case in rest} | {faulted.name: faulted.fingerprint, old.name: 0}
    arrays = {old.name: np.zeros(99, np.uint8)} | {case.name: emulated.run(case) for case in rest}
    monkeypatch.setitem(globals(), "CASES", cases)
    monkeypatch.setitem(
        globals(), "STORED", Answers("some GPU", arrays, {faulted.name: "illegal instruction"}, fingerprints)
    )
    assert stored(old) is None and stored(faulted) is None and all(stored(case) is not None for case in rest)
    test_the_emulator_agrees_with_the_gpu("mbarrier")
    test_whole_kernels_agree("mbarrier")
    with pytest.raises(AssertionError, match=f"1 cases changed.*{old.name}"):
        test_every_case_has_a_current_answer()


def test_a_store_keeps_to_a_buffer_that_ends_with_its_tensor():
    """Rows go out in whole multiples of 16 bytes; of the last one, what lies past the buffer is dropped (on a GPU it is
    padding).
    """
    case = CASES["tensor.store.2d.f32.corner"]
    pitch, columns, rows = case.arguments[0].tensor_map.strides[0] // 4, 50, 30
    arguments = list(case.arguments)
    arguments[case.output] = arguments[case.output][: ((rows - 1) * pitch + columns) * 4]
    short, whole = emulated.run(replace(case, arguments=tuple(arguments))), emulated.run(case)
    assert (
        np.array_equal(short, whole[: short.size])
        and (whole[short.size : short.size + 8] != arguments[case.output][0]).all()
    )


class Fragile(emulated.Emulator):
    """A machine that one case refuses, one ends and one poisons."""

    name = "fragile"

    def run(self, case):
        if case.name.endswith("count1"):
            raise ValueError("refused")
        if case.name.endswith("count3"):
            os._exit(1)
        if case.name.endswith("pending"):
            self.alive = lambda: False
            raise ValueError("poisoned")
        return super().run(case)


def test_runner_outlives_faults():
    cases = worker.selected("mbarrier")
    name, *answers = worker.answers(Fragile, len(cases), "mbarrier")
    assert name == "fragile" and len(answers) == len(cases)
    faults = {case.name: a for case, a in zip(cases, answers) if isinstance(a, worker.Fault)}
    assert faults == {
        "mbarrier.count1": worker.Fault("ValueError: refused", fatal=False),
        "mbarrier.count3": worker.Fault("the process ended"),
        "mbarrier.pending": worker.Fault("ValueError: poisoned"),
    }
    assert all(np.array_equal(a, emulated.run(case)) for case, a in zip(cases, answers) if case.name not in faults)


@needs_answers
def test_every_case_has_a_current_answer():
    stale = [name for name, case in CASES.items() if STORED.fingerprints.get(name) != case.fingerprint]
    assert not stale, f"{len(stale)} cases changed since they were run: {stale[:8]}"
    assert set(STORED.faults) == {name for name, case in CASES.items() if case.faults}


@needs_answers
@pytest.mark.parametrize("family", FAMILIES)
def test_the_emulator_agrees_with_the_gpu(family):
    wrong = []
    for case in of(family).values():
        answer = stored(case)
        if case.expected and answer is not None:
            wrong += disagreement(case, answer, case.expected())
    assert not wrong, "\n".join(wrong)


@pytest.mark.drawn(30)
@pytest.mark.parametrize("family", FAMILIES)
def test_whole_kernels_agree(family):
    """Each kernel on the whole emulator, against the GPU's answer, or the expected one where there is none yet."""
    wrong = []
    for case in of(family).values():
        if case.faults:
            with pytest.raises(CutesyncError):
                emulated.run(case)
        else:
            got, want = emulated.run(case), stored(case)
            if want is None:
                want = case.expected() if case.expected else got
            wrong += disagreement(case, got, want)
    assert not wrong, "\n".join(wrong)


@pytest.mark.drawn(20)
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_assembles(family, tmp_path):
    source = tmp_path / "litmus.ptx"
    command = ["ptxas", "-arch=sm_90a", str(source), "-o", str(tmp_path / "litmus.cubin")]
    for name, case in of(family).items():
        source.write_text(case.ptx)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
