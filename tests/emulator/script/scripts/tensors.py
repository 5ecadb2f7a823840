"""What torch's tensors say and do in a checked script."""

import threading

import torch

x = torch.randn(4, 8, device="cuda", requires_grad=True)
assert (x.device, x.is_cuda, x.is_leaf, x.data_ptr() % 512) == (torch.device("cuda", 0), True, True, 0)
y = (x * 2).transpose(0, 1).contiguous().to(torch.bfloat16)
assert y.is_cuda and y.stride() == (4, 1) and y.grad_fn is not None
y.float().sum().backward()
assert x.grad.is_cuda and (x.grad == 2).all()
host = x.detach().cpu()
assert not host.is_cuda and host.cuda().is_cuda and host.to(x).is_cuda and not x.detach().to("cpu").is_cuda
made = [torch.tensor([1, 2], device="cuda"), torch.zeros_like(host, device="cuda"), torch.ones_like(x)]
made += [torch.as_tensor([1.0], device="cuda:0"), x.detach().view(-1)[3:], x.new_zeros(3), torch.empty(0, 4).cuda()]
assert all(t.is_cuda and t.__dlpack_device__() == (2, 0) for t in (t.detach() for t in made))
assert torch.empty(3, device="cuda").isnan().all()
layer = torch.nn.Linear(8, 8).cuda()
layer(x.detach()).sum().backward()
assert layer.weight.grad.is_cuda
narrow, space = torch.ones(2, 4, 4, device="cuda", dtype=torch.bfloat16), torch.zeros(2, 4, 4, device="cuda")
wide = torch.mm(narrow[0], narrow[1], out_dtype=torch.float32)  # torch has it for the device only
assert torch.bmm(narrow, narrow, out_dtype=torch.float32, out=space) is space and space.dtype == wide.dtype
assert wide.is_cuda and (wide == 4).all() and (space == 4).all()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        assert gradient.is_cuda and ctx.saved_tensors[0].is_cuda and torch.zeros(2, device="cuda").is_cuda
        return 2 * gradient


(gradient,) = torch.autograd.grad(Double.apply(x).sum(), x)
assert gradient.is_cuda and (gradient == 2).all()


@torch.library.custom_op("own::half", mutates_args=(), device_types="cuda")
def half(x: torch.Tensor) -> torch.Tensor:
    return torch.full(x.shape, 0.5, device="cuda") * x


@half.register_fake
def _(x):
    return torch.empty_like(x)


assert torch.equal(torch.ops.own.half(x.detach()), x.detach() / 2) and half(x).is_cuda
seen = []
thread = threading.Thread(target=lambda: seen.append(torch.zeros(3, device="cuda").device))
thread.start()
thread.join()
assert seen == [torch.device("cuda", 0)]
assert torch.cuda.get_device_capability() == (9, 0) and torch.Generator(device="cuda") is not None
print("done")
