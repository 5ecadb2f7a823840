"""Bad input is refused on the host, before anything is launched, with the arithmetic in the message."""

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator, patterns
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.patterns import Channel

from ..emulator import kernels_documents as documents
from .cases import numbers, same, thirds, triple

X = numbers(64)
F = X.astype(np.float32)
stream = patterns.producer_consumer

REFUSED = {
    "an unknown form": (lambda: stream.run(F, triple, form="hope"), "'bulk' or 'tokens'"),
    "no consumers": (lambda: stream.run(F, triple, consumers=0), "0 consumer warps"),
    "33 warps": (lambda: stream.run(F, triple, consumers=32), "32 consumer warps [+] 1 producer warp"),
    "no stages": (lambda: stream.run(F, triple, form="bulk", stages=0), "at least 1"),
    "a stage no slice divides": (
        lambda: stream.run(F, triple, form="bulk", consumers=3, buffer=2048),
        "3 consumers [*] 512 = 1536",
    ),
    "more stages than shared memory": (lambda: stream.run(F, triple, form="bulk", stages=30), "30 [*] 8192 = 245760"),
    "buffers larger than shared memory": (
        lambda: stream.run(F, triple, form="tokens", buffer=40000),
        "2 [*] 40000 [*] 4 = 320000",
    ),
    "no blocks": (lambda: stream.run(F, triple, blocks=0), "1 to 2"),
    "a matrix": (lambda: stream.run(F.reshape(8, 8), triple), "2 dimensions"),
    "phases by hope": (lambda: patterns.phases.run(X, 3, how="hope"), "'token' or 'parity'"),
    "a negative number of phases": (lambda: patterns.phases.run(X, -1), "got -1"),
    "phases of half a warp": (lambda: patterns.phases.run(X, 3, threads=80), "80 = 2 [*] 32 [+] 16"),
    "an exit that never comes": (lambda: patterns.early_exit.run(X), "0 to 256 rounds"),
    "a divergence of no form": (lambda: patterns.divergence.run(X, "hope"), "'straight' or 'mixed'"),
    "a sum of no form": (lambda: patterns.reductions.run(X, "hope"), "'shared_tree'"),
    "a warp that arrives somehow": (lambda: patterns.warp_entanglement.run(3, "hope"), "'converged'"),
    "no phases of a warp": (lambda: patterns.warp_entanglement.run(0), "1 to 2"),
    "an ordered list by atomics": (lambda: patterns.output_list.run(X, thirds, method="block", ordered=True), "'scan'"),
    "a list of no method": (lambda: patterns.output_list.run(X, thirds, method="hope"), "'block' or 'warp'"),
    "primes below -1": (lambda: patterns.primes.run(-1), "0 to 2"),
    "primes below too much": (lambda: patterns.primes.run((1 << 31) + 1), "0 to 2"),
    "a channel without room": (lambda: Channel(0), "got 0"),
    "a negative take": (lambda: Channel(3).take(-1), "got -1"),
    "a channel by hope": (lambda: Channel(3).give(X, method="hope"), "'block' or 'warp'"),
    "a relay of three slots": (lambda: patterns.relay.run(X, 3), "power of two"),
}


WRONG_TYPES = {
    "a name for a function": lambda: stream.run(F, "add"),
    "floats as rounds": lambda: patterns.early_exit.run(F),
    "a capacity in words": lambda: Channel("three"),
    "another type than the channel's": lambda: Channel(3, "float32").give(X),
    "a limit in words": lambda: patterns.primes.run("ten"),
    "no array": lambda: patterns.phases.run(None, 3),
    "too narrow a type": lambda: patterns.completion.run(X.astype(np.int8)),
}
CASES = {what: (*case, ArgumentValueError) for what, case in REFUSED.items()} | {
    what: (call, "got ", ArgumentTypeError) for what, call in WRONG_TYPES.items()
}


@pytest.mark.parametrize("what", CASES)
def test_is_refused_with_the_arithmetic(what, on_emulator):
    call, words, error = CASES[what]
    with pytest.raises(error, match=words):
        call()


@pytest.mark.drawn(2)
@pytest.mark.parametrize("method", ["block", "warp", "each", "scan"])
def test_a_list_that_is_too_long_is_an_error_that_says_by_how_much(method):
    kept = int(np.count_nonzero(thirds(X)))
    with (
        cs.emulate("random"),
        pytest.raises(ArgumentValueError, match=f"{kept - 1} places for {kept} items: 1 too few"),
    ):
        patterns.output_list.run(X, thirds, method=method, capacity=kept - 1)
    with cs.emulate("random"):
        assert len(patterns.output_list.run(X, thirds, method=method, capacity=kept)) == kept


def test_out_and_misaligned_views():
    with cs.emulate("random"):
        x = cs.asarray(np.arange(1001, dtype=np.float32))
        out = cs.empty(1000, "float32")
        assert stream.run(x[1:], triple, out=out, buffer=256) is out  # 4 bytes past a boundary: by threads
        assert same(out, triple(np.arange(1, 1001, dtype=np.float32)), True)
        with pytest.raises(ArgumentValueError, match="multiples of 16"):
            stream.run(x[1:], triple, form="bulk", out=out)
        with pytest.raises(ArgumentValueError, match="shape"):
            stream.run(x, triple, out=cs.empty(5, "float32"))
        with pytest.raises(ArgumentValueError, match="overlaps"):
            stream.run(x[:500], triple, out=x[1:501])


def test_a_callable_without_a_key_is_traced_anew_for_each_object():
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, value):
            return value * self.by

    with cs.emulate("random"):
        for by in (2, 5):
            assert same(stream.run(F, Scale(by), form="parity", buffer=64), F * by, True)


def test_the_naive_reduction_over_blocks_is_refused():
    x = np.ones(4 * documents.THREADS, np.int32)
    with pytest.raises(emulator.EmulationError, match="race"):
        emulator.check(documents.global_reduction, x, x.size, schedules=9)


def test_the_names_of_the_module():
    assert set(patterns.NAMES) <= set(dir(patterns))
    for name in patterns.NAMES:
        assert callable(getattr(patterns, name).run)
        assert name == "round_trip" or callable(getattr(patterns, name).reference)
    with pytest.raises(AttributeError):
        _ = patterns.hope
