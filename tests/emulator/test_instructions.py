"""The page of instructions (``cutesync/emulator/INSTRUCTIONS.md``): what runs, and what is refused by name."""

from pathlib import Path

import numpy as np
import pytest

import cutesync
from cutesync.emulator.instructions import registry
from cutesync.errors import CutesyncError

from .support import kernel_text, launch

PAGE = Path(cutesync.__file__).parent / "emulator" / "INSTRUCTIONS.md"
HEAD = """# PTX instructions of sm_90a

Made by `tests/emulator/test_instructions.py`, which keeps it true. An instruction that is not run, or a form of one, is
refused by name and line before the kernel starts (kind `unsupported`).

## Run

By the first words of the opcode. Hints (`prefetch`, `createpolicy`, `applypriority`, `discard`) have no effect.

"""
VIDEO = "add", "sub", "avrg", "absdiff", "min", "max"
REFUSED = {
    "bulk copies that ignore bytes out of bounds": (
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.ignore_oob [%r1], [%a0], 16, 0, 0, [%r1];",
    ),
    "bulk copies with a byte mask": ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%a0], [%r1], 16, %rs1;",),
    "sparse wgmma": (
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f16.f16.f16 {%r1, %r2}, %rd1, %rd2, %r3, 0, 1, 1, 1, 0, 0;",
    ),
    "sparse mma": (
        "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2}, {%r1, %r2}, {%r1, %r2}, %r3, 0;",
    ),
    "wmma of less than 8 bits": (
        "wmma.load.a.sync.aligned.row.m8n8k32.global.u4 {%r1}, [%a0];",
        "wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r1, %r2}, {%r1}, {%r1}, {%r1, %r2};",
    ),
    "multicast memory of several GPUs": (
        "multimem.ld_reduce.relaxed.sys.global.add.f32 %r1, [%a0];",
        "multimem.st.relaxed.sys.global.f32 [%a0], %r1;",
        "multimem.red.relaxed.sys.global.add.f32 [%a0], %r1;",
        "multimem.cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 16;",
        "multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a0], [%r1], 16;",
    ),
    "textures and surfaces": (
        "tex.2d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [%a0, {%r1, %r2}];",
        "tld4.r.2d.v4.f32.f32 {%r1, %r2, %r3, %r4}, [%a0, {%r1, %r2}];",
        "txq.width.b32 %r1, [%a0];",
        "suld.b.1d.b32.trap %r1, [%a0, {%r1}];",
        "sust.b.1d.b32.trap [%a0, {%r1}], %r2;",
        "sured.b.add.1d.u32.trap [%a0, {%r1}], %r2;",
        "suq.width.b32 %r1, [%a0];",
        "istypep.texref %p1, %rd1;",
    ),
    "a stack that grows while the kernel runs": (
        "alloca.u64 %rd1, 16;",
        "stacksave.u64 %rd1;",
        "stackrestore.u64 %rd1;",
    ),
    "a shape of sm_70, which later GPUs do slowly": (
        "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r1, %r2}, "
        "{%r1, %r2, %r3, %r4};",
    ),
    "sums with NaNs of tiles out of bounds": ("fma.rn.oob.f16x2 %r1, %r2, %r3, %r4;",),
    "special registers": tuple(f"mov.u32 %r1, %{name};" for name in ("pm0", "envreg0")),
    "video instructions": (
        *(f"v{verb}.s32.s32.s32 %r1, %r2, %r3;" for verb in ("add", "sub", "absdiff", "min", "max")),
        *(f"v{verb}.s32.u32.u32.clamp %r1, %r2, %r3;" for verb in ("shl", "shr")),
        *(f"v{verb}{n}.s32.s32.s32 %r1, %r2, %r3, %r4;" for n in (2, 4) for verb in VIDEO),
        "vmad.s32.s32.s32 %r1, %r2, %r3, %r4;",
        "vset.s32.s32.eq %r1, %r2, %r3;",
        *(f"vset{n}.s32.s32.eq %r1, %r2, %r3, %r4;" for n in (2, 4)),
    ),
}
# the instructions of PTX ISA 9.0 for sm_90a, by the first word, in the order of its chapters
ISA = """
add sub mul mad mul24 mad24 sad div rem abs neg min max popc clz bfind fns brev bfe bfi szext bmsk dp4a dp2a
addc subc madc testp copysign fma rcp sqrt rsqrt sin cos lg2 ex2 tanh set setp selp slct
and or xor not cnot lop3 shf shl shr mov shfl prmt ld ldu st multimem prefetch applypriority discard createpolicy
prefetchu isspacep cvta cvt mapa getctarank cp tensormap tex tld4 txq istypep suld sust sured suq
bra brx call ret exit bar barrier membar fence atom red vote match activemask redux griddepcontrol elect mbarrier
wmma mma ldmatrix stmatrix movmatrix wgmma stacksave stackrestore alloca
vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2
vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4 brkpt nanosleep pmevent trap setmaxnreg
"""
FORMS = [text for texts in REFUSED.values() for text in texts]
RECURSION = ".func again(.reg .b32 x)\n{\n\tcall again, (x);\n\tret;\n}\n"


def named(text: str) -> str:
    """What a report names: the opcode, or a special register."""
    return text.rstrip(";").split()[-1] if text.startswith("mov") else text.split()[0]


def page() -> str:
    run = ", ".join(f"`{'.'.join(parts)}`" for parts in sorted(registry._HANDLERS))
    rows = [f"| {what} | {', '.join(f'`{named(text)}`' for text in texts)} |" for what, texts in REFUSED.items()]
    rows += ["| recursive functions | `call` |"]
    return "\n".join([HEAD + run, "", "## Refused", "", "| what | instructions |", "|---|---|", *rows, ""])


def test_every_instruction_is_run_or_refused():
    run, refused = {parts[0] for parts in registry._HANDLERS}, {text.split()[0].split(".")[0] for text in FORMS}
    assert run - {"pragma"} | refused == set(ISA.split())


def test_the_page_is_true():
    assert PAGE.read_text() == page(), "write it anew: python -m tests.emulator.test_instructions"


@pytest.mark.parametrize("text", FORMS, ids=named)
def test_refused_by_name(text):
    with pytest.raises(CutesyncError, match=named(text).split(".")[0]):
        launch(kernel_text("\t" + text, 1, shared=16), np.zeros(4, np.uint32))


def test_recursion_is_refused():
    text = kernel_text("\tcall again, (%r1);", 1)
    header, _, entry = text.partition(".visible")
    with pytest.raises(CutesyncError, match="recursive call of again"):
        launch(f"{header}{RECURSION}.visible{entry}", np.zeros(4, np.uint32))


if __name__ == "__main__":
    PAGE.write_text(page())
