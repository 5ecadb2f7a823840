"""block.Discontinuity: the source document's examples, all eight forms, and every kind of block, item, flag and
operator."""

from itertools import product

import cutlass
import numpy as np
import pytest

import cutesync as cs
from cutesync import block
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from .. import compiled
from ..cases import everywhere, same
from .kernels import ROWS, SCHEDULES, AllForms, Counted, run

reference = cs.reference


def expected(x: np.ndarray, tile: int, op="ne", ends=(0, 0), flag="int32") -> np.ndarray:
    """The rows of flags of all forms."""
    predecessor, successor = ends
    heads = [reference.flag_heads(x, op, dtype=flag, tile=tile, predecessor=p) for p in (None, predecessor)]
    tails = [reference.flag_tails(x, op, dtype=flag, tile=tile, successor=s) for s in (None, successor)]
    both = [(heads[0], tails[0]), (heads[1], tails[0]), (heads[0], tails[1]), (heads[1], tails[1])]
    return np.stack([*heads, *tails, *(flags for pair in both for flags in pair)])


def check(place, x: np.ndarray, host: AllForms, *, ends=(0, 0), schedules=SCHEDULES):
    name = {"Boolean": "bool"}.get(host.flag.__name__, host.flag.__name__.lower())
    assert x.size == host.count
    flags = np.full((ROWS + 1, x.size), 77).astype(name)
    *_, flags = run(place, host, x, np.array(ends, x.dtype), flags, schedules=schedules)
    same(flags[:ROWS], expected(x, x.size // host.tiles, host.op, ends, name))
    assert (flags[ROWS] == 1).all() or x.dtype.kind == "f"  # the items are as they were (a NaN is not equal to itself)


def sorted_keys(count: int, dtype="int32", seed: int = 0) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).integers(0, max(2, count // 3), count) % 120).astype(dtype)


@pytest.fixture(scope="module")
def rows():
    """All forms of the document's items with predecessor 0 and successor 125, a list of threads each."""
    x = np.array(TestTheSourceDocument.THREADS, np.int32).reshape(-1)
    flags = np.zeros((ROWS + 1, 512), np.int32)
    compiled.check(AllForms(cutlass.Int32, (128,), 4).__call__, x, np.array([0, 125], np.int32), flags)
    return flags.reshape(ROWS + 1, 128, 4).tolist()


class TestTheSourceDocument:
    """128 threads of 4 items. The document shows the first threads and the last one."""

    SHOWN = [[0, 0, 1, 1], [1, 1, 1, 1], [2, 3, 3, 3], [3, 4, 4, 4]]
    THREADS = [*SHOWN, *([t, t + 1, t + 1, t + 1] for t in range(4, 125)), [125] * 4, [125] * 4, [124, 125, 125, 125]]

    HEADS, HEADS_AFTER_0 = (
        [[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0]],
        [[0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 0]],
    )
    TAILS = [[0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0]]
    LAST, LAST_BEFORE_125 = [1, 0, 0, 1], [1, 0, 0, 0]

    @pytest.mark.parametrize(
        ("row", "first"),
        [(0, HEADS), (1, HEADS_AFTER_0), (4, HEADS), (6, HEADS_AFTER_0), (8, HEADS), (10, HEADS_AFTER_0)],
    )
    def test_head_flags(self, rows, row, first):
        assert rows[row][:4] == first

    @pytest.mark.parametrize(
        ("row", "last"),
        [(2, LAST), (3, LAST_BEFORE_125), (5, LAST), (7, LAST), (9, LAST_BEFORE_125), (11, LAST_BEFORE_125)],
    )
    def test_tail_flags(self, rows, row, last):
        assert [*rows[row][:2], rows[row][2][:3]] == self.TAILS
        assert rows[row][127] == last


SHAPES = [((32,), 15), ((96,), 1), ((96,), 4), ((8, 12), 10), ((4, 4, 6), 2), ((5, 32), 4), ((256,), 1)]


@everywhere("block_dim, items", SHAPES, emulator=lambda block_dim, items: (block_dim, items) in SHAPES[::2])
def test_blocks_and_items(place, block_dim, items):
    count = int(np.prod(block_dim)) * items
    check(place, sorted_keys(count), AllForms(cutlass.Int32, block_dim, items), ends=(3, 5))


@pytest.mark.parametrize("block_dim", [(1024,), (32, 32), (7, 2, 64)], ids=str)
def test_large_blocks(place, block_dim):
    check(
        place, sorted_keys(int(np.prod(block_dim)) * 2), AllForms(cutlass.Int32, block_dim, 2), ends=(0, 9), schedules=3
    )


TYPES = {
    "bool": "Boolean",
    "int8": "Int8",
    "uint8": "Uint8",
    "int16": "Int16",
    "uint16": "Uint16",
    "uint32": "Uint32",
    "int64": "Int64",
    "uint64": "Uint64",
    "float16": "Float16",
    "float32": "Float32",
    "float64": "Float64",
}


@everywhere(
    "dtype, op",
    product(TYPES, ["ne", "lt"]),
    emulator=lambda dtype, op: dtype in {"ne": ("bool", "float16", "float64"), "lt": ("int8", "int64")}[op],
)
def test_types(place, dtype, op):
    """Values at both ends of the type, so that a lost sign shows."""
    rng = np.random.default_rng(1)
    if dtype == "bool":
        values = [False, True]
    elif dtype.startswith("float"):
        values = [-np.inf, -1.5, -0.0, 0.0, 2.0, np.nan]
    else:
        values = [np.iinfo(dtype).min, np.iinfo(dtype).max, 1, 0]
    x = rng.choice(np.array(values, dtype), 192)
    check(place, x, AllForms(getattr(cutlass, TYPES[dtype]), (96,), 2, op=op), ends=(values[0], values[1]), schedules=5)


@everywhere(
    "flag",
    ["Boolean", "Int8", "Uint8", "Uint16", "Int64"],
    emulator=lambda flag: flag in ("Boolean", "Uint8", "Int64"),
)
def test_flag_types(place, flag):
    check(
        place,
        sorted_keys(192),
        AllForms(cutlass.Int32, (64,), 3, flag=getattr(cutlass, flag)),
        ends=(1, 2),
        schedules=3,
    )


def every_third(a, b, index):
    return (a != b) & (index % 3 == 1)


OPERATORS = {
    "gt": "gt",
    "le": "le",
    "ge": "ge",
    "eq": "eq",
    "asymmetric": lambda a, b: a + 1 < b,
    "index": every_third,
    "index alone": lambda a, b, i: i % 2 == 0,
    "a default": lambda a, b, by=2: b - a >= by,
}


@pytest.mark.drawn(4)
@everywhere("name", OPERATORS, emulator=lambda name: name not in ("le", "ge"))
def test_operators(place, name):
    x = np.random.default_rng(5).integers(-4, 5, 2 * 96 * 4).astype(np.int32)
    check(place, x, AllForms(cutlass.Int32, (96,), 4, 2, OPERATORS[name]), ends=(1, -1), schedules=5)


@pytest.mark.parametrize("ends", [(1, 1), (9, 9)], ids=["equal to the edges", "unequal"])
@pytest.mark.parametrize("kind", ["all equal", "all distinct", "alternating"])
def test_data(place, kind, ends):
    x = {"all equal": np.ones(256), "all distinct": np.arange(1, 257)[::-1], "alternating": np.arange(256) % 2 + 1}[
        kind
    ].astype(np.int32)
    check(place, x, AllForms(cutlass.Int32, (64,), 4), ends=ends, schedules=3)


def test_nan_differs_from_itself_and_zero_from_no_zero(place):
    x = np.array([np.nan, np.nan, 0.0, -0.0] * 32, np.float32)
    flags = run(
        place,
        AllForms(cutlass.Float32, (64,), 2),
        x,
        np.array([np.nan, -0.0], np.float32),
        np.zeros((ROWS + 1, 128), np.int32),
    )[2]
    assert flags[1].reshape(-1, 4).tolist() == [[1, 1, 1, 0]] * 32
    assert flags[3].reshape(-1, 4).tolist() == [[1, 1, 0, 1]] * 31 + [[1, 1, 0, 0]]


@pytest.mark.parametrize("form", ["heads", "tails"])
@pytest.mark.parametrize(("block_dim", "items"), [((64,), 3), ((8, 4, 2), 1)])
def test_the_operator_is_called_for_every_pair_and_no_more(place, form, block_dim, items):
    """A forced flag calls nothing, and the indexes are 1 to n - 1, each once."""
    host = Counted(block_dim, items, form)
    calls = run(
        place, host, np.zeros(host.count, np.int32), np.zeros(2, np.int64), np.zeros(host.count, np.int32), schedules=1
    )[1]
    assert calls.tolist() == [host.count - 1, sum(i * i for i in range(host.count))]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: block.Discontinuity(cutlass.Int32, (33,)), ArgumentValueError, "33 threads"),
        (lambda: block.Discontinuity(cutlass.Int32, (2048,)), ArgumentValueError, "at most 1024"),
        (lambda: block.Discontinuity(int, (32,)), ArgumentTypeError, "cutlass.Int32"),
        (lambda: block.Exchange(cutlass.Int32, (32,), 0), ArgumentValueError, "1 or more"),
        (lambda: block.Load((32,), 4, "warped"), ArgumentValueError, "'striped'"),
    ],
)
def test_what_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()
