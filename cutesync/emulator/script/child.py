"""The process in which a checked script runs: ``python -m cutesync.emulator.script.child SCRIPT [arguments]``."""

from __future__ import annotations

import faulthandler
import importlib.util
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

from .. import limits
from .session import Options, Session

OPTIONS = "_cutesync_script"  # the environment variable that holds the Options as JSON


def install(options: Options) -> Session:
    """Put the emulator in place of CUDA, for the rest of this process."""
    session = Session(options)
    limits.set_multiprocessors(options.sms)
    if importlib.util.find_spec("torch") is not None:
        from . import torch_cuda, torch_tensors

        torch_cuda.install(session)
        torch_tensors.install(session)
    else:
        from . import torch_stub

        torch_stub.install()
        session.note("torch is not installed: a stand-in answers what scripts need of it")
    from . import cuda_python, cupy_stub, dsl, triton_driver

    cupy_stub.install(session)
    cuda_python.install(session)
    dsl.install(session)
    triton_driver.install(session)
    return session


def _print(error: BaseException, script: str) -> None:
    """The script's traceback, without the frames that started it."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    traceback.print_exception(type(error), error, frames or error.__traceback__)


def main() -> int:
    given = json.loads(os.environ.pop(OPTIONS))
    session = install(Options(**{**given, "allow": tuple(given["allow"])}))
    faulthandler.enable()  # after the DSL, whose own handler names no Python function
    script = sys.argv[1]
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = str(Path(script).resolve().parent)
    code, failure = 0, ""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        failure = f"exit code {code}" if code else ""
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        _print(error, script)
        code, failure = 1, f"{type(error).__name__}: {error}"
    session.close()
    session.record.event("end", failure=failure, launches=session.record.launches)
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
