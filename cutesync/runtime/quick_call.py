"""The hot path of ``cs.launch``: calls whose arguments have the types of an earlier call.

Which argument is an array, and of which library, follows from the types. So a call identifies its arrays, compares
their signatures with those of the call before, and runs that call's plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import arrays
from .device import DEFAULT
from .host_arguments import PLAIN

SHORT = (int, bool, str, type(None))
"""Types of constants that equal values of one type replace."""
_MOST = 4096  # plans of a function for arguments of some types
_CONSTANT = object()


def quick_call(function: Any, arguments: tuple) -> Callable[[tuple, Any], None] | None:
    """Return ``call(arguments, stream)`` of a ``Function`` for arguments of these types; None if there is something
    else than arrays on a device, plain numbers and short constants, or no array. Defaults are constants."""
    ways: list[Any] = []  # of each argument: what identifies it, _CONSTANT, or None for a number
    libraries = []
    whole, given = (
        function.complete(arguments) if len(arguments) != len(function.given) else (arguments, function.given)
    )
    if any(
        type(x) in PLAIN and not constant for x, (_, constant) in zip(whole[len(arguments) :], given[len(arguments) :])
    ):
        return None
    for x, (_, constant) in zip(arguments, given):
        library = arrays.ADAPTERS.get(type(x))
        if constant and type(x) in SHORT:
            ways.append(_CONSTANT)
        elif type(x) in PLAIN and not constant:
            ways.append(None)
        elif library is not None and library is not arrays.NUMPY and not constant:
            libraries.append(library)
            ways.append(library.identify_strided)
        else:
            return None
    return _call(function, ways, libraries[0].stream) if libraries else None


def _call(function: Any, ways: list[Any], stream_of: Callable[[int], int]) -> Callable[[tuple, Any], None]:
    streamless, handle_of = function.streamless, arrays.stream_handle
    plans: dict[tuple, tuple[Callable, int]] = {}
    last: tuple[list, Any] = [], None  # signature and plan of the call before

    def call(arguments: tuple, stream: Any) -> None:
        nonlocal last
        signature, addresses, numbers, low = [], [], [], 0
        for x, way in zip(arguments, ways):
            if way is None:
                numbers.append(x)
            elif way is _CONSTANT:
                signature.append(x)
            else:
                address, facts = way(x)
                addresses.append(address)
                signature.append(facts)
                low |= address
        known, plan = last
        if low & 15:  # alignment is part of the signature: not of those that are kept here
            function.call(arguments, stream)
            return
        if signature != known:
            plan = plans.get(tuple(signature))
            if plan is None:
                plan = function.call(arguments, stream)
                if len(plans) >= _MOST:
                    plans.clear()
                plans[tuple(signature)] = plan
                last = signature, plan
                return
            last = signature, plan
        run, ordinal = plan
        raw = stream_of(ordinal) if stream is None else handle_of(stream)
        if streamless and raw not in DEFAULT:
            function.refuse_stream(raw)
        run(addresses, numbers, raw)

    return call
