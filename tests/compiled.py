"""Compiled kernels: those that a call needs, what is asked of each, and one compilation for all tests of a process that
run the same kernel, as most of what such a test costs is tracing and compiling."""

from __future__ import annotations

import inspect
import re
import struct

import numpy as np

from cutesync import emulator
from cutesync.dtypes import dtype as parse_dtype
from cutesync.runtime.device import DRY
from cutesync.runtime.device_array import DeviceArray
from cutesync.runtime.kernel import KernelSpec, collect

TOUCHES_MEMORY = r"cp\.async|prefetch\.\S*global|\b(ld|st|atom|red)\.\S*global"
ASKS = r"prefetch\.global\.L2 "  # for lines, which kernels ask for before they wait (``sync.overlap.ask_for_line``)

_kept: dict[tuple, object] = {}


def compiled(function, *arguments):
    """``emulator.compile_for_emulator``, once for equal kernels: the same function (of equal objects, if it is a
    method), equal compile-time arguments, and arrays of the same types, extents, strides and alignment. Numbers known
    at run time only may differ."""
    owner, plain = getattr(function, "__self__", None), getattr(function, "__func__", function)
    annotations = [
        str(p.annotation) for p in inspect.signature(getattr(function, "__wrapped__", function)).parameters.values()
    ]
    key = (
        plain,
        type(owner),
        tuple(vars(owner).items()) if owner is not None else (),
        *map(_kind, annotations, arguments),
    )
    if key not in _kept:
        _kept[key] = emulator.compile_for_emulator(function, *arguments)
    return _kept[key]


def _kind(annotation: str, argument) -> tuple:
    if isinstance(argument, np.ndarray):
        return (
            argument.dtype,
            min(argument.ctypes.data & -argument.ctypes.data, 16),
            *((argument.shape, argument.strides) if "Tensor" in annotation else ()),
        )
    return type(argument), argument if "Constexpr" in annotation or not isinstance(argument, int) else None


def check(function, *arguments, schedules: int = 20, policy: str | None = None, fresh=()) -> None:
    """``emulator.check`` of a kernel that may have been compiled before."""
    with emulator.emulate(policy=policy, schedules=schedules):
        emulator.call(compiled(function, *arguments), function, *arguments, fresh=fresh)


def dry(shape, dtype, offset: int = 0, base: int = 1 << 40) -> DeviceArray:
    """An array of a dry run, ``offset`` bytes past a boundary of vectors."""
    return DeviceArray(base + offset, tuple(shape), parse_dtype(dtype), DRY, None)


def needed(call, *arguments, **options) -> list[KernelSpec]:
    """The kernels that a call needs."""
    with collect() as found:
        call(*arguments, **options)
    return list(found.values())


def cubin_figures(cubin: bytes) -> tuple[int, int]:
    """``(registers, bytes of stack frame)`` of the one kernel in a cubin: attributes 0x2f and 0x11 of its section
    .nv.info."""
    header = struct.unpack_from("<16sHHIQQQIHHHHHH", cubin)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, header[6] + i * header[11]) for i in range(header[12])]
    names = sections[header[13]]
    (info,) = [s for s in sections if cubin[names[4] + s[0] :].split(b"\0", 1)[0] == b".nv.info"]
    at, end, found = info[4], info[4] + info[5], {}
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", cubin, at)
        if form == 4:
            found.setdefault(attribute, []).append(struct.unpack_from("<II", cubin, at + 4)[1] if size >= 8 else None)
        at += 4 + (size if form == 4 else 0)
    (registers,), frames = found[0x2F], found[0x11]
    return registers, max(frames)


def verify(spec: KernelSpec, allocated, slack: int = 256, stack: int = 0) -> tuple:
    """A kernel is for sm_90a, has the name, block, parameters and shared memory (to ``slack`` bytes) that launches
    declare, waits for what comes before, and keeps at most ``stack`` bytes of a thread in memory. Its row for
    ``tell_figures``."""
    allocated.total = 0
    kernel = spec.kernel()
    ptx = kernel.ptx
    assert re.findall(r"^\.target (.*)$", ptx, re.M) in (["sm_90a"], ["sm_90a, debug"])
    assert re.findall(r"\.entry (\w+)", ptx) == [kernel.name] and kernel.name.startswith(f"cutesync_{spec.key[0]}")
    assert tuple(map(int, re.search(r"\.reqntid (\d+), (\d+), (\d+)", ptx).groups())) == kernel.block
    assert list(kernel.params) == [parameter.size for parameter in spec.parameters]
    assert_overlaps(ptx)
    assert not re.search(r"(ld|st)\.local", ptx), "local memory in the PTX"
    assert not re.search(r"\bcall\b|vprintf|\btrap\b", ptx), "a function call or a trap in the PTX"
    assert not re.search(r"^\s*\.shared .*\[\d+\];", ptx, re.M), "static shared memory, which launches do not count"
    assert allocated.total <= kernel.smem <= min(allocated.total + slack, 227 * 1024), f"{allocated.total} allocated"
    assert kernel.cluster == (spec.cluster, 1, 1)
    registers, frame = cubin_figures(kernel.cubin)
    source = spec.parameters[0].element.name
    assert frame <= stack, f"{spec.label} of {source}: {frame} bytes of stack a thread, spills or local arrays"
    assert 0 < registers * kernel.block[0] <= 65536
    return spec.label, source, kernel.block[0], kernel.smem, registers


def assert_overlaps(ptx: str) -> None:
    """The kernel waits for the launches before it touches global memory (see ``sync.overlap``)."""
    asks = re.search(r"\.entry cutesync_(scan|select|segments)", ptx)
    text = re.sub(ASKS, "", ptx) if asks else ptx
    touched = re.search(TOUCHES_MEMORY, text)
    assert touched and 0 < text.find("griddepcontrol.wait") < touched.start()


def tell_figures(capsys, rows) -> None:
    """Registers and shared memory of compiled kernels, as a test's output: ``rows`` of (kernel, type, threads, shared
    bytes, registers)."""
    with capsys.disabled():
        print("\n\n| kernel | type | threads | shared bytes | registers |\n|---|---|---|---|---|")
        for row in sorted(set(rows)):
            print("| " + " | ".join(map(str, row)) + " |")
