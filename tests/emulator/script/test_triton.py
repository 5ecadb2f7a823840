"""Triton's launches: how they reach the emulator, with kernels as its compiler describes them."""

import struct
from types import SimpleNamespace

import pytest

from cutesync.emulator.script import triton_driver
from cutesync.emulator.tensor_map import decode
from cutesync.errors import LaunchError

from ..support import kernel_text

SIGNATURE = {"x": "*fp32", "pair": ("tensordesc<fp16[16,64]>", "i32"), "BLOCK": "constexpr", "scale": "fp32"}
BODY = "\tmov.u32 %r1, smem;\n\t@%p1 mbarrier.init.shared.b64 [%r1], 1;\n"


def compiled(parameters: str, signature: dict, body: str = BODY, **metadata) -> SimpleNamespace:
    """A kernel as Triton's compiler leaves it."""
    text = kernel_text(body, 0, shared=64)
    head, rest = text.split("(", 1)
    given = {"shared": 100_000, "num_ctas": 1, "num_warps": 4, **metadata}
    return SimpleNamespace(
        name=head.split()[-1],
        asm={"ptx": f"{head}({parameters}{rest[rest.index(')') :]}"},
        src=SimpleNamespace(signature=signature),
        metadata=SimpleNamespace(**given),
        module=None,
    )


def run(kernel, *arguments, grid=(3, 2, 1)):
    """The launches of a kernel, and the notes."""
    launches, notes = [], []

    def launched(launch, copies):
        assert copies
        launches.append(launch)

    triton_driver.load(kernel, SimpleNamespace(launch=launched, note=notes.append))
    kernel._run(*grid, 0, kernel.function, None, None, None, None, *arguments)
    return launches, notes


def test_arguments_are_those_of_the_kernel():
    """Constants are left out, tuples are flattened, descriptors become tensor maps with sizes and strides behind."""
    tensor = SimpleNamespace(data_ptr=lambda: 0x7000)
    described = SimpleNamespace(base=tensor, shape=[40, 128], strides=[128, 1], padding="zero")
    how = {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [16, 64], "fp4_padded": False}
    sizes = ".param .u32 s0, .param .u32 s1, .param .u64 t0, .param .u64 t1"
    parameters = f".param .u64 x, .param .align 64 .b8 m[128], {sizes}, .param .u32 n, .param .f32 f, .param .u64 g"
    kernel = compiled(parameters, SIGNATURE, tensordesc_meta=[how], global_scratch_size=0, num_ctas=2)
    (launch,), notes = run(kernel, SimpleNamespace(data_ptr=lambda: 0x9000), (described, -7), 64, 2.5)
    assert launch.grid == (6, 2, 1) and launch.block == (128, 1, 1) and launch.shared_bytes == 100_000
    places = {p.name: launch.parameters[p.offset : p.offset + p.size] for p in launch.program.function.params}
    made = decode(places["m"])
    assert (made.element, made.address, made.extents, made.strides) == ("f16", 0x7000, (128, 40), (256,))
    assert (made.box, made.swizzle) == ((64, 16), 128)
    numbers = [int.from_bytes(places[name], "little", signed=True) for name in ("x", "s0", "s1", "t0", "t1", "n", "g")]
    assert numbers == [0x9000, 40, 128, 128, 1, -7, 0] and struct.unpack("<f", places["f"]) == (2.5,)
    assert notes == [f"{kernel.name}: Triton puts no fence.mbarrier_init behind mbarrier.init; checked as if it did"]
    codes = [(instr.parts[0], instr.pred and instr.pred.name) for instr in launch.program.function.code]
    assert codes[codes.index(("mbarrier", "%p1")) + 1] == ("fence", "%p1")


def test_fences_that_are_there_are_left():
    kernel = compiled(".param .u64 x", {"x": "*i8"}, BODY + "\tfence.mbarrier_init.release.cluster;\n")
    (launch,), notes = run(kernel, None)
    assert not notes and [i.parts[0] for i in launch.program.function.code].count("fence") == 1
    assert run(kernel, None, grid=(0, 1, 1)) == ([], [])


def test_another_count_of_parameters_is_refused():
    with pytest.raises(LaunchError, match="parameters"):
        run(compiled(".param .u32 x, .param .u32 y", {"x": "i32", "y": "i32", "z": "i1"}), 1, 2, True)
