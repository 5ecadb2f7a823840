"""What a matmul takes: NumPy's rules for shapes, the types that may be multiplied, and the terms of the epilogue."""

from __future__ import annotations

from dataclasses import replace

from ...arguments import choice
from ...dtypes import BY_NAME, FLOAT8, FLOAT32, TFLOAT32, DType, element_type as parse_dtype
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import Identity
from ...runtime.view import View
from .terms import ACTIVATIONS, TermsSpec

FLOATS = ("float32", "float16", "bfloat16")  # of C and the bias
RESULTS = (*FLOATS, *FLOAT8)
INTEGER_RESULTS = ("int32", "int8", "uint8")
SECOND_VALUES = (*RESULTS, *INTEGER_RESULTS, "bool")  # of C as the second value of an activation
PRECISIONS = ("float32", "tf32")
_FAMILIES = (("float32",), ("float16",), ("bfloat16",), tuple(FLOAT8), ("int8", "uint8"))  # A and B are of one of these


def element_types(a: View, b: View, precision: str | None) -> tuple[DType, DType]:
    """What the tensor cores take A and B for; checks the pair of types, and ``precision``, which float32 operands alone
    may have."""
    if not any(a.dtype.name in family and b.dtype.name in family for family in _FAMILIES):
        raise ArgumentTypeError(
            explain(
                "a, b",
                f"{a.dtype} and {b.dtype}",
                "two of float32, of float16, of bfloat16, of float8_e4m3fn and float8_e5m2, or of int8 and uint8",
                "convert one (astype)",
            )
        )
    if a.dtype is not FLOAT32 and precision is not None:
        raise ArgumentTypeError(
            explain("precision", f"{shown(precision)} for {a.dtype}", "None: it is for float32 operands")
        )
    if precision is not None:
        choice(precision, "precision", PRECISIONS)
    return (TFLOAT32, TFLOAT32) if a.dtype is FLOAT32 else (a.dtype, b.dtype)


def result_types(a: View, wanted, out: View | None, second: bool) -> tuple[DType, DType | None]:
    """The types of the result and, with ``second``, of what was before the activation: by default that of the result.
    ``wanted`` is ``out_dtype``, ``out`` the result that was given."""
    of_pre = None
    if isinstance(wanted, (tuple, list)):
        if not second or len(wanted) != 2:
            allowed = "a pair of types" if second else "one type; a pair with pre_activation=True"
            raise ArgumentTypeError(explain("out_dtype", shown(wanted), allowed))
        wanted, of_pre = wanted
    element = result_type(a, wanted) if wanted is not None or out is None else result_type(a, out.dtype, "out")
    if not second:
        return element, None
    pre = element if of_pre is None else result_type(a, of_pre)
    if "int32" in (element.name, pre.name):
        allowed = "a float type, int8 or uint8"
        raise ArgumentValueError(explain("out_dtype", "int32 with pre_activation=True", allowed, "'float32'"))
    return element, pre


def result_type(a: View, wanted, argument: str = "out_dtype") -> DType:
    """The type of the result. int8 gives int32, float8 bfloat16, others their own, unless told otherwise by an
    argument."""
    integers = a.dtype.kind in "iu"
    usual = BY_NAME["int32" if integers else "bfloat16" if a.dtype.size == 1 else a.dtype.name]
    result = usual if wanted is None else parse_dtype(wanted, argument)
    allowed = (*RESULTS, *INTEGER_RESULTS) if integers else RESULTS
    if result.name not in allowed:
        raise ArgumentTypeError(explain(argument, str(result), " or ".join(allowed)))
    return result


