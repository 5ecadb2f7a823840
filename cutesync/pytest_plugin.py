"""``pytest --cutesync-check``: the kernels that tests launch run on the emulator, under several schedules.

A test during which something was found fails with the report, whatever its own assertions say.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

_sessions: list[Any] = []


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("cutesync", "kernels on cutesync's emulator")
    group.addoption(
        "--cutesync-check", action="store_true", help="run the tests' kernels without a GPU, and check them"
    )
    group.addoption("--cutesync-schedules", type=int, default=0, metavar="N", help="schedules of each launch")
    group.addoption("--cutesync-seed", type=int, default=0, metavar="S", help="seed of the schedules")
    group.addoption("--cutesync-sms", type=int, default=0, metavar="N", help="multiprocessors of the emulated device")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    """Before any conftest imports the DSL or torch."""
    options = early_config.known_args_namespace
    if options.cutesync_check:
        from .emulator.script.child import install
        from .emulator.script.session import Options

        given = {"schedules": options.cutesync_schedules, "seed": options.cutesync_seed, "sms": options.cutesync_sms}
        _sessions.append(install(Options(**{name: value for name, value in given.items() if value})))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, Any, Any]:
    """Fail the test if something was found in it."""
    if not _sessions:
        return (yield)
    record = _sessions[0].record
    record.begin()
    try:
        result = yield
    except BaseException as error:
        if record.failures:
            error.add_note(_text(record)) if hasattr(error, "add_note") else print(_text(record))
        raise
    if record.failures:
        pytest.fail(_text(record), pytrace=False)
    return result


def _text(record: Any) -> str:
    return "\n\n".join(report.text() for report in record.failures)
