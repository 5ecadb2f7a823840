"""Runs the cases in a process of their own: a kernel that faults leaves its process without a GPU, and the next case
starts in a fresh one.
"""

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from . import all_cases
from .case import Case

CASE_SECONDS = 15.0
START_SECONDS = 60.0


@dataclass(frozen=True)
class Fault:
    """What a machine says instead of an answer. After a ``fatal`` one nothing more can run in its process."""

    text: str
    fatal: bool = True


def selected(only: str) -> list[Case]:
    with np.errstate(all="ignore"):
        return [case for case in all_cases() if only in case.name]


def answers(machine: type, count: int, only: str = "") -> Iterator[str | np.ndarray | Fault]:
    """``machine``'s name, then an answer or a fault for each of the ``count`` cases of ``selected(only)``, in order."""
    done, named = 0, False
    while done < count:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=serve, args=(theirs, machine, only, done), daemon=True)
        worker.start()
        theirs.close()
        try:
            name = _receive(ours, START_SECONDS)
            if isinstance(name, Fault):
                raise RuntimeError("no worker: " + name.text)
            if not named:
                named = True
                yield name
            while done < count:
                answer = _receive(ours, CASE_SECONDS)
                done += 1
                yield answer
                if isinstance(answer, Fault) and answer.fatal:
                    break
        finally:
            worker.kill()
            worker.join()
            ours.close()


def _receive(pipe: Connection, seconds: float):
    try:
        return pipe.recv() if pipe.poll(seconds) else Fault(f"no answer in {seconds:.0f} s")
    except (EOFError, ConnectionError):
        return Fault("the process ended")


def serve(pipe: Connection, machine: type, only: str, first: int) -> None:
    """The worker: sends the machine's name, then what each case from ``first`` on gives, up to a fatal fault."""
    device = machine()
    pipe.send(device.name)
    for case in selected(only)[first:]:
        try:
            with np.errstate(all="ignore"):
                answer = device.run(case)
        except Exception as error:  # one broken case must not cost the answers of the others
            answer = Fault(f"{type(error).__name__}: {error}", fatal=not device.alive())
        pipe.send(answer)
        if isinstance(answer, Fault) and answer.fatal:
            return
