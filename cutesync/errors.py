"""The exceptions of cutesync. Each is a built-in type as well, so ``except ValueError`` works for people who do not
import this.

A message says three things: what came, what is allowed, what to do. ``explain`` puts them together.
"""

from __future__ import annotations


class CutesyncError(Exception):
    """Base class of everything cutesync raises on purpose."""


class ArgumentTypeError(CutesyncError, TypeError):
    """An argument has the wrong type or dtype."""


class ArgumentValueError(CutesyncError, ValueError):
    """An argument has the right type and a value that is not allowed (shape, axis, layout, overlap, read-only)."""


class DeviceError(CutesyncError, ValueError):
    """Arrays live on the wrong device, or on different devices."""


class NoGpuError(CutesyncError, RuntimeError):
    """There is no driver, no GPU, or the GPU is not a Hopper."""


class LaunchError(CutesyncError, RuntimeError):
    """The CUDA driver refused a launch, or an earlier error has made the context unusable."""


class CaptureError(CutesyncError, RuntimeError):
    """The call would compile, load or allocate while a CUDA graph is being captured."""


class OperatorError(CutesyncError, TypeError):
    """A Python callable given as operator could not be traced by the DSL."""


class WorkspaceError(CutesyncError, MemoryError):
    """The device has no room for the workspace or the result."""


def explain(subject: str, came: object, allowed: str, advice: str = "") -> str:
    """The one wording of every message: ``subject: got came; needs allowed; advice``."""
    came = came if isinstance(came, str) else shown(came)
    return f"{subject}: got {came}; needs {allowed}" + (f"; {advice}" if advice else "")


def shown(value: object) -> str:
    """What a message shows of a value, whatever it is: its ``repr`` in at most 80 characters."""
    try:
        text = repr(value)
    except Exception as error:  # a repr of the user's own, or an int of more digits than Python prints
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"
    return text if len(text) <= 80 else f"{text[:76]} ..."


def described(value: object) -> str:
    """What a message says of an object by its type alone."""
    return "None" if value is None else f"a {type(value).__name__}"
