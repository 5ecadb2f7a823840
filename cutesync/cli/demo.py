"""``python -m cutesync demo``: runs every family on random data and compares with ``cutesync.reference``.

On a GPU the cases are large, and each is timed with CUDA events over buffers that together exceed the L2. On the
emulator they are small. It is an error if no kernel can run. ``--compile-only`` compiles every kernel for sm_90a and
reports that nothing ran.
"""

from __future__ import annotations

import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

import cutesync as cs

from .. import env
from ..arguments import choice
from ..dtypes import dtype as parse_dtype
from ..errors import NoGpuError
from ..runtime import backend, device
from ..runtime.kernel import collect
from . import demo_flags, demo_matmul, demo_patterns, demo_reduce, demo_scan, demo_segments, demo_select
from .demo_case import Case

FAMILIES: dict[str, Callable[[str], Iterable[Case]]] = {
    "reduce": demo_reduce.cases,
    "scan": demo_scan.cases,
    "flags": demo_flags.cases,
    "select": demo_select.cases,
    "segments": demo_segments.cases,
    "matmul": demo_matmul.cases,
    "patterns": demo_patterns.cases,
}
"""Family name to ``cases(place)``, where ``place`` is "gpu" (large), "emulator" (small) or "nowhere" (the large shapes,
compiled only)."""

_ROTATION_BYTES = 256 << 20  # inputs are rotated over this much memory: five times the L2 of an H200
_COPY_BYTES = 1 << 29
_BATCHES, _WARM_UP = 11, 3
_HEADER = f"{'operation':<30} {'dtype':<9} {'size':<14} {'time':>10} {'rate':>11} {'of copy':>8}  error"


def run(families: Sequence[str] = (), *, seed: int = 0, compile_only: bool = False) -> int:
    """Print the table. Return 0 if every case agreed (or compiled), else 1."""
    names = chosen(families)
    place, why = ("nowhere", "--compile-only was given") if compile_only else where()
    if place == "nowhere" and not compile_only:
        raise NoGpuError(f"nothing can run: {why}; demo --compile-only compiles the kernels")
    if place == "nowhere":
        return _compile(names, why)
    print(f"Running on {why}.")
    copy_rate = _copy_rate() if place == "gpu" else None
    if copy_rate:
        print(
            f"Copy rate: {copy_rate / 1e9:.0f} GB/s, bytes read and written, "
            f"{_COPY_BYTES >> 20} MiB copied on the device."
        )
    print(_HEADER)
    started = time.perf_counter()
    agreed = [_line(case, place, copy_rate, generator) for case, generator in drawn(names, place, seed)]
    failures = agreed.count(False)
    verdict = "all agree with NumPy" if not failures else f"{failures} DISAGREE OR FAILED"
    print(f"{len(agreed)} cases in {time.perf_counter() - started:.0f} s: {verdict}.")
    if place == "emulator":
        print(
            "Every launch was watched for races, deadlocks and misuse. No GPU was used: the times are the emulator's "
            "and say nothing about a GPU."
        )
    return 1 if failures else 0


def chosen(families: Sequence[str]) -> list[str]:
    """Return the families named, each once; all if none is named."""
    return list(dict.fromkeys(choice(name, "family", FAMILIES) for name in families)) or list(FAMILIES)


def drawn(families: Sequence[str], place: str, seed: int) -> Iterator[tuple[Case, np.random.Generator]]:
    """Yield the cases of families, each with the generator of its data."""
    cases = itertools.chain.from_iterable(FAMILIES[family](place) for family in families)
    for number, case in enumerate(cases, 1):
        yield case, np.random.default_rng([seed, number])


def where() -> tuple[str, str]:
    """Return ``(place, words)``: "gpu", "emulator" or "nowhere", and which GPU it is or why no kernel runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this function reports a missing GPU itself
        on_gpu = not backend.current().on_host
    if on_gpu:
        reason = device.unavailable()
        return ("nowhere", reason) if reason else ("gpu", f"{device.name(device.current())}, CUDA driver")
    absent = "there is no Hopper GPU; python -m cutesync info says more"
    why = "CUTESYNC_BACKEND asks for it" if env.BACKEND.get() == "emulator" else absent
    reason = _emulator_missing()
    return ("nowhere", reason) if reason else ("emulator", f"the emulator, with small sizes ({why})")


def _emulator_missing() -> str | None:
    """Return why the emulator takes no launches, or None if it does: try one small sum."""
    try:
        cs.sum(np.arange(3, dtype=np.int32))
    except (OSError, NoGpuError) as error:  # raised by a launch without a driver
        return f"there is no usable GPU, and no emulator takes launches ({error})"
    return None


def _compile(families: Sequence[str], why: str) -> int:
    why = why.rstrip(".")
    print(f"NOTHING RAN: {why}.")
    print("Compiling the demo's kernels for sm_90a instead.")
    started, failures, kernels = time.perf_counter(), 0, 0
    for case, _ in drawn(families, "nowhere", 0):
        before = time.perf_counter()
        try:
            with collect() as specs:
                case.prepare()
            for spec in specs.values():
                spec.kernel()
            kernels += len(specs)
            outcome = f"{len(specs)} kernel{'s' if len(specs) > 1 else ''}, {time.perf_counter() - before:.2f} s"
        except Exception as error:  # the table continues; the exit code reports the failure
            failures += 1
            outcome = f"FAILED  {type(error).__name__}: {error}"
        print(f"{case.operation:<30} {case.dtype:<9} {case.size:<14} {outcome}", flush=True)
    verdict = f"{kernels} kernels compiled for sm_90a" + (f", {failures} cases FAILED" if failures else "")
    print(f"{verdict}, in {time.perf_counter() - started:.0f} s. Nothing ran: {why}.")
    return 1 if failures else 0


def _line(case: Case, place: str, copy_rate: float | None, generator: np.random.Generator) -> bool:
    """Run one case and print its line. Return whether it agreed."""
    print(f"{case.operation:<30} {case.dtype:<9} {case.size:<14}", end=" ", flush=True)
    try:
        inputs = case.make(generator)
        expected = np.asarray(case.expected(*inputs))
        seconds, moved, results = (_time_on_gpu if place == "gpu" else _time_once)(case, inputs)
    except Exception as error:  # the table continues; the exit code reports the failure
        print(f"FAILED  {type(error).__name__}: {error}", flush=True)
        return False
    wrong, found = compare(results[0], expected, case.tolerance)
    if not wrong and results[0].tobytes() != results[1].tobytes():
        wrong, found = True, "two runs differ"
    rate, share = (
        ("-", "-") if copy_rate is None else (f"{moved / seconds / 1e9:.0f} GB/s", f"{moved / seconds / copy_rate:.1%}")
    )
    print(f"{_seconds(seconds):>10} {rate:>11} {share:>8}  {'MISMATCH ' if wrong else ''}{found}", flush=True)
    return not wrong


def compare(result: np.ndarray, expected: np.ndarray, tolerance: float) -> tuple[bool, str]:
    """Return ``(wrong, words)``. The words say the largest relative error, or how many entries differ."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return True, f"{result.dtype}{result.shape}, NumPy has {expected.dtype}{expected.shape}"
    if parse_dtype(expected.dtype).kind != "f":
        different = int(np.count_nonzero(result != expected))
        return different > 0, f"{different} of {expected.size} differ" if different else "equal"
    got, want = result.astype(np.float64), expected.astype(np.float64)
    odd = ~np.isfinite(want)
    if not np.array_equal(got[odd], want[odd], equal_nan=True):
        return True, "infinities or NaNs differ"
    got, want = got[~odd], want[~odd]
    worst = float(np.max(np.abs(got - want) / np.maximum(np.abs(want), np.finfo(np.float64).tiny), initial=0.0))
    return not worst <= tolerance, f"{worst:.1e}" if worst else "equal"


def _time_once(case: Case, inputs: tuple) -> tuple[float, int, list[np.ndarray]]:
    """Make two calls on the emulator. Return the seconds of the second, the bytes moved, and both results."""
    arrays = [cs.asarray(x) for x in inputs]
    first = case.call(*arrays)
    before = time.perf_counter()
    second = case.call(*arrays)
    seconds = time.perf_counter() - before
    return seconds, _bytes(arrays, first), [np.asarray(first), np.asarray(second)]


def _time_on_gpu(case: Case, inputs: tuple) -> tuple[float, int, list[np.ndarray]]:
    """Return the median seconds of a call, the bytes that it reads and writes, and the results of the first and the
    last call."""
    size = sum(x.nbytes for x in inputs)
    copies = [[cs.asarray(x) for x in inputs] for _ in range(max(2, -(-_ROTATION_BYTES // size)))]
    first = case.call(*copies[0])
    out = case.call(*copies[0])

    def batch() -> None:
        for arrays in copies:
            case.call(*arrays, out=out)

    seconds = _median_seconds(batch) / len(copies)
    return seconds, _bytes(copies[0], first), [np.asarray(first), np.asarray(out)]


def _bytes(inputs: Sequence, output) -> int:
    return sum(x.nbytes for x in inputs) + output.nbytes


def _median_seconds(work: Callable[[], None]) -> float:
    """Return the median time between two CUDA events on the default stream around ``work``, after warm-up."""
    cu, check = device.driver(), device.check
    events = [check(cu.cuEventCreate(0), "cuEventCreate") for _ in range(2)]
    times = []
    try:
        for _ in range(_WARM_UP):
            work()
        for _ in range(_BATCHES):
            check(cu.cuEventRecord(events[0], 0), "cuEventRecord")
            work()
            check(cu.cuEventRecord(events[1], 0), "cuEventRecord")
            check(cu.cuEventSynchronize(events[1]), "cuEventSynchronize")
            times.append(check(cu.cuEventElapsedTime(*events), "cuEventElapsedTime") / 1e3)
    finally:
        for event in events:
            cu.cuEventDestroy(event)
    return statistics.median(times)


def _copy_rate() -> float:
    """Return the bytes read and written per second by the driver's copy of a large buffer on the device."""
    source, target = cs.empty(_COPY_BYTES, "uint8"), cs.empty(_COPY_BYTES, "uint8")
    cu, copies = device.driver(), 4

    def batch() -> None:
        for _ in range(copies):
            device.check(cu.cuMemcpyDtoDAsync(target.ptr, source.ptr, _COPY_BYTES, 0), "cuMemcpyDtoDAsync")

    return 2 * _COPY_BYTES * copies / _median_seconds(batch)


def _seconds(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.1f} s"
