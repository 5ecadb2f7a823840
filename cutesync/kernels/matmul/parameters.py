"""The kernel's parameters: their names in order, and the records that group them. Without the DSL, for the host as
well.

``NAMES`` is the order in which the kernel takes them. A TMA descriptor is 128 bytes, followed by the extents of its
tensor in 12 bytes.
"""

from collections import namedtuple
from collections.abc import Sequence

from ..states import numbered
from .terms import TermsSpec


class Order(
    namedtuple("Order", "along_n group a_batched b_batched early by_columns a_ahead b_ahead a_priority b_priority")
):
    """The order of tiles (see ``scheduler``), which operands have a batch, whether the next launch may start at once,
    whether the result is stored by columns (see ``TermsSpec.either``), for how many k-tiles of each operand a block
    asks the L2 before the launches before have ended: all Int32; and how long the L2 keeps what TMA loads of each
    operand, as cache policies of PTX (Int64)."""


class Split(namedtuple("Split", "splits k_tiles scratch counters")):
    """Slices of K: how many, the k-tiles of each (Int32); for the turnstile the partial sums and the counters
    in global memory."""


class Operands(
    namedtuple(
        "Operands",
        "alpha beta c c_row c_column c_batch bias bias_by_rows d_pointer d_row d_column d_batch scale_a scale_b more "
        "step args",
        defaults=((), (), ()),
    )
):
    """What the epilogue reads. Strides are Int64, in elements; what a variant lacks is not read.

    ``d_pointer`` is where the result goes when TMA cannot store it; ``bias`` has an element a row of the result if
    ``bias_by_rows`` (Int32), else one a column, the scales one in all, or one a row (A) and a column (B). ``more`` is a
    ``More`` where a call has several results, ``step`` has the elements from one of the bias to the next if these are
    no neighbours, ``args`` are the run-time arguments of the activation."""


class More(namedtuple("More", "pre_pointer pre_row pre_column pre_batch amax")):
    """Results beside the first: what was before the activation, with its strides, and where the largest magnitude goes,
    as the bits of a float32 (Int32)."""


class Source(namedtuple("Source", "pointer outer inner outer_step inner_step batch_step low high")):
    """Where an operand lies that the producer's threads load: ``outer`` lines of ``inner`` elements each (Int32),
    whichever of K and the rows these are; strides, and the ends of the memory of all elements counted from ``pointer``,
    in bytes (Int64)."""


SOURCE = Source._fields[1:]  # names of parameters, behind that of the operand
MAPS = ("a", "a_extents", "b", "b_extents", "d", "d_extents")
COLUMN_MAPS = ("d_by_columns", "d_by_columns_extents")
PRE_MAPS = ("pre", "pre_extents")
NAMES = (*MAPS, *Order._fields, *Split._fields, *Operands._fields[:-3])


def names_of(terms: TermsSpec, own: Sequence[str] = ()) -> tuple[str, ...]:
    """The kernel's parameters in order; the producer's threads load the operands ``own``."""
    operands: list[str] = []
    for name in "ab":
        operands += (name, *(f"{name}_{field}" for field in SOURCE)) if name in own else (name, f"{name}_extents")
    maps = COLUMN_MAPS if terms.maps_columns else PRE_MAPS if terms.pre is not None and terms.pre_by_tma else ()
    more = (*(More._fields if terms.several else ()), *(("bias_step",) if terms.stepped else ()))
    return (*operands, *NAMES[4:], *more, *numbered("arg", terms.args), *maps)
