"""README.md is true: its snippets run where kernels run, and are checked as far as they go where they do not."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cutesync as cs
from cutesync import env
from cutesync.cli import demo
from cutesync.runtime import device

README = Path(__file__).parent.parent / "README.md"
TEXT = README.read_text(encoding="utf-8")
KERNEL_LINES = 30


def _snippets():
    """``(title, needs, code)`` of every Python snippet."""
    pattern = re.compile(r"(?:<!-- needs: ([\w ]+) -->\n)?```python\n(.*?)```", re.S)
    for match in pattern.finditer(TEXT):
        yield pytest.param(
            frozenset((match[1] or "").split()), match[2], id=f"line-{TEXT[: match.start(2)].count(chr(10)) + 1}"
        )


SNIPPETS = list(_snippets())


@pytest.fixture(scope="module")
def place() -> str:
    return demo.where()[0]


def test_there_are_snippets():
    assert len(SNIPPETS) >= 7


@pytest.mark.parametrize(("needs", "code"), SNIPPETS)
def test_every_name_exists(needs, code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "cs":
            assert hasattr(cs, node.attr), f"cs.{node.attr}"


@pytest.mark.parametrize(("needs", "code"), SNIPPETS)
def test_snippet_runs(needs, code, place, tmp_path):
    for module in needs - {"gpu"}:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    if "gpu" in needs and device.unavailable():
        pytest.skip(device.unavailable())
    if place == "nowhere":
        pytest.skip("neither a GPU nor an emulator that takes launches")
    path = tmp_path / "snippet.py"  # the DSL reads a kernel's source from its file
    path.write_text(code, encoding="utf-8")
    exec(compile(code, path, "exec"), {"__name__": "snippet"})


def test_own_kernel_is_short_and_compiles(tmp_path):
    """The example of a kernel of one's own, compiled for sm_90a with no launch."""
    code = next(p.values[1] for p in SNIPPETS if "block.Reduce" in p.values[1])
    head, _, call = code.partition("cs.emulator.check(")
    kernel = code[code.index("@cute.kernel") : code.index("@cute.jit")]
    assert len(kernel.splitlines()) <= KERNEL_LINES
    path = tmp_path / "kernel.py"
    path.write_text(
        head + f"compiled = cs.emulator.compile_for_emulator({call.splitlines()[0].partition(')')[0]})\n",
        encoding="utf-8",
    )
    names = {"__name__": "kernel"}
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    assert ".target sm_90a" in names["compiled"].__ptx__


def test_every_variable_is_in_the_table():
    for variable in env.ALL:
        assert re.search(rf"^\| `{variable.name}` \|", TEXT, re.M), variable.name
        if variable.default:
            assert f"| `{variable.name}` | `{variable.default}` |" in TEXT
    assert set(re.findall(r"CUTESYNC_[A-Z_]+", TEXT)) == {variable.name for variable in env.ALL}


def test_operators_by_name_are_all_there():
    from cutesync.ops import NAMES

    assert f"`{' '.join(NAMES)}`" in TEXT


def test_commands_are_accepted(capsys):
    from cutesync.cli import _parser

    for line in set(re.findall(r"python -m cutesync ([^`\n]+)", TEXT)):
        _parser().parse_args(line.replace("[", "").replace("]", "").split())
    assert capsys.readouterr().err == ""


def test_no_placeholders():
    assert not re.search(r"\bTODO\b|\bTBD\b|\bXXX\b|\?\?", TEXT)


def test_the_tables_are_those_of_the_results():
    """No figure that a committed run did not produce."""
    run = subprocess.run(
        [sys.executable, README.parent / "perf" / "readme.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr
