"""The kernels: scripts of the other projects, and small ones that call their functions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_EXAMPLES = "cutlass/examples/python/CuTeDSL/cute"

_QUACK_GEMM = """
import torch
from quack.gemm_interface import gemm
torch.manual_seed(0)
a = torch.randn(768, 256, device="cuda", dtype=torch.bfloat16)
b = torch.randn(256, 768, device="cuda", dtype=torch.bfloat16)
torch.testing.assert_close(gemm(a, b, tuned=False).float(), a.float() @ b.float(), atol=0.5, rtol=2e-2)
"""
_QUACK_NORM = """
import torch
from quack.rmsnorm import rmsnorm_fwd
x, w = torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16), torch.randn(1024, device="cuda")
rmsnorm_fwd(x, w)
"""
_QUACK_SOFTMAX = """
import torch
from quack.softmax import softmax_fwd
x = torch.randn(8, 2048, device="cuda", dtype=torch.bfloat16)
softmax_fwd(x)
"""
_QUACK_SYMMETRIC = """
import torch
from quack.gemm_interface import gemm_symmetric
torch.manual_seed(0)
a = torch.randn(1, 512, 512, device="cuda", dtype=torch.bfloat16)
gemm_symmetric(a, a.mT)
"""
_ATTENTION = """
import pathlib, sys, types, torch
package = types.ModuleType("flash_attn")  # its own __init__ loads the extension in C++
package.__path__ = [f"{p}/flash_attn" for p in sys.path if pathlib.Path(p, "flash_attn", "cute").is_dir()]
sys.modules["flash_attn"] = package
from flash_attn.cute.interface import flash_attn_func
q, k, v = (torch.randn(1, 640, 1, 64, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3))
out, *_ = flash_attn_func(q, k, v, causal=CAUSAL)
BACKWARD
"""
_LENGTHS = """
from flash_attn.cute.interface import flash_attn_varlen_func
q, k, v = (torch.randn(700, heads, 64, device="cuda", dtype=torch.bfloat16) for heads in (2, 1, 1))
starts = torch.tensor([0, 100, 700], device="cuda", dtype=torch.int32)
flash_attn_varlen_func(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=600, causal=True)
"""


@dataclass(frozen=True)
class Outside:
    """A kernel of a project: a script in its checkout with arguments, or the text of one. ``kernel``: in its name."""

    project: str
    script: str
    arguments: str = ""
    text: str = ""
    kernel: str = ""
    repair: tuple[str, str] = ("", "")  # of what the script itself does wrong: a text, and what comes before it

    def file(self, folder: Path, scratch: Path) -> Path:
        """The script to run: that of the checkout, or a copy in the scratch folder."""
        if not self.text and not self.repair[0]:
            return folder / _EXAMPLES / self.script
        path = scratch / Path(self.script).name
        text, (place, before) = self.text or (folder / _EXAMPLES / self.script).read_text(), self.repair
        if place:
            assert text.count(place) == 1, f"{self.script} has changed"
            text = text.replace(place, before + place)
        path.write_text(text)
        return path


def _attention(name: str, causal: bool, backward: bool, kernel: str) -> Outside:
    text = _ATTENTION.replace("CAUSAL", str(causal)).replace("BACKWARD", "out.sum().backward()" if backward else "")
    return Outside("flash-attention", name, text=text, kernel=kernel)


_FMHA_END = "math_wg_order_barrier.arrive()\n\n                tile_sched"  # blocks exit while their stores read
_ONCE = "--iterations 1 --warmup_iterations 0"
KERNELS = [
    Outside(
        "cutlass", "hopper/kernel/dense_gemm/dense_gemm.py", f"--mnkl 256,256,768,1 --tile_shape_mn 128,256 {_ONCE}"
    ),
    Outside("cutlass", "hopper/kernel/dense_gemm/dense_gemm_persistent.py", f"--mnkl 256,512,256,1 {_ONCE}"),
    Outside(
        "cutlass",
        "hopper/kernel/attention/fmha.py",
        f"--q_shape 1,256,2,64 --k_shape 1,640,2,64 --is_persistent {_ONCE}",
        repair=(
            _FMHA_END,
            f"if warp_idx == 4 or warp_idx == 8:\n{20 * ' '}tma_store_pipeline.producer_tail()\n{16 * ' '}",
        ),
    ),
    Outside(
        "cutlass",
        "hopper/kernel/grouped_gemm/grouped_gemm.py",
        f"--num_groups 2 --problem_sizes_mnkl (128,128,64,1),(256,512,256,1) {_ONCE}",
    ),
    Outside("cutlass", "hopper/kernel/cta_norm/cta_norm.py", "--M 4 --N 512"),
    Outside(
        "cutlass",
        "ampere/kernel/dense_gemm/tensorop_gemm.py",
        f"--mnkl 128,128,256,1 {_ONCE}",
    ),
    Outside("cutlass", "ampere/kernel/dense_gemm/sgemm.py", f"--mnk 128,128,64 {_ONCE}"),
    Outside(
        "cutlass",
        "ampere/kernel/attention/flash_attention_v2.py",
        f"--batch_size 1 --seqlen_q 128 --seqlen_k 256 --num_head 1 --head_dim 64 {_ONCE}",
    ),
    Outside("quack", "quack_gemm.py", text=_QUACK_GEMM),
    Outside("quack", "quack_rmsnorm.py", text=_QUACK_NORM),
    Outside("quack", "quack_softmax.py", text=_QUACK_SOFTMAX),
    _attention("forward.py", False, False, "FlashAttentionForward"),
    _attention("forward_causal.py", True, False, "FlashAttentionForward"),
    _attention("backward.py", False, True, "FlashAttentionBackwardSm90"),
    # kernels whose shapes were chosen before their faults were seen
    Outside("cutlass", "hopper/kernel/dense_gemm/dense_gemm_fp8_gelu_persistent.py", f"--mnkl 256,256,768,1 {_ONCE}"),
    Outside(
        "cutlass",
        "ampere/kernel/attention/hstu_attention.py",
        "--batch_size 1 --seqlen_q 128 --seqlen_kv 256 --num_head 1 --head_dim 64",
    ),
    Outside("quack", "quack_symmetric.py", text=_QUACK_SYMMETRIC),
    Outside("flash-attention", "lengths.py", text=_ATTENTION[: _ATTENTION.index("from")] + _LENGTHS, kernel="Forward"),
]
