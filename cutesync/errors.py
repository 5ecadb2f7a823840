"""The exceptions of cutesync. Each is also a built-in type, so ``except ValueError`` works without importing this
module.

A message says three things: what was given, what is allowed, and what to do. ``explain`` composes it.
"""

from __future__ import annotations


class CutesyncError(Exception):
    """Base class of everything cutesync raises on purpose."""


class ArgumentTypeError(CutesyncError, TypeError):
    """An argument has the wrong type or dtype."""


class ArgumentValueError(CutesyncError, ValueError):
    """An argument has the right type and a value that is not allowed (shape, axis, layout, overlap, read-only)."""


class ArgumentIndexError(CutesyncError, IndexError):
    """An index of a DeviceArray is out of range, or no index."""


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
    """Return a message in the form of all messages: ``subject: got came; needs allowed; advice``."""
    came = came if isinstance(came, str) else shown(came)
    return f"{subject}: got {came}; needs {allowed}" + (f"; {advice}" if advice else "")


def shown(value: object) -> str:
    """Return the ``repr`` of any value for a message, in at most 80 characters."""
    try:
        text = repr(value)
    except Exception as error:  # a user's ``repr`` that fails, or an int of more digits than Python prints
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"
    return text if len(text) <= 80 else f"{text[:76]} ..."


def described(value: object) -> str:
    """Return a description of an object by its type, for messages."""
    return "None" if value is None else f"a {type(value).__name__}"
