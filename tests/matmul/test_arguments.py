"""What cs.matmul refuses, and that it says what is allowed."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError
from cutesync.kernels.matmul import MatmulPolicy

from ..cases import read_only
from .support import integers

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

A, B = integers(4, 6), integers(6, 8)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((A, A), {}, ArgumentValueError, "second operand with 6 rows"),
        ((np.float16(2), B), {}, ArgumentTypeError, "array"),
        ((integers(2, 4, 6), integers(3, 6, 8)), {}, ArgumentValueError, "broadcast"),
        ((A, B.astype(np.float32)), {}, ArgumentTypeError, "two of float32, of float16"),
        ((A.astype(np.int32), B.astype(np.int32)), {}, ArgumentTypeError, "int8 and uint8"),
        ((A, B), {"out_dtype": "int8"}, ArgumentTypeError, "float32"),
        ((A, B), {"beta": 1.0}, ArgumentValueError, "broadcasts to the result"),
        ((A, B, integers(5, 8)), {"beta": 1.0}, ArgumentValueError, "c"),
        ((A, B, integers(2, 4, 8)), {"beta": 1.0}, ArgumentValueError, "broadcasts to (4, 8)"),
        ((A, B, integers(4, 8).astype(np.int32)), {"beta": 1.0}, ArgumentTypeError, "float32"),
        ((A, B, integers(4, 8).astype(np.int32)), {"beta": 0.0}, ArgumentTypeError, "float32"),
        ((A, B, integers(5, 8)), {}, ArgumentValueError, "broadcasts to (4, 8)"),
        ((A, B, integers(5, 8)), {"beta": 0.0}, ArgumentValueError, "broadcasts to (4, 8)"),
        ((A, B, integers(1, 4, 8)), {"beta": 0.0}, ArgumentValueError, "broadcasts to (4, 8)"),
        ((A[:0], B, integers(5, 8)), {}, ArgumentValueError, "broadcasts to (0, 8)"),
        ((A.astype(np.int8), B.astype(np.int8), integers(4, 8)), {}, ArgumentValueError, "out_dtype='float32'"),
        ((A, B, integers(4, 8)), {"beta": "1"}, ArgumentTypeError, "a number"),
        ((A, B), {"bias": integers(4)}, ArgumentValueError, "(8,), one element a column"),
        ((A, B), {"activation": "softmax"}, ArgumentValueError, "gelu_tanh"),
        ((A, B), {"activation": 3}, ArgumentTypeError, "callable"),
        ((A, B), {"scale_a": np.ones(3, np.float32)}, ArgumentValueError, "shape (4, 1)"),
        ((A, B), {"scale_b": np.ones(1, np.float16)}, ArgumentTypeError, "float32"),
        ((A, B), {"scale_a": "0.5"}, DeviceError, "or a number"),
        ((A, B), {"scale_a": 1j}, ArgumentTypeError, "scale_a"),
        ((A, B), {"scale_b": np.complex64(1)}, ArgumentTypeError, "scale_b"),
        ((A, B), {"scale_b": 10**400}, ArgumentValueError, "scale_b"),
        ((A, B), {"alpha": 10**400}, ArgumentValueError, "alpha"),
        ((A.astype(np.int8), B.astype(np.int8)), {"scale_a": 0.5}, ArgumentValueError, "out_dtype='float32'"),
        ((A.astype(np.int8), B.astype(np.int8)), {"alpha": 2.0}, ArgumentValueError, "out_dtype='float32'"),
        ((A.astype(np.int8), B.astype(np.int8)), {"out_dtype": "int64"}, ArgumentTypeError, "int32"),
        ((A, B), {"alpha": "2"}, ArgumentTypeError, "a number"),
        ((A, B), {"precision": "tf32"}, ArgumentTypeError, "float32 operands"),
        (
            (A.astype(np.float32), B.astype(np.float32)),
            {"precision": "tf16"},
            ArgumentValueError,
            "'float32' or 'tf32'",
        ),
        ((A, B, integers(4, 8).astype(np.int8)), {"beta": 1.0}, ArgumentTypeError, "float32"),
        ((A, B), {"config": "tuned"}, ArgumentTypeError, '"tune"'),
        ((A, B), {"config": (128, 256)}, ArgumentTypeError, "MatmulPolicy"),
        ((A, B), {"config": MatmulPolicy((64, 64), "pingpong", stages=60)}, ArgumentValueError, "at most"),
        ((A, B), {"out": np.empty((4, 9), np.float16)}, ArgumentValueError, "shape (4, 8)"),
        ((A, B), {"out": np.empty((4, 8), np.float64)}, ArgumentTypeError, "float32"),
        ((A, B), {"out": read_only(np.empty((4, 8), np.float16))}, ArgumentValueError, "read-only"),
        ((A, [1, 2]), {}, DeviceError, "NumPy"),
        ((A, B), {"out": [0]}, DeviceError, "NumPy"),
    ],
)
def test_refusals(arguments, options, error, words):
    with pytest.raises(error) as refused:
        cs.matmul(*arguments, **options)
    assert words in str(refused.value)


def test_results_that_overlap_an_operand_are_refused():
    whole = cs.asarray(integers(16, 8))
    a, b, out = whole[:8], whole[8:], whole[4:12]
    with pytest.raises(ArgumentValueError, match="overlaps a;"):
        cs.matmul(a, b, out=out)
