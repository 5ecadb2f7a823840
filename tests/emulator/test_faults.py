"""Each kernel with one planted fault is reported, as the right kind of fault, at the right line of Python."""

import re
from pathlib import Path

import numpy as np
import pytest
from cutlass import cute, pipeline

from cutesync import emulator

from ..faults import instead, without
from . import kernels_basic as basic, kernels_cluster as cluster, kernels_pipeline as ring
from .cases import KERNELS, SIZES, i32
from .support import reported

SCHEDULES = 3 * len(emulator.POLICIES)
DEVICE, CLASS = "cutlass.cute:arch.", "cutlass.pipeline:PipelineTmaAsync."
MEET, RING = f"{cluster.__name__}:meet", ring.__name__
wait, release = pipeline.PipelineTmaAsync.consumer_wait, pipeline.PipelineTmaAsync.consumer_release
state = pipeline.make_pipeline_state


def look_back(ticketed, acquire, release, scope):
    return basic.look_back, (i32(640), i32(640), i32(20), i32(20), i32(1), 640, ticketed, acquire, release, scope)


def named(*numbers: int) -> tuple:
    return basic.named, (i32(32), *numbers)


def last_block(sem: str, scope: str) -> tuple:
    return basic.last_block, (i32(500), i32(6), i32(1), i32(1), 500, sem, scope, 6)


def twice(*arguments) -> None:
    release(*arguments)
    release(*arguments)


def released_at_once(*arguments) -> None:
    wait(*arguments)
    cute.arch.sync_warp()
    release(*arguments)


