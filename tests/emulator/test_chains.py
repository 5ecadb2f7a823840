"""Reports name the kernel's line first, then the helper's, and barriers by the names that the kernel gives them."""

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
from cutlass import Int32, pipeline

from cutesync import emulator
from cutesync.emulator import ptx, source
from cutesync.emulator.settings import Settings
from cutesync.sync.ring import Ring

from .support import kernel_text, launch, reported


def take(ring, k):
    ring.wait(k)
    ring.release(k)


@cute.kernel
def one_sided(x: cute.Tensor, n: Int32):
    q = Ring.make(3, consumers=2, producer="threads")
    cute.arch.sync_threads()
    if cute.arch.warp_idx() == 0:
        for k in range(n):
            q.acquire(k)
            q.publish(k)
    else:
        for k in range(n):
            take(q, k)  # one warp takes, two are counted


@cute.jit
def run_one_sided(x: cute.Tensor, n: Int32):
    one_sided(x, n).launch(grid=(1, 1, 1), block=(64, 1, 1))


class OwnPipeline:
    @staticmethod
    def create(**how):
        parent = pipeline.PipelineAsync
        made = parent.create(**how)
        return made


@cute.kernel
def starved(x: cute.Tensor, own: cutlass.Constexpr):
    memory = cutlass.memory.SmemAllocator()
    bars = memory.allocate_array(cutlass.Int64, num_elems=4)
    group = pipeline.CooperativeGroup(pipeline.Agent.Thread, 32)
    how = {"num_stages": 2, "producer_group": group, "consumer_group": group, "barrier_storage": bars}
    loads = OwnPipeline.create(**how) if cutlass.const_expr(own) else pipeline.PipelineAsync.create(**how)
    cute.arch.sync_threads()
    state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, 2)
    loads.consumer_wait(state)
    x[0] = Int32(1)


@cute.jit
def run_starved(x: cute.Tensor, own: cutlass.Constexpr):
    starved(x, own).launch(grid=(1, 1, 1), block=(32, 1, 1))


def line(text: str) -> int:
    with open(__file__) as file:
        return next(i for i, here in enumerate(file, 1) if here.strip().startswith(text))


def test_the_kernels_line_comes_first():
    text = reported("deadlock", "", emulator.check, run_one_sided, np.zeros(4, np.int32), 9, schedules=1)
    assert "of mbarrier q.full[" in text and "of mbarrier q.empty[0] (shared byte 24" in text
    steps = line("take(q, k)"), line("ring.wait(k)")
    assert "test_chains.py:{} in one_sided, then test_chains.py:{} in take".format(*steps) in text
    assert f"test_chains.py:{line('q.acquire(k)')} in one_sided, then ring.py:" in text
    assert len(text.splitlines()) < 40


@pytest.mark.parametrize("own", (False, True), ids=("the DSL's class", "a class of one's own"))
def test_stages_of_pipelines(own):
    text = reported("deadlock", "", emulator.check, run_starved, np.zeros(4, np.int32), own, schedules=1)
    assert "of mbarrier loads.full[0] (shared byte" in text, text


def test_columns_of_other_sources_mean_nothing():
    """PTX from elsewhere has columns of its own."""
    body = ".visible .entry k()\n{\n\t.loc 1 7 1500\n\tret;\n}\n"
    module = ptx.parse(f'.version 8.8\n.target sm_90a\n.address_size 64\n.file 1 "a.py"\n{body}')
    (instr,) = module.functions["k"].code
    assert instr.loc.chain == [source.Place("a.py", 7)] and instr.where() == "a.py:7 (ret)"


INLINED = """
    .file 1 "kernel.cu"
    .file 2 "helper.cuh"
    mov.u32 %r0, %tid.x;
    .loc 1 5 3
    .loc 2 9 1, function_name $L__info_string0, inlined_at 1 5 3
    .loc 2 3 7, function_name $L__info_string1, inlined_at 2 9 1
    st.global.u32 [%a0], %r0;
    .loc 1 6 3
    ld.global.u32 %r1, [%a0+4];
    .loc 2 3 7, function_name $L__info_string1, inlined_at 1 6 3
    st.global.u32 [%a0+4], %r0;"""


def test_functions_that_a_compiler_of_cuda_has_inlined():
    """The line of the kernel comes first, then those of the functions that it calls."""
    text = reported("race", "", launch, kernel_text(INLINED, 1), np.zeros(2, np.uint32), settings=Settings("random"))
    assert "at kernel.cu:5, then helper.cuh:9, then helper.cuh:3 (st.global.u32 [%a0], %r0)" in text
    apart = INLINED.replace("[%a0], %r0", "[%a0], 0")
    text = reported("race", "", launch, kernel_text(apart, 1), np.zeros(2, np.uint32), settings=Settings("random"))
    assert "at kernel.cu:6 (ld.global" in text and "at kernel.cu:6, then helper.cuh:3 (st.global" in text
