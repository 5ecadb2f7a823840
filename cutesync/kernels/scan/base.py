"""What all scan kernels share: one argument list, and what is computed."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ...monoid import nonzero
from ...sync.gather import Notice, enter
from ...sync.overlap import await_launches
from ...warp import Maybe
from ..arrays import together
from ..plain import PlainKernel
from .layout import STEPS

# A launch's arguments.
#
# The array ``x`` (``Arrays`` if there are several) is seen as (rows, length, inner): ``length`` elements are scanned
# for each of rows * inner. The first operand is at ``init_at`` (one element in device memory) or in ``init`` (a
# register value of each member of a state), as ``Scan.start`` says. In the kernel's parameters, what ``init`` holds is
# followed by the run-time arguments of callables, then by the number of positions that count, then by ``layout``.
# ``slots`` and ``counters`` are the workspace (see ``sync.gather``). ``tiles`` tiles cover a row. ``layout`` describes
# strided arrays (``strided_policy``). If only the first positions count, ``length`` is their number. ``whole`` is the
# number of all. ``x_row`` and ``x_step`` are the strides of the inputs from row to row and from position to position;
# ``out_row`` and ``out_step`` are those of the outputs. ``init_row`` and ``init_step`` are those of the first operands
# from row to row and from column to column. Where arrays are not contiguous, rows are in groups of ``group``:
# ``x_row``, ``out_row`` and ``init_row`` lead from group to group, and ``x_next``, ``out_next`` and ``init_next`` from
# row to row. If groups are ``far``, those of the inputs lie ``x_far`` elements further apart after every ``outer``.
Arguments = namedtuple(
    "Arguments",
    "x out init_at init slots counters rows length inner tiles layout whole x_row x_step out_row out_step "
    "group x_next out_next init_row init_step init_next outer x_far",
)


@dataclass(frozen=True)
class Scan:
    """What a scan computes. ``start`` says where a first operand comes from: None, "value" or "memory"; with "rows" its
    last value is in memory, another one for each row and column.

    Scan order is index order, or its reverse with ``reverse``; the operator always gets the lower index first.
    Positions, lanes and tiles are counted in scan order. A position holds ``width`` neighbouring elements, of columns
    that are scanned side by side. ``counted``: only the first positions count; their number is known at run time.

    ``view`` is None for C-contiguous arrays. With "pitched", the strides in ``Arguments`` are parameters. With
    "mirrored" they are, too, and the inputs run backwards along rows, whose results are neighbours; with "backward"
    along neighbouring columns.
    """

    monoid: Any
    exclusive: bool
    reverse: bool
    start: str | None
    width: int = 1
    counted: bool = False
    view: str | None = None
    far: bool = False

    @property
    def mirrored(self) -> bool:
        return self.view == "mirrored"

    @property
    def backward(self) -> bool:
        return self.view == "backward"

    @property
    def reads_at_once(self) -> bool:
        """Whether a kernel may read memory before its ``body``: how many positions count, or arguments of
        callables."""
        return self.counted or self.monoid.arg_count > 0

    @property
    def types(self) -> tuple:
        """The registers of a state: those of each column in turn."""
        return self.monoid.types * self.width

    def combine(self, a, b):
        """Combine ``a``, which comes earlier in scan order, with ``b``."""
        first, second = (b, a) if self.reverse else (a, b)
        each = len(self.monoid.types)
        return tuple(
            value
            for c in range(0, len(a), each)
            for value in self.monoid.combine(first[c : c + each], second[c : c + each])
        )

    def lift(self, elements, place, first=0):
        """The state of the position whose elements are at ``place`` in each tensor of ``elements``, and further on in
        those of several columns; ``first`` is the index of place 0."""
        index = first + place if self.monoid.takes_index else 0
        return tuple(
            value for c in range(self.width) for value in self.monoid.lift(*(e[place + c] for e in elements), index)
        )

    def lower(self, state, elements, place) -> None:
        """Store a state's results at ``place`` in each tensor of ``elements``, and further on."""
        each = len(self.monoid.types)
        for c in range(self.width):
            for result, value in zip(elements, self.monoid.results_of(state[c * each : (c + 1) * each])):
                result[place + c] = value

    def flip(self, position, count):
        """The place in the outputs' memory of ``position`` (in scan order) among ``count``."""
        return count - 1 - position if self.reverse else position

    def flip_in(self, position, count):
        """The same in the inputs' memory."""
        return count - 1 - position if self.reverse != self.mirrored else position

    def carry_in(self, a: Arguments, row, column=0) -> Maybe:
        """The state before the first element of a row, if the call gives one; of ``width`` columns from ``column``
        on."""
        if self.start is None:
            return Maybe.none(self.types)
        init = tuple(self.monoid.first_state(a.init))
        if self.start == "value":
            return Maybe.of(init * self.width)
        if self.start == "memory":
            return Maybe.of((self.first_value(a.init_at),) * self.width)
        first = a.init_at
        if self.view is not None:
            group, inside = self.in_group(a, row)
            first = first + (group * a.init_row + inside * a.init_next)
        places = [first + Int64(column + c) * a.init_step for c in range(self.width)]
        return Maybe.of(tuple(value for place in places for value in self.first_at(init, place)))

    def in_group(self, a: Arguments, row):
        """The group of a row, and its number in it."""
        group = Int32(row) // Int32(a.group)
        return Int64(group), Int64(Int32(row) - group * Int32(a.group))

    def first_at(self, init, place) -> tuple:
        """A first operand whose last value is in memory."""
        return (*init[:-1], self.first_value(place))

    def first_value(self, place):
        """The last value of a first operand, which is at ``place``."""
        value = self.monoid.result.cutlass(cute.make_tensor(place, cute.make_layout((1,)))[0])
        return self.monoid.types[-1](nonzero(value) if self.monoid.result.kind == "b" else value)


