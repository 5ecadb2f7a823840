"""``cs.launch`` and ``cs.compile``: users' own host functions, on the GPU and on the emulator."""

from __future__ import annotations

import cutlass
import ml_dtypes
import numpy as np
import pytest

import cutesync as cs
from cutesync import identity
from cutesync.errors import ArgumentTypeError, ArgumentValueError, CutesyncError, OperatorError
from cutesync.runtime import compiler, host_call

from ..concurrency import in_threads
from ..libraries import MAKERS, host
from ..sync.cases import KERNELS
from . import kernels_host as own

X = np.arange(100, dtype=np.float32)


@pytest.fixture
def counts(monkeypatch, tmp_path):
    """An empty cache, in memory and on disk; what comes from where."""
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CUTESYNC_CACHE", "1")
    monkeypatch.setattr(host_call, "_functions", {})
    monkeypatch.setattr(host_call, "_known", {})
    monkeypatch.setattr(compiler, "_kernels", {})
    monkeypatch.setattr(compiler, "_counts", {"memory": 0, "disk": 0, "compiled": 0})
    return compiler.counts


def zeros(count: int, dtype="float32") -> np.ndarray:
    return np.zeros(count, dtype)


DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", [*DTYPES, ml_dtypes.bfloat16], ids=str)
def test_numpy_arrays_of_all_types(place, dtype):
    x, y = np.arange(50).astype(dtype), zeros(50, dtype)
    assert cs.launch(own.scale, x, y, 2.0) is None
    assert np.array_equal(y, x + x)


@pytest.mark.parametrize("dtype", ["bool", ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2], ids=str)
def test_types_without_arithmetic(place, dtype):
    x, y = (np.arange(50) % 2).astype(dtype), zeros(50, dtype)
    cs.launch(own.copy, x, y)
    assert np.array_equal(x, y)


@pytest.mark.gpu
@pytest.mark.parametrize("library", MAKERS)
def test_arrays_of_all_libraries(library):
    x, y = MAKERS[library](X.copy()), MAKERS[library](zeros(100))
    held = y if isinstance(y, cs.DeviceArray) else getattr(y, "owner", getattr(y, "array", y))
    cs.launch(own.twice, x, y)
    cs.compile(own.twice, x, y)(y, y)
    assert np.array_equal(host(held), 16 * X)


def test_views_are_written_where_they_lie(place):
    x, y = cs.asarray(X), cs.asarray(zeros(100))
    cs.launch(own.scale, x[::-2], y[1::2], 3.0)
    wanted = zeros(100)
    wanted[1::2] = 3 * X[::-2]
    assert np.array_equal(np.asarray(y), wanted)


@pytest.mark.parametrize("order", ["C", "F"])
def test_matrices_of_both_orders(place, order):
    x = np.arange(15, dtype=np.int32).reshape(3, 5)
    y = np.zeros((3, 5), np.int32, order=order)
    cs.launch(own.copy_matrix, np.asarray(x, order=order), y)
    assert np.array_equal(x, y)
    there = cs.asarray(np.zeros((5, 3), np.int32))
    cs.launch(own.copy_matrix, cs.asarray(x), there.T)
    assert np.array_equal(np.asarray(there), x.T)


def test_alignment_is_known_when_compiled(place):
    """Rows of 8 may be copied as vectors; rows of 9 must not."""
    x, y = cs.asarray(np.arange(32, dtype=np.float32).reshape(4, 8)), cs.asarray(np.zeros((4, 8), np.float32))
    cs.launch(own.copy_vectors, x, y)
    assert np.array_equal(np.asarray(x), np.asarray(y))
    with pytest.raises(Exception, match=r"align"):
        cs.launch(own.copy_vectors, cs.asarray(np.zeros((4, 9), np.float32))[:, :8], y)


def test_numbers_of_all_types(place):
    values = -128, 65535, -(1 << 63), (1 << 64) - 1024, 1.5, -2.5, 1e300, -(1 << 31), 0.25, np.uint8(255)
    out = zeros(10, "float64")
    cs.launch(own.numbers, out, *values)
    assert out.tolist() == [float(v) for v in values]
    cs.launch(own.numbers, out, *(0 * v for v in values[:9]), np.uint8(3))
    assert out.tolist() == [0] * 9 + [3]


