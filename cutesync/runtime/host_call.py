"""``cs.launch`` and ``cs.compile``: a user's own ``@cute.jit`` host function on the arrays of any library.

A call with a known signature costs the check that the function still means the same, one dictionary look-up, and the
host function itself (see quick_call.py). Arrays of other extents and strides get a plan of their own, which holds them
packed; the compiled function depends on the facts only (see host_arguments.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, described, explain
from ..identity import identified, identify, name_of
from ..identity.watch import watch
from . import arrays, backend, device_array, host_code
from .device import DEFAULT
from .device_array import DeviceArray
from .host_arguments import (
    PLAIN,
    Block,
    Leaf,
    Parameter,
    Reader,
    defaults_after,
    example,
    fits,
    number_kind,
    number_value,
    parameters_of,
)
from .host_constants import Frozen, constant_text, value_key
from .quick_call import QuickCall, quick_call
from .view import View

_ADAPTERS, _NUMPY = arrays.ADAPTERS, arrays.NUMPY
_MOST = 4096  # functions, and plans of a function
_functions: dict[Any, Function] = {}
_methods: dict[tuple[int, int], MethodType] = {}  # an entry keeps what its ids stand for alive
_known: dict[int, Known] = {}  # by id
_AGAIN = "use cs.launch, or cs.compile it again"
_VALUES = "an array, a number, None, or a list or tuple of these"


def launch(jit_function: Callable, *arguments: Any, stream: Any = None) -> None:
    """Run your own ``@cute.jit`` host function, which launches ``@cute.kernel`` kernels, on the GPU or the emulator.

    ``arguments`` are those of the function, in order and without the stream:

    - arrays of NumPy (copied to the device, and back if they are writable), torch, CuPy, DLPack or
      ``__cuda_array_interface__``, and DeviceArrays, of any type of ``cutesync`` (float8 and bfloat16 included; bool
      arrives as Uint8) and any strides. A parameter annotated ``cute.Pointer`` gets a pointer to a C-contiguous array,
      all others get a ``cute.Tensor`` in global memory. Its extents and strides are dynamic; the stride of its last
      contiguous axis is 1 when compiled, and the alignment of its address and strides is known up to 16 bytes, so
      that vector copies and tensor maps can rely on it. A NumPy array that is neither in C nor in Fortran order is
      copied in C order;
    - numbers of Python, NumPy and the DSL. The annotation names the type, as in ``n: cutlass.Int64``; without one, an
      int is an Int32, a float a Float32, a bool a Boolean. A number that does not fit is refused;
    - values for parameters annotated ``cutlass.Constexpr``, identified by value, and None, for optional parameters;
    - lists and tuples of all these, nested and named ones included. Numbers in them are dynamic, too.

    A parameter annotated ``cuda.CUstream``, or named ``stream``, gets the call's stream: ``stream``, or by default the
    current stream of the first array's library. A function without one launches on the default stream; it is refused
    where the call's stream is another. Nothing waits for the GPU, except for NumPy arrays.

    A function is compiled once for the types, ranks, alignments and constants of its arguments, and is then kept in
    memory and on disk by what it means (see ``identity``): a function that has changed is compiled again. With a
    function called once before, calls can go into a CUDA graph. It may launch several kernels, use clusters, tensor
    maps made in the host function, and be a method or an object with a ``@cute.jit`` ``__call__``.

    Not supported: keyword parameters; extents known when compiled (give them as Constexpr parameters); dicts, sets and
    dataclasses of arrays; sub-byte types; results (the function returns None); functions whose meaning cannot be
    identified by value. Arguments are not checked for overlap, and the kernels' accesses only on the emulator.
    """
    known = _known.get(id(jit_function))
    if known is None and type(jit_function) is MethodType:
        jit_function = _same_method(jit_function)
        known = _known.get(id(jit_function))
    if known is not None and known.same():
        function = known.function
        if function.latest(arguments, stream):
            return
    else:
        function = _function_of(jit_function, known)
    function.jit_function = jit_function  # of several functions that meant the same, others may have changed
    function(arguments, stream)


def compile(jit_function: Callable, *arguments: Any) -> Compiled:
    """Compile a ``@cute.jit`` host function for arguments like these (see ``launch``), and load it; launch nothing.

    The result is called as ``launch`` is, without the function and without the arguments of Constexpr parameters, which
    are part of it: ``f = cs.compile(host, x, y, 128)``, then ``f(x, y)`` or ``f(a, b, stream=s)``. Arrays may have
    other extents and strides. Other types and ranks are refused, and so are addresses and strides that are less
    aligned, and a contiguous axis that is one no more. Its calls are the cheapest: they do not look whether the
    function has changed.
    """
    return Compiled(jit_function, identify(jit_function, "jit_function"), arguments)


def _same_method(method: MethodType) -> MethodType:
    """Return one object for equal methods of one object: Python makes a new one for each ``x.method``, and what is
    known of a callable is kept by object."""
    if len(_methods) >= _MOST:
        _methods.clear()
    return _methods.setdefault((id(method.__func__), id(method.__self__)), method)


class Known:
    """A function object that was called, which this keeps alive, what it means, the places that this was read from, and
    what tells that they hold the same."""

    __slots__ = ("function", "jit_function", "places", "same")

    def __init__(self, jit_function: Callable, function: Function, places: tuple) -> None:
        self.jit_function, self.function, self.places = jit_function, function, places
        self.same = watch(jit_function, places)


def _function_of(jit_function: Callable, known: Known | None) -> Function:
    """Return the Function of a callable that is new, or has perhaps changed."""
    found, places = identified(jit_function, "jit_function")
    function = _functions.get(found)
    if function is None:
        if len(_functions) >= _MOST:
            _functions.clear()
        function = _functions[found] = Function(jit_function, found)
    if places and (known is None or known.places is not places):  # an equal value in another object is no new place
        if len(_known) >= _MOST:
            _known.clear()
        _known[id(jit_function)] = Known(jit_function, function, places)
    return function


class Function:
    """A host function of one meaning, and its plans by signature: what to run, and the device. ``given`` has name and
    "is a constant" of each argument of a call."""

    def __init__(self, jit_function: Callable, found: Any) -> None:
        self.all, self.rest = parameters_of(jit_function)
        self.jit_function, self.identity, self.name = jit_function, found, name_of(jit_function)
        self.parameters = tuple(p for p in self.all if p.role != "stream")
        self.given = [(p.name, p.role == "constant") for p in self.parameters]
        self.streamless = len(self.parameters) == len(self.all)
        self.plans: dict[tuple, tuple[Callable, int]] = {}
        self.quick: dict[tuple[type, ...], QuickCall | None] = {}  # by the types of the arguments
        self.latest: Callable[[tuple, Any], bool] = lambda arguments, stream: False  # ``call`` of one of ``quick``
        self.defaults: dict[int, tuple[tuple, list[tuple[str, bool]]]] = {}
        self.pinned: tuple[host_code.HostCode, Reader] | None = None
        self.frozen: list[tuple[int, Frozen]] = []

    def __call__(self, arguments: tuple, stream: Any) -> None:
        kinds = tuple(map(type, arguments))
        quick = self.quick.get(kinds)
        if quick is not None:
            self.latest = quick.call
            if quick.call(arguments, stream):
                return
        plan = self.call(arguments, stream)
        if plan is not None and kinds not in self.quick:
            quick = self.quick[kinds] = quick_call(self, arguments)
        if plan is not None and quick is not None:
            quick.learn(arguments, plan)

    def call(self, arguments: tuple, stream: Any) -> tuple[Callable, int] | None:
        """Make a call with any arguments. Return its plan; None if that is not for later calls."""
        given = self.given
        if len(arguments) != len(given):
            arguments, given = self.complete(arguments)
        key: list = []
        addresses: list[int] = []
        numbers: list = []
        libraries: list = []
        for x, (name, constant) in zip(arguments, given):
            if constant:
                key.append(value_key(x, name))
                continue
            kind = type(x)
            library = _ADAPTERS.get(kind)
            if library is not None and library is not _NUMPY:
                libraries.append(library)
                address, signature = library.identify_strided(x)
                addresses.append(address)
                key += signature, address & 15
            elif kind in PLAIN:
                key.append(kind)
                numbers.append(x)
            else:
                _collect(x, name, key, addresses, numbers, libraries)
        if _NUMPY in libraries:
            if any(library is not _NUMPY for library in libraries):
                came, advice = "NumPy arrays beside arrays on a device", "cutesync.asarray(x) for the NumPy arrays"
                raise DeviceError(explain(f"arguments of {self.name}", came, "arrays of one kind", advice))
            self._call_numpy(arguments, stream)
            return None
        if libraries:
            library = libraries[0]
        else:
            library = arrays.OWN
            key.append(backend.current().ordinal(None))
        plan = self.plans.get(signature := tuple(key))
        if plan is None:
            plan = self._make(arguments, signature, library, stream)
        run, ordinal = plan
        raw = library.stream(ordinal) if stream is None else arrays.stream_handle(stream)
        if self.streamless and raw not in DEFAULT:
            self.refuse_stream(raw)
        run(addresses, numbers, raw)
        return plan

    def refuse_stream(self, raw: int) -> None:
        allowed = f"the default stream: {self.name} has no parameter stream"
        advice = "add stream: cuda.CUstream to it, and give it to each launch(stream=stream)"
        raise ArgumentValueError(explain("stream", f"stream {raw}", allowed, advice))

    def complete(self, arguments: tuple) -> tuple[tuple, list[tuple[str, bool]]]:
        """Return the arguments with defaults for those left out, and ``given`` of them."""
        found = self.defaults.get(len(arguments))
        if found is None:
            defaults = defaults_after(self.name, self.parameters, self.rest, len(arguments))
            more = [] if self.rest is None else [(self.rest.name, False)] * (len(arguments) - len(self.given))
            found = self.defaults[len(arguments)] = defaults, self.given + more
        return arguments + found[0], found[1]

    def _make(self, arguments: tuple, signature: tuple, library: Any, stream: Any) -> tuple[Callable, int]:
        """Check the arguments, compile if need be, and store the plan under its signature."""
        whole = list(arguments)
        for i, constant in self.frozen:
            whole.insert(i, constant)
        reader, facts, examples = self.read(tuple(whole), arrays_of_one_device())
        ordinal = reader.views[0].device if reader.views else backend.current().ordinal(None)
        raw = library.stream(ordinal) if stream is None else arrays.stream_handle(stream)
        code, leaves = self.code(reader, facts, examples, raw)
        plan = backend.of(ordinal).host_launcher(code, ordinal, functools.partial(Block, leaves), raw), ordinal
        if len(self.plans) >= _MOST:
            self.plans.clear()
        self.plans[signature] = plan
        return plan

    def read(self, arguments: tuple, view: Callable[[Any, str], View]) -> tuple[Reader, tuple, Callable[[], list]]:
        """Read all arguments, arrays by ``view(x, name)``. Return the Reader, the facts of all parameters in order, and
        what makes examples."""
        reader, rest = Reader(view, constant_text), iter(arguments)
        more = [self.rest] * (len(arguments) - len(self.parameters))
        pairs: list[tuple[Parameter, Any]] = [(p, None if p.role == "stream" else next(rest)) for p in self.all]
        pairs += zip(more, rest)  # type: ignore[arg-type]  # None only where there are no more
        facts = tuple(reader.read(x, p) for p, x in pairs)
        return reader, facts, lambda: [example(fact, x) for fact, (_, x) in zip(facts, pairs)]

    def code(self, reader: Reader, facts: tuple, examples: Callable, raw: int) -> tuple[host_code.HostCode, list[Leaf]]:
        """Return the compiled function, and what it reads. A pinned function must fit the arguments."""
        if self.pinned is None:
            key = ("launch", self.identity.key, self.name, repr(facts))
            return host_code.get(key, lambda: (self.jit_function, examples()), raw), reader.leaves
        code, first = self.pinned
        if (reader.constants, len(reader.leaves)) != (first.constants, len(first.leaves)):
            came = f"{len(reader.views)} arrays and {len(reader.numbers)} numbers"
            allowed = f"{len(first.views)} and {len(first.numbers)}, as compiled, and None where it was None"
            raise ArgumentTypeError(explain(f"arguments of {self.name}", came, allowed, _AGAIN))
        for leaf, (wanted, _, name) in zip(reader.leaves, first.leaves):
            if not fits(leaf, wanted):
                raise ArgumentTypeError(explain(name, str(leaf.fact), str(wanted), _AGAIN))
        return code, [leaf._replace(fact=wanted) for leaf, (wanted, _, _) in zip(reader.leaves, first.leaves)]

    def pin(self, arguments: tuple) -> None:
        """Compile for arguments and load; run nothing else from now on. Later calls give no constants."""
        reader, facts, examples = self.read(arguments, arrays_of_one_device())
        code, leaves = self.code(reader, facts, examples, 0)
        self.pinned = code, reader
        ordinal = reader.views[0].device if reader.views else backend.current().ordinal(None)
        backend.of(ordinal).host_launcher(code, ordinal, functools.partial(Block, leaves), 0)
        _, given = self.complete(arguments)
        both = list(enumerate(zip(arguments, given)))
        self.frozen = [(i, Frozen(constant_text(x, name))) for i, (x, (name, constant)) in both if constant]
        self.given = [entry for entry in given if not entry[1]]

    def _call_numpy(self, arguments: tuple, stream: Any) -> None:
        """Copy NumPy arrays to the device, make the call there, and copy those that are writable back."""
        raw = 0 if stream is None else arrays.stream_handle(stream)
        copies: list[tuple[np.ndarray, DeviceArray]] = []
        self(self.moved(arguments, raw, copies), raw)
        for host, copy in copies:
            if host.flags.writeable:
                host[...] = device_array.to_numpy(copy, raw)

    def moved(self, arguments: tuple, raw: int, copies: list) -> tuple:
        """Return all arguments with copies of NumPy arrays on the device."""
        given = self.given
        if len(arguments) != len(given):
            arguments, given = self.complete(arguments)
        return tuple(x if fixed else _on_device(x, name, raw, copies) for x, (name, fixed) in zip(arguments, given))


def arrays_of_one_device() -> Callable[[Any, str], View]:
    """Return a function that checks arrays and returns their Views."""
    first: list[tuple[View, str]] = []

    def view(x: Any, name: str) -> View:
        found = arrays.checked(x, name, strided=True, float8=True)
        first.append((found, name))
        arrays.same_device(first[0][0], found, name, first[0][1])
        return found

    return view


class Compiled:
    """A host function compiled for one signature; see ``cs.compile``."""

    def __init__(self, jit_function: Callable, found: Any, arguments: tuple) -> None:
        self._function = Function(jit_function, found)
        self._function.pin(self._function.moved(arguments, 0, []))

    def __call__(self, *arguments: Any, stream: Any = None) -> None:
        function = self._function
        if function.latest(arguments, stream):
            return
        if len(arguments) != len(function.given):
            allowed = f"{len(function.given)}: all but the Constexpr arguments and the stream"
            raise ArgumentTypeError(explain(f"arguments of {function.name}", len(arguments), allowed))
        function(arguments, stream)

    def __repr__(self) -> str:
        return f"<cutesync.Compiled {self._function.name}>"


def _collect(x: Any, name: str, key: list, addresses: list[int], numbers: list, libraries: list) -> None:
    """Add an argument to the signature of a call, and what the launch needs of it."""
    kind = type(x)
    if x is None or isinstance(x, type):
        key.append(x)
    elif isinstance(x, (list, tuple)):
        key.append((kind, len(x)))
        for member in x:
            _collect(member, name, key, addresses, numbers, libraries)
    elif number := number_kind(x):
        key.append((kind, number))
        numbers.append(x if kind in PLAIN else number_value(x))
    else:
        if kind not in _ADAPTERS and not (
            isinstance(x, np.ndarray) or hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__")
        ):
            advice = "annotate the parameter as cutlass.Constexpr if its value is known when compiled"
            raise ArgumentTypeError(explain(name, described(x), _VALUES, advice))
        library = arrays.adapter(x, name)
        libraries.append(library)
        if library is not _NUMPY:
            address, signature = library.identify_strided(x)
            addresses.append(address)
            key += signature, address & 15


def _on_device(x: Any, name: str, raw: int, copies: list[tuple[np.ndarray, DeviceArray]]) -> Any:
    """Return an argument with copies of its NumPy arrays, and add these to ``copies``. An array given twice is copied
    once."""
    if isinstance(x, (list, tuple)):
        members = [_on_device(member, name, raw, copies) for member in x]
        return type(x)(*members) if hasattr(x, "_fields") else type(x)(members)
    if not isinstance(x, np.ndarray):
        return x
    for host, copy in copies:
        if x is host or device_array.same_memory(x, host):
            return copy
        if np.may_share_memory(x, host) and (x.flags.writeable or host.flags.writeable):
            advice = "NumPy arrays are copied one by one; use cutesync.asarray and views of it"
            raise ArgumentValueError(explain(name, "memory that overlaps another argument", "its own", advice))
    copies.append((x, arrays.on_device(x, name, raw, strided=True)))
    return copies[-1][1]
