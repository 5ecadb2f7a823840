"""What the emulator says about its device, an H200, when host code asks."""

from __future__ import annotations

from . import limits

NAME = "NVIDIA H200 (emulated)"
CAPABILITY = (9, 0)
DRIVER_VERSION = 13000
MEMORY = 141 << 30
_MULTIPROCESSOR_COUNT = 16

_ATTRIBUTES = {
    1: limits.THREADS,  # MaxThreadsPerBlock
    **dict(zip((2, 3, 4), limits.BLOCK)),  # MaxBlockDimX, Y, Z
    **dict(zip((5, 6, 7), limits.GRID)),  # MaxGridDimX, Y, Z
    8: limits.PLAIN_SHARED,  # MaxSharedMemoryPerBlock
    9: 64 << 10,  # TotalConstantMemory
    10: 32,  # WarpSize
    11: (1 << 31) - 1,  # MaxPitch
    12: 64 << 10,  # MaxRegistersPerBlock
    13: 1_980_000,  # ClockRate, kHz
    14: 512,  # TextureAlignment
    15: 1,  # GpuOverlap
    19: 1,  # CanMapHostMemory
    31: 1,  # ConcurrentKernels
    32: 1,  # EccEnabled
    36: 3_201_000,  # MemoryClockRate, kHz
    37: 6144,  # GlobalMemoryBusWidth
    38: 60 << 20,  # L2CacheSize
    39: limits.THREADS_OF_SM,  # MaxThreadsPerMultiProcessor
    40: 3,  # AsyncEngineCount
    41: 1,  # UnifiedAddressing
    75: CAPABILITY[0],  # ComputeCapabilityMajor
    76: CAPABILITY[1],  # ComputeCapabilityMinor
    78: 1,  # StreamPrioritiesSupported
    79: 1,  # GlobalL1CacheSupported
    80: 1,  # LocalL1CacheSupported
    81: limits.SHARED_OF_SM,  # MaxSharedMemoryPerMultiprocessor
    82: 64 << 10,  # MaxRegistersPerMultiprocessor
    83: 1,  # ManagedMemory
    95: 1,  # CooperativeLaunch
    97: limits.SHARED,  # MaxSharedMemoryPerBlockOptin
    106: limits.BLOCKS_OF_SM,  # MaxBlocksPerMultiprocessor
    111: limits.RESERVED_SHARED,  # ReservedSharedMemoryPerBlock
    115: 1,  # MemoryPoolsSupported
    120: 1,  # ClusterLaunch
}


def attribute(number: int) -> int:
    """A device attribute by its number in ``cudaDeviceAttr``, 0 where there is no answer."""
    return limits.multiprocessors() if number == _MULTIPROCESSOR_COUNT else _ATTRIBUTES.get(number, 0)


def blocks_of_multiprocessor(threads: int, shared_bytes: int) -> int:
    """How many blocks of a kernel one multiprocessor holds, as far as threads and shared memory say."""
    warps = -(-max(threads, 1) // 32) * 32
    shared = max(shared_bytes, 0) + limits.RESERVED_SHARED
    return min(limits.BLOCKS_OF_SM, limits.THREADS_OF_SM // warps, limits.SHARED_OF_SM // shared)
