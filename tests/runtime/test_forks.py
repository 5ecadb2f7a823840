"""What a forked child inherits: no lock that nobody releases, no half compilation, and no GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cutesync
from cutesync import errors
from cutesync.runtime import device

PACKAGE = Path(cutesync.__file__).parent


def run(script: str, **environment) -> subprocess.CompletedProcess:
    """A script in a process of its own, on the emulator and without a cache on disk; its functions are read from a
    file."""
    script = (
        "import os, sys, threading, time, warnings\nwarnings.simplefilter('ignore')\n"
        "import numpy as np\nimport cutesync as cs\n"
    ) + textwrap.dedent(script)
    environment = {"CUTESYNC_BACKEND": "emulator", "CUTESYNC_CACHE": "0"} | environment
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | environment,
        cwd=PACKAGE.parent,
    )


def test_every_lock_of_the_package_is_known_to_forks():
    """A new lock is made by ``forks.lock()``, or forks wait for it. Barriers are of threads that a child does not
    have."""

    def files(made: str) -> set[str]:
        texts = ((path.relative_to(PACKAGE).as_posix(), path.read_text()) for path in PACKAGE.rglob("*.py"))
        return {name for name, text in texts if re.search(rf"threading\.({made})\(", text)}

    assert files("R?Lock|Condition|Semaphore|Event") == {"runtime/compiler.py", "emulator/run.py", "emulator/heap.py"}
    assert files("Barrier") == {"dist/communicators.py", "emulator/meeting.py"}
    for name in ("runtime/compiler.py", "emulator/run.py", "emulator/heap.py"):
        assert "forks.wait_for(" in (PACKAGE / name).read_text()


def test_a_fork_beside_a_compilation():
    """The child compiles and runs; when it exits as any process does, it takes nothing away from its parent's
    compilation."""
    found = run(
        """
        from cutesync.runtime import compiler
        errors = []
        def work():
            ops = [eval(f"lambda a, b: a + b + {i}") for i in range(2)]
            try: print(*(cs.reduce(np.ones(5, np.int32), op) for op in ops), flush=True)
            except BaseException as error: errors.append(error)
        thread = threading.Thread(target=work)
        thread.start()
        children = []
        while thread.is_alive() and len(children) < 3:
            while thread.is_alive() and not compiler._lock.locked(): time.sleep(0.001)
            time.sleep(0.03)
            child = os.fork()
            if child == 0:
                if not children: assert cs.reduce(np.ones(5, np.int32), lambda a, b: a + b + 9) == 41
                sys.exit(7)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        thread.join()
        assert not errors, errors
        print(len(codes) >= 2, set(codes))
        """
    )
    assert (found.stdout.splitlines(), found.stderr) == (["5 9", "True {7}"], "")


def test_a_fork_beside_an_emulated_launch_and_a_pool():
    """One child is forked while another thread's launch runs, and processes of a pool call cutesync themselves."""
    found = run(
        """
        import multiprocessing
        from cutesync.emulator.run import LOCK
        x = np.arange(300, dtype=np.int32)
        expected = cs.scan(x)
        def work(): assert np.array_equal(cs.scan(x), expected)
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive() and LOCK.acquire(blocking=False): LOCK.release()
        child = os.fork()
        if child == 0:
            work()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        thread.join()
        work()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(*(y[-1] for y in pool.map(cs.scan, [x[:n] for n in (3, 4, 5)])))
        """,
        CUTESYNC_CACHE="1",
    )
    assert (found.stdout, found.stderr) == ("3 6 10\n", "")


def test_locks_that_another_thread_holds_are_free_in_the_child():
    found = run(
        """
        from cutesync.runtime import compiler, device, forks, workspace
        from cutesync.emulator.run import LOCK
        own, stop, ready = forks.lock(), threading.Event(), threading.Event()
        def hold():
            with own, workspace._lock, device._importing:
                ready.set()
                stop.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        ready.wait()
        child = os.fork()
        if child == 0:
            locks = own, workspace._lock, device._importing, compiler._lock, LOCK
            free = all(lock.acquire(timeout=5) for lock in locks)
            os._exit(7 if free else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert own.locked() and not compiler._lock.locked()
        stop.set()
        thread.join()
        print("done")
        """
    )
    assert found.stdout == "done\n", found.stderr


def test_a_child_of_a_process_that_used_a_gpu_says_what_to_do(monkeypatch):
    class Driver:
        def cache_info(self):
            return self

        currsize, cleared = 1, False

        def cache_clear(self):
            self.cleared = True

    original, stub = device.driver, Driver()
    monkeypatch.setattr(device, "_of_parent", [])
    monkeypatch.setattr(device, "driver", stub)
    device._in_child()
    assert stub.cleared
    with pytest.raises(errors.LaunchError, match="forked child.*initialised CUDA.*spawn.*CUTESYNC_BACKEND=emulator"):
        original.__wrapped__()


@pytest.mark.gpu
def test_a_gpu_does_not_survive_a_fork():
    """Calls with a plan and without one, from NumPy and on device arrays, are errors in the child; the emulator is not;
    the parent goes on."""
    found = run(
        """
        x = cs.asarray(np.arange(1000, dtype=np.int32))
        out = cs.empty((), "int32")
        cs.reduce(x, out=out), cs.sum(np.arange(9))
        child = os.fork()
        if child == 0:
            code = 7
            calls = (lambda: cs.reduce(x, out=out), lambda: cs.reduce(x, "max"), lambda: cs.sum(np.arange(9)),
                     lambda: np.asarray(out), lambda: cs.scan(x))
            for call in calls:
                try: code = call() is None
                except cs.errors.LaunchError as error:
                    code = code if "forked child" in str(error) else print(error) or 1
            with cs.emulate(): assert cs.sum(np.arange(9)) == 36
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print(np.asarray(cs.reduce(x, out=out)))
        """,
        CUTESYNC_BACKEND="gpu",
    )
    assert found.stdout == "499500\n", found.stdout + found.stderr
