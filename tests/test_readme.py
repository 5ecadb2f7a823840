"""The READMEs are true: their snippets run where kernels run, and are checked as far as possible where they do not."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cutesync as cs
from cutesync import env
from cutesync.cli import demo
from cutesync.runtime import device

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "perf" / "README.md", *sorted(ROOT.glob("cutesync/*/README.md")))
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
README, TEXT = TEXTS["README.md"], "\n".join(TEXTS.values())
README_LINES, KERNEL_LINES = 305, 30


def _snippets():
    """``(needs, code)`` of every Python snippet of every page."""
    pattern = re.compile(r"(?:<!-- needs: ([\w ]+) -->\n)?```python\n(.*?)```", re.S)
    for page, text in TEXTS.items():
        for match in pattern.finditer(text):
            line = text[: match.start(2)].count("\n") + 1
            yield pytest.param(frozenset((match[1] or "").split()), match[2], id=f"{page}-{line}")


SNIPPETS = list(_snippets())


@pytest.fixture(scope="module")
def place() -> str:
    return demo.where()[0]


def test_there_are_snippets():
    assert len(SNIPPETS) >= 12


def test_the_first_page_is_short():
    assert README.count("\n") <= README_LINES


@pytest.mark.parametrize("page", TEXTS)
def test_links_and_pictures_are_there(page):
    for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", TEXTS[page]):
        assert (ROOT / page).parent.joinpath(target).exists(), target


@pytest.mark.parametrize(("needs", "code"), SNIPPETS)
def test_every_name_exists(needs, code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "cs":
            assert hasattr(cs, node.attr), f"cs.{node.attr}"


@pytest.mark.drawn(14)
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
        assert re.search(rf"^\| `{variable.name}` \|", README, re.M), variable.name
        if variable.default:
            assert f"| `{variable.name}` | `{variable.default}` |" in README
    assert set(re.findall(r"CUTESYNC_[A-Z_]+", TEXT)) == {variable.name for variable in env.ALL}


def test_operators_by_name_are_all_there():
    from cutesync.ops import NAMES

    assert f"`{' '.join(NAMES)}`" in README


def test_every_call_is_in_the_table_with_its_options():
    """The table of README's calls names every public function, and every option that belongs to it."""
    rows = re.findall(r"^\| `([^|]*)` \| [^|]* \|(.*)\|$", README[: README.index("```python\nimport torch")], re.M)
    named = {name: calls + options for calls, options in rows for name in re.sub(r"\(.*?\)", "", calls).split()}
    assert set(named) == {name for name in cs.__all__ if inspect.isfunction(getattr(cs, name))}
    for name, words in named.items():
        parameters = set(inspect.signature(getattr(cs, name)).parameters) - {"x", "op", "out", "stream"}
        assert parameters <= set(re.findall(r"\w+", words)), name


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
        [sys.executable, ROOT / "perf" / "readme.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr
