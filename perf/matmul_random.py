"""Random products, by classes: layers of language models, log-uniform extents, types, layouts, batches.

A class draws its products from a generator of its own, seeded by the seed and its name: the same seed gives the same
products, whichever classes take part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
LAYERS = (  # (N, K) of weights of Llama, Qwen, DeepSeek, Gemma and GPT-OSS models
    *((4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (1024, 4096), (8192, 8192), (28672, 8192)),
    *((8192, 28672), (10240, 8192), (5120, 5120), (13824, 5120), (5120, 13824), (3584, 3584), (18944, 3584)),
    *((3584, 18944), (4608, 3584), (2048, 2048), (9728, 2560), (2560, 9728), (7168, 2048), (2048, 7168)),
    *((4096, 7168), (7168, 18432), (36864, 7168), (1536, 7168), (24576, 1536), (576, 7168), (32768, 512)),
    *((2880, 4096), (5120, 2880), (3072, 3072), (24576, 3072)),
)
MOST = 3 << 37  # multiply-adds of a product: some 1.2 ms
MOST_BYTES = 1 << 28  # of an operand or the result
SIZES = {"bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "int8": 1, "float32": 4}
RESULTS = {"float8_e4m3fn": "bfloat16", "int8": "int32"}  # others their own


@dataclass(frozen=True)
class Random:
    """A product (M, K) by (K, N) of ``batch`` items (0: no batch), operands as ``layout`` says ("NT": both with K
    contiguous), and an option: "fast", "promoted", "tf32", "bias gelu", "invariant" or ""."""

    group: str
    m: int
    n: int
    k: int
    dtype: str = "bfloat16"
    layout: str = "NT"
    batch: int = 0
    op: str = ""

    @property
    def name(self) -> str:
        batch = f" batch {self.batch}" if self.batch else ""
        return f"{self.m}x{self.n}x{self.k} {self.dtype} {self.layout}{batch} {self.op}".strip()

    @property
    def out(self) -> str:
        return RESULTS.get(self.dtype, self.dtype)

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return max(self.batch, 1) * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Of both operands and the result."""
        inputs = SIZES[self.dtype] * self.k * (self.m + self.n)
        return max(self.batch, 1) * (inputs + SIZES.get(self.out, 4) * self.m * self.n)

    @property
    def tiles(self) -> float:
        """Of 128 x 128, as waves on 132 multiprocessors."""
        return max(self.batch, 1) * math.ceil(self.m / 128) * math.ceil(self.n / 128) / 132

    @property
    def pitch(self) -> int:
        """The largest power of two, up to 128, that divides the bytes between neighbouring rows of both operands."""
        size = SIZES[self.dtype]
        of_a, of_b = self.k if self.layout[0] == "N" else self.m, self.k if self.layout[1] == "T" else self.n
        return math.gcd(of_a * size, of_b * size, 128)


def extent(random: np.random.Generator, low: int, high: int, step: int) -> int:
    """Log-uniform, a multiple of ``step``."""
    return max(step, round(math.exp(random.uniform(math.log(low), math.log(high))) / step) * step)


def _layers(random: np.random.Generator) -> dict:
    n, k = LAYERS[random.integers(len(LAYERS))]
    return {"m": int(random.choice(ROWS)), "n": n, "k": k}


def _extents(low: int, high: int, step: int, **more) -> Callable[[np.random.Generator], dict]:
    return lambda random: dict(zip("mnk", (extent(random, low, high, step) for _ in range(3)))) | more


def _batches(random: np.random.Generator) -> dict:
    return {"batch": extent(random, 2, 1000, 1)} | dict(zip("mnk", (extent(random, 16, 1500, 8) for _ in range(3))))


def _layouts(random: np.random.Generator) -> dict:
    return _extents(64, 12000, 8, layout=str(random.choice(("NN", "TN", "TT"))))(random)


CLASSES: dict[str, Callable[[np.random.Generator], dict]] = {
    "layers": _layers,
    "eights": _extents(64, 12000, 8),
    "any": _extents(32, 12000, 1),
    "float16": _extents(64, 12000, 8, dtype="float16"),
    "layouts": _layouts,
    "float8": _extents(64, 12000, 16, dtype="float8_e4m3fn", op="promoted"),
    "fast": _extents(64, 12000, 16, dtype="float8_e4m3fn", op="fast"),
    "int8": _extents(64, 12000, 16, dtype="int8"),
    "tf32": _extents(64, 8000, 8, dtype="float32", op="tf32"),
    "float32": _extents(64, 8000, 8, dtype="float32"),
    "batches": _batches,
    "gelu": _extents(64, 12000, 8, op="bias gelu"),
    "invariant": _extents(16, 8000, 8, op="invariant"),
}


def draw(group: str, seed: int) -> Iterator[Random]:
    """The products of a class, endlessly."""
    random = np.random.default_rng([seed, *group.encode()])
    while True:
        one = Random(group, **CLASSES[group](random))
        size = SIZES[one.dtype]
        arrays = (size * one.m * one.k, size * one.n * one.k, SIZES.get(one.out, 4) * one.m * one.n)
        if one.work * (4 if one.dtype == "float32" else 1) <= MOST and max(arrays) * max(one.batch, 1) <= MOST_BYTES:
            yield one
