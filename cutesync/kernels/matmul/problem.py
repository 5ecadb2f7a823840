"""From arrays to problems: NumPy's rules for shapes, the terms of the epilogue, and the steps that a call consists of.

A call is one launch where TMA can read both operands and one stride leads from each item of the batch to the next. An operand that TMA
cannot read is packed first; a batch that broadcasts in more ways than a stride can say is several launches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from ...arguments import choice
from ...dtypes import BY_NAME, FLOAT8, FLOAT32, TFLOAT32, DType
from ...dtypes import element_type as parse_dtype
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import Identity
from ...runtime.arrays import View
from .plan import TMA_BYTES, Operand, Problem
from .policy import K_TILE_BYTES
from .terms import ACTIVATIONS, TermsSpec

FLOATS = ("float32", "float16", "bfloat16")  # of C and the bias
RESULTS = (*FLOATS, *FLOAT8)
INTEGER_RESULTS = ("int32", "int8", "uint8")
PRECISIONS = ("float32", "tf32")
FEW = 64  # rows or columns of a result that are few: less than what wgmma multiplies at a time
_FAMILIES = (("float32",), ("float16",), ("bfloat16",), tuple(FLOAT8), ("int8", "uint8"))  # A and B are of one of these


@dataclass(frozen=True)
class Matrices:
    """A batch of matrices: (rows, columns), their strides in elements, and those of each dimension of the batch."""

    shape: tuple[int, int]
    steps: tuple[int, int]
    batch: tuple[int, ...]

    @property
    def turned(self) -> Matrices:
        """The transposes."""
        return Matrices(self.shape[::-1], self.steps[::-1], self.batch)


@dataclass(frozen=True)
class Step:
    """One launch: its problem, what to add to each address (in bytes: A, B, D, C, bias, scales), and the operands to pack before."""

    problem: Problem
    offsets: tuple[int, ...]
    packs: tuple[PackJob | None, PackJob | None]


@dataclass(frozen=True)
class PackJob:
    """An operand as it lies, (items, rows, inner) with its strides in elements, and the elements that a row of the copy has, ``span``, a
    multiple of 128 bytes. With ``parts`` "left" or "right" the copy has three such rows side by side (see ``pack.parts_of``)."""

    items: int
    rows: int
    inner: int
    strides: tuple[int, int, int]
    span: int
    parts: str = ""

    @property
    def form(self) -> str:
        """How the elements of ``inner`` lie: "rows", side by side; else whether those of other rows are nearer, "turned", or not, "apart"."""
        if self.strides[2] == 1 or self.inner == 1:
            return "rows"
        return "turned" if abs(self.strides[1]) < abs(self.strides[2]) and self.rows > 1 else "apart"

    @property
    def edges(self) -> tuple[int, int]:
        """Where the memory of all elements begins and ends, counted in elements from the first."""
        ways = [(extent - 1) * stride for extent, stride in zip((self.items, self.rows, self.inner), self.strides)]
        return sum(min(way, 0) for way in ways), sum(max(way, 0) for way in ways) + 1

    @property
    def elements(self) -> int:
        """Of the copy."""
        return self.items * self.rows * self.span * (3 if self.parts else 1)


def element_types(a: View, b: View, precision: str | None) -> tuple[DType, DType]:
    """What the tensor cores take A and B for; checks the pair of types, and ``precision``, which float32 operands alone may have."""
    if not any(a.dtype.name in family and b.dtype.name in family for family in _FAMILIES):
        allowed = "two of float32, of float16, of bfloat16, of float8_e4m3fn and float8_e5m2, or of int8 and uint8"
        raise ArgumentTypeError(explain("a, b", f"{a.dtype} and {b.dtype}", allowed, "convert one (astype)"))
    if a.dtype is not FLOAT32 and precision is not None:
        raise ArgumentTypeError(
            explain("precision", f"{shown(precision)} for {a.dtype}", "None: it is for float32 operands")
        )
    if precision is not None:
        choice(precision, "precision", PRECISIONS)
    return (TFLOAT32, TFLOAT32) if a.dtype is FLOAT32 else (a.dtype, b.dtype)


def result_type(a: View, wanted) -> DType:
    """The type of the result. int8 gives int32, float8 bfloat16, others their own, unless told otherwise."""
    integers = a.dtype.kind in "iu"
    usual = BY_NAME["int32" if integers else "bfloat16" if a.dtype.size == 1 else a.dtype.name]
    result = usual if wanted is None else parse_dtype(wanted, "out_dtype")
    allowed = (*RESULTS, *INTEGER_RESULTS) if integers else RESULTS
    if result.name not in allowed:
        raise ArgumentTypeError(explain("out_dtype", str(result), " or ".join(allowed)))
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


def check_c(c: View, shape: tuple[int, ...]) -> None:
    """Refuse a C that cannot be added to a result of this shape, whatever beta is."""
    if c.dtype.name not in FLOATS:
        raise ArgumentTypeError(explain("c", str(c.dtype), " or ".join(FLOATS)))
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
    m: int,
    n: int,
) -> TermsSpec:
    """The epilogue of a call; checks what goes into it."""
    if beta and c is None:
        raise ArgumentValueError(explain("c", "None with beta not 0", "an array that broadcasts to the result"))
    if isinstance(activation, str) and activation not in ACTIVATIONS:
        raise ArgumentValueError(
            explain("activation", repr(activation), ", ".join(ACTIVATIONS) + ", or a callable of one value")
        )
    if type(activation) is Identity:
        activation = activation.fn
    if activation is not None and not isinstance(activation, str) and not callable(activation):
        raise ArgumentTypeError(explain("activation", shown(activation), "None, a name or a callable of one value"))
    where = ""
    if bias is not None:
        if bias.shape in ((n,), (1, n)):
            where = "column"
        elif bias.shape == (m, 1):
            where = "row"
        else:
            raise ArgumentValueError(
                explain("bias", f"shape {bias.shape}", f"({n},), one element a column, or ({m}, 1), one a row")
            )
    if bias is not None and bias.dtype.name not in FLOATS:
        raise ArgumentTypeError(explain("bias", str(bias.dtype), " or ".join(FLOATS)))
    given = [
        _scale(scale, name, extents) for scale, name, extents in zip(scales, ("scale_a", "scale_b"), ((m, 1), (1, n)))
    ]
    terms = TermsSpec(
        alpha != 1.0, c.dtype if beta else None, where, bias.dtype if bias else None, activation, True, *given
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


def _scale(scale: View | None, name: str, each: tuple[int, int]) -> str:
    """What kind of scale this is: "one" for the whole operand, "each" for one a row of A or a column of B, "" for none."""
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


def steps_of(
    a: View,
    b: View,
    c: View | None,
    out: View,
    terms: TermsSpec,
    elements: tuple[DType, DType],
    parted: bool = False,
    promoted: bool = False,
    split: bool = True,
) -> tuple[bool, list[Step]]:
    """``(turned, steps)``: the launches of a call whose arguments have been checked and whose result is not empty. A result is computed
    ``turned``, as the product of the transposes in the other order, if that makes it row-major, or if it has few rows (see ``_turned``). ``elements`` are those of ``element_types``;
    ``parted`` multiplies float32 numbers in parts: three products, which lie behind one another in a K three times as long."""
    batch = out.shape[: len(out.shape) - (len(a.shape) > 1) - (len(b.shape) > 1)]
    d = _matrices(out, batch, len(a.shape) > 1, len(b.shape) > 1)
    left, right = _matrices(a, batch, len(a.shape) > 1, True), _matrices(b, batch, True, len(b.shape) > 1)
    term = Matrices((1, 1), (0, 0), (0,) * len(batch))
    if terms.c is not None:
        aligned = View(c.ptr, out.shape, c.dtype, c.device, False, True, _broadcast_steps(c, out.shape))
        term = _matrices(aligned, batch, len(a.shape) > 1, len(b.shape) > 1)
    turned = _turned(d)
    if turned:
        left, right, term, d = right.turned, left.turned, term.turned, d.turned
        flipped = {"row": "column", "column": "row", "": ""}[terms.bias]
        terms = replace(terms, bias=flipped, scale_a=terms.scale_b, scale_b=terms.scale_a)
    bases = (a.ptr, b.ptr)
    if turned:
        bases, elements = bases[::-1], elements[::-1]
    sizes = (a.dtype.size, a.dtype.size, out.dtype.size, terms.c.size if terms.c else 0)
    found = []
    extents, steps = _collapse(batch, [matrices.batch for matrices in (left, right, d, term)])
    for index in product(*map(range, extents[:-1])):
        offsets = [size * sum(i * step for i, step in zip(index, of)) for size, of in zip(sizes, steps)]
        sides = ("left", "right") if parted else ("", "")
        operands = (
            (left, steps[0][-1], bases[0] + offsets[0], False, sides[0]),
            (right, steps[1][-1], bases[1] + offsets[1], True, sides[1]),
        )
        (in_a, pack_a), (in_b, pack_b) = (_operand(*operand, extents[-1], a.dtype.size) for operand in operands)
        (m, k), (_, n) = left.shape, right.shape
        k = in_a.step if parted else k
        of_d = (*d.steps, steps[2][-1])
        by_tma = _tma_stores(out.ptr + offsets[2], of_d, (m, n, extents[-1]), out.dtype.size)
        problem = Problem(
            m,
            n,
            k,
            extents[-1],
            in_a,
            in_b,
            (*term.steps, steps[3][-1]),
            of_d,
            elements,
            out.dtype,
            replace(terms, by_tma=by_tma),
            promoted,
            split,
        )
        found.append(Step(problem, (*offsets, 0, 0, 0), (pack_a, pack_b)))
    return turned, found


def _turned(d: Matrices) -> bool:
    """Whether to compute the transpose of a result. wgmma takes 64 rows of the first operand at a time, but few of the second if there are few, so
    few rows become few columns; otherwise columns become rows where they are what is contiguous, as TMA stores rows."""
    (rows, columns), (row_step, column_step) = d.shape, d.steps
    if min(rows, columns) <= FEW and rows != columns:
        return rows < columns
    return column_step != 1 and row_step == 1 and columns > 1


def _matrices(x: View, batch: tuple[int, ...], has_rows: bool, has_columns: bool) -> Matrices:
    """``x`` as a batch of matrices; a vector is a matrix of one row or column."""
    matrix = has_rows + has_columns
    shape, steps = list(x.shape[len(x.shape) - matrix :]), list(x.steps[len(x.shape) - matrix :])
    if not has_rows:
        shape.insert(0, 1)
        steps.insert(0, 0)
    if not has_columns:
        shape.append(1)
        steps.append(0)
    outer = View(
        x.ptr, x.shape[: len(x.shape) - matrix], x.dtype, x.device, False, True, x.steps[: len(x.shape) - matrix]
    )
    return Matrices(tuple(shape), tuple(steps), _broadcast_steps(outer, batch))


def _broadcast_steps(x: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of ``x`` seen in a larger shape: 0 where it is repeated."""
    missing = len(shape) - len(x.shape)
    return (0,) * missing + tuple(0 if extent == 1 else step for extent, step in zip(x.shape, x.steps))


