"""Random products, and the interval that their errors allow."""

from __future__ import annotations

from typing import Any

import numpy as np

import cutesync as cs
from cutesync.dtypes import FLOAT8, DType, element_type
from cutesync.kernels.matmul import MatmulPolicy
from cutesync.reference import ACTIVATIONS

from .draw import Case, Dice, Undefined
from .judge import Wanted, within
from .operators import capture
from .values import pick, values

PAIRS = [
    (name, name) for name in ("float32", "float16", "float16", "bfloat16", "bfloat16", "int8", "uint8", *FLOAT8)
] + [("int8", "uint8"), ("uint8", "int8"), ("float8_e4m3fn", "float8_e5m2")]
FLOATS = ("float32", "float16", "bfloat16")
RESULTS, INTEGERS = (*FLOATS, *FLOAT8), ("int32", "int8", "uint8")
CONFIGS = (
    None,
    MatmulPolicy((64, 64), "pingpong"),
    MatmulPolicy((64, 64), "pingpong"),
    MatmulPolicy((128, 64), "cooperative"),
    MatmulPolicy((64, 32), "pingpong", splits=2),
    MatmulPolicy((128, 32), "cooperative", (1, 2)),
    MatmulPolicy((64, 64), "pingpong", splits=3),
    MatmulPolicy((64, 64), "pingpong", load_a="own", load_b="own"),
)
LAYOUTS = ("C", "C", "T", "T", "pad", "Tpad", "step", "expand")
POWERS = (1.0, 2.0, 0.5, -1.0, -2.0, 0.25)


def product(dice: Dice) -> Case:
    """``cs.matmul``."""
    theme, rng = dice.theme, dice.rng
    first, second = (element_type(name) for name in pick(theme, PAIRS))
    plan = _Plan(dice, first)
    shapes = [_shapes(dice) for _ in range(dice.place.shapes)]
    layouts, outs = [pick(theme, LAYOUTS) for _ in range(3)], [pick(theme, LAYOUTS[:-1]) for _ in range(2)]
    of_a, of_b = pick(rng, shapes)
    try:
        whole = np.broadcast_shapes(of_a[:-2], of_b[:-2]) + of_a[-2:-1] + of_b[-1:] * (len(of_b) > 1)
    except ValueError:
        whole = None
    m, n = of_a[-2] if len(of_a) > 1 else 1, of_b[-1] if len(of_b) > 1 else 1
    spread = {"a": pick(rng, layouts), "b": pick(rng, layouts)}
    spread |= {name: pick(rng, LAYOUTS[:-1]) for name in ("c", "bias")}
    options, arrays = plan.options(rng), plan.arrays(rng, whole or (), m, n)

    def made(rng) -> dict[str, np.ndarray]:
        kind = pick(rng, ("exact", "exact", "wide", "special"))
        found = {
            "a": _operand(rng, of_a, first, kind, spread["a"]),
            "b": _operand(rng, of_b, second, kind, spread["b"]),
        }
        for name, (shape, element) in arrays.items():
            scale = name.startswith("scale")
            found[name] = (
                np.exp2(rng.integers(-2, 3, shape)).astype(np.float32)
                if scale
                else values(rng, shape, element_type(element), "exact" if kind == "exact" else "wide")
            )
        return found

    def wanted(inputs) -> tuple[Wanted]:
        if whole is None:
            raise Undefined
        return (plan.wanted(inputs, options, whole),)

    inputs = made(rng)
    placed = {name: (dice.offset(), strides(x.shape, spread.get(name, "C"))) for name, x in inputs.items()}
    placed["out"] = (dice.offset(), strides(whole or (), pick(rng, outs)))
    in_place = "c" in inputs and inputs["c"].shape == whole and arrays["c"][1] == plan.result.name
    return Case(
        "cs.matmul",
        cs.matmul,
        inputs,
        options,
        wanted,
        made,
        placed,
        pick(rng, ("none", "given", "in place") if in_place else ("none", "given")),
        targets=("c",),
    )


