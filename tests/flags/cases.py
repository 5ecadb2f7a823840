"""Arrays that the tests of flags share."""

from __future__ import annotations

import numpy as np

from cutesync import dtypes

from ..cases import numpy_dtype


def keys(shape, dtype: str, seed: int = 0) -> np.ndarray:
    """Runs of values, both ends of the type among them."""
    rng = np.random.default_rng([seed, *np.atleast_1d(shape)])
    element = dtypes.dtype(dtype)
    numpy = numpy_dtype(dtype)
    few = (
        [0, 1]
        if element.kind == "b"
        else [-1.5, 0.0, 2.0, 300.0]
        if element.kind == "f"
        else [np.iinfo(numpy).min, np.iinfo(numpy).max, 1, 2]
    )
    count = int(np.prod(shape))
    values = rng.choice(len(few), count + 1)
    return np.array(few, numpy)[values[np.cumsum(rng.random(count) < 0.4)]].reshape(shape)
