"""What a litmus case is: a raw PTX kernel, its inputs, the answer expected, and how closely a machine's answer must
agree.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cutesync.emulator.im2col import Im2colMap
from cutesync.emulator.tensor_map import TensorMap

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


@dataclass(frozen=True)
class MapOf:
    """A tensor map over one of the case's arrays; ``tensor_map.address`` is an offset from the array's start."""

    argument: int
    tensor_map: TensorMap | Im2colMap


@dataclass(frozen=True)
class Case:
    """One kernel ``litmus``. Its parameters are the arguments in order (arrays: pointers; integers: u64; maps: 128
    bytes), of which array number ``output`` is read back. ``expected()`` is the emulator's answer, None where only a
    whole machine can tell. ``faults``: there is no answer, every machine must refuse the kernel while it runs."""

    name: str
    ptx: str
    arguments: tuple
    output: int
    expected: Callable[[], np.ndarray] | None = None
    agree: Callable[[np.ndarray, np.ndarray], np.ndarray] = np.equal
    block: int = 32
    grid: int = 1
    shared_bytes: int = 0
    faults: bool = False

    @property
    def fingerprint(self) -> int:
        """Changes when the kernel or its inputs do: a stored answer belongs to one fingerprint."""
        value = zlib.crc32(self.ptx.encode())
        for argument in self.arguments:
            value = zlib.crc32(
                argument.tobytes() if isinstance(argument, np.ndarray) else repr(argument).encode(), value
            )
        return value


def stream(name: str, count: int) -> np.ndarray:
    """``count`` pseudo-random uint64 that depend on nothing but ``name`` (splitmix64)."""
    state = np.uint64(zlib.crc32(name.encode())) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return state ^ (state >> np.uint64(31))


def integers(name: str, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
    """int64 in [low, high)."""
    count = int(np.prod(shape))
    return (low + (stream(name, count) % np.uint64(high - low)).astype(np.int64)).reshape(shape)


def within(
    relative: float = 0.0, absolute: float = 0.0, dtype: type = np.float32
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Agreement of raw float bits: equal, both NaN, or within the sum of both tolerances."""

    def agree(got: np.ndarray, want: np.ndarray) -> np.ndarray:
        x, y = (_float64(v, dtype) for v in (got, want))
        close = np.abs(x - y) <= absolute + relative * np.abs(y)
        return (got == want) | (np.isnan(x) & np.isnan(y)) | (np.isfinite(y) & close)

    return agree


def _float64(bits: np.ndarray, dtype: type | str) -> np.ndarray:
    if dtype == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return np.ascontiguousarray(bits).view(dtype).astype(np.float64)
