"""Calls of public functions made again.

A public function parses its arguments, makes calls of front ends (call.py), and returns their results, perhaps in an
object of its own. ``repeatable`` records these calls: which arrays went where, and which came back. A later call whose
arguments have the same types, whose arrays have the same signatures, and whose other arguments are equal makes them
again from their plans, and parses nothing. Of run-time arguments (``args``) only the types must be the same.

A callable is looked up by its meaning (``identity``) in every call. Recorded are calls whose arguments are arrays on
one device, plain functions, numbers and texts, and tuples of these; all others take the usual way each time. Calls of
Sharded arrays are recorded as one call of ``dist``, which itself keeps what its plans do (``dist.repeat``).
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
import threading
import types
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, TypeVar

from ..identity import identify
from . import arrays, call as front_ends
from .call import Pair, Plan
from .identification import Guards

F = TypeVar("F", bound=Callable[..., Any])
_MOST = 1024  # forms of a function, and records of a form
_CONSTANTS = (int, bool, str, type(None))  # equal values of one of these types mean the same
_NUMBERS = (int, float, bool)
_NEW = object()
_OVERLAP = object()


class _Thread(threading.local):
    numbers: tuple = ()
    source: int | None = None
    taken: bool = False


CURRENT = _Thread()
"""``numbers``: the run-time arguments of this thread's call that are numbers. ``source``: the id of the tuple of which
they were taken. ``taken``: one was given to another call."""


class Step:
    """A call of a front end. ``places`` takes the addresses of its inputs and outputs from those of the whole call;
    ``empties`` make the outputs that the caller does not give. ``apart`` are the addresses that were seen last not to
    overlap. ``numbers`` are the run-time arguments that the public function gives itself; without, they are those of
    its caller."""

    __slots__ = ("address", "apart", "empties", "numbers", "ordinal", "pairs", "places", "run", "stream")

    def __init__(
        self, plan: Plan, library: Any, places: list[int], pairs: tuple[Pair, ...], numbers: tuple | None
    ) -> None:
        self.numbers = numbers
        self.run, self.ordinal, self.empties = plan.run, plan.ordinal, plan.more.empties
        self.stream, self.address = library.stream, library.address
        self.places, self.pairs = operator.itemgetter(*places), pairs
        self.apart: tuple[int, ...] = ()

    def overlaps(self, addresses: tuple[int, ...]) -> bool:
        for output, other, before, behind, same in self.pairs:
            apart = addresses[other] - addresses[output]
            if before < apart < behind and not (same and apart == 0):
                return True
        self.apart = addresses
        return False


class Record:
    """What a call did: calls of front ends, and ``result`` of all values: those given, those made, and None. ``plans``
    is the dictionary that had the plans. Without steps, the call takes the usual way."""

    __slots__ = ("plans", "result", "steps")

    def __init__(self, steps: tuple[Step, ...], result: Callable[[tuple], Any], plans: dict) -> None:
        self.steps, self.result, self.plans = steps, result, plans

    def run(self, values: tuple, addresses: list[int], stream: Any) -> Any:
        """Make the call again; return _OVERLAP instead if an output overlaps another array."""
        made: list = []
        explicit, numbers = stream is not None, CURRENT.numbers
        for step in self.steps:
            raw = arrays.stream_handle(stream) if explicit else step.stream(step.ordinal)
            for empty in step.empties:
                y = empty(raw, explicit)
                made.append(y)
                addresses.append(step.address(y))
            given = step.places(addresses)
            if step.pairs and given != step.apart and step.overlaps(given):
                return _OVERLAP
            CURRENT.numbers = numbers if step.numbers is None else step.numbers
            step.run(given, raw)
        return self.result((*values, *made, None))


class WholeRecord:
    """The same of a call that ``dist`` makes as a whole: ``again(given, outs, stream)``, which returns its results, or
    None if it must take the usual way. The arguments are at ``places`` among all values, None for those not given.
    ``numbers``: as in a ``Step``."""

    __slots__ = ("_again", "_numbers", "_places", "_result", "plans", "steps")

    def __init__(self, again: Callable, places: tuple, numbers: tuple | None, result: Callable) -> None:
        self._again, self._places, self._numbers, self._result = again, places, numbers, result
        self.steps, self.plans = (again,), front_ends._plans

    def run(self, values: tuple, addresses: list[int], stream: Any) -> Any:
        given, outs = self._places
        xs = tuple([None if place is None else values[place] for place in given])
        if self._numbers is not None:
            CURRENT.numbers = self._numbers
        found = self._again(xs, None if outs is None else tuple([values[place] for place in outs]), stream)
        if found is None:
            self.plans = {}  # the next call is recorded
            return _OVERLAP
        return self._result((*values, *found, None))


class Form:
    """How calls are identified whose arguments have certain types: the places of arrays with what identifies them, of
    callables with their names, of constants, of floats, of run-time arguments, and of the stream. ``others``: there are
    some between the arrays and the stream. ``guards`` is what tells the signatures of arrays that all have guards."""

    __slots__ = (
        "arrays",
        "callables",
        "constants",
        "floats",
        "guards",
        "last",
        "numbers",
        "others",
        "records",
        "stream",
    )

    def __init__(self) -> None:
        self.arrays: list[tuple[int, Callable]] = []
        self.callables: list[tuple[int, str]] = []
        self.constants: list[int] = []
        self.floats: list[int] = []
        self.numbers: list[int] = []
        self.stream: int | None = None
        self.guards: Guards | None = None
        self.others = False
        self.records: dict[tuple, Record | WholeRecord] = {}
        self.last: tuple[list, Record | WholeRecord | None] = [], None

    def add(self, place: int, kind: type, name: str) -> bool:
        """Add an argument; return whether calls with such ones are recorded."""
        library = arrays.ADAPTERS.get(kind)
        if name == "stream":
            self.stream = place
        elif library is arrays.SHARDED:
            self.guards = None
            self.arrays.append((place, library.repeated))
        elif library is not None and library is not arrays.NUMPY:
            guarded = library.guard is not None and (self.guards is not None or not self.arrays)
            self.guards = Guards(library) if guarded else None
            self.arrays.append((place, library.identify_strided))
        elif kind is tuple:
            return True
        else:
            self.others = True
            return self._add_other(place, kind, name)
        return True

    def _add_other(self, place: int, kind: type, name: str) -> bool:
        if name == "args" and kind in _NUMBERS:
            self.numbers.append(place)
        elif kind in _CONSTANTS:
            self.constants.append(place)
        elif kind is float:
            self.floats.append(place)
        elif kind is types.FunctionType:
            self.callables.append((place, name))
        else:
            return False
        return True

    def read(self, values: tuple) -> tuple[list, list[int]]:
        """Return what identifies a call, and 0 and the addresses of its arrays. Keep its run-time arguments."""
        if self.guards is None:
            signature, addresses, low = self._identified(values)
        else:
            xs = [values[place] for place, _ in self.arrays]
            found = self.guards.read(xs)
            if found is None:
                found = self._identified(values)
                self.guards.learn(xs, found[0])
            signature, addresses, low = found
        if self.others:
            for place, name in self.callables:
                signature.append(identify(values[place], name))
            signature += [values[place] for place in self.constants]
            signature += [repr(values[place]) for place in self.floats]
            if self.numbers:
                CURRENT.numbers = numbers = tuple([values[place] for place in self.numbers])
                signature += map(_words, numbers)
        if low & 15:
            signature.append(tuple([address & 15 for address in addresses]))
        return signature, addresses

    def _identified(self, values: tuple) -> tuple[list, list[int], int]:
        """Return the signatures of the arrays, 0 and their addresses, and the bits of all addresses together."""
        signature: list = []
        addresses, low = [0], 0
        for place, identify_array in self.arrays:
            address, facts = identify_array(values[place])
            addresses.append(address)
            signature.append(facts)
            low |= address
        return signature, addresses, low


def _words(number: float) -> int:
    """Return in how many words of 32 bits a run-time argument fits: 1, 2, or 3 for more than the 2 that are allowed."""
    if type(number) is not int or -(1 << 31) <= number < 1 << 31:
        return 1
    return 2 if -(1 << 63) <= number < 1 << 63 else 3


class Recorder:
    """Observes the calls of front ends by which a public function makes a call."""

    def __init__(self, values: tuple, arrays_at: Sequence[int], stream: Any) -> None:
        self.values, self.made, self.steps, self.plans = values, [], [], {}  # type: ignore[var-annotated]
        self.stream = stream
        # Of each array, its place among all values and among the addresses.
        self.known = {id(values[place]): (place, 1 + i) for i, place in enumerate(arrays_at)}
        self.whole = len(self.known) == len(arrays_at)  # an array given twice has no place of its own
        self.unread = set(self.known)  # arrays that no front end was given: the host may have read their elements
        self.whole_call: tuple[Callable, tuple, tuple | None] | None = None

    def observe(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call that is observed."""
        CURRENT.source = None
        with front_ends.recording(self) as before:
            if before is not None:
                before.whole = False
            return call()

    def note(self, plans: dict, plan: Plan | None, library: Any, stream: Any, given: tuple) -> None:
        """Add a call: its plan, if that is stored among ``plans``, and ``given``, its inputs, the outputs as they were
        given (None for one that was not) and as they are."""
        inputs, outs, found = given
        wanted = [x for x in (*inputs, *outs) if x is not None]
        if plan is None or stream is not self.stream or not all(id(x) in self.known for x in wanted):
            self.whole = False
            return
        self.unread.difference_update(map(id, wanted))
        for y, was in zip(found, outs):
            if was is None:
                self.known[id(y)] = len(self.values) + len(self.made), 1 + len(self.known)
                self.made.append(y)
        places = [0 if x is None else self.known[id(x)][1] for x in (*inputs, *found)]
        pairs = () if all(y is None for y in outs) else _pairs_of(plan, len(inputs))
        self.steps.append(Step(plan, library, places, pairs, self._own_numbers()))
        self.plans = plans

    def _own_numbers(self) -> tuple | None:
        """Return the run-time arguments that the public function gives itself; None if they are its caller's."""
        callers = CURRENT.source is None or CURRENT.source in map(id, self.values)
        return None if callers else CURRENT.numbers

    def note_whole(self, again: Callable, given: tuple, outs: tuple | None, stream: Any, found: tuple) -> None:
        """Add a call that ``dist`` has made as a whole, with its results."""
        wanted = [x for x in (*given, *(outs or ())) if x is not None]
        once = self.whole_call is None and not self.steps
        if not once or stream is not self.stream or not all(id(x) in self.known for x in wanted):
            self.whole = False
            return
        self.unread.difference_update(map(id, wanted))
        places = [None if x is None else self.known[id(x)][0] for x in given]
        to = None if outs is None else [self.known[id(y)][0] for y in outs]
        self.whole_call = again, (places, to), self._own_numbers()
        for y in found:
            self.known[id(y)] = len(self.values) + len(self.made), 0
            self.made.append(y)

    def record(self, result: Any) -> Record | WholeRecord:
        """Return what the call did, whose result this is."""
        places = {number: place for number, (place, _) in self.known.items()} | {id(None): -1}
        build = _builder(result, places) if self.whole and not self.unread else None
        if self.whole_call is not None and build is not None and not self.steps:
            return WholeRecord(*self.whole_call, build)
        build = build if self.steps else None
        if build is None:
            return Record((), lambda values: None, front_ends._plans)
        return Record(tuple(self.steps), build, self.plans)


