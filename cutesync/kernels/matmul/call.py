"""Matrix multiplication: ``activation(alpha * A B + beta * C + bias)`` in one launch, for any shapes and strides that
NumPy's ``@`` takes.

Operands are read in place where one of the last two strides is 1 (for float32 and 8 bits: that of K) and the other
strides and the base are multiples of 16 bytes. Others are copied into a workspace of the stream first.

float32 operands have two precisions. "float32" splits each into a big and a small part of 11 bits, and adds three
products (3xTF32). Errors are those of float32 arithmetic: on an H200 below 2**-20 of |a| |b|, as cuBLAS's; numbers
below 5e-35 keep fewer bits; infinities and NaN come out as NumPy's. The parts take a workspace three times the
operands. "tf32" rounds the operands to tfloat32 (11 bits of significand, to the nearest, as cuBLAS does) and multiplies
once, without a workspace if K is contiguous; above 3.402e38 that is infinity.

``fast_accumulation`` is for float8, whose tensor cores keep some 14 bits of a sum, and for float32, where they cut off
what is below 24 bits (on an H200 2e-5 of a sum of 8192 positive products).

Results are rounded once, to the nearest. Types of 8 bits saturate: an infinity is then the largest finite float8; NaN
stays, and is 0 as an integer. An int32 result takes no terms; sums beyond its range saturate.

With ``config="tune"`` the first call for a shape times the model's best few on the GPU, on results of their own, and
keeps the answer beside the compiled kernels, for later calls and processes. Without a GPU, and while a graph is
captured that asks for a shape not yet timed, the model's choice is taken.

Reading order: ``policy``, ``candidates`` and ``model`` (tiles, and which are chosen), ``scheduler`` (the order of
tiles), ``kernel`` (the producer, and what the consumers do), ``schedule``, ``mainloop``, ``epilogue``,
``split`` (how they do it); then the host side: ``checks``, ``terms``, ``problem`` (from arrays to launches), ``plan``
(one launch), ``run`` (all of a call), ``pack``.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np

from ...arguments import flag
from ...dtypes import FLOAT8, FLOAT32, as_float, number
from ...errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain, shown
from ...identity import identify
from ...runtime import arrays, device_array
from ...runtime.arrays import View
from ...runtime.device_array import DeviceArray
from . import tune
from .checks import check_c, element_types, result_shape, result_type, terms_of
from .policy import MatmulPolicy
from .problem import Product
from .run import Run, run_of

__all__ = ["MatmulPolicy", "matmul"]

_plans: dict[tuple, Plan] = {}
_adapters = arrays.ADAPTERS
_MAX_PLANS = 4096


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
    a, b : arrays (..., M, K) and (..., K, N), both float32, both float16, both bfloat16, both float8 (e4m3fn, e5m2 or
        one of each) or both of 8-bit integers (int8, uint8 or one of each); vectors and batches as in NumPy's ``@``.
        Any strides. NumPy (copied to the device and the result back), torch, CuPy, DeviceArray, or anything with
        DLPack or ``__cuda_array_interface__``.
    c : float array that broadcasts to the result. Read only if beta is not 0, checked always.
    alpha, beta : numbers. beta is by default 1 where c is given, and else 0; a beta other than 0 needs c.
    bias : (N,), an element for each column, or (M, 1), one for each row.
    activation : "relu", "gelu" (by erf), "gelu_tanh", "silu", "sigmoid", "tanh", or a callable of one float32 that the
        DSL can trace.
    out : where to write; right shape, any strides. May be ``c`` itself, else must not overlap the other arrays.
    out_dtype : "float32", "float16", "bfloat16", "float8_e4m3fn" or "float8_e5m2", for integers also "int32", "int8" or
        "uint8"; default that of ``out`` or ``a``, bfloat16 for float8 and int32 for integers.
    scale_a, scale_b : factors of the product: a number (also a NumPy array of no axes), multiplied into alpha, or a
        float32 array of one element, or of (M, 1) and (1, N), one a row of ``a`` and a column of ``b``.
    precision : of float32 operands: "float32" (also None), or "tf32", which rounds them to 11 bits of significand.
    fast_accumulation : of float8 and float32: True leaves sums to the tensor cores, False adds every 128 bytes of K to
        sums rounded to the nearest.
    batch_invariant : True never splits K, so that an element does not depend on how many others there are.
    config : None (a model of the GPU chooses), a ``MatmulPolicy``, or "tune" (measured in the first call for a shape).
    stream : None (the current stream of the library of ``a``), an int, or an object with ``__cuda_stream__``.

    Returns ``out``, or an array of the library of ``a`` with the shape of ``a @ b``; bitwise the same in every run.
    Raises ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError, CaptureError, WorkspaceError, NoGpuError.
    The module's docstring has the errors of each precision, how results are rounded, and what "tune" does.
    """
    options = Options(alpha, beta, activation, precision, fast_accumulation, batch_invariant)
    return _call(Arrays(a, b, c, bias, scale_a, scale_b), options, out, out_dtype, config, stream)