@pytest.mark.parametrize("value", [1.0, 3.0e38, -1e-40, 1 + 2**-8, 1 + 3 * 2**-8, np.inf, np.nan], ids=str)
def test_bfloat16_numbers_are_rounded_to_the_nearest(on_emulator, value):
    out = zeros(10, "float64")
    cs.launch(own.numbers, out, 0, 0, 0, 0, 0, value, 0, 0, 0.0, 0)
    assert np.array_equal(out[5], np.float64(np.array(value).astype(ml_dtypes.bfloat16)), equal_nan=True)


@pytest.mark.parametrize(
    ("x", "flag", "kind", "wanted"),
    [
        (None, False, cutlass.Int32, 7),
        (None, np.bool_(True), cutlass.Int64, 107),
        (np.array([5], np.int32), cutlass.Boolean(True), cutlass.Int32, 105),
    ],
)
def test_optional_arguments_flags_and_types(place, x, flag, kind, wanted):
    out = zeros(1, "int64" if kind is cutlass.Int64 else "int32")
    cs.launch(own.choose, out, x, flag, kind)
    assert out.tolist() == [wanted]


def test_lists_and_named_tuples(place):
    xs, y = [np.full(32, n, np.int32) for n in (1, 10, 100)], zeros(32, "int32")
    cs.launch(own.add_all, xs[:2], own.Pair(xs[2], 5), y)
    assert (y == 511).all()
    cs.launch(own.add_all, xs, own.Pair(xs[2], 0), y)
    assert (y == 622).all()
    cs.launch(own.add_rest, y, *xs[:2])
    assert (y == 633).all()
    with pytest.raises(CutesyncError, match="launches no kernel"):
        cs.launch(own.add_rest, y)


def test_objects_and_methods(place):
    x, y = np.arange(32, dtype=np.int32), zeros(32, "int32")
    for by, function in ((3, own.Adder(3)), (4, own.Adder(4)), (4, own.Adder(4).__call__)):
        cs.launch(function, x, y)
        assert np.array_equal(y, x + by)


def test_a_method_is_looked_at_once(on_emulator, counts):
    """Python makes a new object for each ``adder.__call__``."""
    adder, x, y = own.Adder(3), cs.asarray(np.arange(32, dtype=np.int32)), cs.asarray(zeros(32, "int32"))
    cs.launch(adder.__call__, x, y)
    before = len(identity._readings)
    for by in (3, 3, 4):
        adder.by = by
        cs.launch(adder.__call__, x, y)
        assert np.array_equal(np.asarray(y), np.arange(32) + by)
    assert len(identity._readings) == before and counts()["compiled"] == 2


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_with_barriers_clusters_and_tensor_copies(on_emulator, name):
    function, arguments, wanted = KERNELS[name]
    held = [cs.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    cs.launch(function, *held)
    for i, values in wanted.items():
        assert values is None or np.array_equal(np.asarray(held[i]).ravel(), np.ravel(values))


def test_numpy_arrays_are_copied_once_and_back(place):
    x = X.copy()
    cs.launch(own.scale, x, x, 2.0)
    assert np.array_equal(x, 2 * X)
    cs.launch(own.scale, x[:], x, 2.0)
    assert np.array_equal(x, 4 * X)
    x.flags.writeable = False
    cs.launch(own.scale, x, y := zeros(200)[::2], 2.0)
    assert np.array_equal(y, 8 * X) and np.array_equal(x, 4 * X)


def test_numpy_arrays_that_overlap(on_emulator):
    x = zeros(100)
    with pytest.raises(ArgumentValueError, match="y: got memory that overlaps another argument"):
        cs.launch(own.scale, x[:50], x[25:75], 2.0)


# --- compiling --------------------------------------------------------------------------------------------------------


def test_one_compilation_for_all_extents_and_numbers(on_emulator, counts):
    for count, by in ((10, 1.0), (100, 2.0), (1000, 3.0)):
        x, y = np.arange(count, dtype=np.float32), zeros(count)
        cs.launch(own.scale, x, y, by)
        assert np.array_equal(y, by * x)
    assert counts()["compiled"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (X.astype(np.int32), zeros(100, "int32"), 2.0),
        (X, zeros(100), 2.0, 64),
        (X, zeros(100, "int32"), 2.0),
    ],
    ids=["types", "constants", "one type"],
)
def test_another_signature_is_another_kernel(on_emulator, counts, arguments):
    cs.launch(own.scale, X, zeros(100), 2.0)
    cs.launch(own.scale, *arguments)
    assert counts()["compiled"] == 2 and np.array_equal(arguments[1], 2 * X)


