"""What the Python source calls things: the function that a line is in, and the name that it gives to what it makes."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .syntax import Loc


@lru_cache(maxsize=256)
def _tree(path: str) -> ast.Module | None:
    try:
        return ast.parse(Path(path).read_text()) if path.endswith(".py") else None
    except (OSError, SyntaxError, ValueError):
        return None


@lru_cache(maxsize=4096)
def _around(loc: Loc) -> tuple[ast.stmt, ...]:
    """The functions and statements that hold a line, the innermost one last."""
    tree = _tree(loc.file)
    found: list[ast.stmt] = []
    waiting: list[ast.AST] = [] if tree is None else [tree]
    while waiting:
        node = waiting.pop()
        start, stop = getattr(node, "lineno", 0), getattr(node, "end_lineno", 1 << 30)
        if start <= loc.line <= (stop or start):
            if isinstance(node, ast.stmt):
                found.append(node)
            waiting += ast.iter_child_nodes(node)
    return tuple(sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or 0))))


def function_at(loc: Loc) -> str:
    """The name of the function that a line is in, or nothing."""
    functions = [node for node in _around(loc) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return functions[-1].name if functions else ""


@lru_cache(maxsize=4096)
def made_at(loc: Loc) -> str:
    """What a line that initialises something calls it: ``name="..."``, the variable that it is assigned to, or the
    call's first argument."""
    around = _around(loc)
    if not around or isinstance(around[-1], (ast.FunctionDef, ast.AsyncFunctionDef)):
        return ""
    for call in (node for node in ast.walk(around[-1]) if isinstance(node, ast.Call)):
        for keyword in call.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                return str(keyword.value.value)
    match around[-1]:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            return ast.unparse(target)
        case ast.Expr(value=ast.Call(args=[first, *_])):
            return ast.unparse(first)
    return ""
