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
    "wmma (mma and wgmma run)": (
        "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%a0];",
    ),
    "multicast memory of several GPUs": (
        "multimem.ld_reduce.relaxed.sys.global.add.f32 %r1, [%a0];",
        "multimem.st.relaxed.sys.global.f32 [%a0], %r1;",
        "multimem.red.relaxed.sys.global.add.f32 [%a0], %r1;",
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
    "video instructions": (
        "vadd.s32.s32.s32 %r1, %r2, %r3;",
        "vadd2.s32.s32.s32 %r1, %r2, %r3, %r4;",
        "vadd4.s32.s32.s32 %r1, %r2, %r3, %r4;",
        "vmad.s32.s32.s32 %r1, %r2, %r3, %r4;",
        "vset.s32.s32.eq %r1, %r2, %r3;",
    ),
}
FORMS = [text for texts in REFUSED.values() for text in texts]
RECURSION = ".func again(.reg .b32 x)\n{\n\tcall again, (x);\n\tret;\n}\n"


def page() -> str:
    run = ", ".join(f"`{'.'.join(parts)}`" for parts in sorted(registry._HANDLERS))
    rows = [f"| {what} | {', '.join(f'`{text.split()[0]}`' for text in texts)} |" for what, texts in REFUSED.items()]
    rows += ["| recursive functions | `call` |"]
    return "\n".join([HEAD + run, "", "## Refused", "", "| what | instructions |", "|---|---|", *rows, ""])


def test_the_page_is_true():
    assert PAGE.read_text() == page(), "write it anew: python -m tests.emulator.test_instructions"


@pytest.mark.parametrize("text", FORMS, ids=lambda text: text.split()[0])
def test_refused_by_name(text):
    with pytest.raises(CutesyncError, match=text.split()[0].split(".")[0]):
        launch(kernel_text("\t" + text, 1, shared=16), np.zeros(4, np.uint32))


def test_recursion_is_refused():
    text = kernel_text("\tcall again, (%r1);", 1)
    header, _, entry = text.partition(".visible")
    with pytest.raises(CutesyncError, match="recursive call of again"):
        launch(f"{header}{RECURSION}.visible{entry}", np.zeros(4, np.uint32))


if __name__ == "__main__":
    PAGE.write_text(page())
