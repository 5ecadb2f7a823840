"""The hot path of ``cs.launch``: calls whose arguments have the types of an earlier call.

Which argument is an array, and of which library, follows from the types. So a call compares its arrays with those of
the call before, and runs that call's plan; of other arrays it looks up the plan. The comparison with the call before
has no loops: it is written out for the types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import arrays
from .device import DEFAULT
from .host_arguments import PLAIN
from .host_constants import SHORT

_MOST = 4096  # plans of a function for arguments of some types
_GUARDED, _ARRAY, _NUMBER, _CONSTANT = "guarded", "array", "number", "constant"
_NEVER: tuple = (lambda *tensors: False, None, None, 0)  # the state before the first call


def quick_call(function: Any, arguments: tuple) -> QuickCall | None:
    """Return the QuickCall of a ``Function`` for arguments of these types. None if there is something else than arrays
    on a device, plain numbers and short constants, or no array. Defaults are constants."""
    whole, given = (
        function.complete(arguments) if len(arguments) != len(function.given) else (arguments, function.given)
    )
    if any(
        type(x) in PLAIN and not constant for x, (_, constant) in zip(whole[len(arguments) :], given[len(arguments) :])
    ):
        return None
    roles, libraries = [], []
    for x, (_, constant) in zip(arguments, given):
        library = arrays.ADAPTERS.get(type(x))
        if constant and type(x) in SHORT:
            roles.append(_CONSTANT)
        elif type(x) in PLAIN and not constant:
            roles.append(_NUMBER)
        elif library is not None and library is not arrays.NUMPY and not constant:
            roles.append(_ARRAY if library.guard is None else _GUARDED)
            libraries.append(library)
        else:
            return None
    return QuickCall(function, tuple(map(type, arguments)), roles, libraries) if libraries else None


class QuickCall:
    """Calls of a ``Function`` with arguments of certain types. ``call(arguments, stream)`` makes a call whose arrays
    and constants are those of one that was learnt; it does nothing and returns False for others.

    A state is what tells whether arrays of libraries with a guard are the same, the facts of other arrays and of
    constants, what to run, and the device. ``_state`` holds that of the call before."""

    __slots__ = ("_kinds", "_libraries", "_plans", "_refuse", "_roles", "_shapes", "_state", "_stream_of", "call")

    def __init__(self, function: Any, kinds: tuple[type, ...], roles: list[str], libraries: list) -> None:
        self._kinds, self._roles, self._stream_of = kinds, tuple(roles), libraries[0].stream
        self._refuse = function.refuse_stream if function.streamless else None
        left = iter(libraries)
        self._libraries: list[Any] = [next(left) if role in (_ARRAY, _GUARDED) else None for role in roles]
        self._plans: dict[tuple, tuple] = {}  # states by signature
        self._shapes: dict[Any, tuple] = {}  # states by the shape of the first array with a guard
        self._state = [_NEVER]
        ways = [
            library.address if role is _GUARDED else getattr(library, "identify_strided", None)
            for role, library in zip(roles, self._libraries)
        ]
        make = _call_of(self._roles, self._refuse is not None)
        self.call = make(self._other, self._state, kinds, ways, self._stream_of, arrays.stream_handle, self._refuse)

    def learn(self, arguments: tuple, plan: tuple[Callable, int]) -> None:
        """Keep the plan of a call whose arguments have these types."""
        if len(self._plans) >= _MOST:
            self._plans.clear()
            self._shapes.clear()
        self._plans[self._read(arguments)[0]] = self._stated(arguments, plan, _NEVER)

    def _other(self, arguments: tuple, stream: Any) -> bool:
        """Make a call unlike the one before."""
        if tuple(map(type, arguments)) != self._kinds:
            return False
        if _GUARDED in self._roles:
            state = self._shapes.get(arguments[self._roles.index(_GUARDED)].shape)
            if state is not None and state is not self._state[0]:
                self._state[0] = state
                return self.call(arguments, stream, self._looked_up)
        return self._looked_up(arguments, stream)

    def _looked_up(self, arguments: tuple, stream: Any) -> bool:
        """Make a call whose plan is found by its signature."""
        signature, addresses, numbers, low = self._read(arguments)
        state = self._plans.get(signature)
        if state is None:
            return False
        _, _, run, ordinal = state
        if not low:
            if state is self._state[0]:  # a guard may refuse arrays of the same signature
                state = self._plans[signature] = self._stated(arguments, (run, ordinal), state)
            self._state[0] = state
            if _GUARDED in self._roles:
                self._shapes[arguments[self._roles.index(_GUARDED)].shape] = state
        raw = self._stream_of(ordinal) if stream is None else arrays.stream_handle(stream)
        if self._refuse is not None and raw not in DEFAULT:
            self._refuse(raw)
        run(addresses, numbers, raw)
        return True

    def _read(self, arguments: tuple) -> tuple[tuple, list[int], list, int]:
        """Return the signature of a call, its addresses, its numbers, and the lowest bits of all its
        addresses together: 0 if all are aligned."""
        signature, addresses, numbers, low = [], [], [], 0
        for x, role, library in zip(arguments, self._roles, self._libraries):
            if role is _NUMBER:
                numbers.append(x)
            elif role is _CONSTANT:
                signature.append(x)
            else:
                address, facts = library.identify_strided(x)
                addresses.append(address)
                signature.append(facts)
                low |= address
        if low & 15:
            signature.append(tuple([address & 15 for address in addresses]))
        return tuple(signature), addresses, numbers, low & 15

    def _stated(self, arguments: tuple, plan: tuple[Callable, int], known: tuple) -> tuple:
        """Return the state of a call. If there is no guard for its arrays, that of the state ``known`` stays."""
        facts, guarded, guard = [], [], None
        for x, role, library in zip(arguments, self._roles, self._libraries):
            if role is _GUARDED:
                guarded.append(x)
                guard = library.guard
            elif role is not _NUMBER:
                facts.append(x if role is _CONSTANT else library.identify_strided(x)[1])
        same = None if guard is None else guard(guarded)
        return known[0] if same is None else same, tuple(facts), *plan


@functools.lru_cache(maxsize=256)
def _call_of(roles: Sequence[str], streamless: bool) -> Callable:
    """Return ``make(other, state, kinds, ways, stream_of, handle_of, refuse)``, which returns ``QuickCall.call`` for
    arguments of these roles. ``ways`` has what returns the address of an array with a guard, and what identifies
    another array."""
    xs, guarded, facts, addresses, numbers, reads = [], [], [], [], [], []
    tests = []
    for i, role in enumerate(roles):
        xs.append(f"x{i}")
        if role is _GUARDED:
            guarded.append(f"x{i}")
            reads.append(f"a{i} = ways{i}(x{i})")
            addresses.append(f"a{i}")
        else:
            tests.append(f"type(x{i}) is kind{i}")
        if role is _ARRAY:
            reads.append(f"a{i}, f{i} = ways{i}(x{i})")
            addresses.append(f"a{i}")
            facts.append(f"f{i}")
        elif role is _CONSTANT:
            facts.append(f"x{i}")
        elif role is _NUMBER:
            numbers.append(f"x{i}")
    tests += [f"same({', '.join(guarded)})"] if guarded else []
    equal = [f"({', '.join(facts)},) == facts"] if facts else []
    equal += [f"not ({' | '.join(addresses)}) & 15", *(f"a{x[1:]}" for x in guarded)]  # 0 of tensors without memory
    lines = [
        "def make(other, state, kinds, ways, stream_of, handle_of, refuse):",
        f"    {''.join(f'kind{x[1:]}, ' for x in xs)} = kinds",
        f"    {''.join(f'ways{x[1:]}, ' for x in xs)} = ways",
        "    def call(arguments, stream, other=other):",
        "        try:",
        f"            {''.join(f'{x}, ' for x in xs)} = arguments",
        "        except ValueError:",
        "            return False",
        "        same, facts, run, ordinal = state[0]",
        f"        if {' and '.join(tests)}:",
        *(f"            {read}" for read in reads),
        f"            if {' and '.join(equal)}:",
        "                raw = stream_of(ordinal) if stream is None else handle_of(stream)",
        *(["                if raw not in DEFAULT:", "                    refuse(raw)"] if streamless else []),
        f"                run(({''.join(f'{a}, ' for a in addresses)}), ({''.join(f'{n}, ' for n in numbers)}), raw)",
        "                return True",
        "        return other(arguments, stream)",
        "    return call",
    ]
    found: dict[str, Any] = {"DEFAULT": DEFAULT}
    exec("\n".join(lines), found)
    return found["make"]
