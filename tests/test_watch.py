"""``identity.watch``: it never says that a callable is the same where it is not, and says so where nothing changed."""

import pytest

from cutesync.identity import identified, identify
from cutesync.identity.watch import watch

SCALE, OTHER = 2, "text"


class Settings:
    def __init__(self, scale):
        self.scale = scale


SETTINGS = Settings(1)


class Slots:
    __slots__ = ("scale",)


def outer(captured):
    def fn(a, b=3, *, c=4):
        return a * SCALE + b + c + captured + SETTINGS.scale + inner(a)

    return fn


def inner(a):
    return a + ABSENT  # noqa: F821 (a global that is not there yet)


def watched(fn):
    found, places = identified(fn)
    assert found is identify(fn) and places, "nothing in it can change in place"
    return watch(fn, places)


def test_nothing_changed():
    fn = outer(5)
    same = watched(fn)
    assert same() is True and watched(fn)() is True
    _, places = identified(fn)
    assert identified(outer(5))[1] is places, "one tuple for one reading, of equal functions too"


@pytest.mark.parametrize(
    "change",
    [
        lambda patch, fn: patch.setitem(globals(), "SCALE", 3),
        lambda patch, fn: patch.delitem(globals(), "SCALE"),
        lambda patch, fn: patch.setitem(globals(), "SCALE", 2.0),
        lambda patch, fn: patch.setitem(globals(), "ABSENT", 1),
        lambda patch, fn: patch.setitem(globals(), "inner", lambda a: a),
        lambda patch, fn: patch.setattr(inner, "__code__", (lambda a: a).__code__),
        lambda patch, fn: patch.setattr(SETTINGS, "scale", 2),
        lambda patch, fn: patch.delattr(SETTINGS, "scale"),
        lambda patch, fn: patch.setitem(globals(), "SETTINGS", Settings(1)),
        lambda patch, fn: patch.setattr(fn, "__code__", outer(5).__code__.replace(co_name="fn2")),
        lambda patch, fn: patch.setattr(fn, "__defaults__", (7,)),
        lambda patch, fn: patch.setattr(fn, "__kwdefaults__", {"c": 9}),
        lambda patch, fn: patch.setitem(fn.__kwdefaults__, "c", 9),
        lambda patch, fn: patch.setattr(fn.__closure__[0], "cell_contents", 6),
    ],
)
def test_each_change_is_seen(monkeypatch, change):
    fn = outer(5)
    same = watched(fn)
    assert same()
    with monkeypatch.context() as patch:
        change(patch, fn)
        assert not same()


def test_an_emptied_cell_is_a_change():
    fn = outer(5)
    same = watched(fn)
    del fn.__closure__[0].cell_contents
    assert not same()


def test_the_state_of_an_object_is_watched():
    class Add:
        def __init__(self):
            self.more = 1

        def __call__(self, a, b):
            return a + b + self.more

    fn = Add()
    same = watched(fn)
    assert same()
    fn.more = 2
    assert not same()
    slots = Slots()
    slots.scale = 1

    def reads_a_slot(a, b):
        return a * slots.scale + b

    same = watched(reads_a_slot)
    assert same()
    slots.scale = 2
    assert not same()
    del slots.scale
    assert not same()


def test_what_can_change_in_place_is_not_watched():
    table = [1, 2]
    assert identified(lambda a, b: a + b + table[0])[1] == ()
