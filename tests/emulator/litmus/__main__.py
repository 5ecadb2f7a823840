"""``python -m tests.emulator.litmus --out FILE``: run every case on this machine's GPU, compare, and store the answers.

``--emulator`` runs them on the whole emulator instead, where there is no GPU; nothing is stored then.
"""

import argparse
import sys
import time
from collections import Counter

import numpy as np

from . import worker
from .case import Case
from .device import Device
from .emulated import Emulator
from .store import Answers, save
from .worker import selected


def verdict(case: Case, answer: np.ndarray) -> str:
    """ "agrees", "stored" where only a whole machine can judge, or how often and where the expected answer differs."""
    if case.faults:
        return "DIFFERS: there is no fault"
    if case.expected is None:
        return "stored"
    want = case.expected()
    agreed = case.agree(answer, want)
    if agreed.all():
        return "agrees"
    flat = np.flatnonzero(~agreed.reshape(-1))
    got, wanted = (np.ascontiguousarray(v).reshape(-1).view(f"u{v.nbytes // agreed.size}") for v in (answer, want))
    sources = [
        a.reshape(-1)
        for a in case.arguments
        if isinstance(a, np.ndarray) and a.size == agreed.size and a is not case.arguments[case.output]
    ]
    shown = [
        f"[{i}] {' '.join(f'{int(s[i]):#x}' for s in sources)} -> {int(got[i]):#x}, expected {int(wanted[i]):#x}"
        for i in flat[:6]
    ]
    return f"DIFFERS in {flat.size} of {agreed.size}: " + "; ".join(shown)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.emulator.litmus", description="run the litmus cases")
    parser.add_argument("--out", help="where to store the answers (.npz); nothing is stored without it")
    parser.add_argument("--only", default="", help="run only cases whose name contains this")
    parser.add_argument("--emulator", action="store_true", help="run on the emulator, not on a GPU")
    parser.add_argument("--quiet", action="store_true", help="print only differences and failures")
    options = parser.parse_args()
    cases, start = selected(options.only), time.monotonic()
    if not cases:
        parser.error("no case has such a name")
    running = worker.answers(Emulator if options.emulator else Device, len(cases), options.only)
    machine = next(running)
    print(f"litmus on {machine}")
    stored, tally = Answers(machine), Counter()
    for case, answer in zip(cases, running, strict=True):
        stored.fingerprints[case.name] = case.fingerprint
        if isinstance(answer, worker.Fault):
            stored.faults[case.name] = answer.text
            result = "agrees: a fault" if case.faults else f"FAULTED {answer.text}"
        else:
            stored.arrays[case.name] = answer
            with np.errstate(all="ignore"):
                result = verdict(case, answer)
        tally[result.split()[0].rstrip(":")] += 1
        if not options.quiet or result[0].isupper():
            print(f"{case.name:60} {result}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in tally.items()) + f" in {time.monotonic() - start:.1f} s")
    if options.out and not options.emulator:
        save(options.out, stored)
        print(f"stored {len(stored.fingerprints)} answers in {options.out}")
    return 1 if tally["FAULTED"] else 0


if __name__ == "__main__":
    sys.exit(main())
