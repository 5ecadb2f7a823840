"""Prints the table of public bugs: how each is found, after how many schedules and seconds."""

import time

from cutesync.emulator import POLICIES, EmulationError

from . import BUGS, Bug


def found(bug: Bug) -> tuple[int, float, EmulationError | None]:
    """``(schedules, seconds, report)`` until the fault is found."""
    start, limit = time.perf_counter(), 2 * len(POLICIES)
    for count in range(1, limit + 1):
        try:
            bug.run(False, count)
        except EmulationError as error:
            return count, time.perf_counter() - start, error
    return limit, time.perf_counter() - start, None


def table() -> list[str]:
    rows = ["| bug | where | found as | schedules | seconds |", "|---|---|---|---|---|"]
    for name, bug in BUGS.items():
        count, seconds, error = found(bug)
        rows.append(f"| {name} | {bug.source} | `{error.kind if error else 'missed'}` | {count} | {seconds:.2f} |")
    return rows


if __name__ == "__main__":
    print("\n".join(table()))