def result_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of ``a @ b`` as NumPy has it; ArgumentValueError if they do not contract."""
    if not a or not b:
        raise ArgumentValueError(
            explain("a, b", f"shapes {a} and {b}", "at least one dimension each", "use * for scalars")
        )
    inner_a, inner_b = a[-1], b[-2] if len(b) > 1 else b[0]
    if inner_a != inner_b:
        raise ArgumentValueError(
            explain("a, b", f"shapes {a} and {b}", f"a second operand with {inner_a} rows", "transpose one of them?")
        )
    return (*_broadcast(a[:-2], b[:-2], "a, b"), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _broadcast(a: tuple[int, ...], b: tuple[int, ...], what: str) -> tuple[int, ...]:
    length = max(len(a), len(b))
    found = []
    for x, y in zip((1,) * (length - len(a)) + a, (1,) * (length - len(b)) + b):
        if x != y and 1 not in (x, y):
            raise ArgumentValueError(explain(what, f"batches {a} and {b}", "batches that broadcast"))
        found.append(y if x == 1 else x)
    return tuple(found)


def check_c(c: View, shape: tuple[int, ...], gated: bool) -> None:
    """Refuse a C that cannot be added to a result of this shape, whatever beta is; or, if ``gated``, that cannot be the
    second value of an activation."""
    allowed = SECOND_VALUES if gated else FLOATS
    if c.dtype.name not in allowed:
        hint = "" if gated else "for other types, an activation of two values"
        raise ArgumentTypeError(explain("c", str(c.dtype), " or ".join(allowed), hint))
    if len(c.shape) > len(shape) or any(extent not in (1, whole) for extent, whole in zip(c.shape[::-1], shape[::-1])):
        raise ArgumentValueError(explain("c", f"shape {c.shape}", f"one that broadcasts to {shape}"))


def terms_of(
    alpha: float,
    beta: float,
    c: View | None,
    bias: View | None,
    activation,
    scales: tuple[View | None, View | None],
    result: DType,
    shape: tuple[int, int],
) -> TermsSpec:
    """The epilogue of a call whose result has ``shape`` = (M, N); checks what goes into it."""
    if beta and c is None:
        raise ArgumentValueError(explain("c", "None with beta not 0", "an array that broadcasts to the result"))
    if isinstance(activation, str) and activation not in ACTIVATIONS:
        raise ArgumentValueError(
            explain("activation", repr(activation), ", ".join(ACTIVATIONS) + ", or a callable of one value or two")
        )
    if type(activation) is Identity:
        activation = activation.fn
    if activation is not None and not isinstance(activation, str) and not callable(activation):
        allowed = "None, a name or a callable of one value or two"
        raise ArgumentTypeError(explain("activation", shown(activation), allowed))
    m, n = shape
    terms = TermsSpec(
        scaled=alpha != 1.0,
        c=c.dtype if beta and c is not None else None,
        bias=_bias(bias, m, n),
        bias_type=bias.dtype if bias else None,
        stepped=bias is not None and bias_step(bias) != 1,
        activation=activation,
        scale_a=_scale(scales[0], "scale_a", (m, 1)),
        scale_b=_scale(scales[1], "scale_b", (1, n)),
    )
    if result.name == "int32" and not terms.plain:
        raise ArgumentValueError(
            explain(
                "out_dtype",
                "int32 with alpha, beta, bias, scales or an activation",
                "a float type",
                "out_dtype='float32'",
            )
        )
    return terms


def with_results(
    terms: TermsSpec, c: View | None, beta, results: tuple[DType, DType | None], *, gated: bool, amax: bool
) -> TermsSpec:
    """The same with an activation that takes C as its second value, if ``gated``, and with the results beside the
    first. ``beta`` is what was given."""
    if gated and c is None:
        raise ArgumentValueError(
            explain("c", "None with an activation of two values", "an array that broadcasts to the result")
        )
    if gated and beta is not None:
        allowed = "None: C is not added, it is the second value"
        raise ArgumentValueError(explain("beta", f"{shown(beta)} with an activation of two values", allowed))
    if amax and results[0].name == "int32":
        allowed = "a float type, int8 or uint8"
        raise ArgumentValueError(explain("out_dtype", "int32 with amax=True", allowed, "out_dtype='float32'"))
    if not (gated or amax or results[1]):
        return terms
    found = c.dtype if gated and c is not None else terms.c
    return replace(terms, c=found, gated=gated, pre=results[1], amax=amax)


def _bias(bias: View | None, m: int, n: int) -> str:
    """What the bias has an element for: each "column" or each "row"; "" for none."""
    if bias is None:
        return ""
    if bias.shape not in ((n,), (1, n), (m, 1)):
        raise ArgumentValueError(
            explain("bias", f"shape {bias.shape}", f"({n},), one element a column, or ({m}, 1), one a row")
        )
    if bias.dtype.name not in FLOATS:
        raise ArgumentTypeError(explain("bias", str(bias.dtype), " or ".join(FLOATS)))
    return "column" if bias.shape in ((n,), (1, n)) else "row"


def bias_step(bias: View) -> int:
    """Elements from one of the bias to the next."""
    return next((step for extent, step in zip(bias.shape, bias.steps) if extent > 1), 1)


def _scale(scale: View | None, name: str, each: tuple[int, int]) -> str:
    """What kind of scale this is: "one" for the whole operand, "each" for one a row of A or a column of B, "" for
    none."""
    if scale is None:
        return ""
    if scale.dtype is not FLOAT32:
        raise ArgumentTypeError(explain(name, str(scale.dtype), "float32"))
    if scale.size == 1:
        return "one"
    if scale.shape != each or not scale.contiguous:
        raise ArgumentValueError(
            explain(
                name,
                f"shape {scale.shape}, strides {scale.steps}",
                f"one element, or a contiguous array of shape {each}",
            )
        )
    return "each"
