"""What torch's own processes take, one a GPU: NCCL, and torch's symmetric memory without NVLink multicast. Started by
dist.py.

Small all_reduces are timed in CUDA graphs, products in calls; a time is the least of several, of the slower GPU.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence

CALLS, PRODUCT_CALLS, REPEATS = 50, 4, 5


def run(sizes: Sequence[int], shapes: Sequence[tuple[int, int, int]]) -> dict[str, dict[str, float]]:
    """Return microseconds by what is timed and by rival ("nccl", "symmetric"): all_reduces of ``sizes`` bytes of
    float32, and the products of ``shapes`` (M, N, K) in bfloat16."""
    import torch
    from torch import multiprocessing

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    answers, size = spawn.SimpleQueue(), torch.cuda.device_count()
    started = [
        spawn.Process(target=_rank, args=(rank, size, port, (sizes, shapes), answers), daemon=True)
        for rank in range(size)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    if any(process.exitcode != 0 for process in started):
        raise RuntimeError("torch's processes failed")
    return answers.get()


def _rank(rank: int, size: int, port: int, given: tuple, answers) -> None:
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=size, device_id=torch.device("cuda", rank))
    sizes, shapes = given
    found: dict[str, dict[str, float]] = {}
    for count in sizes:
        found[f"all_reduce of {count} B"] = _all_reduce(count)
    for shape in shapes:
        found |= _products(shape)
    if rank == 0:
        answers.put(found)
    dist.destroy_process_group()


def _all_reduce(count: int) -> dict[str, float]:
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    name = dist.group.WORLD.group_name
    y = torch.ones(count // 4, device="cuda")
    shared = symmetric.empty(count // 4, dtype=torch.float32, device="cuda")
    symmetric.rendezvous(shared, name)
    return {
        "nccl": _in_graph(lambda: dist.all_reduce(y)),
        "symmetric": _in_graph(lambda: torch.ops.symm_mem.one_shot_all_reduce(shared, "sum", name)),
    }


def _products(shape: tuple[int, int, int]) -> dict[str, dict[str, float]]:
    """A gathered by rows before a product, and a product with K sharded whose sums are scattered."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory  # registers the fused products

    (m, n, k), size, name = shape, dist.get_world_size(), dist.group.WORLD.group_name
    ops, half = torch.ops.symm_mem, {"device": "cuda", "dtype": torch.bfloat16}
    a, b, whole = torch.ones(m // size, k, **half), torch.ones(k, n // size, **half), torch.ones(m, k, **half)
    left, right, part = (
        torch.ones(m, k // size, **half),
        torch.ones(k // size, n, **half),
        torch.ones(m // size, n, **half),
    )

    def gathered() -> None:
        dist.all_gather_into_tensor(whole, a)
        torch.matmul(whole, b)

    title = f"{m} {n} {k}"
    return {
        f"all-gather + {title}": {
            "nccl": _of_calls(gathered),
            "symmetric": _of_calls(lambda: ops.fused_all_gather_matmul(a, [b], 0, name)),
        },
        f"+ reduce-scatter {title}": {
            "nccl": _of_calls(lambda: dist.reduce_scatter_tensor(part, left @ right)),
            "symmetric": _of_calls(lambda: ops.fused_matmul_reduce_scatter(left, right, "sum", 0, name)),
        },
    }


def _in_graph(call: Callable) -> float:
    import torch

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return _least(graph.replay) / CALLS


def _of_calls(call: Callable) -> float:
    for _ in range(2):
        call()
    return _least(lambda: [call() for _ in range(PRODUCT_CALLS)]) / PRODUCT_CALLS


def _least(launch: Callable) -> float:
    """Return the least microseconds of a launch, of the slower GPU."""
    import torch
    import torch.distributed as dist

    best = torch.full((1,), float("inf"), device="cuda")
    for _ in range(REPEATS + 1):
        dist.barrier()
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        taken = torch.tensor([start.elapsed_time(end) * 1e3], device="cuda")
        dist.all_reduce(taken, dist.ReduceOp.MAX)
        best = torch.minimum(best, taken)
    return best.item()
