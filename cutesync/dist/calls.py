"""From a call of a public function on Sharded arrays to its family here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..kernels.reduce.spec import ReduceSpec
from ..kernels.scan.spec import ScanSpec
from ..runtime import arrays
from ..runtime.call import Family
from .reduce import reduce
from .scan import scan
from .sharded import Sharded


def call_sharded(family: Family, call: Callable, arguments: tuple, given: tuple, out: Any, stream: Any) -> Any:
    """Make a call of a family; ``call`` is its front end, and ``given`` are its inputs."""
    xs = tuple(x for x in given if x is not None)
    for x, name in zip(given, family.inputs):
        if x is not None and not isinstance(x, Sharded):
            raise ArgumentTypeError(explain(name, f"a {type(x).__name__} beside a Sharded", "a Sharded"))
    first = xs[0]
    for x, name in zip(given[1:], family.inputs[1:]):
        if x is not None and (x.group is not first.group or x.axis != first.axis or x.offsets != first.offsets):
            raise ArgumentValueError(explain(name, repr(x), f"an array sharded as {family.inputs[0]} is, {first!r}"))
    if out is not None:
        raise ArgumentTypeError(explain("out", f"a {type(out).__name__} for a Sharded", "None"))
    views = tuple(None if x is None else x.view for x in given)
    spec: Any = family.parse(arguments, (*views, *(None,) * (len(family.inputs) - len(views))), None)
    if isinstance(spec, ReduceSpec):
        return reduce(call, arguments, spec, xs, stream)
    if isinstance(spec, ScanSpec):
        return scan(call, arguments, spec, xs, stream)
    raise ArgumentTypeError(explain(family.inputs[0], "a Sharded", f"an array on one device, for {family.name}"))


arrays.ADAPTERS[Sharded] = arrays.SHARDED
arrays.SHARDED.calls = call_sharded
