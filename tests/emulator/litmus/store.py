"""The file of stored answers: one compressed archive of all arrays, end to end, and an index; faults as text."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ANSWERS = Path(__file__).parent / "h200.npz"


@dataclass(frozen=True)
class Answers:
    """What ``device`` said to each case: an array in ``arrays``, or how it failed in ``faults``; ``fingerprints`` has
    both.
    """

    device: str
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    fingerprints: dict[str, int] = field(default_factory=dict)


def save(path: str | Path, answers: Answers) -> None:
    index, place = {}, 0
    for name, array in answers.arrays.items():
        index[name] = [place, array.dtype.str, list(array.shape)]
        place += array.nbytes
    data = np.frombuffer(b"".join(a.tobytes() for a in answers.arrays.values()), np.uint8)
    text = json.dumps(
        {"device": answers.device, "index": index, "faults": answers.faults, "fingerprints": answers.fingerprints}
    )
    with open(path, "wb") as file:
        np.savez_compressed(file, head=np.frombuffer(text.encode(), np.uint8), data=data)


def load(path: str | Path = ANSWERS) -> Answers:
    with np.load(path) as archive:
        head, data = json.loads(archive["head"].tobytes()), archive["data"]
    arrays = {}
    for name, (place, dtype, shape) in head["index"].items():
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        arrays[name] = data[place : place + count].copy().view(dtype).reshape(shape)
    return Answers(head["device"], arrays, head["faults"], head["fingerprints"])
