"""Matrix multiplication: ``activation(alpha * A B + beta * C + bias)``, or with a callable of two values
``activation(alpha * A B + bias, C)``, in one launch, for any shapes and strides that NumPy's ``@`` takes.

Operands are read in place where one of the last two strides is 1 (for float32 and 8 bits: that of K) and the other
strides and the base are multiples of 16 bytes. Others are loaded by the kernel's own threads where the product is small
or thin, in the same launch, and else copied into a workspace of the stream first.

float32 operands have two precisions. "float32" splits each into a big and a small part of 11 bits, and adds three
products (3xTF32). Errors are those of float32 arithmetic: on an H200 below 2**-20 of |a| |b|, as cuBLAS's; numbers
below 5e-35 keep fewer bits; infinities and NaN come out as NumPy's. Small and thin operands are split in the kernel;
the parts of others take a workspace three times the operands. "tf32" rounds the operands to tfloat32 (11 bits of
significand, to the nearest, as cuBLAS does) and multiplies once, without a workspace if K is contiguous; above 3.402e38
that is infinity.

``fast_accumulation`` is for float8, whose tensor cores keep some 14 bits of a sum, and for float32, where they cut off
what is below 24 bits (on an H200 2e-5 of a sum of 8192 positive products). Without it every 128 bytes of K are added to
sums rounded to the nearest.

An activation of two values takes the element of C as the second, as a float32 (True is 1). C may then be of any type
that operands and results have, or bool: a gate, a mask, or what a gradient needs.

Results are rounded once, to the nearest. Types of 8 bits saturate: an infinity is then the largest finite float8; NaN
stays, and is 0 as an integer. An int32 result takes no terms and stands alone; sums beyond its range saturate.

The results of a call with ``pre_activation`` or ``amax`` are a tuple, as is ``out``: the result; what was before the
activation, rounded from the same float32 as the activation takes, by default to the type of the result; the largest
magnitude of the result before it is rounded (NaN if one is NaN, 0 for an empty result). Each has memory of its own, and
none is C. Two results have no deferred epilogue. A launch of one warp clears the largest magnitude before the product.

With ``config="tune"`` the first call for a shape times the model's best few on the GPU, on results of their own, and
keeps the answer beside the compiled kernels, for later calls and processes. Without a GPU, and while a graph is
captured that asks for a shape not yet timed, the model's choice is taken.

Reading order: ``policy``, ``candidates`` and ``model`` (tiles, and which are chosen), ``scheduler`` (the order of
tiles), ``kernel`` (the producer, and what the consumers do), ``loads`` and ``own`` (how operands are loaded),
``schedule``, ``mainloop``, ``epilogue``, ``c_loads``, ``split`` (how they do it); then the host side: ``checks``,
``terms``, ``problem`` (from arrays to launches), ``invariant``, ``plan`` (one launch), ``run`` (all of a call),
``pack``, ``pack_plan``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...arguments import flag
from ...dtypes import FLOAT8, FLOAT32, DType, as_float, number
from ...errors import ArgumentTypeError, explain, shown
from ...identity import Identity, identify
from ...runtime import arrays, backend
from ...runtime.call import Family, Spec, Views, front_end
from ...runtime.launch import Run
from ...runtime.view import View
from ...types import A, Array, DTypeLike, Operator, Scalar, Stream
from .. import args as args_of
from ..states import NO_ARGS, Argument, numbered, typed
from .checks import bias_step, check_c, element_types, result_shape, result_types, terms_of, with_results
from .policy import MatmulPolicy
from .problem import Product
from .run import run_of
from .terms import TermsSpec, takes_c

INPUTS = ("a", "b", "c", "bias", "scale_a", "scale_b")


def matmul(
    a: A,
    b: Array,
    c: Array = None,
    *,
    alpha: Scalar = 1.0,
    beta: Scalar | None = None,
    bias: Array = None,
    activation: Operator | None = None,
    out: Array = None,
    out_dtype: DTypeLike = None,
    scale_a: Scalar | Array = None,
    scale_b: Scalar | Array = None,
    precision: str | None = None,
    fast_accumulation: bool = False,
    batch_invariant: bool = False,
    config: MatmulPolicy | str | None = None,
    pre_activation: bool = False,
    amax: bool = False,
    args: tuple = NO_ARGS,
    stream: Stream = None,
) -> A | Any:
    """``activation(alpha * (a @ b) + beta * c + bias)``, accumulated in float32 (in int32 for integers).

    Parameters
    ----------
    a, b : arrays (..., M, K) and (..., K, N), both float32, both float16, both bfloat16, both float8 (e4m3fn, e5m2 or
        one of each) or both of 8-bit integers (int8, uint8 or one of each); vectors and batches as in NumPy's ``@``.
        NumPy (copied), torch, CuPy, DeviceArray, or anything with DLPack or ``__cuda_array_interface__``; any strides.
    c : float array that broadcasts to the result; read only if beta is not 0. For an activation of two: any type, bool.
    alpha, beta : numbers. beta is by default 1 where c is given, and else 0; a beta other than 0 needs c.
    bias : (N,), an element for each column, or (M, 1), one for each row, of any strides.
    activation : "relu", "gelu" (by erf), "gelu_tanh", "silu", "sigmoid", "tanh", or a callable that the DSL can trace,
        of one float32, or of two: ``activation(alpha * (a @ b) + bias, c)`` does not add c, and takes no beta.
    out : where to write; right shape, any strides. One result may be ``c`` itself; else no array may be overlapped.
    out_dtype : "float32", "float16", "bfloat16", "float8_e4m3fn" or "float8_e5m2", for integers also "int32", "int8" or
        "uint8"; default that of ``out`` or ``a``, bfloat16 for float8, int32 for integers. See pre_activation.
    scale_a, scale_b : factors of the product: a number (also a NumPy array of no axes), multiplied into alpha, or a
        float32 array of one element, or of (M, 1) and (1, N), one a row of ``a`` and a column of ``b``.
    precision : of float32 operands: "float32" (also None), or "tf32", which rounds them to 11 bits of significand.
    fast_accumulation : of float8 and float32: True leaves sums to the tensor cores (see the module's docstring).
    batch_invariant : True gives a row the same bits for any M: N, K and types decide how K is split (``invariant``).
    config : None (a model of the GPU chooses), a ``MatmulPolicy``, or "tune" (measured in the first call for a shape).
    pre_activation : True also returns what was before the activation; ``out_dtype`` may be a pair for both.
    amax : True also returns the largest magnitude before the result is rounded: a float32 array of no axes, the last.
    args : numbers, or arrays of one element, that a callable takes behind its values; new ones compile nothing.
    stream : None (the current stream of the library of ``a``), an int, or an object with ``__cuda_stream__``.

    Returns ``out``, or an array of the library of ``a`` with the shape of ``a @ b``, or a tuple; the same in every run.
    Errors: ``cutesync.errors``. The module's docstring has the precision, how results are rounded, and "tune"."""
    if activation is not None and type(activation) is not str:
        activation = identify(activation, "activation")
    if scale_a is not None or scale_b is not None:
        alpha, scale_a, scale_b = _numbers_in_alpha(alpha, scale_a, scale_b)
    given = (alpha, beta, activation, out_dtype, precision, fast_accumulation, batch_invariant, config)
    if pre_activation is False and amax is False and args is NO_ARGS:
        if c is None and bias is None and scale_a is None and scale_b is None:
            return _call_plain(given, a, out, stream, (b,))
        return _call(given, a, out, stream, (b, c, bias, scale_a, scale_b))
    return _several(given, (pre_activation, amax, args), a, out, stream, (b, c, bias, scale_a, scale_b))


def _several(given: tuple, wanted: tuple, a: Any, out: Any, stream: Any, others: tuple) -> Any:
    """A call with ``wanted`` = ("pre_activation", "amax", "args")."""
    pre_activation, amax, args = wanted
    flags = flag(pre_activation, "pre_activation"), flag(amax, "amax")
    kinds, arguments = args_of.split(args)
    return _call_of(*flags, kinds)((*given, *flags, kinds), a, out, stream, (*others, *arguments))


@functools.lru_cache(maxsize=256)
def _call_of(pre_activation: bool, amax: bool, kinds: tuple) -> Callable:
    """The front end of calls with these results, and with run-time arguments of these ``kinds`` (``args.split``)."""
    names = tuple(f"args[{i}]" for i, kind in enumerate(kinds) if kind is None)
    places = tuple(len(INPUTS) + i for i, kind in enumerate(kinds) if kind is not None)
    plan = args_of.plan_with_numbers(_plan, places, lambda spec: spec.terms.args) if places else _plan
    outputs = 1 + pre_activation + amax
    return front_end(
        Family("matmul", INPUTS + names, _parse, plan, outputs, True, True, numbers=INPUTS[4:], keep=_keep)
    )


class Arguments(NamedTuple):
    """What ``matmul`` was given, arrays aside, in the order in which it is passed on."""

    alpha: Any
    beta: Any
    activation: Any
    out_dtype: Any
    precision: Any
    fast_accumulation: Any
    batch_invariant: Any
    config: Any
    pre_activation: bool = False
    amax: bool = False
    kinds: tuple = NO_ARGS  # of run-time arguments


@dataclass(frozen=True)
class MatmulSpec(Spec):
    """A call: the terms of its epilogue, the types of A and B as the tensor cores read them, the shape and type of the
    result, whether float32 operands are split for three products (3xTF32), whether sums are ``promoted`` to float32,
    whether K may be ``split``."""

    terms: TermsSpec
    elements: tuple[DType, DType]
    shape: tuple[int, ...]
    dtype: DType
    scalars: tuple[float, ...]  # alpha, beta, and the bias's step if it has one
    tf32x3: bool
    promoted: bool
    split: bool
    config: MatmulPolicy | str | None
    unread: tuple[int, ...]

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        pre = ((self.shape, self.terms.pre),) if self.terms.pre else ()
        return ((self.shape, self.dtype), *pre, *([((), FLOAT32)] if self.terms.amax else []))


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex, np.generic)) or (type(x) is np.ndarray and not x.shape)


