"""Segments that offsets give, for the parts of a sharded array. The offsets are whole on each device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..dtypes import BOOL, INT64, DType
from ..kernels.segments.spec import SegmentsSpec
from ..runtime import arrays
from ..runtime.kernel import KernelSpec, Pointer, Scalar
from .recorder import allocator, launcher
from .sharded import Sharded

if TYPE_CHECKING:
    from .work import Work

THREADS = 256


class Marks:
    """The launches that flag where segments begin in each part of ``x``, and where the last of them ends. ``offsets``
    are like those of the calls."""

    def __init__(self, spec: SegmentsSpec, x: Sharded, offsets: Sharded) -> None:
        self.group, self.like = x.group, []
        self.clear, self.mark = list[Any](), list[Any]()
        for rank, view in enumerate(x.views):
            library, at = arrays.adapter(x.parts[rank]), x.group.ordinals[rank]
            self.like.append((library, allocator(library, (view.size,), BOOL, at)))
            values = {"before": x.offsets[rank], "length": view.size, "segments": spec.segments}
            values["step"] = offsets.views[rank].steps[0] if spec.heads.stepped else 1
            shared = spec.heads.offsets or INT64, spec.heads.ends, spec.counted
            for runs, name, count in ((self.clear, "clear", view.size), (self.mark, "mark", spec.segments + 1)):
                grid = -(-max(count, 1) // THREADS)
                runs.append(launcher(kernel_spec(name, BOOL, *shared), at, grid, values, ("offsets", "n", "out")))
        self.counted = spec.counted

    def make(self, xs: Sequence[Any], streams: tuple[int, ...], work: Work, explicit: bool) -> Sharded:
        """Return the flags. The offsets are the last of the inputs, and how many segments count comes before them."""
        found = []
        for rank, (library, empty) in enumerate(self.like):
            work.at(rank)
            out = empty(streams[rank], explicit)
            n = xs[-2].pointers[rank] if self.counted else 0
            for run in (self.clear[rank], self.mark[rank]):
                run((xs[-1].pointers[rank], n, library.address(out)), streams[rank])
            found.append(out)
        return Sharded.of_results(self.group, found, 0)


class LocalOffsets:
    """The launches that make the offsets of the elements of each part of ``x``: segments that are not in the part are
    empty there."""

    def __init__(self, spec: SegmentsSpec, x: Sharded, offsets: Sharded) -> None:
        self.like = x.group.allocators(x, (spec.segments + 1,), INT64)
        self.runs = []
        for rank, view in enumerate(x.views):
            values = {"before": x.offsets[rank], "length": view.size, "segments": spec.segments}
            values["step"] = offsets.views[rank].steps[0] if spec.heads.stepped else 1
            kernel = kernel_spec("local", INT64, spec.heads.offsets or INT64, spec.heads.ends, spec.counted)
            grid = -(-(spec.segments + 1) // THREADS)
            self.runs.append(launcher(kernel, x.group.ordinals[rank], grid, values, ("offsets", "n", "out")))
        self.counted = spec.counted

    def make(self, rank: int, xs: Sequence[Any], work: Work) -> Any:
        """Return the offsets for one device, whose own are the last of the inputs."""
        library, empty = self.like[rank]
        out = empty(work.streams[rank], work.explicit)
        n = xs[-2].pointers[rank] if self.counted else 0
        self.runs[rank]((xs[-1].pointers[rank], n, library.address(out)), work.streams[rank])
        return out


def kernel_spec(name: str, result: DType, offsets: DType, ends: bool, counted: bool) -> KernelSpec:
    """Return a kernel of ``offsets_kernel``."""
    pointers = Pointer("offsets", offsets), Pointer("n", INT64), Pointer("out", result)
    numbers = tuple(Scalar(number, "Int64") for number in ("segments", "before", "length", "step"))

    def make() -> Any:
        from .offsets_kernel import KERNELS

        return KERNELS[name](ends, counted)

    return KernelSpec(("offsets of parts", name, offsets.name, ends, counted), (pointers, numbers), make)
