"""Tests compute with special values all the time: NumPy's warnings about them say nothing."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield
