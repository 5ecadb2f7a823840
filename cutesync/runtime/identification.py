"""What identifies a call of a front end: its key, which holds the arguments and the signatures of the arrays, or a
guard, by which a library says that arrays are like those of the call before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ArgumentTypeError, explain
from . import arrays

if TYPE_CHECKING:
    from .call import Family, Plan

MOST_GUARDS = 8  # of calls of equal arguments and one shape whose signatures take turns


def identified(
    plans: dict[tuple, Any], family: Family, adapter: Any, arguments: tuple, x: Any, others: tuple, out: Any
) -> tuple[tuple, tuple[int, ...], None]:
    """Return the key of a call, the addresses of its arrays, and None. ``adapter`` is that of ``x``."""
    kind, identify = type(x), adapter.identify_strided if family.strided else adapter.identify
    pointer, signature = identify(x)
    key, addresses = [family.name, arguments, signature, pointer & 15], [pointer]
    rest = others if out is None else (*others, out) if family.outputs == 1 else (*others, *several_of(family, out))
    for number, y in enumerate(rest, 1):
        if type(y) is kind:
            pointer, signature = identify(y)
        elif y is None:
            key.append(None)
            addresses.append(0)
            continue
        else:
            theirs = arrays.beside(y, family.inputs[number] if number <= len(others) else "out")
            pointer, signature = theirs.identify_strided(y) if family.strided else theirs.identify(y)
        key += signature, pointer & 15
        addresses.append(pointer)
    return tuple(key), tuple(addresses), None


class Guarded(NamedTuple):
    """The call before of some arguments and a shape: whether arrays are like its arrays, its key and its plan, and how
    often this may be replaced."""

    same: Callable[..., bool]
    key: tuple
    plan: Plan
    left: int


def guarded(
    plans: dict[tuple, Any], family: Family, adapter: Any, arguments: tuple, x: Any, others: tuple, out: Any
) -> tuple[tuple, tuple[int, ...], Plan | None]:
    """Return the key of a call with one output, the addresses of its arrays, and its plan if that is known by a guard:
    by what compares arrays with those of the call before, which is faster than to identify them. ``plans`` has plans by
    key, and is where guards are kept."""
    known, address = None, adapter.address
    place: tuple = ()
    addresses: tuple[int, ...]
    try:
        place = arguments, x.shape, len(others) if out is None else ~len(others), family.name
        known = plans.get(place)
        if known is not None:
            same, key, plan, _ = known
            if others:
                xs = others if out is None else (*others, out)
                if same(x, *xs):
                    place, addresses = (), (address(x), *map(address, xs))
                    if all(addresses) and not any(a & 15 for a in addresses):
                        return key, addresses, plan
            elif out is None:
                if same(x):
                    pointer, place = address(x), ()
                    if pointer and not pointer & 15:  # 0 is that of tensors without memory
                        return key, (pointer,), plan
            elif same(x, out):
                pointer, place, target = address(x), (), address(out)
                if pointer and target and not (pointer | target) & 15:
                    return key, (pointer, target), plan
    except (TypeError, RuntimeError):  # unhashable arguments, or a tensor without a shape
        place = ()
    key, addresses, _ = identified(plans, family, adapter, arguments, x, others, out)
    if place and not any(a & 15 for a in addresses):
        xs = (x, *others) if out is None else (x, *others, out)
        _guard(plans, adapter, place, xs, key, known)
    return key, addresses, None


def _guard(plans: dict, adapter: Any, place: tuple, xs: tuple, key: tuple, known: Guarded | None) -> None:
    """Guard the arrays of a call whose plan is known."""
    plan, left = plans.get(key), MOST_GUARDS if known is None else known.left - 1
    if plan is None or left < 0 or any(getattr(arrays.ADAPTERS.get(type(x)), "guard", None) is None for x in xs):
        return
    same = adapter.guard(xs) if left else None
    plans[place] = Guarded(_never if same is None else same, key, plan, left)


def _never(*xs: Any) -> bool:
    return False


def several_of(family: Family, outs: Any) -> tuple:
    """Return the outputs of a family of several."""
    several = isinstance(outs, (tuple, list)) and len(outs) == family.outputs
    if not several or any(y is None for y in (outs[:-1] if family.counting else outs)):
        allowed = "a pair of arrays" if family.outputs == 2 else f"a tuple of {family.outputs} arrays"
        raise ArgumentTypeError(explain("out", f"a {type(outs).__name__}", allowed))
    return tuple(outs)
