"""``python -m cutesync demo``: runs every family on random data and compares with ``cutesync.reference``.

On a GPU the cases are large, and each is timed with CUDA events over buffers that together exceed the L2. On the
emulator they are small. It is an error if no kernel can run. ``--compile-only`` compiles every kernel for sm_90a and
reports that nothing ran.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import env
from ..dtypes import dtype as parse_dtype
from ..errors import ArgumentValueError, NoGpuError, explain
from ..runtime import backend, device
from ..runtime.kernel import collect
from . import demo_flags, demo_matmul, demo_patterns, demo_reduce, demo_scan

FAMILIES: dict[str, Callable[[str], Iterable[Case]]] = {
    "reduce": demo_reduce.cases,
    "scan": demo_scan.cases,
    "flags": demo_flags.cases,
    "matmul": demo_matmul.cases,
    "patterns": demo_patterns.cases,
}
"""Family name to ``cases(place)``, where ``place`` is "gpu" (large), "emulator" (small) or "nowhere" (the large shapes,
compiled only)."""

_ROTATION_BYTES = 256 << 20  # inputs are rotated over this much memory: five times the L2 of an H200
_COPY_BYTES = 1 << 29
_BATCHES, _WARM_UP = 11, 3
_HEADER = f"{'operation':<30} {'dtype':<9} {'size':<14} {'time':>10} {'rate':>11} {'of copy':>8}  error"


@dataclass(frozen=True)
class Case:
    """One line of the table.

    ``make(generator)`` returns the NumPy inputs. ``call(*arrays, out=None)`` is the public call on device arrays, and
    ``expected(*inputs)`` its NumPy meaning. ``tolerance`` bounds the relative error; 0 requires equality.
    """

    operation: str
    dtype: str
    size: str
    make: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    call: Callable[..., Any]
    expected: Callable[..., np.ndarray]
    tolerance: float = 0.0

    def prepare(self) -> None:
        """Make the call, in a dry run (see ``runtime.kernel.collect``)."""
        import cutesync as cs

        self.call(*map(cs.asarray, self.make(np.random.default_rng(0))))


def run(families: Sequence[str] = (), *, seed: int = 0, compile_only: bool = False) -> int:
    """Print the table. Return 0 if every case agreed (or compiled), else 1."""
    for name in families:
        if name not in FAMILIES:
            raise ArgumentValueError(explain("family", repr(name), " or ".join(map(repr, FAMILIES))))
    place, why = ("nowhere", "--compile-only was given") if compile_only else where()
    chosen = list(dict.fromkeys(families)) or list(FAMILIES)
    if place == "nowhere" and not compile_only:
        raise NoGpuError(f"nothing can run: {why}; demo --compile-only compiles the kernels")
    if place == "nowhere":
        return _compile(chosen, why)
    print(f"Running on {why}.")
    copy_rate = _copy_rate() if place == "gpu" else None
    if copy_rate:
        print(
            f"Copy rate: {copy_rate / 1e9:.0f} GB/s, bytes read and written, "
            f"{_COPY_BYTES >> 20} MiB copied on the device."
        )
    print(_HEADER)
    started, failures, total = time.perf_counter(), 0, 0
    for family in chosen:
        for case in FAMILIES[family](place):
            total += 1
            failures += not _line(case, place, copy_rate, np.random.default_rng([seed, total]))
    verdict = "all agree with NumPy" if not failures else f"{failures} DISAGREE OR FAILED"
    print(f"{total} cases in {time.perf_counter() - started:.0f} s: {verdict}.")
    if place == "emulator":
        print(
            "Every launch was watched for races, deadlocks and misuse. No GPU was used: the times are the emulator's "
            "and say nothing about a GPU."
        )
    return 1 if failures else 0


def where() -> tuple[str, str]:
    """Return ``(place, words)``: "gpu", "emulator" or "nowhere", and which GPU it is or why no kernel runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this function reports a missing GPU itself
        on_gpu = not backend.current().on_host
    if on_gpu:
        reason = device.unavailable()
        if reason:
            return "nowhere", reason
        return "gpu", f"{device.name(device.current())}, CUDA driver"
    reason = _emulator_missing()
    return ("nowhere", reason) if reason else ("emulator", f"the emulator, with small sizes ({_why_not_the_gpu()})")


def _why_not_the_gpu() -> str:
    return (
        "CUTESYNC_BACKEND asks for it"
        if env.BACKEND.get() == "emulator"
        else "there is no Hopper GPU; python -m cutesync info says more"
    )


def _emulator_missing() -> str | None:
    """Return why the emulator takes no launches, or None if it does: try one small sum."""
    import cutesync as cs

    try:
        cs.sum(np.arange(3, dtype=np.int32))
    except (OSError, NoGpuError) as error:  # raised by a launch without a driver
        return f"there is no usable GPU, and no emulator takes launches ({error})"
    return None


def _compile(families: Sequence[str], why: str) -> int:
    why = why.rstrip(".")
    print(f"NOTHING RAN: {why}.")
    print("Compiling the demo's kernels for sm_90a instead.")
    started, failures, names = time.perf_counter(), 0, 0
    for family in families:
        for case in FAMILIES[family]("nowhere"):
            before = time.perf_counter()
            try:
                with collect() as specs:
                    case.prepare()
                for spec in specs.values():
                    spec.kernel()
                made = len(specs)
                names += made
                outcome = f"{made} kernel{'s' if made > 1 else ''}, {time.perf_counter() - before:.2f} s"
            except Exception as error:  # the table continues; the exit code reports the failure
                failures += 1
                outcome = f"FAILED  {type(error).__name__}: {error}"
            print(f"{case.operation:<30} {case.dtype:<9} {case.size:<14} {outcome}", flush=True)
    verdict = f"{names} kernels compiled for sm_90a" + (f", {failures} cases FAILED" if failures else "")
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
    import cutesync as cs

    arrays = [cs.asarray(x) for x in inputs]
    first = case.call(*arrays)
    before = time.perf_counter()
    second = case.call(*arrays)
    seconds = time.perf_counter() - before
    return seconds, _bytes(arrays, first), [np.asarray(first), np.asarray(second)]


def _time_on_gpu(case: Case, inputs: tuple) -> tuple[float, int, list[np.ndarray]]:
    """Return the median seconds of a call, the bytes that it reads and writes, and the results of the first and the
    last call."""
    import cutesync as cs

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
    import cutesync as cs

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