def _pairs_of(plan: Plan, inputs: int) -> tuple[Pair, ...]:
    """Return what must not overlap in calls of a plan with so many inputs."""
    reads = ((0, plan.before, plan.behind), *plan.reads) if plan.before or plan.behind else plan.reads
    return (*plan.more.pairs, *(Pair(inputs, i, low, high, i == plan.more.in_place) for i, low, high in reads))


def _builder(result: Any, places: dict[int, int]) -> Callable[[tuple], Any] | None:
    """Return what makes a result of all values: one of them, a tuple, or an object whose ``__match_args__`` are the
    arguments that make it. None if there is something else in it."""
    if id(result) in places:
        return operator.itemgetter(places[id(result)])
    kind: Any = type(result)
    members = result if isinstance(result, tuple) else [getattr(result, k) for k in getattr(kind, "__match_args__", ())]
    builders = [_builder(member, places) for member in members]
    if not builders or None in builders:
        return None
    make: Callable = (lambda *found: found) if kind is tuple else kind
    if len(members) > 1 and all(id(member) in places for member in members):
        get = operator.itemgetter(*[places[id(member)] for member in members])
        return get if kind is tuple else lambda values: make(*get(values))
    return lambda values: make(*[b(values) for b in builders])  # type: ignore[misc]