NO_FENCE, NO_TAIL = without(DEVICE + "fence_proxy"), without(CLASS + "producer_tail")
STREAM, TURNS, CAST = KERNELS["stream_tiles"], KERNELS["take_turns"], KERNELS["multicast"]
READ_PEER, GATHER = SIZES["read_peer of 2 clusters"], SIZES["gather of 2 clusters"]
CLUSTERED = SIZES["matmul of a cluster with its epilogue"]
# name -> kernel, kinds of report that are right, a word the report or a line that it names must hold, what is planted
FAULTS = {
    "block barrier left out": (
        SIZES["reduce by 4 blocks"],
        "race uninitialised",
        "partial[w]",
        without(DEVICE + "barrier"),
    ),
    "ticket relaxed instead of acq_rel": (last_block("relaxed", "gpu"), "race", "unordered"),
    "ticket at block scope": (last_block("acq_rel", "cta"), "race", "atom.global.cta"),
    "flag read relaxed": (look_back(True, "relaxed", "release", "gpu"), "race", "unordered"),
    "flag read weak": (look_back(True, None, "release", "gpu"), "race livelock", ""),
    "flag written relaxed": (look_back(True, "acquire", "relaxed", "gpu"), "race", "unordered"),
    "flag at block scope": (look_back(True, "acquire", "release", "cta"), "race", "ld.acquire.cta"),
    "tile number from blockIdx": (look_back(False, "acquire", "release", "gpu"), "deadlock", "polls"),
    "named barriers share a number": (named(1, 1, 1, 64), "deadlock race barrier", ""),
    "named barrier count too large": (named(1, 1, 2, 96), "barrier", "named barrier 1"),
    "waits on a named barrier nobody fills": (named(3, 1, 2, 64), "deadlock", "named barrier 3"),
    "sync_warp left out": (KERNELS["exchange"], "race", "both are lanes of one warp", without(DEVICE + "sync_warp")),
    "shared memory read before it is written": ((basic.uninitialised, (i32(32),)), "uninitialised", "lane 31"),
    "past the end of an array": (
        (basic.unguarded, (np.zeros(100, np.float32), np.zeros(100, np.float32), 100)),
        "out-of-bounds",
        "past the end",
    ),
    "expect_tx too small": (
        STREAM,
        "transaction",
        "bytes",
        instead(f"{RING}:TILE_BYTES", ring.TILE_BYTES - 16),
    ),
    "empty barrier counts one too many": (STREAM, "deadlock", "lacks 1 of 3 arrivals", instead(f"{RING}:ARRIVALS", 3)),
    "empty barrier counts one too few": (STREAM, "deadlock race barrier", "", instead(f"{RING}:ARRIVALS", 1)),
    "no fence or barrier after init": (
        STREAM,
        "barrier",
        "initialis",
        without(DEVICE + "mbarrier_init_fence"),
        without(DEVICE + "sync_threads"),
    ),
    "producer starts in the consumer's phase": (
        STREAM,
        "deadlock",
        "that wait is for parity 1",
        instead(
            "cutlass.pipeline:make_pipeline_state", lambda _, stages: state(pipeline.PipelineUserType.Consumer, stages)
        ),
    ),
    "consumer does not wait": (STREAM, "race uninitialised barrier", "", without(CLASS + "consumer_wait")),
    "stage released before it is read": (
        STREAM,
        "race",
        "cp.async.bulk.tensor",
        instead(CLASS + "consumer_wait", released_at_once),
        without(CLASS + "consumer_release"),
    ),
    "stage never released": (
        STREAM,
        "deadlock",
        "and not arrived at mbarrier ring.empty[0] since; it went on to",
        without(CLASS + "consumer_release"),
    ),
    "stage released for a warp by one lane": (
        STREAM,
        "race",
        "only lane 0 is known to be past its access",
        without(DEVICE + "sync_warp"),
    ),
    "stage released without a proxy fence": (
        STREAM,
        "proxy-read",
        "fence.proxy.async",
        NO_FENCE,
    ),
    "stage of a cluster released without a fence": (
        CAST,
        "proxy-read",
        "ld.shared",
        NO_FENCE,
    ),
    "stage released twice": (STREAM, "deadlock race barrier", "", instead(CLASS + "consumer_release", twice)),
    "listener overrun by two phases": (
        TURNS,
        "barrier",
        "may mean phase",
        without(DEVICE + "mbarrier_wait", 0),
        without(DEVICE + "mbarrier_arrive", 1),
    ),
    "phases left out on no ground": (TURNS, "barrier", "may mean phase", without(DEVICE + "barrier", 1)),
    "stage released before wgmma has read it": (
        KERNELS["matmul"],
        "race",
        "hint: wgmma.wait_group must come before",
        without("cutlass.cute.nvgpu:warpgroup.wait_group", 0),
    ),
    "no proxy fence before a tensor store": (CLUSTERED, "proxy", "fence.proxy.async", NO_FENCE),
    "no barrier before a tensor store": (CLUSTERED, "race", "stmatrix", without(DEVICE + "barrier")),
    "peer read before the cluster barrier": (READ_PEER, "barrier", "not known to have started", without(MEET, 0)),
    "block exits while a peer reads it": (READ_PEER, "out-of-bounds", "has exited", without(MEET, 1)),
    "mbarrier not fenced before a peer's store": (GATHER, "barrier", "fence", without(DEVICE + "mbarrier_init_fence")),
    "cluster barrier left out after init": (GATHER, "barrier", "", without(MEET, 0)),
    "expect_tx too large": (
        GATHER,
        "transaction",
        "4 bytes that no copy brings",
        instead(f"{cluster.__name__}:GATHERED", 20),
    ),
    "asynchronous store not waited for": (GATHER, "race uninitialised", "", without(DEVICE + "mbarrier_wait")),
    "remote arrival at block scope": ((cluster.hand_over, (i32(32), "cta")), "race", "relaxed or at block scope"),
    "producer's tail left out in a cluster": (
        CAST,
        "barrier out-of-bounds",
        "exited",
        without(CLASS + "producer_tail"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found(name, monkeypatch):
    (function, arguments, *_), kinds, word, *plants = FAULTS[name]
    for plant in plants:
        plant(monkeypatch)
    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    text = reported(kinds, "", emulator.check, function, *arguments, schedules=SCHEDULES)
    assert word in source_lines(text), text
    # the DSL gives an atomic the line of its launch, and a call that ``without`` passes on the line there
    assert re.search(r"(kernels_\w+|hosts|faults)\.py:\d+", text) and "seed=" in text


ROOT = Path(__file__).parents[2]


def source_lines(text: str) -> str:
    """The report and the Python lines it names."""
    out = [text]
    for path, line in re.findall(r"(\S+\.py):(\d+)", text):
        file = Path(path)  # of a helper the name alone is shown
        if not file.exists():
            file = next(p for folder in ("tests", "cutesync/sync") for p in (ROOT / folder).rglob(path))
        out.append(file.read_text().split("\n")[int(line) - 1])
    return "\n".join(out)
