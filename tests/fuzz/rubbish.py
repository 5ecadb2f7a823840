"""Arguments that nobody should give: wrong types and ranges, arrays of every wrong kind, callables that fail, objects
that keep half a protocol."""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

import cutesync as cs

Make = Callable[[], Any]  # each call makes a new object


class Odd:
    """An object with the attributes that are given."""

    def __init__(self, **attributes) -> None:
        self.__dict__.update(attributes)


def typed(name: str, **methods) -> Any:
    """An instance of a new class with such methods and class attributes."""
    return type(name, (), methods)()


class OwnError(Exception):
    """What an argument's own method raises: it may pass through."""


def fail(*_, **__):
    raise ValueError("rubbish")


def own_error(*_, **__):
    raise OwnError


def deep(a, b=None):
    return deep(a, b)


def calls_cutesync(a, b=None):
    return int(cs.sum(np.ones(5, np.int32))) + a


def counts(*operands):
    yield operands[0]


async def promises(*operands):
    return operands[0]


NUMBERS: dict[str, Make] = {  # none that asks for honest hours of work, as 2**31 schedules do
    repr(value)
    if len(repr(value)) < 30
    else f"{type(value).__name__} of {len(repr(value))} digits": lambda value=value: value
    for value in (
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        -7,
        2**63,
        -(2**63) - 1,
        2**64,
        10**400,
        -(10**400),
        0.0,
        -0.0,
        0.5,
        1e300,
        1e308,
        float("nan"),
        float("inf"),
        -float("inf"),
        1j,
    )
} | {
    "np.int64": lambda: np.int64(1),
    "np.uint64": lambda: np.uint64(2**64 - 1),
    "np.float32": lambda: np.float32(1.5),
    "np.bool_": lambda: np.bool_(True),
    "np.nan": lambda: np.float64("nan"),
    "np.complex64": lambda: np.complex64(1j),
    "Decimal": lambda: decimal.Decimal("1.5"),
    "Fraction": lambda: fractions.Fraction(1, 3),
    "0-d array": lambda: np.array(1),
    "index object": lambda: typed("Index", __index__=lambda self: 1),
    "float object": lambda: typed("Real", __float__=lambda self: 1.0),
    "failing index": lambda: typed("NoIndex", __index__=own_error, __int__=own_error, __float__=own_error),
}
THINGS: dict[str, Make] = {
    "None": lambda: None,
    "empty string": lambda: "",
    "string": lambda: "plus",
    "nul": lambda: "add\0",
    "long string": lambda: "x" * 10_000,
    "bytes": lambda: b"add",
    "np.str_": lambda: np.str_("max"),
    "()": lambda: (),
    "[]": list,
    "{}": dict,
    "set": lambda: {1},
    "[0]": lambda: [0],
    "(0, 0)": lambda: (0, 0),
    "(None,)": lambda: (None,),
    "(0.0,)": lambda: (0.0,),
    "(True,)": lambda: (True,),
    "nested": lambda: ((0,),),
    "dict": lambda: {"a": 1},
    "object": object,
    "type": lambda: int,
    "builtin": lambda: len,
    "...": lambda: ...,
    "NotImplemented": lambda: NotImplemented,
    "slice": lambda: slice(1),
    "range": lambda: range(2),
    "date": lambda: datetime.date(2020, 1, 1),
    "module": lambda: np,
    "memoryview": lambda: memoryview(b"1234"),
    "generator": lambda: (i for i in range(3)),
    "exception": lambda: ValueError("x"),
    "array of two": lambda: np.array([0, 1]),
    "array of objects": lambda: np.array([None, 1], object),
    "unhashable": lambda: typed("Unhashable", __hash__=None),
    "failing hash": lambda: typed("NoHash", __hash__=own_error),
    "failing eq": lambda: typed("NoEq", __eq__=own_error, __hash__=lambda self: 1),
    "failing bool": lambda: typed("NoBool", __bool__=own_error),
    "failing len": lambda: typed("NoLen", __len__=own_error, __iter__=own_error),
    "failing repr": lambda: typed("NoRepr", __repr__=own_error, __str__=own_error),
    "str subclass": lambda: type("Name", (str,), {})("add"),
    "int subclass": lambda: type("Number", (int,), {})(1),
    "namespace": lambda: types.SimpleNamespace(name="int32", dtype="int32", shape=(2,)),
}
DTYPES: dict[str, Make] = {
    name: lambda value=value: value
    for name, value in {
        "'int32'": "int32",
        "'>i4'": ">i4",
        "'O'": "O",
        "'float8'": "float8",
        "'complex64'": "complex64",
        "'bits'": "bits",
        "'V8'": "V8",
        "'i4,f4'": "i4,f4",
        "int": int,
        "float": float,
        "bool": bool,
        "str": str,
        "np.int8": np.int8,
        "np.number": np.number,
        "np.dtype": np.dtype("uint8"),
        "'torch.int8'": "torch.int8",
        "'float8_e4m3fn'": "float8_e4m3fn",
        "'datetime64[s]'": "datetime64[s]",
        "'longdouble'": "longdouble",
        "'bfloat16'": "bfloat16",
    }.items()
}
CALLABLES: dict[str, Make] = {
    "fails": lambda: fail,
    "of nothing": lambda: lambda: 1,
    "of five": lambda: lambda a, b, c, d, e: a,
    "None of": lambda: lambda *a: None,
    "string of": lambda: lambda *a: "x",
    "tuple of": lambda: lambda *a: a,
    "list of": lambda: lambda *a: [a[0]],
    "array of": lambda: lambda *a: np.zeros(3),
    "object of": lambda: lambda *a: object(),
    "complex of": lambda: lambda *a: 1j,
    "deep": lambda: deep,
    "calls cutesync": lambda: calls_cutesync,
    "generator of": lambda: counts,
    "promise of": lambda: promises,
    "huge number": lambda: lambda a, *b: a + 10**30,
    "huge result": lambda: lambda *a: 10**400,
    "division by zero": lambda: lambda a, *b: 1 // 0,
    "attribute": lambda: lambda a, *b: a.nothing,
    "index": lambda: lambda a, *b: a[0],
    "branch": lambda: lambda a, *b: a if a > 0 else -a,
    "loop": lambda: lambda a, *b: next(a for _ in range(int(a))),
    "class": lambda: type("Op", (), {}),
    "ufunc": lambda: np.add,
    "operator.add": lambda: operator.add,
    "partial": lambda: functools.partial(operator.add),
    "keyword only": lambda: lambda *, a, b: a,
    "failing call": lambda: typed("NoCall", __call__=fail),
    "unhashable": lambda: typed("Op", __call__=lambda self, a, *b: a, __hash__=None),
    "lying eq": lambda: typed(
        "Liar", __call__=lambda self, a, *b: a, __eq__=lambda self, other: True, __hash__=lambda self: 0
    ),
    "identity": lambda: lambda a, *b: a,
}
STREAMS: dict[str, Make] = {
    "None of": lambda: typed("S", __cuda_stream__=lambda self: None),
    "number of": lambda: typed("S", __cuda_stream__=lambda self: 7),
    "one of": lambda: typed("S", __cuda_stream__=lambda self: (0,)),
    "string of": lambda: typed("S", __cuda_stream__=lambda self: (0, "x")),
    "fails": lambda: typed("S", __cuda_stream__=fail),
    "no method": lambda: typed("S", __cuda_stream__=3),
    "negative of": lambda: typed("S", __cuda_stream__=lambda self: (0, -5)),
    "ptr": lambda: Odd(ptr="0"),
    "cuda_stream": lambda: Odd(cuda_stream=None),
    "named CUstream": lambda: typed("CUstream", __int__=own_error),
    "failing attribute": lambda: typed("S", __getattr__=own_error),
}


