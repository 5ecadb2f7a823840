"""The driver's checks before a launch: extents, clusters, shared memory, and what the kernel was compiled for.

CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (9.0). A launch beyond these limits is a
LaunchError.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from operator import index

from ..errors import ArgumentTypeError, ArgumentValueError, LaunchError, explain

GRID, BLOCK, THREADS = ((1 << 31) - 1, 65535, 65535), (1024, 1024, 64), 1024
PORTABLE_CLUSTER, LARGEST_CLUSTER = 8, 16
STATIC_SHARED = PLAIN_SHARED = 48 << 10  # without cudaFuncAttributeMaxDynamicSharedMemorySize
SHARED, SHARED_OF_SM, RESERVED_SHARED = 232448, 233472, 1024
THREADS_OF_SM, BLOCKS_OF_SM = 2048, 32
_multiprocessors = [132]


def multiprocessors() -> int:
    """How many multiprocessors the emulated device has."""
    return _multiprocessors[0]


def set_multiprocessors(count: int) -> None:
    """Let the emulated device have so many: persistent kernels size their grids by it."""
    _multiprocessors[0] = count


def whole(what: str, value) -> int:
    """An integer, as a launch takes it."""
    try:
        return index(value)
    except TypeError as error:
        raise ArgumentTypeError(explain(what, repr(value), "an int")) from error


def extents(what: str, value) -> tuple[int, int, int]:
    """Three integers, as a launch takes them."""
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise ArgumentValueError(explain(what, repr(value), "a tuple of three integers"))
    x, y, z = (whole(what, n) for n in value)
    return x, y, z


def check(launch) -> None:
    """Raise LaunchError if a GPU would refuse this launch (``driver.Launch``)."""
    function, threads = launch.program.function, prod(launch.block)

    def need(fine: bool, came: str, allowed: str, advice: str = "") -> None:
        if not fine:
            raise LaunchError(explain(f"launch of {function.name}", came, allowed, advice))

    for what, value, most in (("grid", launch.grid, GRID), ("block", launch.block, BLOCK)):
        fine = all(1 <= n <= limit for n, limit in zip(value, most))
        need(fine, f"{what} {value}, an invalid configuration", "1 to " + " x ".join(map(str, most)))
    need(threads <= THREADS, f"block {launch.block} of {threads} threads", f"{THREADS} threads at most")
    pairs = ("block", launch.block, function.block), ("cluster", launch.cluster, function.cluster)
    for what, value, declared in pairs:
        wanted = padded(declared) if declared else value
        need(wanted == value, f"{what} {value}", f"{what} {wanted}: it was compiled for that")
    bound = prod(function.max_threads or (THREADS,))
    need(threads <= bound, f"block {launch.block}", f"{bound} threads at most: it was compiled for that")
    _cluster(need, launch)
    _shared(need, launch)
    if launch.cooperative:
        _resident(need, launch)


def padded(declared: tuple[int, ...]) -> tuple[int, int, int]:
    """Three extents from up to three declared."""
    x, y, z = (*declared, 1, 1, 1)[:3]
    return x, y, z


def _cluster(need: Callable, launch) -> None:
    came, blocks = f"cluster {launch.cluster}", prod(launch.cluster)
    need(min(launch.cluster) > 0, came, "extents of 1 or more")
    more = f"clusters of up to {LARGEST_CLUSTER} need the kernel's attribute NonPortableClusterSizeAllowed"
    advice = more if launch.max_cluster < LARGEST_CLUSTER else ""
    need(blocks <= launch.max_cluster, f"{came} of {blocks} blocks", f"{launch.max_cluster} blocks at most", advice)
    whole_clusters = not any(g % c for g, c in zip(launch.grid, launch.cluster))
    need(whole_clusters, f"grid {launch.grid}", f"a multiple of the cluster {launch.cluster}")


def _shared(need: Callable, launch) -> None:
    static, dynamic = launch.program.static_shared, launch.shared_bytes
    came = f"{dynamic} bytes of dynamic shared memory and {static} of static"
    need(static <= STATIC_SHARED, came, f"{STATIC_SHARED} of static at most", "use dynamic shared memory for more")
    need(0 <= dynamic <= SHARED - static, came, f"0 to {SHARED} together")
    advice = "set the kernel's attribute MaxDynamicSharedMemorySize for more"
    need(dynamic <= launch.max_shared, came, f"{launch.max_shared} of dynamic at most", advice)


def _room(launch) -> int:
    """How many blocks of a launch are resident at once. (Registers, not known here, may allow fewer.)"""
    threads = -(-prod(launch.block) // 32) * 32
    shared = launch.shared_bytes + launch.program.static_shared + RESERVED_SHARED
    return multiprocessors() * min(BLOCKS_OF_SM, THREADS_OF_SM // threads, SHARED_OF_SM // shared)


def fits(launch) -> bool:
    """Whether the device holds all blocks of a launch at once."""
    return prod(launch.grid) <= _room(launch)


def _resident(need: Callable, launch) -> None:
    """All blocks of a cooperative launch are resident at once."""
    came = f"a cooperative launch of {prod(launch.grid)} blocks"
    need(fits(launch), came, f"{_room(launch)} blocks at most: so many fit at once")
