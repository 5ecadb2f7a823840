"""Every parameter of every public function is given what nobody should give: an error of cutesync comes, and nothing
runs."""

import functools
import inspect

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError, CutesyncError, DeviceError
from cutesync.kernels.matmul import MatmulPolicy
from cutesync.patterns import Channel
from cutesync.runtime import compiler


class Unshowable:
    def __repr__(self):
        raise RuntimeError("no repr")


class Unhashable:
    __hash__ = None


X, Y, V, A = (
    np.arange(12, dtype=np.int32).reshape(3, 4),
    np.arange(8, dtype=np.int32),
    np.arange(8, dtype=np.float32),
    np.ones((4, 4), np.float16),
)
NEVER = [
    1j,
    object(),
    [1.5],
    {"none": 1},
    b"x",
    1.5j,
    np.ma.array([1, 2], mask=[0, 1]),
    np.array(["nothing"]),
    np.datetime64("2020"),
    np.str_("no\0name"),
    ...,
    Unshowable(),
    Unhashable(),
]
HUGE = [10**400, 10**5000, -(10**400)]


def emulated(policy=None, seed=0, schedules=1, sanitize=True, trace=None):
    with cs.emulate(policy, seed, schedules, sanitize, trace):
        raise AssertionError("it went in")


def given(x, keep=None, method="block", stream=None):
    return Channel(10, "float32").give(x, keep, method=method, stream=stream)


def taken(count, stream=0):
    return Channel(3).take(count, stream=stream)


PATTERNS = {
    "divergence": (Y,),
    "reductions": (V,),
    "tiered_scan": (V,),
    "completion": (V,),
    "transactions": (V,),
    "phases": (Y, 1),
    "ping_pong": (Y,),
    "relay": (V,),
    "producer_consumer": (V, np.negative),
    "output_list": (V, np.isfinite),
    "primes": (10,),
    "warp_entanglement": (2,),
    "round_trip": (2,),
}
CALLS = {
    name: (getattr(cs, name), (X,))
    for name in (
        "reduce",
        "argmin",
        "argmax",
        "sum",
        "prod",
        "min",
        "max",
        "any",
        "all",
        "scan",
        "cumsum",
        "cumprod",
        "mean",
        "var",
        "std",
        "var_mean",
        "logsumexp",
        "count_nonzero",
        "minmax",
        "cummax",
        "cummin",
        "ffill",
        "flag_heads",
        "flag_tails",
        "flag_heads_and_tails",
        "adjacent_difference",
    )
}
CALLS |= {
    "linear_recurrence": (cs.linear_recurrence, (X, X)),
    "partition": (cs.partition, (X, X > 0)),
    "partition3": (cs.partition3, (X, X > 0, X > 5)),
    "searchsorted": (cs.searchsorted, (Y, X)),
    "repeat": (cs.repeat, (X, X)),
    "run_length_decode": (cs.run_length_decode, (X, X)),
    "bincount": (cs.bincount, (Y,)),
    "histogram": (functools.partial(cs.histogram, range=(0, 5)), (X,)),
    "topk": (cs.topk, (X, 2)),
    "argtopk": (cs.argtopk, (X, 2)),
    "scan_by_key": (cs.scan_by_key, (Y, V)),
    **{
        name: (functools.partial(getattr(cs, name), size=9), arguments)
        for name, arguments in {
            "select": (X, X > 0),
            "compress": (X > 0, X),
            "reduce_by_key": (Y, V),
            "argwhere": (X,),
            "flatnonzero": (X,),
            "nonzero": (X,),
            "unique_consecutive": (X,),
            "run_length_encode": (X,),
        }.items()
    },
    "matmul": (cs.matmul, (A, A)),
    "empty": (cs.empty, (3, "int8")),
    "emulate": (emulated, ()),
    "warm": (cs.warm, ()),
    "MatmulPolicy": (MatmulPolicy, ()),
    "Channel": (Channel, (3,)),
    "Channel.give": (given, (V,)),
    "Channel.take": (taken, (1,)),
}
CALLS |= {f"patterns.{name}": (getattr(cs.patterns, name).run, arguments) for name, arguments in PATTERNS.items()}
NUMBERS = (
    "keepdims",
    "fast_accumulation",
    "batch_invariant",
    "sanitize",
    "n",
)  # any int is a flag there, as in NumPy's keepdims; ``n`` is clamped to what there is


