"""The table of element types, and what may name one."""

import pickle
from itertools import product

import numpy as np
import pytest

from cutesync import dtypes
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from .cases import DTYPES


@pytest.mark.parametrize("name", [d for d in DTYPES if d != "bfloat16"])
def test_the_table_agrees_with_numpy(name):
    element, theirs = dtypes.BY_NAME[name], np.dtype(name)
    assert (element.size, element.numpy, element.storage, str(element)) == (theirs.itemsize, theirs, theirs, name)
    assert element.kind == theirs.kind


def test_there_is_one_object_a_type():
    for name in DTYPES:
        assert dtypes.dtype(name) is dtypes.BY_NAME[name] is dtypes.dtype(dtypes.BY_NAME[name])


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        *((spec, "float32") for spec in ("float32", np.float32, np.dtype("float32"), "f4", "<f4", "single")),
        (bool, "bool"),
        (int, "int64"),
        (float, "float64"),
        ("?", "bool"),
        (np.bool_, "bool"),
    ],
)
def test_spellings_of_types(spec, name):
    assert dtypes.dtype(spec) is dtypes.BY_NAME[name]


def test_bfloat16_by_name_and_by_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    element = dtypes.dtype("bfloat16")
    assert (element.kind, element.size, element.storage) == ("f", 2, np.dtype(np.uint16))
    assert dtypes.dtype(ml_dtypes.bfloat16) is element is dtypes.dtype(np.dtype(ml_dtypes.bfloat16))
    assert element.numpy == ml_dtypes.bfloat16


def test_bfloat16_without_ml_dtypes_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(ArgumentTypeError, match="ml_dtypes"):
        dtypes.BY_NAME["bfloat16"].numpy  # noqa: B018


def test_torchs_types(torch):
    for name in DTYPES:
        if hasattr(torch, name):
            assert dtypes.dtype(getattr(torch, name)).name == name


@pytest.mark.parametrize(
    "spec",
    [
        "complex64",
        "float8",
        ">f4",
        ">i2",
        object,
        "U3",
        "M8[s]",
        np.longdouble,
        "nonsense",
        3,
        True,
        1.5,
        b"b",
        [("a", "i4")],
        np.zeros(3),
        np.int64(1),
        10**400,
    ],
)
def test_what_is_no_element_type_is_refused_with_the_list(spec):
    with pytest.raises(ArgumentTypeError, match=r"dtype: got .* needs one of bool, int8.*float64"):
        dtypes.dtype(spec)


def test_the_error_names_the_argument():
    with pytest.raises(ArgumentTypeError, match="^out_dtype: "):
        dtypes.dtype("complex64", "out_dtype")


@pytest.mark.parametrize("name", DTYPES)
def test_accumulators(name):
    element = dtypes.BY_NAME[name]
    assert element.accumulator is (dtypes.FLOAT32 if name in ("float16", "bfloat16") else element)


@pytest.mark.parametrize("name", [d for d in DTYPES if d != "bfloat16"])
def test_promotion_is_numpys(name):
    assert dtypes.sum_dtype(dtypes.BY_NAME[name]).numpy == np.zeros(1, name).sum().dtype
    assert dtypes.sum_dtype(dtypes.BY_NAME[name]).numpy == np.zeros(1, name).prod().dtype


def test_the_dsl_has_a_class_of_the_same_width_for_each():
    for element in dtypes.BY_NAME.values():
        assert element.cutlass.width == 8 * element.size


def test_a_type_survives_equality_and_hashing():
    assert len({dtypes.BY_NAME[name] for name in DTYPES}) == len(DTYPES) == 13
    assert pickle.loads(pickle.dumps(dtypes.FLOAT32)).name == "float32"


@pytest.mark.parametrize(
    "value", [1j, "5", np.str_("5"), np.datetime64("2020"), np.complex64(1), np.zeros(3), None, [1]], ids=repr
)
@pytest.mark.parametrize("target", ["bool", "int8", "float32"])
def test_what_is_no_number_is_no_scalar(value, target):
    with pytest.raises(ArgumentTypeError, match=f"init: got .*a number of type {target}"):
        dtypes.scalar(value, dtypes.BY_NAME[target], "init")


def test_scalars_that_a_type_cannot_hold():
    for value, target in product((10**400, 10**5000), ("int64", "float32", "float64")):
        with pytest.raises(ArgumentValueError, match="^alpha: got "):
            dtypes.scalar(value, dtypes.BY_NAME[target], "alpha")
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    assert dtypes.scalar(bfloat16(1.5), dtypes.FLOAT32, "init") == 1.5
    with pytest.raises(ArgumentTypeError):
        dtypes.scalar(bfloat16(1.5), dtypes.INT32, "init")