def _collapse(batch: tuple[int, ...], steps: list[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """The batch with neighbouring dimensions merged where every operand's strides allow it; at least one dimension remains."""
    extents, merged = [], [[] for _ in steps]
    for dimension, extent in enumerate(batch):
        if extent == 1:
            continue
        now = [of[dimension] for of in steps]
        if extents and all(before[-1] == step * extent for before, step in zip(merged, now)):
            extents[-1] *= extent
            for before, step in zip(merged, now):
                before[-1] = step
        else:
            extents.append(extent)
            for before, step in zip(merged, now):
                before.append(step)
    return (extents, merged) if extents else ([1], [[0] for _ in steps])


def _operand(
    x: Matrices, batch_step: int, address: int, is_right: bool, parts: str, items: int, size: int
) -> tuple[Operand, PackJob | None]:
    """How TMA reads an operand in place, or else how it is packed first."""
    (k_extent, rows), (k_step, row_step) = (x.shape, x.steps) if is_right else (x.shape[::-1], x.steps[::-1])
    items = 1 if batch_step == 0 else items
    unit = TMA_BYTES // size
    ways = ((True, k_extent, k_step, rows, row_step), (False, rows, row_step, k_extent, k_step))
    if size != 2:
        ways = (ways[0], ways[0])  # wgmma takes elements of 16 bits alone in the other way
    for k_major, inner, inner_step, outer, outer_step in () if parts else ways:
        pitch = outer_step if outer > 1 else _up(inner, unit)
        of_items = batch_step if items > 1 else _up(pitch * outer, unit)
        fits = inner_step == 1 or inner == 1
        if (
            fits
            and address % TMA_BYTES == 0
            and pitch % unit == 0
            and of_items % unit == 0
            and pitch > 0
            and of_items > 0
        ):
            return Operand(k_major, pitch, items, of_items), None
    span = _up(k_extent, K_TILE_BYTES // size)  # whole cache lines: a row that straddles them is read in twice as many
    job = PackJob(items, rows, k_extent, (batch_step, row_step, k_step), span, parts)
    pitch = 3 * span if parts else span
    return Operand(True, pitch, items, pitch * rows), job


def _tma_stores(address: int, steps: tuple[int, int, int], shape: tuple[int, int, int], size: int) -> bool:
    """Whether TMA can store a result: it writes rows in units of 16 bytes."""
    (row, column, item), (m, n, items) = steps, shape
    unit = TMA_BYTES // size
    strides = ([row] if m > 1 else []) + ([item] if items > 1 else [])
    return (
        address % TMA_BYTES == 0
        and column == 1
        and n % unit == 0
        and all(step > 0 and step % unit == 0 for step in strides)
    )


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