def repeatable(function: F) -> F:
    """Record the calls of a public function, and make them again. It must launch nothing but by front ends, and its
    result and the run-time arguments that it gives itself must follow from what identifies a call (``Form.read``)."""
    forms: dict[tuple, Form | None] = {}

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        values = (*given, *named.values()) if named else given
        kinds = (*map(type, values), *named)
        if tuple in kinds:
            kinds, values = _with_members(kinds, values)
        form: Any = forms.get(kinds, _NEW)
        if form is _NEW:
            form = _new_form(function, forms, kinds, (given, named))
        recorders = front_ends.recorders
        if form is None or (recorders and get_ident() in recorders):
            return function(*given, **named)
        signature, addresses = form.read(values)
        known, record = form.last
        if signature != known:
            record = form.records.get(tuple(signature))
            form.last = signature, record
        if record is None or record.plans is not front_ends._plans:
            return _recorded(function, (given, named), form, values, signature)
        if record.steps:
            found = record.run(values, addresses, None if form.stream is None else values[form.stream])
            if found is not _OVERLAP:
                return found
        return function(*given, **named)

    return call  # type: ignore[return-value]


def _with_members(kinds: tuple, values: tuple) -> tuple[tuple, tuple]:
    """Return the types and the values with those of the members of tuples behind them."""
    tuples = [x for x in values if type(x) is tuple]
    if len(tuples) == 1:
        (members,) = tuples
        return (*kinds, *map(type, members)), (*values, *members)
    members = tuple(itertools.chain.from_iterable(tuples))
    return (*kinds, *map(len, tuples), *map(type, members)), (*values, *members)


