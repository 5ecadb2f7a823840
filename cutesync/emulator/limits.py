"""What the driver checks before it launches: extents, clusters, shared memory, and what the kernel was compiled for.

CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (9.0); a launch beyond these is an error there, and here.
"""

from __future__ import annotations

from operator import index

from ..errors import ArgumentTypeError, ArgumentValueError, LaunchError, explain

GRID, BLOCK, THREADS = ((1 << 31) - 1, 65535, 65535), (1024, 1024, 64), 1024
PORTABLE_CLUSTER, LARGEST_CLUSTER = 8, 16
STATIC_SHARED = PLAIN_SHARED = 48 << 10      # without cudaFuncAttributeMaxDynamicSharedMemorySize
SHARED, SHARED_OF_SM, RESERVED_SHARED = 232448, 233472, 1024
_MULTIPROCESSORS, _THREADS_OF_SM, _BLOCKS_OF_SM = 132, 2048, 32


def extents(what: str, value) -> tuple[int, int, int]:
    """Three integers, as a launch takes them."""
    try:
        found = tuple(index(n) for n in value)
    except TypeError as error:
        raise ArgumentTypeError(explain(what, repr(value), "three integers")) from error
    if len(found) != 3:
        raise ArgumentValueError(explain(what, found, "three integers"))
    return found


def check(launch) -> None:
    """Raise LaunchError if a GPU would refuse this launch (``driver.Launch``)."""
    function = launch.program.function
    who = f"launch of {function.name}"
    for what, value, most in (("grid", launch.grid, GRID), ("block", launch.block, BLOCK)):
        if not all(1 <= n <= limit for n, limit in zip(value, most)):
            raise LaunchError(explain(who, f"{what} {value}, an invalid configuration", f"1 to {most[0]} x {most[1]} x {most[2]}"))
    x, y, z = launch.block
    if x * y * z > THREADS:
        raise LaunchError(explain(who, f"block {launch.block} of {x * y * z} threads", f"{THREADS} threads at most"))
    _compiled_for(who, launch, function)
    _cluster(who, launch)
    _shared(who, launch)
    if launch.cooperative:
        _resident(who, launch)


def padded(declared: tuple[int, ...]) -> tuple[int, ...]:
    """Three extents of one to three declared."""
    return tuple(declared) + (1,) * (3 - len(declared))


def _compiled_for(who: str, launch, function) -> None:
    if function.block and padded(function.block) != launch.block:
        raise LaunchError(explain(who, f"block {launch.block}", f"block {padded(function.block)}: it was compiled for that (.reqntid)"))
    x, y, z = launch.block
    most = padded(function.most_threads or (THREADS,))
    if x * y * z > most[0] * most[1] * most[2]:
        raise LaunchError(explain(who, f"block {launch.block}", f"{most[0] * most[1] * most[2]} threads at most: it was compiled for that (.maxntid)"))
    if function.cluster and padded(function.cluster) != launch.cluster:
        raise LaunchError(explain(who, f"cluster {launch.cluster}", f"cluster {padded(function.cluster)}: it was compiled for that (.reqnctapercluster)"))


def _cluster(who: str, launch) -> None:
    x, y, z = launch.cluster
    if min(launch.cluster) < 1:
        raise LaunchError(explain(who, f"cluster {launch.cluster}", "extents of 1 or more"))
    if x * y * z > launch.most_cluster:
        more = f"; {LARGEST_CLUSTER} with the attribute for clusters that are not portable" if launch.most_cluster < LARGEST_CLUSTER else ""
        raise LaunchError(explain(who, f"cluster {launch.cluster} of {x * y * z} blocks", f"{launch.most_cluster} blocks at most{more}"))
    if any(g % c for g, c in zip(launch.grid, launch.cluster)):
        raise LaunchError(explain(who, f"grid {launch.grid}", f"a grid that is a multiple of the cluster {launch.cluster}"))


def _shared(who: str, launch) -> None:
    static, dynamic = launch.program.static_shared, launch.shared_bytes
    if static > STATIC_SHARED:
        raise LaunchError(explain(who, f"{static} bytes of static shared memory", f"{STATIC_SHARED} at most", "use dynamic shared memory for more"))
    if not 0 <= dynamic <= SHARED - static:
        raise LaunchError(explain(who, f"{dynamic} bytes of dynamic shared memory and {static} of static", f"0 to {SHARED} together"))
    if dynamic > launch.most_shared:
        raise LaunchError(explain(who, f"{dynamic} bytes of dynamic shared memory", f"{launch.most_shared} at most",
                                  "set the kernel's attribute MaxDynamicSharedMemorySize for more"))  # fmt: skip


def _resident(who: str, launch) -> None:
    """All blocks of a cooperative launch are resident at once. (Registers may allow fewer; they are not known here.)"""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    shared = launch.shared_bytes + launch.program.static_shared + RESERVED_SHARED
    room = _MULTIPROCESSORS * min(_BLOCKS_OF_SM, _THREADS_OF_SM // (-(-threads // 32) * 32), SHARED_OF_SM // shared)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    if blocks > room:
        raise LaunchError(explain(who, f"a cooperative launch of {blocks} blocks", f"{room} blocks at most: so many fit at once"))
