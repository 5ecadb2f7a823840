"""Each kernel with one planted fault is reported, as the right kind of fault, at the right line of Python."""

import re
from pathlib import Path

import numpy as np
import pytest

from cutesync import emulator
from cutesync.emulator import POLICIES

from ..compiled import check
from . import (
    kernels_basic as basic,
    kernels_cluster as cluster,
    kernels_epilogue as epilogue,
    kernels_matmul as matmul,
    kernels_pipeline as pipeline,
)

SCHEDULES = 3 * len(POLICIES)


def i32(*shape):
    return np.zeros(shape, np.int32)


def f32(*shape):
    return np.zeros(shape, np.float32)


def look_back(ticketed, acquire, release, scope):
    return basic.look_back, (i32(640), i32(640), i32(20), i32(20), i32(1), 640, ticketed, acquire, release, scope)


def ring(fault):
    return pipeline.stream_tiles, (f32(7 * 8, 32), f32(7 * 8, 32), 7, fault)


OPERANDS = np.ones((256, 128), np.float16), np.ones((64, 128), np.float16), np.zeros((256, 64), np.float16)

# name -> (host function, arguments), kinds of report that are right, a word the report must hold
FAULTS = {
    "block barrier left out": (
        (basic.reduce, (f32(500), f32(2), 500, False, 2)),
        {"race", "uninitialised"},
        "partial[w]",
    ),
    "ticket relaxed instead of acq_rel": (
        (basic.last_block, (i32(500), i32(6), i32(1), i32(1), 500, "relaxed", "gpu", 6)),
        {"race"},
        "unordered",
    ),
    "ticket at block scope": (
        (basic.last_block, (i32(500), i32(6), i32(1), i32(1), 500, "acq_rel", "cta", 6)),
        {"race"},
        "atom.global.cta",
    ),
    "flag read relaxed": (look_back(True, "relaxed", "release", "gpu"), {"race"}, "unordered"),
    "flag read weak": (look_back(True, None, "release", "gpu"), {"race", "livelock"}, ""),
    "flag written relaxed": (look_back(True, "acquire", "relaxed", "gpu"), {"race"}, "unordered"),
    "flag at block scope": (look_back(True, "acquire", "release", "cta"), {"race"}, "ld.acquire.cta"),
    "tile number from blockIdx": (look_back(False, "acquire", "release", "gpu"), {"deadlock"}, "polls"),
    "named barriers share a number": ((basic.named, (i32(32), 1, 1, 1, 64)), {"deadlock", "race", "barrier"}, ""),
    "named barrier count too large": ((basic.named, (i32(32), 1, 1, 2, 96)), {"barrier"}, "named barrier 1"),
    "waits on a named barrier nobody fills": ((basic.named, (i32(32), 3, 1, 2, 64)), {"deadlock"}, "named barrier 3"),
    "sync_warp left out": ((basic.exchange, (i32(32), False)), {"race"}, "lane 31"),
    "shared memory read before it is written": ((basic.uninitialised, (i32(32),)), {"uninitialised"}, "lane 31"),
    "past the end of an array": ((basic.unguarded, (f32(100), f32(100), 100)), {"out-of-bounds"}, "past the end"),
    "expect_tx too small": (ring("bytes"), {"deadlock", "race", "barrier"}, "bytes outstanding"),
    "empty barrier counts one too many": (ring("count_up"), {"deadlock"}, "of 3"),
    "empty barrier counts one too few": (ring("count_down"), {"deadlock", "race", "barrier"}, ""),
    "no fence or barrier after init": (ring("no_init_sync"), {"barrier"}, "initialis"),
    "producer starts in the consumer's phase": (ring("phase"), {"deadlock"}, "parity"),
    "consumer does not wait": (ring("no_wait"), {"race", "uninitialised"}, ""),
    "stage released before it is read": (ring("early_release"), {"race"}, "cp.async.bulk.tensor"),
    "stage never released": (ring("no_release"), {"deadlock"}, "parity"),
    "stage released for a warp by one lane": (ring("no_sync_warp"), {"race"}, "cp.async.bulk.tensor"),
    "stage released without a proxy fence": (ring("no_fence"), {"proxy-read"}, "fence.proxy.async"),
    "stage of a cluster released without a proxy fence": (
        (cluster.multicast, (f32(80, 32), f32(2, 80, 32), "no_fence")),
        {"proxy-read"},
        "ld.shared",
    ),
    "stage released twice": (ring("double_release"), {"deadlock", "race", "barrier"}, ""),
    "listener overrun by two phases": (
        (pipeline.take_turns, (i32(1), 6, "not answered")),
        {"barrier"},
        "may mean phase",
    ),
    "phases left out on no ground": ((pipeline.take_turns, (i32(1), 6, "no barrier")), {"barrier"}, "may mean phase"),
    "stage released before wgmma has read it": (
        (
            matmul.matmul,
            (np.ones((64, 256), np.float16), np.ones((64, 256), np.float16), f32(64, 64), 256, "release_before_wait"),
        ),
        {"race"},
        "wgmma",
    ),
    "no proxy fence before a tensor store": (
        (epilogue.matmul, (*OPERANDS, 128, "no_proxy_fence")),
        {"proxy"},
        "fence.proxy.async",
    ),
    "no barrier before a tensor store": ((epilogue.matmul, (*OPERANDS, 128, "no_named_barrier")), {"race"}, "stmatrix"),
    "peer read before the cluster barrier": (
        (cluster.read_peer, (i32(256), "no_first_barrier", 8)),
        {"race", "uninitialised"},
        "shared::cluster",
    ),
    "block exits while a peer reads it": (
        (cluster.read_peer, (i32(256), "no_last_barrier", 8)),
        {"out-of-bounds"},
        "has exited",
    ),
    "mbarrier not fenced before a peer's store": ((cluster.gather, (i32(8), "no_init_fence", 8)), {"barrier"}, "fence"),
    "cluster barrier left out after init": ((cluster.gather, (i32(8), "no_cluster_sync", 8)), {"barrier"}, ""),
    "expect_tx too large": ((cluster.gather, (i32(8), "bytes", 8)), {"deadlock"}, "4 bytes outstanding"),
    "asynchronous store not waited for": ((cluster.gather, (i32(8), "no_wait", 8)), {"race", "uninitialised"}, ""),
    "remote arrival at block scope": ((cluster.hand_over, (i32(32), "cta_scope")), {"race"}, "shared::cluster"),
    "producer's tail left out in a cluster": (
        (cluster.multicast, (f32(80, 32), f32(2, 80, 32), "no_tail")),
        {"barrier", "out-of-bounds"},
        "exited",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found(name):
    (function, arguments), kinds, word = FAULTS[name]
    arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    with pytest.raises(emulator.EmulationError) as found:
        check(function, *arguments, schedules=SCHEDULES)
    text = str(found.value)
    assert found.value.kind in kinds, text
    assert word in source_lines(text), text
    assert (
        re.search(r"(kernels_\w+|hosts)\.py:\d+", text) and "seed=" in text
    )  # the DSL puts atomics where the launch is


def source_lines(text: str) -> str:
    """The report and the Python lines it names."""
    out = [text]
    for path, line in re.findall(r"(\S+\.py):(\d+)", text):
        out.append(Path(path).read_text().split("\n")[int(line) - 1])
    return "\n".join(out)
