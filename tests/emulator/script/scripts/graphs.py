"""CUDA graphs: work that is captured is done when a graph is launched, in order, with what memory holds then."""

import sys

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def twice(x: cute.Tensor, y: cute.Tensor, reach: cutlass.Int32):
    i, _, _ = cute.arch.thread_idx()
    if i < reach:
        y[i] = x[i] * 2


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, reach: cutlass.Int32):
    twice(x, y, reach).launch(grid=(1, 1, 1), block=(64, 1, 1))


given = torch.zeros(32, device="cuda")
reach = 33 if "--fault" in sys.argv else 32
graph = torch.cuda.CUDAGraph()
assert not torch.cuda.is_current_stream_capturing()
with torch.cuda.graph(graph):
    assert torch.cuda.is_current_stream_capturing()
    made = torch.empty_like(given)
    launch(from_dlpack(given + 1), from_dlpack(made), reach)
    result = made.view(4, 8)[1:].sum(0)
    given += 1
    for call in (lambda: result[0].item(), result.cpu, torch.cuda.synchronize):
        try:
            call()
        except RuntimeError as error:
            assert "while a CUDA graph is captured" in str(error), error
        else:
            raise AssertionError("it waits for the device")
assert (given == 0).all() and made.isnan().all() and result.isnan().all(), "nothing has been done"
for number in range(3):
    if number == 2:
        given.copy_(torch.arange(32.0))
    graph.replay()
    before = torch.arange(32.0) if number == 2 else torch.full((32,), float(number))
    assert torch.equal(made.cpu(), 2 * (before + 1)) and torch.equal(given.cpu(), before + 1)
    assert torch.equal(result.cpu(), made.cpu()[8:].view(3, 8).sum(0))

layer = torch.nn.Linear(4, 4).cuda()
x = torch.randn(2, 4, device="cuda", requires_grad=True)
(fast,) = torch.cuda.make_graphed_callables((layer,), ((x.detach().clone().requires_grad_(),),))
out = fast(x)
out.sum().backward()
expected = torch.nn.functional.linear(x, layer.weight, layer.bias)
torch.testing.assert_close(out, expected)
torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(2, 4))
print("done")
