"""The rules of the house, and the exercise of cutesync/ARCHITECTURE.md: a family that consists of one folder."""

import ast
import fnmatch
import functools
import re
from pathlib import Path

import numpy as np
import pytest

import cutesync as cs
import cutesync.kernels
from cutesync.errors import ArgumentValueError

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "cutesync"
SOURCES = sorted(path for part in ("cutesync", "tests", "perf") for path in (ROOT / part).rglob("*.py"))


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions():
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield path, node


def test_every_folder_of_tests_is_collected(request):
    folders = {part for path in SOURCES if path.name.startswith("test_") for part in path.relative_to(ROOT).parts[:-1]}
    passed_over = request.config.getini("norecursedirs")
    assert {"tests", "dist"} <= folders
    assert not [folder for folder in folders if any(fnmatch.fnmatch(folder, pattern) for pattern in passed_over)]


@pytest.fixture
def negate(tmp_path, monkeypatch):
    """The function of the exercise, from files that hold the code of the page."""
    page = (PACKAGE / "ARCHITECTURE.md").read_text(encoding="utf-8")
    files = re.findall(r"^`cutesync/kernels/negate/(\w+\.py)`:\n\n```python\n(.*?)^```$", page, re.M | re.S)
    (folder := tmp_path / "negate").mkdir()
    for file, text in (*files, re.search(r"`cutesync/kernels/negate/(__init__\.py)` has `(.*?)`", page).groups()):
        (folder / file).write_text(text)
    monkeypatch.setattr(cutesync.kernels, "__path__", [*cutesync.kernels.__path__, str(tmp_path)])
    from cutesync.kernels.negate import negate

    return negate


def test_the_exercise_is_a_family(negate):
    with cs.emulate():
        for x in (np.arange(-500, 501, dtype=np.int32), np.float32([[1.5, -0.0], [np.inf, -2]]), np.zeros((0, 3))):
            result = negate(x)
            assert result.dtype == x.dtype and result.tobytes() == (-x).tobytes()
        y = cs.asarray(np.arange(300.0))
        assert negate(y, out=y) is y and np.array_equal(y, -np.arange(300.0)), "in place"
        with pytest.raises(ArgumentValueError, match="overlaps x"):
            negate(y[1:], out=y[:-1])


def test_files_and_lines_are_short():
    lines = {path: path.read_text(encoding="utf-8").split("\n") for path in SOURCES}
    long = [f"{name(path)}: {len(text) - 1} lines" for path, text in lines.items() if len(text) > 401]
    wide = [
        f"{name(path)}:{i}: {len(line)} columns"
        for path, text in lines.items()
        for i, line in enumerate(text, 1)
        if len(line) > 120
    ]
    assert not long + wide, "\n".join(long + wide)


def test_functions_are_short():
    """Kernels that the emulator's tests take for other people's are whole, as other people write them."""
    long = [
        f"{name(path)}:{node.lineno}: {node.name} has {size} lines"
        for path, node in functions()
        if (size := node.end_lineno - node.lineno + 1) > 60 and not name(path).startswith("tests/emulator/kernels_")
    ]
    assert not long, "\n".join(long)


def may_have_many_parameters(path: Path, node: ast.FunctionDef) -> bool:
    """Kernel entry points, public functions with their references, and kernels of tests."""
    traced = any(ast.unparse(mark).startswith(("cute.jit", "cute.kernel")) for mark in node.decorator_list)
    entry = traced and (node.name in ("__call__", "kernel") or path.is_relative_to(ROOT / "tests"))
    pattern = path.parent == PACKAGE / "patterns" and node.name in ("run", "reference")
    return entry or pattern or node.name in cs.__all__ or path == PACKAGE / "reference.py"


def test_functions_have_few_parameters():
    many = []
    for path, node in functions():
        given = node.args
        count = len(given.posonlyargs + given.args + given.kwonlyargs) + (given.vararg is not None)
        count += given.kwarg is not None
        if count > 8 and not may_have_many_parameters(path, node):
            many.append(f"{name(path)}:{node.lineno}: {node.name} has {count} parameters")
    assert not many, "\n".join(many)


def imports(folder: str):
    """``(file, module)`` of every import in a folder of the package, relative ones resolved."""
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        package = path.relative_to(ROOT).parent.parts
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import):
                yield from ((name(path), alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else ()
                module = ".".join((*base, *filter(None, [node.module])))
                yield from ((name(path), f"{module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [("emulator", ("kernels", "patterns", "cli")), ("sync", ("runtime", "kernels")), ("block", ("runtime", "kernels"))],
)
def test_dependencies_point_one_way(folder, forbidden):
    found = list(imports(folder))
    assert any(module.startswith(("cutlass", "cutesync.")) for _, module in found)
    wrong = [
        f"{path} imports {module}"
        for path, module in found
        if module.startswith(tuple(f"cutesync.{part}" for part in forbidden))
    ]
    assert not wrong, "\n".join(wrong)


def test_one_module_distinguishes_backends():
    """``runtime/arrays.py`` and ``torch_arrays.py`` give host arrays their device number."""
    allowed = {f"cutesync/runtime/{part}.py" for part in ("device", "backend", "emulated", "arrays", "torch_arrays")}
    asked = [
        f"{name(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in SOURCES
        if path.is_relative_to(PACKAGE) and name(path) not in allowed
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Attribute) and ast.unparse(node) in ("device.HOST", "device.backend"))
        or (isinstance(node, ast.ImportFrom) and any(alias.name == "HOST" for alias in node.names))
    ]
    assert not asked, "\n".join(asked)
