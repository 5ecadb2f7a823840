"""The waits of the DSL's pipelines, bounded in a debug build (see ``wait``); else the pipeline's own, unchanged."""

from __future__ import annotations

from cutlass import Boolean

from .wait import bounded, of_barrier, until


def acquire(pipeline, state, name: str = "ring") -> None:
    """``pipeline.producer_acquire(state)``: wait until the stage is empty."""
    pipeline.producer_acquire(state, _awaited(pipeline.sync_object_empty, state, f"empty of {name}"))


def await_empty(pipeline, state, name: str = "ring") -> None:
    """Wait until the stage is empty, as ``acquire`` does, and announce no bytes."""
    if _awaited(pipeline.sync_object_empty, state, f"empty of {name}") is None:
        pipeline.sync_object_empty.wait(state.index, state.phase)


def await_filled(pipeline, state, name: str = "ring") -> None:
    """``pipeline.consumer_wait(state)``: wait until the stage is full."""
    pipeline.consumer_wait(state, _awaited(pipeline.sync_object_full, state, f"full of {name}"))


def drain(pipeline, state, name: str = "ring") -> None:
    """``pipeline.producer_tail(state)``: wait until every stage is empty."""
    if bounded():
        for _ in range(pipeline.num_stages):
            _awaited(pipeline.sync_object_empty, state, f"empty of {name}")
            state.advance()
    else:
        pipeline.producer_tail(state)


def _awaited(barriers, state, name: str) -> Boolean | None:
    """Wait in a debug build, and give the token that tells the pipeline so; None: the pipeline waits itself."""
    if not bounded():
        return None
    until(lambda: barriers.try_wait(state.index, state.phase), of_barrier(name), state.index, state.phase)
    return Boolean(True)