@pytest.fixture(autouse=True)
def _nothing_runs(on_emulator, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("it got as far as a kernel")

    monkeypatch.setattr(compiler, "get", refuse)


@pytest.mark.parametrize("name", CALLS)
def test_what_no_parameter_takes(name):
    call, arguments = CALLS[name]
    wrong = []
    for place in (np.asarray, cs.asarray):
        plain = [place(a) if isinstance(a, np.ndarray) else a for a in arguments]
        for position, parameter in enumerate(inspect.signature(call).parameters.values()):
            for value in NEVER + ([] if parameter.name in NUMBERS else HUGE):
                try:
                    if position < len(plain):
                        call(*plain[:position], value, *plain[position + 1 :])
                    else:
                        call(*plain, **{parameter.name: value})
                    wrong.append((parameter.name, type(value).__name__, "taken"))
                except CutesyncError as error:
                    if ": got " not in str(error) or "; needs " not in str(error):
                        wrong.append((parameter.name, type(value).__name__, str(error)))
                except BaseException as error:
                    wrong.append((parameter.name, type(value).__name__, repr(error)[:200]))
    assert wrong == []


N = np.zeros(4, np.int32)
CASES = {
    "keepdims": (lambda: cs.sum(X, keepdims="no"), ArgumentTypeError, "keepdims"),
    "exclusive": (lambda: cs.scan(X, exclusive="yes"), ArgumentTypeError, "exclusive"),
    "reverse": (lambda: cs.adjacent_difference(X, reverse=2), ArgumentTypeError, "reverse"),
    "tile": (lambda: cs.flag_heads(X, tile=0), ArgumentValueError, "tile"),
    "an empty dtype": (lambda: cs.sum(X, dtype=""), ArgumentTypeError, "dtype"),
    "identity of a name": (lambda: cs.reduce(X, identity="x"), ArgumentTypeError, "identity"),
    "nan of integers": (lambda: cs.reduce(X, init=float("nan")), ArgumentTypeError, "init"),
    "the algorithm of argmin": (lambda: cs.reduce(X, "foo", algorithm="arg"), ArgumentValueError, "op|algorithm"),
    "alpha": (lambda: cs.matmul(A, A, alpha=10**400), ArgumentValueError, "alpha"),
    "out of a product": (lambda: cs.matmul(A, A, out=np.zeros((4, 4), np.int32)), ArgumentTypeError, "out"),
    "fast": (lambda: cs.matmul(A, A, fast_accumulation="no"), ArgumentTypeError, "fast_accumulation"),
    "no types": (lambda: cs.reduce(X, dtype=()), ArgumentValueError, "dtype"),
    "no types of outputs": (lambda: cs.scan(X, finish=abs, out_dtype=()), ArgumentValueError, "out_dtype"),
    "a class": (lambda: cs.nonzero(np.int32), ArgumentTypeError, "x"),
    "texts": (lambda: cs.histogram(np.array(["a"])), ArgumentTypeError, "x"),
    "edges on the device": (lambda: cs.histogram(X, cs.asarray(V)), ArgumentTypeError, "bins"),
    "an edge that is NaN": (lambda: cs.histogram(X, [0, np.nan, 3]), ArgumentValueError, "bins"),
    "an edge that float64 has not": (lambda: cs.histogram(X, [0, 2**53 + 1]), ArgumentValueError, "bins"),
    "lengths": (lambda: cs.bincount(Y, minlength=5, length=3), ArgumentValueError, "length"),
    "lengths that wrap": (lambda: cs.repeat(Y[:3], np.array([2**63 - 1] * 2 + [4])), ArgumentValueError, "repeats"),
    "no operand": (lambda: cs.matmul(A, None), ArgumentTypeError, "b"),
    "tile of a config": (lambda: MatmulPolicy("ab"), ArgumentTypeError, "config.tile"),
    "schedules": (lambda: emulated(schedules=0), ArgumentValueError, "schedules"),
    "policy": (lambda: emulated(policy=["random"]), ArgumentTypeError, "policy"),
    "seed": (lambda: emulated(seed="0"), ArgumentTypeError, "seed"),
    "a trace in no folder": (lambda: emulated(trace="/nowhere/at/all.json"), ArgumentValueError, "trace"),
    "a trace that is a folder": (lambda: emulated(trace="/"), ArgumentValueError, "trace"),
    "a trace that is a number": (lambda: emulated(trace=3), ArgumentTypeError, "trace"),
    "warm nothing": (lambda: cs.warm(None), ArgumentTypeError, "families"),
    "warm a number": (lambda: cs.warm(dtypes=3), ArgumentTypeError, "dtypes"),
    "progress": (lambda: cs.warm(progress=3), ArgumentTypeError, "progress"),
}


WITHOUT_AN_ARRAY = {
    "one of several": (lambda x: cs.reduce((x, None)), r"x\[1\]"),
    "where": (lambda x: cs.select(x, None), "where"),
    "where of a partition": (lambda x: cs.partition(x, None), "where"),
    "second": (lambda x: cs.partition3(x, lambda v: v > 0, None), "second"),
    "condition": (lambda x: cs.compress(None, x), "condition"),
    "b": (lambda x: cs.linear_recurrence(x, None), "b"),
    "v": (lambda x: cs.searchsorted(x, None), "v"),
    "keys": (lambda x: cs.reduce_by_key((None,), x), r"keys\[0\]"),
    "heads": (lambda x: cs.segmented_scan(x, heads=(None,)), r"heads\[0\]"),
    "init": (lambda x: cs.scan_by_key(x, x, init=(None,)), r"init\[0\]"),
    "args": (lambda x: cs.reduce(x, transform=lambda v, t: v + t, args=(None,)), "args"),
}


@pytest.mark.parametrize("place", [np.asarray, cs.asarray], ids=["NumPy", "device"])
@pytest.mark.parametrize("case", WITHOUT_AN_ARRAY)
def test_none_in_place_of_an_array(case, place):
    call, argument = WITHOUT_AN_ARRAY[case]
    with pytest.raises((ArgumentTypeError, DeviceError), match=f"^({argument}): got .*None.*; needs "):
        call(place(Y))


def test_what_numpy_takes_stays_allowed(launches):
    """Nothing runs, but a plan is made for each."""
    x = cs.asarray(X)
    for options in (
        {"keepdims": 1},
        {"keepdims": np.bool_(True)},
        {"axis": np.int64(1)},
        {"axis": (np.int8(0), 1)},
        {"dtype": np.dtype("int64")},
        {"dtype": int},
        {"init": np.int16(3)},
    ):
        cs.reduce(x, **options)
    cs.scan(x, exclusive=np.True_, reverse=np.False_, init=np.bool_(True))
    assert len(launches) == 8


D, DA, DV = (lambda: cs.asarray(X)), (lambda: cs.asarray(A)), (lambda: cs.asarray(V))
U = np.zeros((3, 4), np.uint8)
MIXED = {
    "reduce out": (lambda: cs.reduce(D(), out=np.zeros((), np.int32)), "out"),
    "argmax out": (lambda: cs.argmax(D(), out=np.zeros((), np.int64)), "out"),
    "scan out": (lambda: cs.scan(D(), out=np.zeros((3, 4), np.int32)), "out"),
    "scan init": (lambda: cs.scan(D(), init=np.zeros(1, np.int32)), "init"),
    "scan init on the device": (lambda: cs.scan(X, init=cs.asarray(np.zeros(1, np.int32))), "init"),
    "flags out": (lambda: cs.flag_heads(D(), out=U), "out"),
    "flags second out": (lambda: cs.flag_heads_and_tails(D(), out=(cs.asarray(U), U)), "out"),
    "flags first out": (lambda: cs.flag_heads_and_tails(X, out=(cs.asarray(U), U)), "out"),
    "difference out": (lambda: cs.adjacent_difference(X, out=D()), "out"),
    "matmul a": (lambda: cs.matmul(A, DA()), "b"),
    "matmul b": (lambda: cs.matmul(DA(), A), "b"),
    "matmul c": (lambda: cs.matmul(DA(), DA(), A, beta=1), "c"),
    "matmul bias": (lambda: cs.matmul(DA(), DA(), bias=A[0]), "bias"),
    "matmul scales": (lambda: cs.matmul(DA(), DA(), scale_a=V[:1]), "scale_a"),
    "matmul second scale": (lambda: cs.matmul(DA(), DA(), scale_a=cs.asarray(V[:1]), scale_b=V[:1]), "scale_b"),
    "matmul out": (lambda: cs.matmul(DA(), DA(), out=A.copy()), "out"),
    "matmul out on the device": (lambda: cs.matmul(A, A, out=DA()), "out"),
    "a subclass": (lambda: cs.matmul(DA(), A.view(np.matrix)), "b"),
    "pattern out": (lambda: cs.patterns.completion.run(DV(), out=np.zeros(1, np.float32)), "out"),
    "pattern out on the device": (lambda: cs.patterns.completion.run(V, out=cs.empty(1, "float32")), "out"),
}
CASES |= {f"NumPy beside a device: {name}": (call, DeviceError, argument) for name, (call, argument) in MIXED.items()}


@pytest.mark.parametrize("case", CASES)
def test_single_cases(case):
    call, error, argument = CASES[case]
    with pytest.raises(error, match=f"^({argument}): got .*; needs "):
        call()
