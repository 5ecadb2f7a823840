"""A launch that the driver would refuse is a LaunchError before anything runs, by whatever door it comes."""

import cutlass.cute as cute
import numpy as np
import pytest
from cutlass import Int32

from cutesync import emulator
from cutesync.emulator import limits
from cutesync.errors import ArgumentTypeError, ArgumentValueError, LaunchError

from .support import enqueue, kernel_text, reported

STORE = "\tmov.u32 %r1, 1;\n\tst.relaxed.gpu.global.b32 [%a0], %r1;"


def launch(grid=(1, 1, 1), block=(1, 1, 1), text=None, **options) -> np.ndarray:
    x = np.zeros(4, np.int32)
    enqueue(text or kernel_text(STORE, 1), x, grid, block, **options)
    return x


def header(line: str) -> str:
    """The kernel with a line between its parameters and its body."""
    return kernel_text(STORE, 1).replace(")\n{", f")\n{line}\n{{")


REFUSED = {
    "grid x of 0": {"grid": (0, 1, 1)},
    "grid x below 0": {"grid": (-1, 1, 1)},
    "grid x": {"grid": (1 << 31, 1, 1)},
    "grid y": {"grid": (1, 65536, 1)},
    "grid z": {"grid": (1, 1, 65536)},
    "block of 0": {"block": (1, 0, 1)},
    "block x": {"block": (1025, 1, 1)},
    "block y": {"block": (1, 1025, 1)},
    "block z": {"block": (1, 1, 65)},
    "threads": {"block": (32, 32, 2)},
    "cluster of 0": {"cluster": (0, 1, 1)},
    "cluster that is not portable": {"grid": (16, 1, 1), "cluster": (16, 1, 1)},
    "a part of a cluster": {"grid": (3, 1, 1), "cluster": (2, 1, 1)},
    "shared memory": {"shared_bytes": 232449},
    "shared memory below 0": {"shared_bytes": -1},
    "both kinds of shared memory": {"shared_bytes": 232448, "text": kernel_text(STORE, 1, shared=128)},
    "static shared memory": {"text": kernel_text(STORE, 1, shared=49153)},
    "cooperative": {"grid": (132 * 32 + 1, 1, 1), "cooperative": True},
    "cooperative with shared memory": {"grid": (133, 1, 1), "cooperative": True, "shared_bytes": 200_000},
    "another block than compiled for": {"block": (64, 1, 1), "text": header(".reqntid 32, 1, 1")},
    "more threads than compiled for": {"block": (64, 1, 1), "text": header(".maxntid 32")},
    "another cluster than compiled for": {
        "grid": (4, 1, 1),
        "cluster": (4, 1, 1),
        "text": header(".reqnctapercluster 2"),
    },
}
ALLOWED = {
    "block z": {"block": (1, 1, 64)},
    "threads": {"block": (32, 32, 1)},
    "cluster": {"grid": (8, 2, 1), "cluster": (4, 2, 1)},
    "shared memory": {"shared_bytes": 232448},
    "grid y": {"grid": (1, 65, 1)},
    "the block compiled for": {"block": (32, 1, 1), "text": header(".reqntid 32, 1, 1")},
    "the cluster compiled for": {"grid": (4, 1, 1), "text": header(".reqnctapercluster 2")},
    "cooperative": {"grid": (40, 1, 1), "cooperative": True},
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    with pytest.raises(LaunchError, match=r"launch of k: got .*; needs "):
        launch(**REFUSED[what])


@pytest.mark.parametrize("what", ALLOWED)
def test_allowed(what):
    assert launch(**ALLOWED[what])[0] == 1


def test_nothing_runs_and_nothing_stays():
    x, before = np.zeros(4, np.int32), emulator.DEVICE.memory.regions
    with pytest.raises(LaunchError), emulator.emulate() as used:
        enqueue(kernel_text(STORE, 1), x, (1, 65536, 1))
    assert used.launches == used.steps == x[0] == 0 and emulator.DEVICE.memory.regions == before


@pytest.mark.parametrize(
    "error, name, value",
    [
        (ArgumentTypeError, "grid", (1.5, 1, 1)),
        (ArgumentTypeError, "block", (1, "1", 1)),
        (ArgumentTypeError, "cluster", (None, 1, 1)),
        (ArgumentTypeError, "shared_bytes", "1"),
        (ArgumentValueError, "grid", (1, 1)),
        (ArgumentValueError, "block", 32),
        (ArgumentValueError, "cluster", (1, 1, 1, 1)),
    ],
)
def test_extents_that_are_not_three_integers(error, name, value):
    with pytest.raises(error, match=name):
        launch(**{name: value})


@pytest.mark.parametrize("parameters", ([], [1, 2], b"1234567"))
def test_parameters_that_do_not_fit(parameters):
    with pytest.raises(ArgumentValueError, match="parameters of k"):
        emulator.launch(kernel_text(STORE, 1), (1, 1, 1), (1, 1, 1), parameters)


def test_a_grid_of_more_blocks_than_clocks_can_name(monkeypatch):
    """Numbers of blocks that have ended are used again: the last block still writes, and is still seen to."""
    monkeypatch.setattr("cutesync.emulator.machine.MAX_BLOCKS", 40)
    counted = kernel_text("\tatom.global.add.u32 %r1, [%a0], 1;", 1)
    assert launch((300, 1, 1), text=counted)[0] == 300
    reported(
        "race", "", launch, (300, 1, 1), text=kernel_text("\tmov.u32 %r1, %ctaid.x;\n\tst.global.b32 [%a0], %r1;", 1)
    )


def test_the_largest_grid_starts_at_once():
    schedule = emulator.Settings().schedule(0)
    order = schedule.in_order(range(limits.GRID[0]))
    assert len({next(order) for _ in range(1000)}) == 1000


@cute.kernel
def one(x: cute.Tensor):
    x[0] = 1


@cute.jit
def of_the_dsl(x: cute.Tensor, grid: Int32, block: Int32, cluster: Int32, shared: Int32):
    one(x).launch(grid=(1, grid, 1), block=(1, 1, block), cluster=(1, cluster, 1), smem=shared)


def test_launches_of_the_dsl():
    """Its host code allows 16 blocks a cluster and all shared memory of an SM."""
    x = np.zeros(4, np.int32)
    compiled = emulator.compile_for_emulator(of_the_dsl, x, *map(Int32, (1, 1, 1, 1)))
    with emulator.emulate(sanitize=False) as used:
        for values in (
            (65536, 1, 1, 0),
            (1, 65, 1, 0),
            (32, 1, 32, 0),
            (16, 1, 0, 0),
            (3, 1, 2, 0),
            (1, 1, 1, 232449),
            (-1, 1, 1, 0),
        ):
            with pytest.raises(LaunchError):
                emulator.call(compiled, of_the_dsl, x, *map(Int32, values))
        assert used.launches == x[0] == 0
        emulator.call(compiled, of_the_dsl, x, *map(Int32, (16, 1, 16, 232448)))
    assert used.launches == x[0] == 1
