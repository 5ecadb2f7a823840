"""A function of two results, one of which gets no gradient: torch makes it, where the function's tensors lie."""

import torch


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x, 3 * x

    @staticmethod
    def backward(ctx, first, second):
        (x,) = ctx.saved_tensors
        assert first.is_cuda == second.is_cuda == x.is_cuda
        assert not torch.zeros(3).is_cuda and torch.zeros(3, device="cuda").is_cuda
        return 2 * first + 3 * second


for device in ("cuda", "cpu"):
    x = torch.randn(5, device=device, requires_grad=True)
    Both.apply(x)[0].sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2)) and x.grad.is_cuda == x.is_cuda