def interface(**changes) -> Any:
    facts = {"shape": (3, 4), "typestr": "<i4", "data": (4096, False), "strides": None, "version": 3} | changes
    return Odd(__cuda_array_interface__={name: value for name, value in facts.items() if value is not ...})


ARRAYS: dict[str, Make] = {
    "list": lambda: [1, 2, 3],
    "nested list": lambda: [[1, 2], [3, 4]],
    "array of complex": lambda: np.ones((3, 4), complex),
    "of objects": lambda: np.ones((3, 4), object),
    "of strings": lambda: np.ones((3, 4)).astype("U3"),
    "of dates": lambda: np.ones((3, 4), "M8[s]"),
    "of records": lambda: np.zeros((3, 4), "i4,f4"),
    "of long doubles": lambda: np.ones((3, 4), np.longdouble),
    "big-endian": lambda: np.ones((3, 4), ">i4"),
    "of void": lambda: np.zeros((3, 4), "V4"),
    "masked": lambda: np.ma.masked_array(np.arange(12, dtype=np.int32).reshape(3, 4), np.eye(3, 4, dtype=bool)),
    "masked, nothing hidden": lambda: np.ma.masked_array(np.ones((3, 4), np.int32)),
    "matrix": lambda: np.matrix(np.ones((3, 4), np.int32)),
    "record array": lambda: np.rec.array(np.ones((3, 4), np.int32)),
    "subclass": lambda: np.ones((3, 4), np.int32).view(type("Mine", (np.ndarray,), {})),
    "huge": lambda: np.broadcast_to(np.int32(1), (2**31, 2**29)),
    "no axes": lambda: np.array(3, np.int32),
    "no elements": lambda: np.zeros((3, 0), np.int32),
    "many axes": lambda: np.ones((1,) * 32, np.int32),
    "scalar": lambda: np.int32(3),
    "float8": lambda: np.ones((3, 4), _float8()),
    "unaligned": lambda: np.frombuffer(bytes(49), np.uint8)[1:].view(np.int32).reshape(3, 4),
    "class": lambda: np.ndarray,
    "DeviceArray": lambda: cs.asarray(np.ones((3, 4), np.int32)),
    "type of array": lambda: cs.DeviceArray,
    "__array__": lambda: typed("A", __array__=lambda self, *a, **k: np.ones((3, 4), np.int32)),
    "dtype alone": lambda: Odd(dtype=np.dtype("int32"), shape=(3, 4)),
    "rubbish dtype": lambda: Odd(dtype=object(), shape="no"),
    "dlpack fails": lambda: typed("D", __dlpack__=fail, __dlpack_device__=lambda self: (2, 0)),
    "dlpack of None": lambda: typed("D", __dlpack__=lambda self, **k: None, __dlpack_device__=lambda self: (1, 0)),
    "dlpack is no method": lambda: typed("D", __dlpack__=3),
    "dlpack device": lambda: typed("D", __dlpack__=lambda self, **k: object(), __dlpack_device__=lambda self: "here"),
    "dlpack without device": lambda: typed("D", __dlpack__=lambda self, **k: object()),
    "interface": interface,
    "interface is None": lambda: Odd(__cuda_array_interface__=None),
    "interface is empty": lambda: Odd(__cuda_array_interface__={}),
    "no shape": lambda: interface(shape=...),
    "negative shape": lambda: interface(shape=(-3, 4)),
    "shape of strings": lambda: interface(shape=("3",)),
    "no typestr": lambda: interface(typestr=...),
    "rubbish typestr": lambda: interface(typestr="?!"),
    "typestr of objects": lambda: interface(typestr="|O"),
    "no data": lambda: interface(data=...),
    "data is None": lambda: interface(data=None),
    "data of strings": lambda: interface(data=("0", "no")),
    "huge pointer": lambda: interface(data=(2**70, False)),
    "rubbish strides": lambda: interface(strides="no"),
    "short strides": lambda: interface(strides=(4,)),
    "odd strides": lambda: interface(strides=(6, 3)),
    "masked interface": lambda: interface(mask=Odd()),
    "huge shape": lambda: interface(shape=(2**62, 2**62)),
    "failing interface": type("I", (), {"__cuda_array_interface__": property(own_error)}),
    "failing attribute": lambda: typed("F", __getattr__=own_error),
}


