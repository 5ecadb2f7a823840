"""From arrays to problems: the steps that a call consists of.

A call is one launch where TMA can read both operands and one stride leads from each item of the batch to the next. An
operand that TMA cannot read is packed first, or loaded by the producer's threads (see ``own``), whichever the model
expects to take less time; a batch that broadcasts in more ways than a stride can say is several launches.

With ``swap_ab`` a result is computed as the transpose of the product of the transposes, D^T = B^T A^T: the kernel takes
B's transpose for A, and A's for B. wgmma takes 64 rows of the first operand at a time, but few of the second if there
are few, so that suits few rows; and where TMA stores rows only, that suits results whose columns are contiguous. The
model decides.

float32 operands of full precision are split into big and small parts for three products of tfloat32 (3xTF32): in the
kernel (see ``parts``), or before it by copies that have the three behind one another in a K three times as long (see
``pack.three_terms``). The copies cost time and memory, but larger tiles fit. The model decides this, too.
"""

from __future__ import annotations

import itertools
import math
from collections import namedtuple
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...dtypes import TFLOAT32
from ...runtime.view import View
from .invariant import parts_of_any_rows, slices_of_any_rows
from .model import copy_cost, least_own, shortlists, vector_instructions
from .pack_job import PackJob
from .plan import TMA_BYTES, Operand, Problem
from .policy import K_TILE_BYTES, MatmulPolicy
from .terms import TermsSpec, once_per_terms

MIXED_K_TILES = 4  # of 128 bytes, up to which one operand may be packed and the other not: up to 27 % faster (H200)
FEW_ROWS = 256  # of an operand that may be packed beside one whose words are copied, for any K: up to 1.5 as fast


class Product(
    namedtuple("Product", "a b c out terms elements tf32x3 promoted split pre", defaults=(False, False, True, None))
):
    """A call whose arguments have been checked: ``View``s of A, B, C (or None), the result and ``pre``, what was before
    the activation (or None); the terms of the epilogue. ``elements`` are what the tensor cores take A and B for;
    ``tf32x3`` says that they are float32 in three products; ``promoted`` as in ``Problem``; without ``split`` a row has
    the same bits for any number of rows."""


class Matrices(NamedTuple):
    """A batch of matrices: its address, the bytes of an element, (rows, columns), their strides in elements, and those
    of each dimension of the batch."""

    address: int
    size: int
    shape: tuple[int, int]
    steps: tuple[int, int]
    batch: tuple[int, ...]

    @property
    def transposed(self) -> Matrices:
        return Matrices(self.address, self.size, self.shape[::-1], self.steps[::-1], self.batch)


@dataclass(frozen=True)
class Step:
    """One launch: its problem, the bytes to add to the addresses of "a", "b", "c", "d" and "pre" as the kernel has
    them, and the operands to pack before."""

    problem: Problem
    offsets: dict[str, int]
    packs: tuple[PackJob | None, PackJob | None]

    def cost(self, config: MatmulPolicy | None) -> float:
        """Clocks that the model expects with this configuration, or with its own choice."""
        return self.problem.cost(config) + self.copy_cost()

    def copy_cost(self) -> float:
        """Clocks of them for the copies."""
        size = self.problem.elements[0].size
        moved = [size * (job.items * job.rows * job.inner + job.elements) for job in self.packs if job]
        return copy_cost(len(moved), sum(moved)) if moved else 0.0

    def loads(self, config: MatmulPolicy | None) -> list[tuple[bool, bool]]:
        """Which operands that are packed the producer's threads can load instead: all ways that ``config`` allows.
        Where it says nothing, that is mostly all of them or none: one of two would take more kernels, and more time to
        choose."""
        can = [job is not None and not job.side and not self.problem.parts for job in self.packs]
        given = [getattr(config, name, None) for name in ("load_a", "load_b")]
        free = any(can) and (config is None or config.can_load_own())
        ways = []
        for own in itertools.product((False, True), repeat=2) if free and None in given else ((False, False),):
            of_a, of_b = (
                may and (one if wanted is None else wanted == "own") for may, wanted, one in zip(can, given, own)
            )
            mixed = all(can) and given == [None, None] and of_a != of_b
            if (of_a, of_b) not in ways and (not mixed or self._may_mix(of_a)):
                ways.append((of_a, of_b))
        return ways

    def _may_mix(self, of_a: bool) -> bool:
        """Whether A may be loaded by the threads and B be packed, or the other way round: if K is short, or what is
        packed is small and the words of the other are copied."""
        own, packed = self.packs if of_a else self.packs[::-1]
        few = packed is not None and packed.rows <= FEW_ROWS and own is not None and own.grain >= 4
        return few or self.problem.load.k_tiles <= MIXED_K_TILES

    def least_own(self) -> float:
        """Clocks that these loads take at least."""
        size = self.problem.elements[0].size
        short = any(job is not None and job.operand(size).load == "dense" for job in self.packs)
        return least_own(self.problem.load, vector_instructions("dense" if short else "vectors", size))

    def with_own_loads(self, which: tuple[bool, bool]) -> Step:
        """The same launch, where the producer's threads load these operands if TMA refuses them. Threads store the
        result then, also where TMA could: few have such operands and such a result, and each needs kernels of its own.
        """
        problem, size = self.problem, self.problem.elements[0].size
        a, b = (
            job.operand(size, problem.elements[0] is TFLOAT32) if own and job else operand
            for job, operand, own in zip(self.packs, (problem.a, problem.b), which)
        )
        pack_a, pack_b = (None if own else job for job, own in zip(self.packs, which))
        if not any(which):
            return self
        terms = replace(problem.terms, by_tma=False)
        return replace(self, problem=replace(problem, a=a, b=b, terms=terms), packs=(pack_a, pack_b))


