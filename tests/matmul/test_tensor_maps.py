"""The maps and parameters that a launch packs by itself are those that the DSL's own host code would pass to the same
kernel."""

import ctypes

import numpy as np
import pytest

from cutesync.dtypes import BY_NAME
from cutesync.emulator.driver import Executable
from cutesync.emulator.tensor_map import decode
from cutesync.kernels.matmul import plan
from cutesync.kernels.matmul.plan import Operand, Problem
from cutesync.kernels.matmul.policy import MatmulPolicy
from cutesync.kernels.matmul.terms import TermsSpec
from cutesync.runtime import compiler

FLOAT16 = BY_NAME["float16"]
A, B, D = 0x7F0000100000, 0x7F0000200000, 0x7F0000300000
CONFIGS = [
    MatmulPolicy((128, 256), "cooperative", (2, 1)),
    MatmulPolicy((256, 160), "cooperative", (1, 2)),
    MatmulPolicy((128, 208), "pingpong", (2, 1)),
    MatmulPolicy((64, 112), "pingpong"),
]


def host_parameters(problem: Problem, config: MatmulPolicy) -> list[bytes]:
    """The kernel's parameters as the DSL's host function makes them."""
    import cuda.bindings.driver as driver
    import cutlass.cute as cute
    from cutlass import Int32, Int64
    from cutlass.cute.runtime import make_ptr

    majors = problem.a.k_major, problem.b.k_major
    host, example, _ = plan.kernel_spec(config, problem.elements, problem.out, majors, problem.terms).build()
    with compiler.alone():
        compiled = compiler.compile_alone(host, example)
    pointers = [
        make_ptr(kind.cutlass, at, cute.AddressSpace.gmem, assumed_align=16)
        for kind, at in ((FLOAT16, A), (FLOAT16, B), (problem.out, D))
    ]
    strides = ((problem.a.step, problem.a.batch), (problem.b.step, problem.b.batch), (problem.d[0], problem.d[2]))
    arguments = [
        *pointers,
        tuple(map(Int32, (problem.m, problem.n, problem.k, problem.items))),
        tuple((Int64(x), Int64(y)) for x, y in strides),
        *example[5:8],
        Int32(2),
    ]
    values, keep = compiled.generate_execution_args(*arguments, driver.CUstream(0))
    addresses = [ctypes.cast(value, ctypes.c_void_p) for value in (*values, ctypes.pointer(ctypes.c_int32(0)))]
    (launch,) = Executable(compiled).record((ctypes.c_void_p * len(addresses))(*addresses))
    del keep
    return [launch.parameters[p.offset : p.offset + p.size] for p in launch.program.function.params]


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("config", "majors"),
    [(CONFIGS[0], "KM"), (CONFIGS[1], "MK"), (CONFIGS[2], "KK"), (CONFIGS[3], "MM")],
    ids=lambda c: c if isinstance(c, str) else f"{c.tile[0]}x{c.tile[1]}",
)
def test_parameters_are_those_of_the_dsl(config, majors, launches):
    """``majors``: whether a and b are contiguous along K or along the other axis."""
    m, n, k, items = 1000, 520, 328, 3
    a, b = (Operand(major == "K", 1336, items, 1336 * 1336) for major in majors)
    problem = Problem(
        m,
        n,
        k,
        items,
        a,
        b,
        (0, 0, 0),
        (n + 8, 1, (n + 8) * m),
        (FLOAT16, FLOAT16),
        BY_NAME["float32" if config.tile == (64, 112) else "float16"],
        TermsSpec(),
    )
    config = config.decided(problem.out.size)
    theirs = host_parameters(problem, config)
    plan.make_launch(problem, config, (1.0, 0.0), ("a", "b", "d"), 0).run((A, B, D), 0)
    (made,) = launches
    values = zip(made.parameters.values(), made.spec.parameters, strict=True)
    ours = [value.to_bytes(p.size, "little") for value, p in values]
    for position in (0, 2, 4):
        assert decode(ours[position]) == decode(theirs[position]), f"the map of parameter {position}"
    for position in (1, 3, 5):
        got, wanted = (np.frombuffer(side[position], np.int32).tolist() for side in (ours, theirs))
        assert got == wanted, f"the extents of parameter {position}"
    assert len(ours) == len(theirs)
