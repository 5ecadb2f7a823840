"""The public names, for type checkers; ``__init__.py`` resolves the same list at run time."""

from . import (
    block as block,
    dist as dist,
    emulator as emulator,
    errors as errors,
    patterns as patterns,
    reference as reference,
    sync as sync,
    warp as warp,
)
from .cli.warm import warm as warm
from .emulation import emulate as emulate
from .kernels.flags import (
    adjacent_difference as adjacent_difference,
    flag_heads as flag_heads,
    flag_heads_and_tails as flag_heads_and_tails,
    flag_tails as flag_tails,
)
from .kernels.histogram import bincount as bincount, histogram as histogram
from .kernels.matmul import MatmulPolicy as MatmulPolicy, matmul as matmul
from .kernels.reduce import (
    all as all,
    any as any,
    argmax as argmax,
    argmin as argmin,
    count_nonzero as count_nonzero,
    logsumexp as logsumexp,
    max as max,
    mean as mean,
    min as min,
    minmax as minmax,
    prod as prod,
    reduce as reduce,
    std as std,
    sum as sum,
    var as var,
    var_mean as var_mean,
)
from .kernels.scan import (
    cummax as cummax,
    cummin as cummin,
    cumprod as cumprod,
    cumsum as cumsum,
    ffill as ffill,
    linear_recurrence as linear_recurrence,
    scan as scan,
)
from .kernels.segments import (
    Reduced as Reduced,
    reduce_by_key as reduce_by_key,
    repeat as repeat,
    run_length_decode as run_length_decode,
    scan_by_key as scan_by_key,
    searchsorted as searchsorted,
    segmented_reduce as segmented_reduce,
    segmented_scan as segmented_scan,
)
from .kernels.select import (
    Partitioned as Partitioned,
    Selected as Selected,
    argwhere as argwhere,
    compress as compress,
    flatnonzero as flatnonzero,
    nonzero as nonzero,
    partition as partition,
    partition3 as partition3,
    run_length_encode as run_length_encode,
    select as select,
    unique_consecutive as unique_consecutive,
)
from .kernels.topk import argtopk as argtopk, topk as topk
from .runtime.device_array import DeviceArray as DeviceArray, asarray as asarray, empty as empty
from .runtime.host_call import Compiled as Compiled, compile as compile, launch as launch

__version__: str