def oriented(product: Product, config: MatmulPolicy | None) -> tuple[bool, list[Step]]:
    """``(swap_ab, steps)``: the launches of a call whose result is not empty. Where ``config`` does not say it, the
    result is computed in the way that the model expects to take less time."""
    ways = (False, True) if config is None or config.swap_ab is None else (config.swap_ab,)
    if product.tf32x3 and not product.split:
        ways = (True,)  # which small product is added first follows from it
    found: list[tuple[bool, list[Step]]] = []
    packed: list[int] = []  # of each, which of them packs what its producer's threads load; itself if it has no such
    operands = _operands(product)
    for split, swapped in itertools.product(_parts(product, config), ways):
        steps = steps_of(product, operands, swapped, split)
        for which in steps[0].loads(config):
            packed.append(packed[-1] if any(which) and config is None else len(found))
            found.append((swapped, [step.with_own_loads(which) for step in steps]))
    if len(found) == 1:
        return found[0]
    if config is not None:
        return min(found, key=lambda way: way[1][0].cost(config))
    rankings = shortlists([steps[0].problem.load for _, steps in found])  # one computation for all
    clocks = [ranking[0][0] + steps[0].copy_cost() for ranking, (_, steps) in zip(rankings, found)]
    for i, place in enumerate(packed):
        if i != place and found[place][1][0].least_own() >= clocks[place]:
            clocks[i] = math.inf
    return found[clocks.index(min(clocks))]


def _parts(product: Product, config: MatmulPolicy | None) -> tuple[bool, ...]:
    """Whether float32 operands may be split into parts in the kernel, and whether they may be before it. The two add
    the products up in different orders; without ``split`` (``batch_invariant``) N and K alone decide it."""
    if not (product.tf32x3 and product.promoted):
        return (False,)
    if not product.split:
        return (parts_of_any_rows(product) and (config is None or config.splits_parts()),)
    if config is None:
        return True, False
    return (config.splits_parts() if config.parts is None else config.parts,)


def steps_of(product: Product, operands: tuple, swapped: bool, parts: bool) -> list[Step]:
    """The launches of a call whose result is not empty and whose ``_operands`` are these; ``swapped``: of its
    transpose; ``parts``: float32 operands are split in the kernel."""
    batch, (left, right, d, c, pre) = operands
    elements, terms = product.elements, product.terms
    if swapped:
        left, right, d, c, pre = (x.transposed for x in (right, left, d, c, pre))
        elements, terms = elements[::-1], terms.transposed
    steps = []
    items, batch_steps, offsets_of = _launches(batch, (left, right, d, c, pre))
    strides_d, strides_c, strides_pre = ((*x.steps, step) for x, step in zip((d, c, pre), batch_steps[2:]))
    (m, k), (_, n) = left.shape, right.shape
    packed = product.tf32x3 and not parts
    sides = ("left", "right") if packed else ("", "")
    k_tiles = -(-k * left.size // K_TILE_BYTES) * (3 if packed else 1)
    columns_of_b = product.b.shape[-1] if len(product.b.shape) > 1 else 1
    facts = columns_of_b, k_tiles, product.out.dtype.size, product.promoted, parts
    slices = 0 if product.split else slices_of_any_rows(*facts)
    for offsets in offsets_of:
        (in_a, pack_a), (in_b, pack_b) = (
            _operand(x._replace(address=x.address + offset, batch=(step,)), items, side)
            for x, offset, step, side in zip((left, right.transposed), offsets, batch_steps, sides)
        )
        by_tma, pre_by_tma = (
            _tma_stores(x.address + offset, strides, (m, n, items), x.size)
            for x, offset, strides in ((d, offsets[2], strides_d), (pre, offsets[4], strides_pre))
        )
        columns = not by_tma and product.pre is None and _has_columns(strides_d, n, d.size)
        by_tma = by_tma or (columns and _tma_stores_columns(d.address + offsets[2], strides_d, (m, n, items), d.size))
        problem = Problem(
            m,
            n,
            in_a.step if packed else k,
            items,
            in_a,
            in_b,
            strides_c,
            strides_d,
            elements,
            product.out.dtype,
            _stored(
                terms,
                d.size,
                by_tma,
                pre_by_tma if product.pre else True,
                columns,
                *_together(c, strides_c, offsets[3]),
            ),
            product.promoted,
            slices,
            product.a.device,
            strides_pre,
            parts,
        )
        steps.append(Step(problem, dict(zip(("a", "b", "d", "c", "pre"), offsets)), (pack_a, pack_b)))
    return steps


@once_per_terms
def _stored(
    terms: TermsSpec,
    size: int,
    by_tma: bool,
    pre_by_tma: bool,
    by_columns: bool,
    together: int,
    c_by_columns: bool,
) -> TermsSpec:
    """The terms with how results of ``size`` bytes are stored, and how C is loaded."""
    halves = terms.c is not None and terms.c.kind == "f" and terms.c.size == 2
    either = size == 2 and terms.pre is None
    terms = replace(terms, by_tma=by_tma, pre_by_tma=pre_by_tma, by_columns=by_columns, either=either)
    return replace(terms, together=together, c_by_columns=c_by_columns) if halves else terms


def _together(c: Matrices, strides: tuple[int, ...], offset: int) -> tuple[int, bool]:
    """How many elements of C, 8, 2 or 0, can be loaded together, and whether they lie along its columns: rows, or
    columns, have a multiple of so many, one behind the other, and begin at a multiple of so many."""
    (row, column, item), start = strides, c.address + offset
    if 1 not in (row, column) or start % c.size:
        return 0, False
    by_columns = column != 1
    apart, extent = (column, c.shape[0]) if by_columns else (row, c.shape[1])
    most = 2 if by_columns else 8
    found = {8: 8, 4: 2, 2: 2}.get(math.gcd(most, apart, item, extent, start // c.size), 0)
    return found, by_columns and found > 0


# --- batches -------------------------------------------------------------------------------------------------------


def _operands(product: Product) -> tuple[tuple[int, ...], tuple[Matrices, ...]]:
    """The shape of the batch, and A, B, D, C and what was before the activation in it; without elements where it is not
    used."""
    a, b, c, out = product[:4]
    rows, columns = len(a.shape) > 1, len(b.shape) > 1
    batch = out.shape[: len(out.shape) - rows - columns]
    in_c = in_pre = Matrices(0, 1, (1, 1), (0, 0), (0,) * len(batch))
    if product.terms.c is not None and c is not None:
        aligned = View(c.ptr, out.shape, c.dtype, c.device, False, True, _broadcast_steps(c.shape, c.steps, out.shape))
        in_c = _matrices(aligned, batch, rows, columns)
    if product.pre is not None:
        in_pre = _matrices(product.pre, batch, rows, columns)
    return batch, (
        _matrices(a, batch, rows, True),
        _matrices(b, batch, True, columns),
        _matrices(out, batch, rows, columns),
        in_c,
        in_pre,
    )


def _matrices(x: View, batch: tuple[int, ...], has_rows: bool, has_columns: bool) -> Matrices:
    """``x`` as a batch of matrices; a vector is a matrix of one row or column."""
    outer = len(x.shape) - has_rows - has_columns
    shape, steps = iter(x.shape[outer:]), iter(x.steps[outer:])
    rows, columns = ((next(shape), next(steps)) if has else (1, 0) for has in (has_rows, has_columns))
    of_batch = _broadcast_steps(x.shape[:outer], x.steps[:outer], batch)
    return Matrices(x.ptr, x.dtype.size, (rows[0], columns[0]), (rows[1], columns[1]), of_batch)


def _broadcast_steps(shape: tuple[int, ...], steps: tuple[int, ...], larger: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array seen in a larger shape: 0 where it is repeated."""
    missing = len(larger) - len(shape)
    return (0,) * missing + tuple(0 if extent == 1 else step for extent, step in zip(shape, steps))


def _launches(batch: tuple[int, ...], operands: tuple[Matrices, ...]):
    """``(items, steps, offsets)``: the items of each launch, the stride of each operand from one to the next, and for
    each launch what to add to the addresses, in bytes."""
    if all(extent == 1 for extent in batch):
        return 1, [0] * len(operands), [(0,) * len(operands)]
    extents, steps = _collapse(batch, [x.batch for x in operands])
    offsets = [
        tuple(x.size * sum(i * step for i, step in zip(index, of)) for x, of in zip(operands, steps))
        for index in itertools.product(*map(range, extents[:-1]))
    ]
    return extents[-1], [of[-1] for of in steps], offsets


def _collapse(batch: tuple[int, ...], steps: list[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """The batch with neighbouring dimensions merged where every operand's strides allow it."""
    extents: list[int] = []
    merged: list[list[int]] = [[] for _ in steps]
    for dimension, extent in enumerate(batch):
        if extent == 1:
            continue
        now = [of[dimension] for of in steps]
        if extents and all(before[-1] == step * extent for before, step in zip(merged, now)):
            extents[-1] *= extent
            for before, step in zip(merged, now):
                before[-1] = step
        else:
            extents.append(extent)
            for before, step in zip(merged, now):
                before.append(step)
    return extents, merged


# --- what TMA can read and write -----------------------------------------------------------------------------------


def _operand(x: Matrices, items: int, side: str) -> tuple[Operand, PackJob | None]:
    """How TMA reads an operand (rows, K) in place, or else how it is packed first."""
    (rows, k_extent), (row_step, k_step), (batch_step,) = x.shape, x.steps, x.batch
    items = 1 if batch_step == 0 else items
    unit = TMA_BYTES // x.size
    ways = [(True, k_extent, k_step, rows, row_step)]
    if x.size == 2:  # wgmma takes only elements of 16 bits with the rows contiguous
        ways.append((False, rows, row_step, k_extent, k_step))
    for k_major, inner, inner_step, outer, outer_step in () if side else ways:
        pitch = outer_step if outer > 1 else _up(inner, unit)
        of_items = batch_step if items > 1 else _up(pitch * outer, unit)
        aligned = x.address % TMA_BYTES == 0 and all(step > 0 and step % unit == 0 for step in (pitch, of_items))
        if aligned and (inner_step == 1 or inner == 1):
            return Operand(k_major, pitch, items, of_items), None
    span = _up(
        k_extent, K_TILE_BYTES // x.size
    )  # whole cache lines: a row that straddles them is read in twice as many
    apart = [step * x.size for step, extent in ((batch_step, items), (row_step, rows)) if extent > 1]
    grain = math.gcd(x.address, *apart, 8)
    job = PackJob(items, rows, k_extent, (batch_step, row_step, k_step), span, side, grain)
    pitch = 3 * span if side else span
    return Operand(True, pitch, items, pitch * rows), job


def _tma_stores(address: int, steps: tuple[int, int, int], shape: tuple[int, int, int], size: int) -> bool:
    """Whether TMA can store a result: it writes rows in units of 16 bytes."""
    (row, column, item), (m, n, items) = steps, shape
    unit = TMA_BYTES // size
    strides = ([row] if m > 1 else []) + ([item] if items > 1 else [])
    aligned = address % TMA_BYTES == 0 and all(step > 0 and step % unit == 0 for step in strides)
    return aligned and column == 1 and n % unit == 0


def _tma_stores_columns(address: int, steps: tuple[int, int, int], shape: tuple[int, int, int], size: int) -> bool:
    """Whether TMA can store a result column by column."""
    (row, column, item), (m, n, items) = steps, shape
    return _tma_stores(address, (column, row, item), (n, m, items), size)


def _has_columns(steps: tuple[int, int, int], n: int, size: int) -> bool:
    """Whether a result is stored column by column: of contiguous elements of 16 bits, as stmatrix transposes those."""
    row, column, _ = steps
    return size == 2 and row == 1 and (column != 1 or n == 1)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
