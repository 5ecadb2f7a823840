"""Results belong to the stream of the call: NumPy's are copied back on it, new arrays come from its memory."""

import numpy as np
import pytest

import cutesync as cs
from cutesync import patterns

pytestmark = pytest.mark.gpu
N = 1 << 26


class NonBlocking:
    """A stream that the default stream does not wait for."""

    def __init__(self):
        self.driver = pytest.importorskip("cuda.bindings.driver")
        cs.empty(1, "int32")  # makes a context current
        code, self.handle = self.driver.cuStreamCreate(self.driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        assert not int(code)

    def __cuda_stream__(self):
        return 0, int(self.handle)


CALLS = {
    "reduce": (lambda x, stream: cs.reduce(x, axis=1, stream=stream), lambda x: x.sum(1, dtype=x.dtype)),
    "scan": (lambda x, stream: cs.scan(x, stream=stream), lambda x: np.cumsum(x, axis=1, dtype=x.dtype)),
    "flags": (
        lambda x, stream: cs.flag_heads_and_tails(x, stream=stream)[0],
        lambda x: np.diff(x, axis=1, prepend=x[:, :1] + 1) != 0,
    ),
    "patterns": (
        lambda x, stream: patterns.producer_consumer.run(x.reshape(-1), lambda v: v + 1, stream=stream).reshape(
            x.shape
        ),
        lambda x: x + 1,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_numpy_with_a_stream_that_the_default_stream_does_not_wait_for(name):
    run, expected = CALLS[name]
    x = np.arange(N, dtype=np.int32).reshape(4, -1) // 3
    stream = NonBlocking()
    for _ in range(3):
        assert np.array_equal(run(x, stream), expected(x))


def test_products_too():
    a = np.ones((4096, 4096), np.float16)
    assert np.array_equal(cs.matmul(a, a, stream=NonBlocking()), np.full(a.shape, 4096, np.float16))


def test_a_new_result_comes_from_the_memory_of_its_stream(torch):
    """What the current stream has freed may still be in use there: a result on a side stream must not lie in it."""
    side = torch.cuda.Stream()
    x = torch.ones(1 << 22, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(5):
        freed = torch.ones(1 << 22, device="cuda")
        address = freed.data_ptr()
        del freed
        made = cs.scan(x, stream=side)
        assert made.data_ptr() != address
    side.synchronize()
    assert float(made[-1]) == 1 << 22