@cute.jit
def counted_length(at: cute.Pointer, n: Int64, length: Int64):
    """How many of ``length`` positions count: ``n``, or what lies at ``at`` unless that is 0."""
    if at.toint() != 0:
        n = cute.make_tensor(at, cute.make_layout((1,)))[0]
    return cutlass.min(cutlass.max(n, Int64(0)), length)


class ScanKernel(PlainKernel):
    """A compiled scan. A subclass defines ``body``, which gets the ``Arguments``. If it takes tiles of ``positions`` of
    a row from a counter, it gets those alone that hold positions that count; the first tile
    begins up to ``slack`` positions before the row.

    If the subclass ``asks`` and need not wait at once, it asks the L2 for some of its lines (``ask``) before it waits
    for the launches before."""

    name = "scan"
    positions, slack = 0, 0
    asks = False
    ask: Any

    def __init__(self, scan: Scan, threads: int, smem: int, blocks_per_sm: int) -> None:
        super().__init__(threads, smem, blocks_per_sm)
        self.scan = scan
        self.first_values = len(scan.monoid.types)  # of a state, as the call gives the first

    @cute.jit
    def main(self, x: tuple, out: tuple, init_at: cute.Pointer, init: tuple, memory: tuple, extents: tuple, tiles):
        (slots, counters), (rows, length, inner) = memory, extents
        own = self.first_values
        first = own + self.scan.monoid.arg_count
        self.scan.monoid.bind(init[own:first])
        init, layout = init[:own], init[first:]
        whole = length
        if cutlass.const_expr(self.scan.counted):
            length, layout = counted_length(layout[0], layout[1], length), layout[2:]
            if cutlass.const_expr(self.positions > 0):
                tiles = cutlass.min(tiles, Int32((length + (self.positions + self.slack - 1)) // self.positions))
        x, out = together(x, self.scan.monoid.takes_index), together(out)
        strides = (whole * inner, inner, whole * inner, inner, *[Int64(0)] * 8)
        if cutlass.const_expr(self.scan.view is not None):
            count = len(STEPS) if self.scan.start == "rows" else len(STEPS) - 3
            zeros = [Int64(0)] * (len(STEPS) - count)
            strides = (*layout[:count], *zeros, *(layout[count:] if self.scan.far else [Int64(0)] * 2))
        a = Arguments(x, out, init_at, init, slots, counters, rows, length, inner, tiles, layout, whole, *strides)
        if cutlass.const_expr(self.asks and not self.waits):
            self.ask(a)
            await_launches()
        if cutlass.const_expr(self.scan.counted):
            if length > 0:
                self.body(a)
        else:
            self.body(a)

    def row_places(self, a: Arguments, row):
        """How far the lowest address of a row lies from ``a.x``, and how far from ``a.out``, in elements."""
        if self.scan.view is None:
            return row * a.x_row, row * a.out_row
        group, inside = self.scan.in_group(a, row)
        begin = group * a.x_row + inside * a.x_next
        if self.scan.far:
            begin += Int64(Int32(group) // Int32(a.outer)) * a.x_far
        return begin - (a.length - 1) if self.scan.mirrored else begin, group * a.out_row + inside * a.out_next

    def end_of(self, a: Arguments):
        """The address behind the last element of the only input in memory."""
        if self.scan.view is None:
            return (a.x + a.rows * a.x_row).toint()
        groups, _ = self.scan.in_group(a, a.rows)
        axes = [(a.length, a.x_step), (groups, a.x_row), (a.group, a.x_next)]
        if self.scan.far:
            axes[1:2] = (groups // a.outer, a.x_far + a.outer * a.x_row), (a.outer, a.x_row)
        return (a.x + sum((cutlass.max((n - 1) * step, Int64(0)) for n, step in axes), a.inner)).toint()

    @cute.jit
    def take_number(self, counters: cute.Pointer, thread: Int32):
        """``(number, tag)``: blocks are numbered as they start, so all before this one have started; the tag is the
        launch's. One block barrier."""
        notice = Notice.make()
        if thread == 0:
            entry = enter(counters)
            notice.words[0] = entry.arrived
            notice.words[1] = entry.close(counters, Int32(0), cute.arch.grid_dim()[0])[1]
        cute.arch.sync_threads()
        return notice.words[0], notice.tag