def test_kernels_are_kept_on_disk(on_emulator, counts, monkeypatch):
    for wanted in ({"disk": 0, "compiled": 1}, {"disk": 1, "compiled": 1}):
        y = zeros(100)
        cs.launch(own.twice, X, y)
        assert np.array_equal(y, 4 * X) and wanted.items() <= counts().items()
        monkeypatch.setattr(host_call, "_functions", {})
        monkeypatch.setattr(host_call, "_known", {})
        monkeypatch.setattr(compiler, "_kernels", {})


def test_a_function_that_has_changed_is_compiled_again(on_emulator, counts, monkeypatch):
    y = zeros(100)
    cs.launch(own.scale, X, y, 2.0)
    frozen = cs.compile(own.scale, X, y, 2.0)
    monkeypatch.setattr(own, "SCALE", 3)
    cs.launch(own.scale, X, y, 2.0)
    assert np.array_equal(y, 6 * X) and counts()["compiled"] == 2
    frozen(X, y, 2.0)
    assert np.array_equal(y, 2 * X)


def test_a_function_that_cannot_be_identified(on_emulator):
    with pytest.raises(OperatorError, match="cannot be identified by value"):
        cs.launch(own.Adder(iter([3])), X, zeros(100))


def test_many_threads(on_emulator, counts):
    def work(i):
        y = zeros(100)
        cs.launch(own.scale, X, y, float(i))
        assert np.array_equal(y, i * X)

    in_threads(work, 8)
    assert counts()["compiled"] == 1


def test_of_functions_that_meant_the_same_the_one_given_is_compiled(on_emulator, counts):
    """Two equal objects share what is compiled; then one of them changes."""
    x, y = np.arange(32, dtype=np.int32), zeros(32, "int32")
    one, other = own.Adder(3), own.Adder(3)
    for function in (one, other):
        cs.launch(function, x, y)
    assert counts()["compiled"] == 1
    other.by = 5
    cs.launch(one, x.astype("int64"), wide := zeros(32, "int64"))
    assert np.array_equal(wide, x + 3)
    cs.launch(other, x, y)
    assert np.array_equal(y, x + 5)


class TestCompiled:
    def test_its_constants_are_its_own(self, on_emulator):
        """A callable among them may change its meaning, and a list its elements."""
        scale = [2]

        def kind(value):
            return cutlass.Int32(value * scale[0])

        f = cs.compile(own.choose, out := cs.asarray(zeros(1, "int32")), None, True, kind)
        scale[0] = 9
        f(out, None, False)
        assert int(out) == 14

    def test_it_takes_arrays_of_other_extents(self, place, counts):
        f = cs.compile(own.scale, X, zeros(100), 1.0, 64)
        for count in (10, 200):
            x, y = np.arange(count, dtype=np.float32), zeros(count)
            f(x, y, 5.0)
            assert np.array_equal(y, 5 * x)
        assert counts()["compiled"] == 1 and repr(f) == "<cutesync.Compiled scale>"

    def test_it_launches_nothing_itself(self, on_emulator):
        y = zeros(100)
        with cs.emulate() as run:
            cs.compile(own.scale, X, y, 1.0)
        assert run.launches == 0 and not y.any()

    @pytest.mark.parametrize(
        ("arguments", "error", "words"),
        [
            ((X, zeros(100)), ArgumentTypeError, "arguments of scale: got 2; needs 3"),
            ((X, zeros(100), 1.0, 32), ArgumentTypeError, "got 4; needs 3: all but the Constexpr"),
            ((X, zeros(100, "int32"), 1.0), ArgumentTypeError, "y: got int32 .*; needs float32 aligned to 16 bytes"),
            ((X, np.zeros((2, 2), np.float32), 1.0), ArgumentTypeError, "y: got .*; needs .*again"),
            ((X, zeros(100), None), ArgumentTypeError, "got 2 arrays and 0 numbers; needs 2 and 1"),
            ((X, zeros(100), "a"), ArgumentTypeError, "by: got a str"),
        ],
    )
    def test_other_signatures_are_refused(self, on_emulator, arguments, error, words):
        f = cs.compile(own.scale, X, zeros(100), 1.0)
        with pytest.raises(error, match=words):
            f(*arguments)

    def test_less_alignment_and_other_contiguous_axes_are_refused(self, on_emulator):
        x, y = cs.asarray(np.zeros((4, 8), np.float32)), cs.asarray(np.zeros((4, 8), np.float32))
        f = cs.compile(own.copy_vectors, x, y)
        f(cs.asarray(np.zeros((8, 8), np.float32))[::2], y)
        for wrong in (cs.asarray(np.zeros((4, 9), np.float32))[:, 1:], cs.asarray(np.zeros((8, 4), np.float32)).T):
            with pytest.raises(ArgumentTypeError, match="x: got float32 aligned to .*; needs .*strides"):
                f(wrong, y)

    def test_more_alignment_is_welcome(self, on_emulator):
        x = cs.asarray(X)
        f = cs.compile(own.scale, x[1:], x[1:], 1.0)
        f(x, y := cs.asarray(zeros(100)), 2.0)
        assert np.array_equal(np.asarray(y), 2 * X)