def _shapes(dice: Dice) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of two operands: matrices, vectors and batches, which mostly broadcast."""
    theme, side = dice.theme, dice.place.side
    m, n, k = dice.side(), dice.side(), dice.side(2 * side)
    form = theme.random()
    if form < 0.5:
        return (m, k), (k, n)
    if form < 0.7:
        return pick(theme, (((k,), (k, n)), ((m, k), (k,)), ((k,), (k,))))
    m, n, k = (extent if extent < 2 else 1 + extent // 3 for extent in (m, n, k))
    return pick(
        theme,
        (
            ((3, m, k), (3, k, n)),
            ((2, m, k), (k, n)),
            ((m, k), (3, k, n)),
            ((2, 1, m, k), (3, k, n)),
            ((k,), (2, k, n)),
            ((2, m, k), (3, k, n)),
            ((1, m, k), (4, k, n)),
        ),
    )


def _operand(rng, shape: tuple[int, ...], element: DType, kind: str, layout: str) -> np.ndarray:
    found = values(rng, shape, element, kind)
    wide = found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        tame = (np.abs(wide) < 1e15) & ((np.abs(wide) > 1e-15) | (wide == 0)) | ~np.isfinite(wide)
    found = np.where(tame, found, found.dtype.type(1))
    if layout == "expand" and len(shape) > 2 and found.size:
        found[:] = found[:1]
    return found


def strides(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """In elements: "T" has the last two axes swapped, "pad" room between rows, "step" between elements; "expand"
    repeats the first item of a batch."""
    order = list(range(len(shape)))
    if layout.startswith("T") and len(order) > 1:
        order[-2:] = order[:-3:-1]
    steps, step = [0] * len(shape), 2 if layout == "step" else 1
    for place, axis in enumerate(reversed(order)):
        steps[axis] = step
        step *= max(shape[axis], 1)
        if place == 0 and layout.endswith("pad"):
            step += 8 if step % 2 == 0 else 3
    if layout == "expand" and len(shape) > 2:
        steps[0] = 0
    return tuple(steps)


class _Plan:
    """What a theme says of the terms, the types and the way of a product, and what must come out."""

    def __init__(self, dice: Dice, first: DType) -> None:
        theme, self.first = dice.theme, first
        integers = first.kind in "iu"
        allowed = RESULTS + (INTEGERS if integers else ())
        usual = "int32" if integers else "bfloat16" if first.size == 1 else first.name
        self.given = theme.random() < 0.4
        self.result = element_type(pick(theme, allowed) if self.given else usual)
        plain = theme.random() < 0.35 or self.result.name == "int32"
        self.has_c, self.has_bias, self.has_alpha = (not plain and theme.random() < p for p in (0.4, 0.4, 0.4))
        self.c, self.bias, self.where = (
            pick(theme, (*FLOATS, self.result.name if self.result.name in FLOATS else "float32")),
            pick(theme, FLOATS),
            pick(theme, ("row", "column", "columns")),
        )
        self.c_form, self.scales = (
            pick(theme, ("whole", "whole", "row", "column", "one")),
            pick(theme, ("", "", "", "each", "one", "a", "number")) if not plain else "",
        )
        named = pick(theme, tuple(ACTIVATIONS))
        self.activation = (
            None
            if plain or theme.random() < 0.5
            else named
            if theme.random() < 0.6
            else capture(theme, "v", pick(theme, ("v * K", "v + K", "-v"))).fn
        )
        self.precision = pick(theme, (None, "float32", "tf32")) if first.name == "float32" else None
        self.fast = theme.random() < 0.2 and (first.name == "float32" or first.name in FLOAT8)
        self.whole, self.config = theme.random() < 0.1, pick(theme, CONFIGS)
        self.beta_given = theme.random() < 0.75

    def options(self, rng) -> dict[str, Any]:
        found: dict[str, Any] = {"config": self.config}
        optional = {
            "out_dtype": self.given and self.result.name,
            "precision": self.precision,
            "fast_accumulation": self.fast,
            "batch_invariant": self.whole,
            "activation": self.activation,
            "alpha": self.has_alpha and pick(rng, POWERS),
            "beta": self.has_c and self.beta_given and pick(rng, (*POWERS, 0.0)),
        }
        found |= {name: value for name, value in optional.items() if value is not None and (value is not False)}
        if self.scales == "number":
            found |= {"scale_a": 0.5, "scale_b": 2.0}
        return found

    def arrays(self, rng, whole: tuple[int, ...], m: int, n: int) -> dict[str, tuple]:
        """Shape and type of each array beside the operands."""
        found: dict[str, tuple] = {}
        if self.has_c:
            rows = (*whole[:-1], 1) if whole else ()
            found["c"] = (
                {"whole": whole, "row": whole[-1:], "column": rows, "one": (1,) * min(len(whole), 1)}[self.c_form],
                self.c,
            )
        if self.has_bias:
            found["bias"] = ({"row": (n,), "column": (m, 1), "columns": (1, n)}[self.where], self.bias)
        if self.scales in ("each", "one", "a"):
            each = self.scales == "each"
            found["scale_a"] = ((m, 1) if each else (1,), "float32")
            if self.scales != "a":
                found["scale_b"] = ((1, n) if each else (), "float32")
        return found

    def wanted(self, inputs: dict[str, np.ndarray], options: dict, whole: tuple[int, ...]) -> Wanted:
        a, b = (inputs[name].astype(np.float64) for name in "ab")
        k = a.shape[-1]
        with np.errstate(all="ignore"):
            total, magnitude = np.matmul(a, b), np.matmul(*(np.abs(np.where(np.isfinite(x), x, 0.0)) for x in (a, b)))
            factor = options.get("alpha", 1.0)
            for name, axis in (("scale_a", -2), ("scale_b", -1)):
                scale = np.asarray(inputs[name] if name in inputs else options.get(name, 1.0), np.float64)
                factor = factor * (scale.reshape(()) if scale.size == 1 else self._of_axis(scale, inputs, axis))
            exact = self._exact(a, b, magnitude)
            value, error = factor * total, np.abs(factor) * (0.0 if exact else self._factor(k)) * magnitude
            terms = np.abs(np.where(np.isfinite(value), value, 0.0))
            beta = options.get("beta", 1.0)
            for term in (beta * inputs["c"].astype(np.float64) if "c" in inputs and beta else None, self._bias(inputs)):
                if term is not None:
                    value, terms = value + term, terms + np.abs(term)
            plain = (
                exact
                and np.max(terms, initial=0) < 2.0**19
                and all(
                    (4 * inputs[name].astype(np.float64) % 1 == 0).all() for name in ("c", "bias") if name in inputs
                )
            )
            error = error + (0.0 if plain else 2.0**-21 * terms)
            free = np.asarray(magnitude * np.abs(factor) > 1e37) | (magnitude > 1e37)
            activation = options.get("activation")
            if activation is not None:
                value = np.asarray(ACTIVATIONS[activation](value) if isinstance(activation, str) else activation(value))
                error = 3 * error + (1e-5 if isinstance(activation, str) else 0.0 if plain else 2.0**-21) * (
                    1 + np.abs(value)
                )
        value, error, free = (np.broadcast_to(x, np.shape(value)).reshape(whole) for x in (value, error, free))
        return within(value, error, self.result, free)

    @staticmethod
    def _of_axis(scale: np.ndarray, inputs: dict, axis: int) -> np.ndarray:
        """(M, 1) or (1, N) as a factor of the result, which lacks the axis of an operand that is a vector."""
        if axis == -2:
            return scale.reshape(-1, 1) if inputs["b"].ndim > 1 else scale.reshape(-1)
        return scale.reshape(-1)

    def _bias(self, inputs: dict) -> np.ndarray | None:
        if "bias" not in inputs:
            return None
        return self._of_axis(inputs["bias"].astype(np.float64), inputs, -2 if self.where == "column" else -1)

    def _exact(self, a, b, magnitude) -> bool:
        """Whether no sum of these products rounds in any order."""
        small = 2.0**13 if self.first.name in FLOAT8 else 2.0**22
        return self.first.kind in "iu" or (
            all((x == np.rint(x)).all() and np.max(np.abs(x), initial=0) <= 1024 for x in (a, b))
            and np.max(magnitude, initial=0) <= small
        )

    def _factor(self, k: int) -> float:
        """The error of a product over the product of magnitudes."""
        if self.first.name == "float32":
            return (2.0**-9.5 if self.precision == "tf32" else 2.0**-19) + (k + 8) * 2.0**-23
        if self.first.name in FLOAT8:
            return (min(k, 10**9 if self.fast else 128) + 40) * 2.0**-13 + k * 2.0**-23
        return (k + 8) * 2.0**-23