class Arrays(namedtuple("Arrays", "a b c bias scale_a scale_b", defaults=(None, None, None, None))):
    """The arrays that a call reads, as they are given or as ``View``s."""


class Options(
    namedtuple(
        "Options",
        "alpha beta activation precision fast_accumulation batch_invariant",
        defaults=(1.0, None, None, None, False, False),
    )
):
    """The other arguments that decide what is computed."""


def _call(given: Arrays, options: Options, out, out_dtype, config, stream):
    """``matmul``: find or make the plan, and run it."""
    a, b, c, bias, scale_a, scale_b = given
    if options.activation is not None and type(options.activation) is not str:
        options = options._replace(activation=identify(options.activation, "activation"))
    kind = type(a)
    adapter = _adapters.get(kind) or arrays.adapter(a, "a")
    if adapter is arrays.NUMPY:
        return _call_numpy(given, options, out, out_dtype, config, stream)
    pointer_a, signature_a = adapter.identify_strided(a)
    pointer_b, signature_b = (adapter if type(b) is kind else arrays.beside(b, "b")).identify_strided(b)
    pointer_c = pointer_bias = pointer_out = pointer_scale_a = pointer_scale_b = 0
    signature_c = signature_bias = signature_out = scales = None
    if c is not None:
        pointer_c, signature_c = _identify(c, "c")
    if bias is not None:
        pointer_bias, signature_bias = _identify(bias, "bias")
    if scale_a is not None or scale_b is not None:
        pointer_scale_a, of_a = _identify_scale(scale_a, "scale_a")
        pointer_scale_b, of_b = _identify_scale(scale_b, "scale_b")
        scales = of_a, of_b
    if out is not None:
        pointer_out, signature_out = (adapter if type(out) is kind else arrays.beside(out, "out")).identify_strided(out)
    key = (
        signature_a,
        signature_b,
        signature_c,
        signature_bias,
        signature_out,
        scales,
        options,
        out_dtype,
        config,
        (pointer_a | pointer_b | pointer_out) & 15 and (pointer_a & 15, pointer_b & 15, pointer_out & 15),
    )
    try:
        plan = _plans[key]
    except (KeyError, TypeError):
        plan = _plan(key, given, options, out, stream)
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
    """Everything a call with a known signature needs. ``empty`` makes a result on a stream (not where out is given).
    ``reads`` are, for each array that is read, its place among the addresses, and the bytes before and after it;
    ``writes`` the same bytes of D."""

    run: Run
    ordinal: int
    empty: Any
    reads: tuple[tuple[int, int, int], ...]
    writes: tuple[int, int]
    c_is_like_out: bool

    def overlaps(self, addresses: tuple[int, ...]) -> bool:
        """Whether the result would overwrite what is read."""
        out = addresses[2]
        low, high = out + self.writes[0], out + self.writes[1]
        for place, start, stop in self.reads:
            address = addresses[place]
            in_place = place == 3 and address == out and self.c_is_like_out
            if address + start < high and low < address + stop and not in_place:
                return True
        return False


def _plan(key: tuple, given: Arrays, options: Options, out, stream) -> Plan:
    """Check the arguments, build the plan and keep it."""
    out_dtype, config = key[-3:-1]
    given, options = _numbers_in_alpha(given, options)
    views = Arrays(
        *(None if x is None else arrays.checked(x, name, strided=True) for x, name in zip(given, Arrays._fields))
    )
    target = None if out is None else arrays.checked(out, "out", writable=True, strided=True)
    library = arrays.adapter(given.a)
    raw = library.stream(views.a.device) if stream is None else arrays.stream_handle(stream)
    plan = make_plan(views, target, options, out_dtype, config, raw, library)
    if len(_plans) >= _MAX_PLANS:
        _plans.clear()
    if config == "tune" and not tune.can_measure(plan.ordinal, raw):
        return plan  # perhaps not measured: the next call may
    try:
        _plans[key] = plan
    except TypeError:  # an argument that cannot be hashed: the plan serves once
        pass
    return plan


def _numbers_in_alpha(given: Arrays, options: Options) -> tuple[Arrays, Options]:
    """The same call with the scales that are numbers multiplied into alpha."""
    alpha = _number(options.alpha, "alpha")
    for name in ("scale_a", "scale_b"):
        if _is_number(getattr(given, name)):
            alpha, given = alpha * _number(getattr(given, name), name), given._replace(**{name: None})
    return given, options._replace(alpha=alpha)


