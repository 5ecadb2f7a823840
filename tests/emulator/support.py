"""Runs handwritten PTX on the emulator, so that a test needs neither the DSL nor a compiler."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from cutesync import emulator
from cutesync.emulator import EmulationError, ptx
from cutesync.emulator.codegen import Program
from cutesync.emulator.driver import Launch
from cutesync.emulator.run import Device, Settings, run_launch


def reported(kinds: str, words: str, run: Callable, *arguments, **options) -> str:
    """The report of ``run(*arguments, **options)``: of this kind (of one of several), and ``words`` match in it."""
    with pytest.raises(EmulationError, match=words or kinds.replace(" ", "|")) as found:
        run(*arguments, **options)
    assert found.value.kind in kinds.split(), found.value
    return str(found.value)


# A barrier and 16 bytes a thread: their addresses, the initialisation, a wait.
PROLOGUE = """
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, smem;
\tshl.b32 %r2, %r0, 4;
\tadd.u32 %r3, %r1, %r2;
\tadd.u32 %r3, %r3, 64;
\tcvt.u64.u32 %rd1, %r2;
\tadd.u64 %rd2, %a1, %rd1;
\tsetp.eq.u32 %p1, %r0, 0;"""
INIT = """
\t@%p1 mbarrier.init.shared.b64 [%r1], COUNT;
\t@%p1 fence.mbarrier_init.release.cluster;
\tbar.sync 0;"""
WAIT = """
WAIT:
\tmbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
\t@!%p2 bra WAIT;"""
HEADER = ".version 8.8\n.target sm_90a\n.address_size 64\n"


def kernel_text(body: str, parameters: int, registers: str = "", shared: int = 0) -> str:
    """A kernel ``k`` with 64-bit parameters ``p0..`` loaded into ``%a0..``, and the usual registers declared."""
    params = ",\n".join(f"\t.param .u64 p{i}" for i in range(parameters))
    loads = "\n".join(f"\tld.param.u64 %a{i}, [p{i}];" for i in range(parameters))
    memory = f"\t.shared .align 128 .b8 smem[{shared}];" if shared else ""
    return f"""{HEADER}.visible .entry k({params})
{{
\t.reg .pred %p<16>;
\t.reg .b16 %rs<32>;
\t.reg .b32 %r<64>;
\t.reg .b64 %rd<32>;
\t.reg .b64 %a<{max(parameters, 1)}>;
{memory}
{registers}
{loads}
{body}
\tret;
}}
"""


def launch(
    text: str,
    *arrays: np.ndarray,
    grid=(1, 1, 1),
    block=(32, 1, 1),
    cluster=(1, 1, 1),
    settings: Settings | None = None,
    **how: bool,
) -> Settings:
    """Run the one kernel of a PTX text with the arrays' addresses as its 64-bit parameters. ``how``: of ``Launch``."""
    module = ptx.parse(text)
    (function,) = module.functions.values()
    device, used = Device(), settings or Settings()
    parameters = b"".join(int(a.ctypes.data).to_bytes(8, "little") for a in arrays)
    with device.arrays(*arrays):
        run_launch(Launch(Program(function, module), grid, block, cluster, 0, parameters, **how), device, used)
    return used


def enqueue(text: str, x: np.ndarray, grid=(1, 1, 1), block=(1, 1, 1), **options) -> None:
    """``emulator.launch`` of a kernel with one parameter, the address of ``x``, under the settings in force."""
    with emulator.DEVICE.arrays(x):
        emulator.launch(text, grid, block, [x.ctypes.data], **options)


def lanes(instruction: str, *inputs: np.ndarray, out: str, settings: Settings | None = None) -> np.ndarray:
    """Apply PTX ``instruction`` to one vector a lane: ``$0`` is the destination, ``$1..`` the inputs. ``out`` is its
    dtype.
    """
    size = np.dtype(out).itemsize
    body, names = ["\tmov.u32 %r0, %tid.x;"], []
    prefix = {1: "%rs", 2: "%rs", 4: "%r", 8: "%rd"}
    for i, values in enumerate(inputs):
        width = values.itemsize
        name = f"{prefix[width]}{i + 10}"
        names.append(name)
        body += [
            f"\tmul.wide.u32 %rd1, %r0, {width};",
            f"\tadd.u64 %rd1, %rd1, %a{i + 1};",
            f"\tld.global.b{8 * width} {name}, [%rd1];",
        ]
    destination = f"{prefix[size]}30"
    text = re.sub(r"\$(\d)", lambda m: destination if m.group(1) == "0" else names[int(m.group(1)) - 1], instruction)
    body += [
        f"\t{text}",
        f"\tmul.wide.u32 %rd1, %r0, {size};",
        "\tadd.u64 %rd1, %rd1, %a0;",
        f"\tst.global.b{8 * size} [%rd1], {destination};",
    ]
    result = np.zeros(32, out)
    launch(kernel_text("\n".join(body), len(inputs) + 1), result, *inputs, settings=settings)
    return result


RANGES = {"f16": 8, "bf16": 8, "tf32": 8, "e4m3": 4, "e5m2": 3, "s8": 128, "u8": 256, "b1": 2}


def raw_of(kind: str, values: np.ndarray) -> np.ndarray:
    """Small integers -> raw elements, without the emulator's own tables."""
    if kind in ("f16", "tf32"):
        return values.astype(np.float16).view(np.uint16) if kind == "f16" else values.astype(np.float32).view(np.uint32)
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if kind in ("e4m3", "e5m2"):
        halves = values.astype(np.float16).view(np.uint16).astype(np.int64)
        if kind == "e5m2":
            return (halves >> 8).astype(np.uint8)
        magnitude = halves & 0x7FFF
        return np.where(magnitude == 0, 0, (magnitude >> 7) - ((15 - 7) << 3) | (halves >> 8) & 0x80).astype(np.uint8)
    return values.astype(np.int8).view(np.uint8)
