"""CuTe's own layouts, read through the DSL on the CPU: an oracle that shares no code with the emulator."""

import re

import cutlass
import cutlass.cute as cute
import numpy as np
from cutlass.cute.nvgpu import OperandMajorMode, warp, warpgroup

MAJORS = {"K": OperandMajorMode.K, "MN": OperandMajorMode.MN}


def evaluate(shape, stride, index: np.ndarray) -> np.ndarray:
    """A CuTe layout (nested shape and stride) at linear indexes, first mode fastest."""
    if isinstance(shape, int):
        return index * stride
    total = 0
    for part, step in zip(shape, stride, strict=True):
        size = int(np.prod(np.array(flatten(part))))
        total = total + evaluate(part, step, index % size)
        index = index // size
    return total


def flatten(shape) -> list[int]:
    return [shape] if isinstance(shape, int) else [x for part in shape for x in flatten(part)]


def thread_values(layout, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """A thread-value layout over a column-major tile -> (row, column) of every (value, thread)."""
    (threads, values), (thread_stride, value_stride) = layout
    count = [int(np.prod(np.array(flatten(s)))) for s in (threads, values)]
    index = (
        evaluate(threads, thread_stride, np.arange(count[0]))
        + evaluate(values, value_stride, np.arange(count[1]))[:, None]
    )
    return index % rows, index // rows


def mma_layouts(make_op) -> dict[str, tuple]:
    """Thread-value layouts "A", "B", "C" of the atom that ``make_op()`` builds, as ((shape), (stride))."""
    found = {}

    @cute.jit
    def look():
        tiled = cute.make_tiled_mma(make_op())
        for name in "ABC":
            layout = getattr(tiled, f"tv_layout_{name}")
            found[name] = (layout.shape, layout.stride)

    look()
    return found


def warp_mma(ab: str, shape: tuple[int, int, int]):
    return lambda: warp.MmaF16BF16Op(getattr(cutlass, ab), cutlass.Float32, shape)


def warpgroup_mma(n: int, acc: str = "Float32"):
    def make():
        source = warpgroup.OperandSource.RMEM
        return warpgroup.MmaF16BF16Op(
            cutlass.Float16, getattr(cutlass, acc), (64, n, 16), source, MAJORS["K"], MAJORS["K"]
        )

    return make


# --- descriptors ------------------------------------------------------------------------------------------------------

DEFINITION = re.compile(r"(?:or\.b64|add\.s64)\s+(%rd\d+), %rd\d+, (-?\d+);")
USE = re.compile(
    r"(wgmma\.mma_async\.[\w.]+) \{[^}]*\}, (%rd\d+), (%rd\d+), p(?:, *(-?\d+), *(-?\d+)(?:, *(\d), *(\d))?)?;"
)


def _kernel(dtype_name: str, n: int, block_k: int, kinds: tuple[str, str], order: tuple[int, int], op):
    dtype = getattr(cutlass, dtype_name)
    kind_a, kind_b = (getattr(warpgroup.SmemLayoutAtomKind, k) for k in kinds)
    k_atom = 256 // dtype.width
    layouts = {}

    @cute.kernel
    def one_wgmma(out: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        smem = cutlass.memory.SmemAllocator()
        layout_a = cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind_a, dtype), (64, block_k), order)
        layout_b = cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind_b, dtype), (n, block_k), order)
        layouts["a"] = (layout_a.outer.shape, layout_a.outer.stride)
        layouts["b"] = (layout_b.outer.shape, layout_b.outer.stride)
        shared_a = smem.allocate_tensor(dtype, layout_a.outer, byte_alignment=1024, swizzle=layout_a.inner)
        shared_b = smem.allocate_tensor(dtype, layout_b.outer, byte_alignment=1024, swizzle=layout_b.inner)
        mma = cute.make_tiled_mma(op)
        mine = mma.get_slice(thread)
        a, b = mma.make_fragment_A(mine.partition_A(shared_a)), mma.make_fragment_B(mine.partition_B(shared_b))
        result = mine.partition_C(out)
        total = cute.make_rmem_tensor(result.shape, out.element_type)
        total.fill(0)
        warpgroup.fence()
        for k in cutlass.range_constexpr(block_k // k_atom):
            cute.gemm(mma, total, a[None, None, k], b[None, None, k], total)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        cute.autovec_copy(total, result)

    @cute.jit
    def host(pointer: cute.Pointer):
        one_wgmma(cute.make_tensor(pointer, cute.make_layout((64, n), stride=(n, 1)))).launch(
            grid=(1, 1, 1), block=(128, 1, 1)
        )

    return host, layouts


def compiled_descriptors(
    dtype: str, n: int, block_k: int, kinds: tuple[str, str], order: tuple[int, int], folder
) -> tuple[list, dict, int]:
    """Compile a kernel of one k-block and read from its PTX what the DSL hands to the tensor core.

    Returns [(opcode, descriptor a, descriptor b, immediates)] with both matrices based at shared address 0 and
    ``b_base``, the affine layouts of "a" and "b" in elements, and ``b_base``.
    """
    element = getattr(cutlass, dtype)
    majors = [MAJORS["K" if kind.startswith("K") else "MN"] for kind in kinds]
    source = warpgroup.OperandSource.SMEM

    def op():
        if element.width == 16:
            return warpgroup.MmaF16BF16Op(element, cutlass.Float32, (64, n, 16), source, *majors)
        if element in (cutlass.Int8, cutlass.Uint8):
            return warpgroup.MmaI8Op(element, element, cutlass.Int32, (64, n, 32), source, *majors)
        return warpgroup.MmaF8Op(element, element, cutlass.Float32, (64, n, 32), source, *majors)

    sums = cutlass.Int32 if element in (cutlass.Int8, cutlass.Uint8) else cutlass.Float32
    host, layouts = _kernel(dtype, n, block_k, kinds, order, op())
    pointer = cute.runtime.make_ptr(sums, 0x1000, cute.AddressSpace.gmem, assumed_align=16)
    ptx = cute.compile(host, pointer, options=f"--keep-ptx --dump-dir={folder}").__ptx__
    constants = {name: int(value) % 2**64 for name, value in DEFINITION.findall(ptx)}
    b_base = 64 * block_k * element.width // 8
    uses = []
    for opcode, a, b, *immediates in USE.findall(ptx):
        uses.append((opcode, constants[a], constants[b] + (b_base >> 4), tuple(int(i) for i in immediates if i)))
    return uses, layouts, b_base
