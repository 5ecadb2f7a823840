"""From a call of a public function on Sharded arrays to its family here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..kernels.flags.spec import FlagSpec
from ..kernels.matmul.call import MatmulSpec
from ..kernels.reduce.spec import ReduceSpec
from ..kernels.scan.spec import ScanSpec
from ..kernels.select.spec import SelectSpec
from ..runtime import arrays
from ..runtime.call import Family
from . import flags, product as products, reduce, scan, select
from .sharded import Sharded

_MOST_PLANS = 1024


def call_sharded(family: Family, call: Callable, arguments: tuple, given: tuple, out: Any, stream: Any) -> Any:
    """Make a call of a family; ``call`` is its front end, and ``given`` are its inputs."""
    if len(given) == 1:
        ((first,), xs) = given, given
        key: tuple = (family.name, arguments, first.key)
    else:
        first, xs = given[0], tuple([x for x in given if x is not None])
        for x, name in zip(given, family.inputs):
            if x is not None and type(x) is not Sharded:
                raise ArgumentTypeError(explain(name, f"a {type(x).__name__} beside a Sharded", "a Sharded"))
        key = (family.name, arguments, *[None if x is None else x.key for x in given])
    group = first.group
    try:
        plan = group.plans.get(key)
    except TypeError:  # an unhashable argument: the plan is used once
        plan, key = None, ()
    if plan is None:
        plan = _plan(family, call, arguments, given)
        if len(group.plans) >= _MOST_PLANS:
            group.plans.clear()
        if key:
            group.plans[key] = plan
    if out is not None:
        raise ArgumentTypeError(explain("out", f"a {type(out).__name__} for a Sharded", "None"))
    return plan.run(xs, group.streams(first, stream), stream is not None)


def _plan(family: Family, call: Callable, arguments: tuple, given: tuple) -> Any:
    """Check the arguments, and return the plan of a call."""
    first = given[0]
    product = family.name == "matmul"  # its operands are sharded along axes of their own
    for x, name in zip(given[1:], family.inputs[1:]):
        if x is None or (product and x.group is first.group):
            continue
        if x.group is not first.group or x.axis != first.axis or x.offsets != first.offsets:
            raise ArgumentValueError(explain(name, repr(x), f"an array sharded as {family.inputs[0]} is, {first!r}"))
    views = tuple(None if x is None else x.view for x in given)
    spec: Any = family.parse(arguments, (*views, *(None,) * (len(family.inputs) - len(views))), None)
    xs = tuple(x for x in given if x is not None)
    if isinstance(spec, ReduceSpec):
        return reduce.plan_of(call, arguments, spec, xs)
    if isinstance(spec, ScanSpec):
        return scan.plan_of(call, arguments, spec, xs)
    if isinstance(spec, FlagSpec):
        return flags.plan_of(call, arguments, spec, xs)
    if isinstance(spec, SelectSpec):
        return select.plan_of(call, arguments, spec, xs)
    if isinstance(spec, MatmulSpec):
        return products.plan_of(call, arguments, spec, given)
    raise ArgumentTypeError(explain(family.inputs[0], "a Sharded", f"an array on one device, for {family.name}"))


arrays.ADAPTERS[Sharded] = arrays.SHARDED
arrays.SHARDED.calls = call_sharded
