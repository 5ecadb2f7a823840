"""From a checked call to a launch: what is computed, the kernel for it, and its argument block."""

from __future__ import annotations

from dataclasses import dataclass

from ...dtypes import BOOL, DType
from ...ops import Operator
from ...runtime import compiler
from ...runtime.launch import Launch, bits
from .policy import Config

FORMS = {
    "heads": "flag_heads",
    "tails": "flag_tails",
    "both": "flag_heads_and_tails",
    "left": "adjacent_difference",
    "right": "adjacent_difference",
}


@dataclass(frozen=True)
class Marking:
    """What is computed: a form, an operator, the element types, and which ends have a neighbour of the caller's.

    "heads", "tails" and "both" give flags of type ``result``, or with ``bits`` 32 to a word; "left" and "right" give differences with the
    neighbour on that side.
    """

    form: str
    op: Operator
    source: DType
    result: DType
    bits: bool = False
    predecessor: bool = False
    successor: bool = False

    @property
    def name(self) -> str:
        """The public call."""
        return FORMS[self.form]

    @property
    def is_flag(self) -> bool:
        return self.form in ("heads", "tails", "both")

    @property
    def looks_back(self) -> bool:
        return self.form in ("heads", "both", "left")

    @property
    def looks_ahead(self) -> bool:
        return self.form in ("tails", "both", "right")

    @property
    def outputs(self) -> int:
        return 2 if self.form == "both" else 1

    def key(self) -> tuple:
        """What names the machine code in caches."""
        return (self.form, self.op.key, self.source.name, self.result.name, self.bits, self.predecessor, self.successor)

    def register(self) -> tuple[int, bool]:
        """Size in bytes, and whether floating, of the register that holds a predecessor or a successor."""
        if self.source.kind == "f":
            return max(self.source.size, 4), True
        return (4 if self.source is BOOL else self.source.size), False


def kernel_for(config: Config, marking: Marking, stream: int = 0) -> compiler.Kernel:
    """The compiled kernel of a configuration."""
    name = (marking.name, *config.kernel, *marking.key())

    def build() -> tuple:
        import cutlass.cute as cute
        from cutlass import Int32, Int64
        from cutlass.cute.runtime import make_ptr
        from cutlass.runtime import make_fake_stream

        from ...monoid import register_type
        from .kernel import FlagKernel

        host = FlagKernel(marking, *config.kernel)
        space, end = cute.AddressSpace.gmem, register_type(marking.source, wide=False)
        pointers = [make_ptr(kind.cutlass, 0, space) for kind in (marking.source, marking.result, marking.result)]
        arguments = [*pointers, *[Int64(0)] * 4, end(0), end(0), Int32(0), make_fake_stream()]
        return host.__call__, arguments, {"block": (host.threads, 1, 1), "smem": 0}

    return compiler.get(name, build, stream=stream, warm=f"cutesync.{marking.name}")


def make_launch(config: Config, marking: Marking, ends: tuple, ordinal: int, stream: int) -> Launch:
    """The prepared launch. ``ends`` are the predecessor and the successor, or None."""
    kernel = kernel_for(config, marking, stream)
    predecessor, successor = (0 if end is None else bits(end, *marking.register()) for end in ends)
    values = (
        0,
        0,
        0,
        config.length,
        config.rows,
        config.period,
        config.runs,
        predecessor,
        successor,
    )  # what every warp waits for lies first
    return Launch(kernel, ordinal, config.grid, values)