def _float8():
    from cutesync.dtypes import element_type

    return element_type("float8_e4m3fn").numpy


def outs(x: np.ndarray, given: Any) -> dict[str, Make]:
    """Of results that are wrong for most calls on ``given``, which holds ``x``: shapes, types, overlaps, libraries."""
    rows, own = x.shape[:-1], isinstance(given, cs.DeviceArray)

    def read_only() -> np.ndarray:
        found = np.zeros(rows, x.dtype)
        found.flags.writeable = False
        return found

    made: dict[str, Make] = {
        "list": lambda: [0],
        "tuple": lambda: (np.zeros(3),),
        "read-only": read_only,
        "x itself": lambda: given,
        "a row of x": lambda: given[0:1].reshape(x.shape[1:]),
        "a view of x": lambda: given.reshape((x.size,))[: math.prod(rows)].reshape(rows),
        "transposed": lambda: np.zeros(x.shape, x.dtype).T,
        "wrong type": lambda: np.zeros(rows, np.complex64),
        "wider": lambda: np.zeros(rows, np.int64),
        "wrong shape": lambda: np.zeros((99,), x.dtype),
        "steps": lambda: np.zeros((2 * (rows[0] if rows else 1),), x.dtype)[::2],
        "of objects": lambda: np.zeros(rows, object),
        "repeated": lambda: np.lib.stride_tricks.as_strided(np.zeros(1, x.dtype), rows, (0,) * len(rows)),
        "masked": lambda: np.ma.masked_array(np.zeros(rows, x.dtype), np.ones(rows, bool)),
        "the other library": lambda: np.zeros(rows, x.dtype) if own else cs.empty(rows, x.dtype),
        "interface": interface,
        "pair": lambda: (np.zeros(x.shape, np.uint8), np.zeros(x.shape, np.uint8)),
        "pair of one": lambda: (np.zeros(x.shape, np.uint8),) * 2,
        "pair with None": lambda: (np.zeros(x.shape, np.uint8), None),
        "type": lambda: np.ndarray,
        "right": lambda: cs.empty(rows, x.dtype) if own else np.zeros(rows, x.dtype),
    }
    return made