def _new_form(function: Callable, forms: dict, kinds: tuple, arguments: tuple) -> Form | None:
    """Return how calls with arguments of these types are identified, and store it; None if they are not recorded."""
    given, named = arguments
    names = [*list(inspect.signature(function).parameters)[: len(given)], *named]
    values, form = (*given, *named.values()), Form()
    pairs = list(zip(values, names)) if len(names) == len(values) else []
    pairs += [(member, name) for x, name in pairs if type(x) is tuple for member in x]
    recorded = [form.add(place, type(x), name) for place, (x, name) in enumerate(pairs)]
    nested = any(type(x) is tuple for x, _ in pairs[len(values) :])
    if len(forms) >= _MOST:
        forms.clear()
    forms[kinds] = found = form if all(recorded) and form.arrays and not nested else None
    return found


def _recorded(function: Callable, arguments: tuple, form: Form, values: tuple, signature: list) -> Any:
    """Make a call, and record it."""
    given, named = arguments
    stream = None if form.stream is None else values[form.stream]
    recorder = Recorder(values, [place for place, _ in form.arrays], stream)
    if not recorder.whole:
        return function(*given, **named)
    result = recorder.observe(lambda: function(*given, **named))
    if len(form.records) >= _MOST:
        form.records.clear()
    form.records[tuple(signature)] = record = recorder.record(result)
    form.last = signature, record
    return result