def _number(value: Any, argument: str) -> float:
    return as_float(number(value, argument), argument)


def _numbers_in_alpha(alpha: Any, scale_a: Any, scale_b: Any) -> tuple:
    """alpha times the scales that are numbers, and the scales that are arrays."""
    alpha, found = _number(alpha, "alpha"), []
    for scale, name in ((scale_a, "scale_a"), (scale_b, "scale_b")):
        is_number = _is_number(scale)
        alpha *= _number(scale, name) if is_number else 1.0
        found.append(None if is_number else scale)
    return alpha, *found


def _parse(arguments: tuple, views: Views, out: View | None) -> MatmulSpec:
    """The call, checked against what the arrays are."""
    given = Arguments(*arguments)
    padded: Views = (*views, *[None] * (len(INPUTS) - len(views)))
    (a, b, c, bias), scales, memory = padded[:4], padded[4:6], padded[6:]
    if b is None:
        arrays.adapter(b, "b")
    config = given.config
    if not (config is None or isinstance(config, MatmulPolicy) or (isinstance(config, str) and config == "tune")):
        raise ArgumentTypeError(explain("config", shown(config), 'None, "tune" or a cutesync.MatmulPolicy'))
    activation = given.activation.fn if type(given.activation) is Identity else given.activation
    gated, args = takes_c(activation, len(given.kinds)), _parse_args(given, memory)
    beta = (0.0 if c is None or gated else 1.0) if given.beta is None else given.beta
    alpha, beta = _number(given.alpha, "alpha"), _number(beta, "beta")
    fast = flag(given.fast_accumulation, "fast_accumulation", numbers=True)
    invariant = flag(given.batch_invariant, "batch_invariant", numbers=True)
    elements, shape = element_types(a, b, given.precision), result_shape(a.shape, b.shape)
    element, pre = result_types(a, given.out_dtype, out, given.pre_activation)
    m, n = (a.shape[-2] if len(a.shape) > 1 else 1), (b.shape[-1] if len(b.shape) > 1 else 1)
    if c is not None:
        check_c(c, shape, gated)
    terms = terms_of(alpha, 0.0 if gated else beta, c, bias, given.activation, scales, element, (m, n))
    terms = with_results(terms, c, given.beta, (element, pre), gated=gated, amax=given.amax)
    terms = replace(terms, args=args) if args else terms
    tf32x3 = a.dtype is FLOAT32 and given.precision != "tf32"
    promoted = (a.dtype.name in FLOAT8 or tf32x3) and not fast
    unread = () if terms.c else (INPUTS.index("c"),)
    scalars = (alpha, beta, *((bias_step(bias),) if bias is not None and terms.stepped else ()))
    return MatmulSpec(terms, elements, shape, element, scalars, tf32x3, promoted, not invariant, config, unread)


