"""Public bugs of other projects (``bugs``): each is found, each repaired twin is clean and right."""

import numpy as np
import pytest

from .bugs import BUGS, CONTROL
from .support import reported


@pytest.mark.parametrize("name", BUGS)
def test_found_and_clean_when_repaired(name):
    bug = BUGS[name]
    assert bug.text(False) != bug.text(True)
    text = reported(bug.kinds, "", bug.run, False)
    assert bug.says in text
    out = bug.run(True)
    if bug.wanted is not None:
        assert np.array_equal(out[: len(bug.wanted)], bug.wanted)


def test_controls_are_clean():
    for side in (False, True):
        assert np.array_equal(CONTROL.run(side)[:64], CONTROL.wanted)
