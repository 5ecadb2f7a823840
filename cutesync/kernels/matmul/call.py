"""Matrix multiplication: ``activation(alpha * A B + beta * C + bias)`` in one launch, for any shapes and strides that NumPy's ``@`` takes.

Reading order: ``config`` (tiles and the model that chooses them), ``scheduler`` (the order of tiles), ``kernel`` (producer and
consumers), ``epilogue``; then the host side: ``terms``, ``plan`` (one launch), ``problem`` (from arrays to launches), ``pack``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...arguments import flag
from ...dtypes import BY_NAME, FLOAT8, FLOAT32, as_float, number
from ...errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain, shown
from ...identity import identify
from ...runtime import arrays, device_array, forks, workspace
from ...runtime.arrays import View
from ...runtime.device_array import DeviceArray
from . import tune
from .plan import make_launch, make_pack, without_k
from .policy import MatmulPolicy
from .problem import Step, check_c, element_types, result_shape, result_type, steps_of, terms_of

__all__ = ["MatmulPolicy", "matmul"]

_plans: dict[tuple, Plan] = {}
_adapters = arrays.ADAPTERS
_MOST_PLANS = 4096
_packing = forks.lock()


def matmul(
    a,
    b,
    c=None,
    *,
    alpha=1.0,
    beta=None,
    bias=None,
    activation=None,
    out=None,
    out_dtype=None,
    scale_a=None,
    scale_b=None,
    precision=None,
    fast_accumulation=False,
    batch_invariant=False,
    config=None,
    stream=None,
):
    """``activation(alpha * (a @ b) + beta * c + bias)``, accumulated in float32 (in int32 for integers).

    Parameters
    ----------
    a, b : arrays (..., M, K) and (..., K, N), both float32, both float16, both bfloat16, both float8 (e4m3fn, e5m2 or one of each) or both
        of 8-bit integers (int8, uint8 or one of each); vectors and batches as in NumPy's ``@``. Any strides; read as they lie where one of
        the last two is 1 (for float32 and 8 bits: that of K) and the other strides and the base are multiples of 16 bytes, else copied into
        a workspace of the stream first. NumPy (copied to the device and the result back), torch, CuPy, DeviceArray, or anything with DLPack
        or ``__cuda_array_interface__``.
    c : float array that broadcasts to the result. Read only if beta is not 0, checked always.
    alpha, beta : numbers. beta is 1 where c is given, and else 0, unless it says otherwise; a beta other than 0 needs c.
    bias : (N,), an element for each column, or (M, 1), one for each row.
    activation : "relu", "gelu" (by erf), "gelu_tanh", "silu", "sigmoid", "tanh", or a callable of one float32 that the DSL can trace.
    out : where to write; right shape, any strides. May be ``c`` itself, else must not overlap the other arrays. Returned.
    out_dtype : "float32", "float16", "bfloat16", "float8_e4m3fn" or "float8_e5m2", for integers also "int32", "int8" or "uint8"; default that
        of ``out`` or ``a``, bfloat16 for float8 and int32 for integers. Rounded once, to the nearest; types of 8 bits saturate (an infinity
        is then the largest finite float8, NaN stays, and is 0 as an integer). An int32 result takes no terms; sums beyond its range saturate.
    scale_a, scale_b : factors of the product: a number (also a NumPy array of no axes), which is multiplied into alpha, or a float32 array of
        one element, or of (M, 1) and (1, N), one a row of ``a`` and a column of ``b``.
    precision : of float32 operands. "float32" (also None) multiplies each in two parts of 11 bits, in three products. Errors are those of
        float32 arithmetic: on an H200 below 2**-20 of |a| |b|, as cuBLAS's; numbers below 5e-35 keep fewer bits; infinities and NaN come
        out as NumPy's. The parts take a workspace three times the operands. "tf32" rounds the operands to tfloat32 (11 bits of significand,
        to the nearest, as cuBLAS does) and multiplies once, without a workspace if K is contiguous; above 3.402e38 that is infinity.
    fast_accumulation : for float8, whose tensor cores keep some 14 bits of a sum, and float32, where they cut off what is below 24 (on an H200
        2e-5 of a sum of 8192 positive products): True leaves it at that, False adds every 128 bytes of K to sums rounded to the nearest.
    batch_invariant : True never cuts K into shares, so that an element of the result does not depend on how many others there are.
    config : None (chosen by a model of the GPU), a ``MatmulPolicy``, or "tune": the first call for a shape times the model's best few on the GPU, on
        results of their own, and keeps the answer beside the compiled kernels, for later calls and processes. Without a GPU, and while a
        graph is captured that asks for a shape not yet timed, that is the model's choice.
    stream : None (the current stream of the library of ``a``), an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    array of the library of ``a`` with the shape of ``a @ b``. Bitwise the same in every run.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError, CaptureError, WorkspaceError, NoGpuError.
    """
    if activation is not None and type(activation) is not str:
        activation = identify(activation, "activation")
    kind = type(a)
    adapter = _adapters.get(kind) or arrays.adapter(a, "a")
    if adapter is arrays.NUMPY:
        return _call_numpy(
            (a, b, c, bias, scale_a, scale_b),
            (alpha, beta, activation, precision, fast_accumulation, batch_invariant),
            out,
            out_dtype,
            config,
            stream,
        )
    pointer_a, signature_a = adapter.identify_strided(a)
    pointer_b, signature_b = (adapter if type(b) is kind else arrays.beside(b, "b")).identify_strided(b)
    pointer_c = pointer_bias = pointer_out = pointer_scale_a = pointer_scale_b = 0
    signature_c = signature_bias = signature_out = scales = None
    if c is not None:
        pointer_c, signature_c = _identify(c, "c")
    if bias is not None:
        pointer_bias, signature_bias = _identify(bias, "bias")
    if scale_a is not None or scale_b is not None:
        (pointer_scale_a, of_a), (pointer_scale_b, of_b) = (
            _identify_scale(scale_a, "scale_a"),
            _identify_scale(scale_b, "scale_b"),
        )
        scales = (of_a, of_b)
    if out is not None:
        pointer_out, signature_out = (adapter if type(out) is kind else arrays.beside(out, "out")).identify_strided(out)
    key = (
        signature_a,
        signature_b,
        signature_c,
        signature_bias,
        signature_out,
        scales,
        alpha,
        beta,
        activation,
        precision,
        fast_accumulation,
        batch_invariant,
        out_dtype,
        config,
        (pointer_a | pointer_b | pointer_out) & 15 and (pointer_a & 15, pointer_b & 15, pointer_out & 15),
    )
    try:
        plan = _plans[key]
    except (KeyError, TypeError):
        plan = _plan(key, (a, b, c, bias, scale_a, scale_b), out, stream)
    raw = adapter.stream(plan.ordinal) if stream is None else arrays.stream_handle(stream)
    if out is None:
        out = plan.empty(raw, stream is not None)
        pointer_out = adapter.address(out)
    addresses = (pointer_a, pointer_b, pointer_out, pointer_c, pointer_bias, pointer_scale_a, pointer_scale_b)
    if signature_out is not None and plan.overlaps(addresses):
        raise ArgumentValueError(explain("out", "memory that overlaps an operand", "memory of its own, or c itself"))
    plan.run(addresses, raw)
    return out


def _identify(x, argument: str) -> tuple[int, object]:
    return (0, None) if x is None else arrays.beside(x, argument).identify_strided(x)


def _identify_scale(x, argument: str) -> tuple[int, object]:
    """A number is known by its value."""
    return (0, _number(x, argument)) if _is_number(x) else _identify(x, argument)


def _is_number(x) -> bool:
    return isinstance(x, (int, float, complex, np.generic)) or (type(x) is np.ndarray and not x.shape)


def _number(value, argument: str) -> float:
    return as_float(number(value, argument), argument)


class Plan(NamedTuple):
    """Everything a call with a known signature needs. ``run`` takes the addresses of A, B, D, C, the bias and the scales, and the stream."""

    run: Callable[[tuple[int, ...], int], None]
    ordinal: int
    empty: Callable[..., Any] | None  # makes a result on a stream; None where out is given
    reads: tuple[
        tuple[int, int, int], ...
    ]  # of each array that is read: its place among the addresses, and the bytes before and after it
    writes: tuple[int, int]  # the same bytes of D
    c_is_like_out: bool

    def overlaps(self, addresses: tuple[int, ...]) -> bool:
        """Whether the result would overwrite what is read."""
        out = addresses[2]
        low, high = out + self.writes[0], out + self.writes[1]
        for place, start, stop in self.reads:
            address = addresses[place]
            if (
                address + start < high
                and low < address + stop
                and not (place == 3 and address == out and self.c_is_like_out)
            ):
                return True
        return False


_NAMES = ("a", "b", "c", "bias", "scale_a", "scale_b")


def _plan(key: tuple, given: tuple, out, stream) -> Plan:
    """Check the arguments, build the plan and keep it."""
    *_, alpha, beta, activation, precision, fast, whole, out_dtype, config, _ = key
    given, alpha = _numbers_in_alpha(given, alpha)
    views = tuple(None if x is None else arrays.checked(x, name, strided=True) for x, name in zip(given, _NAMES))
    target = None if out is None else arrays.checked(out, "out", writable=True, strided=True)
    raw = arrays.adapter(given[0]).stream(views[0].device) if stream is None else arrays.stream_handle(stream)
    plan = make_plan(
        views,
        target,
        (alpha, beta, activation, precision, fast, whole),
        out_dtype,
        config,
        raw,
        arrays.adapter(given[0]),
    )
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    if config == "tune" and not tune.can_measure(plan.ordinal, raw):
        return plan  # perhaps not measured: the next call may
    try:
        _plans[key] = plan
    except TypeError:  # an argument that cannot be hashed: the plan serves once
        pass
    return plan


def _numbers_in_alpha(given: tuple, alpha) -> tuple[tuple, float]:
    """The arrays of a call, and alpha times those of its scales that are numbers."""
    alpha, arrays_ = _number(alpha, "alpha"), list(given)
    for i in (4, 5):
        if _is_number(given[i]):
            alpha, arrays_[i] = alpha * _number(given[i], _NAMES[i]), None
    return tuple(arrays_), alpha


def make_plan(
    views: tuple[View | None, ...], out: View | None, numbers: tuple, out_dtype, config, stream: int, library=arrays.OWN
) -> Plan:
    """The plan of a call: ``views`` of A, B, C, the bias and the scales, which a kernel may use, and ``numbers``: alpha, beta, the
    activation, the precision of float32, whether sums are left to the tensor cores, and whether K stays whole. ``library`` makes the result."""
    (a, b, c, bias, *scales), (alpha, beta, activation, precision, fast, whole) = views, numbers
    for x, name in zip((*views[1:], out), (*_NAMES[1:], "out")):
        if x is not None:
            arrays.same_device(a, x, name)
    if not (config is None or isinstance(config, MatmulPolicy) or (isinstance(config, str) and config == "tune")):
        raise ArgumentTypeError(explain("config", shown(config), 'None, "tune" or a cutesync.matmul.MatmulPolicy'))
    alpha, beta = _number(alpha, "alpha"), _number((0.0 if c is None else 1.0) if beta is None else beta, "beta")
    fast, whole = flag(fast, "fast_accumulation", numbers=True), flag(whole, "batch_invariant", numbers=True)
    elements, shape = element_types(a, b, precision), result_shape(a.shape, b.shape)
    element = result_type(a, out_dtype if out is None or out_dtype is not None else out.dtype)
    empty = library.allocator(shape, element, a.device) if out is None else None
    if out is None:
        out = View(0, shape, element, a.device, True)
    elif out.shape != shape or out.dtype is not element:
        raise ArgumentValueError(explain("out", f"shape {out.shape} of {out.dtype}", f"shape {shape} of {element}"))
    if arrays.share_memory(out.shape, out.steps):
        raise ArgumentValueError(
            explain("out", f"strides {out.steps}: elements share memory", "memory of its own for each element")
        )
    m, n = (a.shape[-2] if len(a.shape) > 1 else 1), (b.shape[-1] if len(b.shape) > 1 else 1)
    if c is not None:
        check_c(c, shape)
    terms = terms_of(alpha, beta, c, bias, activation, tuple(scales), element, m, n)
    run: Callable[[tuple[int, ...], int], None] = _nothing
    if out.size:
        parted = a.dtype is FLOAT32 and precision != "tf32"
        promoted = (a.dtype.name in FLOAT8 or parted) and not fast
        if isinstance(config, MatmulPolicy):
            config = replace(config, promoted=promoted, splits=1 if whole else config.splits)
        turned, steps = steps_of(a, b, c, out, terms, elements, parted, promoted, not whole)
        given = tuple(x.ptr if x else 0 for x in (a, b, None, c, bias, *scales))
        runs = []
        for step in steps:
            use = config
            if isinstance(config, str):
                use = (
                    tune.choose(
                        step.problem, _trials(step, turned, given, out, alpha, beta, a.device, stream), a.device, stream
                    )
                    if step.problem.k
                    else None
                )
            runs.append((step.offsets, _run_of(step, use, alpha, beta, a.device, stream)))
        run = _in_turn(runs, turned)
    read = ((0, a), (1, b), (3, c if beta else None), (4, bias))
    reads = tuple(
        (place, x.span[0] - x.ptr, x.span[1] - x.ptr) for place, x in read if x is not None and x.span[0] != x.span[1]
    )
    like = c is not None and (c.shape, c.steps, c.dtype) == (out.shape, out.steps, out.dtype)
    return Plan(run, a.device, empty, reads, (out.span[0] - out.ptr, out.span[1] - out.ptr), like)


def _nothing(addresses: tuple[int, ...], stream: int) -> None:
    """The run of an empty result."""
    del addresses, stream


def _run_of(
    step: Step, config: MatmulPolicy | None, alpha: float, beta: float, ordinal: int, stream: int
) -> Callable[[tuple[int, ...], int], None]:
    """One function for a step: pack what must be, then launch."""
    if step.problem.k == 0:
        problem, zeros = without_k(step.problem, ordinal)
        launch = make_launch(problem, config, alpha, beta, ordinal, stream)
        return lambda addresses, stream: launch.run((zeros.ptr, zeros.ptr, *addresses[2:]), stream)
    launch = make_launch(step.problem, config, alpha, beta, ordinal, stream)
    if step.packs == (None, None):
        return launch.run
    element, packs, size = step.problem.elements[0], [], 0
    for i, job in enumerate(step.packs):
        if job is not None:
            packs.append((i, size, make_pack(job, element, ordinal, stream)))
            size += -(-job.elements * element.size // 256) * 256

    def run(addresses: tuple[int, ...], stream: int) -> None:
        given = list(addresses)
        with _packing:  # another thread's launches on this stream come before these or after
            held = workspace.scratch(ordinal, stream, size)
            copies = held.addresses[0]
            for i, offset, pack in packs:
                pack.run(given[i], copies + offset, stream)
                given[i] = copies + offset
            launch.run(tuple(given), stream)

    return run


def _trials(
    step: Step, turned: bool, given: tuple[int, ...], out: View, alpha: float, beta: float, ordinal: int, stream: int
):
    """From a configuration to a function that does this step with it, into a result of its own, which all of them share."""
    result: list[DeviceArray] = []

    def trial(config: MatmulPolicy) -> Callable[[], None]:
        before = out.ptr - out.span[0]  # a negative stride reaches before the address
        if not result:
            result.append(
                device_array.allocate((out.span[1] - out.span[0] + 2 * 16,), BY_NAME["uint8"], ordinal, stream)
            )
        into = result[0].ptr + before + -before % 16 + out.ptr % 16  # as aligned as the result itself
        run = _in_turn([(step.offsets, _run_of(step, config, alpha, beta, ordinal, stream))], turned)
        return lambda: run((*given[:2], into, *given[3:]), stream)

    return trial


def _in_turn(runs: list[tuple[tuple[int, ...], Callable]], turned: bool) -> Callable[[tuple[int, ...], int], None]:
    """One function for all steps, each with what it adds to the addresses."""
    if len(runs) == 1 and not turned and not any(runs[0][0]):
        return runs[0][1]

    def run(addresses: tuple[int, ...], stream: int) -> None:
        if turned:
            a, b, d, c, bias, scale_a, scale_b = addresses
            addresses = (b, a, d, c, bias, scale_b, scale_a)
        for offsets, step in runs:
            step(tuple(address + offset for address, offset in zip(addresses, offsets)), stream)

    return run


def _call_numpy(given: tuple, numbers: tuple, out, out_dtype, config, stream):
    """NumPy in, NumPy out, by way of the device. A transposed array is copied as it lies."""
    raw = 0 if stream is None else arrays.stream_handle(stream)
    given, alpha = _numbers_in_alpha(given, numbers[0])
    views, held = [], []
    for name, x in zip(_NAMES, given):
        if x is None and name not in ("a", "b"):
            views.append(None)
            continue
        if not isinstance(x, np.ndarray):
            raise DeviceError(
                explain(
                    name,
                    f"a {type(x).__name__} beside a NumPy a",
                    "a NumPy array, or a number" if name.startswith("scale") else "a NumPy array",
                )
            )
        lies_turned = x.ndim > 1 and not x.flags.c_contiguous and np.swapaxes(x, -1, -2).flags.c_contiguous
        array = device_array.from_numpy(
            np.swapaxes(x, -1, -2) if lies_turned else x, arrays.adapter(x, name).view(x).dtype, stream=raw
        )
        held.append(array)
        view = arrays.checked(array, name, strided=True)
        if lies_turned:
            steps = view.steps
            view = View(view.ptr, x.shape, view.dtype, view.device, False, True, (*steps[:-2], steps[-1], steps[-2]))
        views.append(view)
    if out is not None:
        if not isinstance(out, np.ndarray):
            raise DeviceError(explain("out", f"a {type(out).__name__} for a NumPy a", "a NumPy array"))
        target = arrays.adapter(out, "out").view(out)
        if not target.writable:
            raise ArgumentValueError(explain("out", "a read-only array", "a writable one"))
        shape, element = (
            result_shape(views[0].shape, views[1].shape),
            result_type(views[0], target.dtype if out_dtype is None else out_dtype),
        )
        if target.shape != shape or target.dtype is not element:
            raise ArgumentValueError(
                explain("out", f"shape {target.shape} of {target.dtype}", f"shape {shape} of {element}")
            )
        if arrays.share_memory(out.shape, out.strides, out.itemsize):
            raise ArgumentValueError(
                explain("out", f"strides {out.strides}: elements share memory", "memory of its own for each element")
            )
        out_dtype = element
    plan = make_plan(tuple(views), None, (alpha, *numbers[1:]), out_dtype, config, raw)
    result = plan.empty(raw)
    pointers = [0 if view is None else view.ptr for view in views]
    plan.run((*pointers[:2], result.ptr, *pointers[2:]), raw)
    host = device_array.to_numpy(result, raw)
    if out is None:
        return host[()]
    out[...] = host
    return out