def make_plan(
    views: Arrays, out: View | None, options: Options, out_dtype, config, stream: int, library=arrays.OWN
) -> Plan:
    """The plan of a call. ``views`` are of memory that a kernel may use; ``library`` makes the result."""
    a, b, c, bias, *scales = views
    for x, name in zip((*views[1:], out), (*Arrays._fields[1:], "out")):
        if x is not None:
            arrays.same_device(a, x, name)
    if not (config is None or isinstance(config, MatmulPolicy) or (isinstance(config, str) and config == "tune")):
        raise ArgumentTypeError(explain("config", shown(config), 'None, "tune" or a cutesync.matmul.MatmulPolicy'))
    beta = (0.0 if c is None else 1.0) if options.beta is None else options.beta
    alpha, beta = _number(options.alpha, "alpha"), _number(beta, "beta")
    fast = flag(options.fast_accumulation, "fast_accumulation", numbers=True)
    invariant = flag(options.batch_invariant, "batch_invariant", numbers=True)
    elements, shape = element_types(a, b, options.precision), result_shape(a.shape, b.shape)
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
    terms = terms_of(alpha, beta, c, bias, options.activation, tuple(scales), element, (m, n))
    tf32x3 = a.dtype is FLOAT32 and options.precision != "tf32"
    promoted = (a.dtype.name in FLOAT8 or tf32x3) and not fast
    product = Product(a, b, c, out, terms, elements, tf32x3, promoted, not invariant)
    addresses = tuple(x.ptr if x else 0 for x in (a, b, None, c, bias, *scales))
    run = run_of(product, config, (alpha, beta), addresses, stream)
    read = ((0, a), (1, b), (3, c if beta else None), (4, bias))
    reads = tuple(
        (place, x.span[0] - x.ptr, x.span[1] - x.ptr) for place, x in read if x is not None and x.span[0] != x.span[1]
    )
    like = c is not None and (c.shape, c.steps, c.dtype) == (out.shape, out.steps, out.dtype)
    return Plan(run, a.device, empty, reads, (out.span[0] - out.ptr, out.span[1] - out.ptr), like)


def _call_numpy(given: Arrays, options: Options, out, out_dtype, config, stream):
    """NumPy in, NumPy out, by way of the device."""
    raw = 0 if stream is None else arrays.stream_handle(stream)
    given, options = _numbers_in_alpha(given, options)
    copies: list[DeviceArray] = []
    views = Arrays(
        *(
            None if x is None and name not in ("a", "b") else _to_device(x, name, copies, raw)
            for name, x in zip(Arrays._fields, given)
        )
    )
    if out is not None:
        out_dtype = _check_numpy_out(out, views, out_dtype)
    plan = make_plan(views, None, options, out_dtype, config, raw)
    result = plan.empty(raw)
    a, b, *others = (0 if view is None else view.ptr for view in views)
    plan.run((a, b, result.ptr, *others), raw)
    host = device_array.to_numpy(result, raw)
    if out is None:
        return host[()]
    out[...] = host
    return out


def _to_device(x, name: str, copies: list[DeviceArray], stream: int) -> View:
    """A view of the copy, which ``copies`` keeps. A transposed array is copied as it lies."""
    if not isinstance(x, np.ndarray):
        raise DeviceError(
            explain(
                name,
                f"a {type(x).__name__} beside a NumPy a",
                "a NumPy array, or a number" if name.startswith("scale") else "a NumPy array",
            )
        )
    transposed = x.ndim > 1 and not x.flags.c_contiguous and np.swapaxes(x, -1, -2).flags.c_contiguous
    lying = np.swapaxes(x, -1, -2) if transposed else x
    copies.append(device_array.from_numpy(lying, arrays.adapter(x, name).view(x).dtype, stream=stream))
    view = arrays.checked(copies[-1], name, strided=True)
    if transposed:
        steps = view.steps
        view = View(view.ptr, x.shape, view.dtype, view.device, False, True, (*steps[:-2], steps[-1], steps[-2]))
    return view


def _check_numpy_out(out, views: Arrays, out_dtype):
    """The type of the result."""
    if not isinstance(out, np.ndarray):
        raise DeviceError(explain("out", f"a {type(out).__name__} for a NumPy a", "a NumPy array"))
    target = arrays.adapter(out, "out").view(out)
    if not target.writable:
        raise ArgumentValueError(explain("out", "a read-only array", "a writable one"))
    shape = result_shape(views.a.shape, views.b.shape)
    element = result_type(views.a, target.dtype if out_dtype is None else out_dtype)
    if target.shape != shape or target.dtype is not element:
        raise ArgumentValueError(
            explain("out", f"shape {target.shape} of {target.dtype}", f"shape {shape} of {element}")
        )
    if arrays.share_memory(out.shape, out.strides, out.itemsize):
        raise ArgumentValueError(
            explain("out", f"strides {out.strides}: elements share memory", "memory of its own for each element")
        )
    return element
