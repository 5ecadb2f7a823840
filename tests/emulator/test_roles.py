"""Reports and traces name the roles of warps: as the user does, as the kernel does, or as its source shows."""

import json
import re
from types import SimpleNamespace

import cutlass.cute as cute
import pytest
from cutlass import Int32

from cutesync import emulator
from cutesync.emulator import chains, roles
from cutesync.emulator.source import Place
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.sync.ring import Ring
from cutesync.sync.roles import Role, Roles

from .support import reported


def specialised(self, warp_idx, wg, tidx, pipe, lane):  # never called: of_chain reads it
    if warp_idx == self.mma_warp_id:
        if lane == 0:
            lane = 1  # mma
    elif warp_idx in self.epilogue_warp_ids:
        lane = 2  # epilogue
    is_dma_warp_group = wg < 1
    if is_dma_warp_group:
        lane = 3  # dma
    if not is_dma_warp_group:
        lane = 4  # not dma
    if warp_idx < 4:
        pipe.producer_acquire(lane)
        lane = 5  # producer
    else:
        load(pipe)  # load
    if warp_idx == 0:
        pipe.helper(lane)  # nothing
    if tidx < 32:
        lane = 6  # nothing
    if warp_idx >= self.tma_warp_id:
        lane = 7  # not tma
    else:
        lane = 8  # tma


def load(pipe):
    pipe.helper()  # of load


def lines(comment: str) -> list[Place]:
    with open(__file__) as file:
        return [Place(__file__, i) for i, text in enumerate(file, 1) if text.rstrip().endswith(f"# {comment}")]


@pytest.mark.parametrize("role", ("mma", "epilogue", "dma", "not dma", "producer", "not tma", "tma", "nothing"))
def test_branches_of_the_source(role):
    wanted = "" if role == "nothing" else role
    for place in lines(role):
        assert roles.of_chain((place,)) == wanted, place


def test_functions_that_a_branch_calls():
    (call,), (inside,) = lines("load"), lines("of load")
    assert roles.of_chain((call, inside)) == "load" and roles.of_chain((call,)) == roles.of_chain((inside,)) == ""
    (helper, *_) = lines("nothing")
    assert roles.of_chain((helper, inside)) == "", "a method of another object is no role"
    assert roles.of_chain((Place("?", 3),)) == ""


BLOCK = Roles(Role("fetch", 1), Role("compute", 1))


@cute.kernel
def one_sided(n: Int32):
    ring = Ring.make(2, consumers=2, producer="threads")
    cute.arch.sync_threads()
    BLOCK.run(fetch=lambda warp: fetch(ring, n), compute=lambda warp: compute(ring, n))


@cute.jit
def fetch(ring, n):
    for k in range(n):
        ring.acquire(k)
        ring.publish(k)


@cute.jit
def compute(ring, n):
    for k in range(n):
        ring.wait(k)
        ring.release(k)  # one warp releases, two are counted


@cute.jit
def run_one_sided(n: Int32):
    one_sided(n).launch(grid=(1, 1, 1), block=(BLOCK.threads, 1, 1))


def of_python_3_10(monkeypatch):
    """There, the frames of the DSL have no positions."""
    from cutlass._mlir_helpers import op

    def info(frame):
        return SimpleNamespace(
            filename=frame.f_code.co_filename, lineno=frame.f_lineno, function=frame.f_code.co_name, code_context=None
        )

    monkeypatch.setattr(op, "_fast_frameinfo", info)


@pytest.mark.parametrize("old", (False, True), ids=("columns", "no columns"))
def test_roles_of_a_kernel(old, monkeypatch, tmp_path):
    if old:
        of_python_3_10(monkeypatch)
    monkeypatch.setattr(chains, "_known", {})
    path = tmp_path / "run.json"
    text = reported("deadlock", "", emulator.check, run_one_sided, 9, schedules=1, trace=path)
    assert "warp 0 (fetch) all lanes waits for parity" in text and "warp 1 (compute) all lanes waits" in text
    assert "in one_sided, then test_roles.py:" in text and " in fetch, then ... barrier.py:" in text
    (place,) = lines("one warp releases, two are counted")
    assert re.search(rf"\(compute\) lane 0 arrives \(1\), 1 to come at \S*test_roles.py:{place.line}\n", text)
    names = {e["args"]["name"] for e in json.loads(path.read_text())["traceEvents"] if e["name"] == "thread_name"}
    assert {"warp 0 (fetch)", "warp 1 (compute)"} <= names


def test_names_that_the_user_gives():
    how = {"schedules": 1, "roles": {"left": [0], "right": range(1, 4)}}
    text = reported("deadlock", "", emulator.check, run_one_sided, 9, **how)
    assert "warp 0 (left) all lanes waits" in text and "warp 1 (right) all lanes waits" in text
    assert roles.given(roles.parse("load=0, mma=4-6")) == {0: "load", 4: "mma", 5: "mma", 6: "mma"}
    for wrong, kind in (
        ({"a": [0], "b": [0]}, ArgumentValueError),
        ({"a": [32]}, ArgumentValueError),
        ({"a": 3}, ArgumentTypeError),
        ({1: [0]}, ArgumentTypeError),
        (["a"], ArgumentTypeError),
    ):
        with pytest.raises(kind, match="roles"), emulator.emulate(roles=wrong):
            pass
    for text in ("a", "a=", "a=3-1", "a=1,a=2", "=2"):
        with pytest.raises(ArgumentValueError, match="--roles"):
            roles.parse(text)