def test_streams_reach_the_host_function(on_emulator):
    """The emulator has no streams, but takes them."""
    for stream in (None, 0, 77):
        cs.launch(own.scale, X, y := zeros(100), 2.0, stream=stream)
        assert np.array_equal(y, 2 * X)


def test_launches_run_under_the_settings_in_force():
    with cs.emulate(schedules=9) as run:
        cs.launch(own.scale, X, zeros(100), 2.0)
        assert run.launches == 9
        with pytest.raises(cs.emulator.EmulationError, match="mismatch"):
            cs.launch(own.last_block, zeros(1, "int32"))


def test_unwritten_memory_is_seen(on_emulator):
    with pytest.raises(cs.emulator.EmulationError, match="uninitialised"):
        cs.launch(own.copy, cs.empty(32, "int32"), cs.empty(32, "int32"))


# --- the GPU ----------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_streams_and_graphs_of_torch():
    torch = pytest.importorskip("torch")
    x, y = torch.arange(1000.0, device="cuda"), torch.zeros(1000, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())  # x and y are filled there
    with torch.cuda.stream(side):
        cs.launch(own.scale, x, y, 2.0)
    side.synchronize()
    assert torch.equal(y, 2 * x)
    compiled, graph = cs.compile(own.twice, x, y), torch.cuda.CUDAGraph()
    y.zero_()
    with torch.cuda.graph(graph):
        cs.launch(own.scale, x, y, 3.0)
        compiled(y, y)
    assert not y.any()
    graph.replay()
    assert torch.equal(y, 12 * x)
    with torch.cuda.stream(side), pytest.raises(ArgumentValueError, match="has no parameter stream"):
        cs.launch(own.without_stream, x, y)


@pytest.mark.gpu
def test_a_function_that_is_not_loaded_cannot_be_captured(counts):
    torch = pytest.importorskip("torch")
    x, y = torch.arange(1000.0, device="cuda"), torch.zeros(1000, device="cuda")
    with pytest.raises(cs.errors.CaptureError, match="once before"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        cs.launch(own.scale, x, y, 2.0, 96)


@pytest.mark.gpu
def test_a_launch_that_the_driver_refuses():
    with pytest.raises(cs.errors.LaunchError, match="host function"):
        cs.launch(own.scale, cs.asarray(X), cs.asarray(zeros(100)), 2.0, 2048)


def test_calls_of_one_form_keep_signatures_apart(on_emulator, counts):
    """Other extents, alignment, a foreign address and other numbers, in turn, after a call of the same types."""
    x, y = cs.asarray(X), cs.asarray(zeros(100))
    halves = cs.asarray(X[:50]), cs.asarray(zeros(50))
    for factor in (2.0, 3.0, -0.0):
        for source, target in ((x, y), halves, (x[1:], y[1:]), (x[::2], y[::2]), (x, y)):
            cs.launch(own.scale, source, target, factor)
            wanted = factor * own.SCALE * np.asarray(source)
            assert np.array_equal(np.asarray(target), wanted)
            assert np.array_equal(np.signbit(np.asarray(target)), np.signbit(wanted))
    with pytest.raises(ArgumentTypeError, match="arguments of scale"):
        cs.launch(own.scale, x, y)


def test_a_function_that_changes_and_changes_back(on_emulator, counts, monkeypatch):
    x, y = cs.asarray(X), cs.asarray(zeros(100))
    for scale in (2, 2, 3, 3, 2, 2):
        monkeypatch.setattr(own, "SCALE", scale)
        cs.launch(own.scale, x, y, 1.0)
        assert np.array_equal(np.asarray(y), scale * X)
    assert counts()["compiled"] == 2
