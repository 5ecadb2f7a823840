"""Stream arguments: handles of the streams of all libraries."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentTypeError, described, explain, shown


def stream_handle(stream: Any) -> int:
    """Return the raw handle of a stream argument: an int, an object with ``__cuda_stream__``, a CUstream, or a torch
    stream."""
    if isinstance(stream, int) and not isinstance(stream, bool) and 0 <= stream < 1 << 64:
        return stream
    handle = _handle_of(stream)
    if isinstance(handle, bool) or not isinstance(handle, int) or not 0 <= handle < 1 << 64:
        came = described(stream) if handle is None else f"handle {shown(handle)}"
        allowed = "None, an int of 0 or more, a CUstream or an object with __cuda_stream__"
        raise ArgumentTypeError(explain("stream", came, allowed))
    return handle


def _handle_of(stream: Any) -> Any:
    """Return the handle that a stream of some library reports; None if the object is no stream."""
    try:
        if isinstance(stream, int) and not isinstance(stream, bool):
            return stream
        if hasattr(stream, "__cuda_stream__"):
            _, handle = stream.__cuda_stream__()  # the protocol's version, and the handle
            return handle if isinstance(handle, (bool, float, str)) else int(handle)
        for name in ("cuda_stream", "ptr"):  # torch.cuda.Stream, older cupy.cuda.Stream
            if isinstance(getattr(stream, name, None), int):
                return getattr(stream, name)
        return int(stream) if type(stream).__name__ in ("CUstream", "cudaStream_t") else None
    except Exception as error:  # raised by the caller's object
        came = f"{described(stream)} that raises {type(error).__name__}: {error}"
        allowed = "an object whose __cuda_stream__() returns (version, handle)"
        raise ArgumentTypeError(explain("stream", came, allowed)) from error
