"""The public names, for type checkers; ``__init__.py`` resolves the same list at run time."""

from . import block as block
from . import emulator as emulator
from . import errors as errors
from . import patterns as patterns
from . import reference as reference
from . import sync as sync
from . import warp as warp
from .cli.warm import warm as warm
from .emulation import emulate as emulate
from .kernels.flags import adjacent_difference as adjacent_difference
from .kernels.flags import flag_heads as flag_heads
from .kernels.flags import flag_heads_and_tails as flag_heads_and_tails
from .kernels.flags import flag_tails as flag_tails
from .kernels.matmul import MatmulPolicy as MatmulPolicy
from .kernels.matmul import matmul as matmul
from .kernels.reduce import all as all
from .kernels.reduce import any as any
from .kernels.reduce import argmax as argmax
from .kernels.reduce import argmin as argmin
from .kernels.reduce import max as max
from .kernels.reduce import min as min
from .kernels.reduce import prod as prod
from .kernels.reduce import reduce as reduce
from .kernels.reduce import sum as sum
from .kernels.scan import cumprod as cumprod
from .kernels.scan import cumsum as cumsum
from .kernels.scan import scan as scan
from .runtime.device_array import DeviceArray as DeviceArray
from .runtime.device_array import asarray as asarray
from .runtime.device_array import empty as empty

__version__: str