def _parse_args(given: Arguments, memory: Views) -> tuple[Argument, ...]:
    """The run-time arguments; ``memory`` has the arrays of one element."""
    if given.kinds and type(given.activation) is not Identity:
        came = f"{len(given.kinds)} values with activation={shown(given.activation)}"
        raise ArgumentTypeError(explain("args", came, "args only with a callable as activation"))
    names = (f"args[{i}]" for i, kind in enumerate(given.kinds) if kind is None)
    return typed(args_of.read(args_of.alike(given.kinds)[0], zip(memory, names)), (FLOAT32,))


def _plan(spec: MatmulSpec, views: Views, outs: Views, stream: int) -> tuple[Run, int | None]:
    """The launches of a call; the result may be C if they have one layout and there is no other result."""
    a, b, c = [*views, None][:3]
    out, terms = outs[0], spec.terms
    pre = outs[1] if terms.pre else None
    product = Product(a, b, c, out, terms, spec.elements, spec.tf32x3, spec.promoted, spec.split, pre)
    empty = View(0, (), a.dtype, a.device, True)
    names = ("d", *(["pre"] if pre else []), *(["amax"] if terms.amax else []))
    named = {name: x or empty for name, x in zip((*INPUTS, *numbered("arg", terms.args)), views)} | dict(
        zip(names, outs)
    )
    like = not terms.several and c is not None and (c.shape, c.steps, c.dtype) == (out.shape, out.steps, out.dtype)
    return run_of(product, spec.config, spec.scalars, named, stream), INPUTS.index("c") if like else None


def _keep(arguments: tuple, ordinal: int, stream: int) -> bool:
    """Not a plan whose configuration was perhaps not measured: the next call may measure it."""
    return Arguments(*arguments).config != "tune" or backend.of(ordinal).can_time(stream)


_call_plain = front_end(Family("matmul", INPUTS[:2], _parse, _plan, strided=True, float8=True, keep=_keep))
_call = _call_of(False, False, NO_ARGS)
