"""A script as people write them: torch tensors on a GPU, a compiled function, a direct call, a benchmark."""

import argparse
import tempfile

import cutlass
import cutlass.cute as cute
import cutlass.testing
import numpy as np
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, sync: cutlass.Constexpr):
    i, _, _ = cute.arch.thread_idx()
    tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(64))
    tile[i] = x[i]
    if cutlass.const_expr(sync):
        cute.arch.sync_threads()
    y[i] = tile[63 - i]


@cute.jit
def reverse(x: cute.Tensor, y: cute.Tensor, sync: cutlass.Constexpr):
    kernel(x, y, sync).launch(grid=(1, 1, 1), block=(64, 1, 1))


def export(compiled):
    """Objects are written, and refused when they are loaded: they hold machine code."""
    with tempfile.TemporaryDirectory() as folder:
        compiled.export_to_c(folder, "reversal")
        try:
            cute.runtime.load_module(f"{folder}/reversal.o")
        except Exception as error:
            assert "reversal.o at reverse.py:" in str(error) and "machine code" in str(error), error
        else:
            raise AssertionError("a loaded object has run")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    fault = parser.parse_args().fault
    torch.manual_seed(1)
    x = torch.randn(64, device="cuda")
    y = torch.empty_like(x)
    a, b = from_dlpack(x), from_dlpack(y)
    reverse(a, b, fault == "none")
    b = b if fault == "none" else from_dlpack(torch.zeros(32, device="cuda"))
    compiled = cute.compile(reverse, a, b, True)
    cutlass.testing.benchmark(compiled, kernel_arguments=cutlass.testing.JitArguments(a, b), iterations=1000)
    torch.cuda.synchronize()
    if fault == "none":
        torch.testing.assert_close(y, torch.tensor(x.cpu().numpy()[::-1].copy(), device="cuda"))
    host = np.zeros(64, np.float32)
    reverse(from_dlpack(x), from_dlpack(host), True)
    assert np.array_equal(host, x.cpu().numpy()[::-1])
    export(compiled)
    print("done with", torch.cuda.get_device_properties(0).multi_processor_count, "multiprocessors")


if __name__ == "__main__":
    main()
