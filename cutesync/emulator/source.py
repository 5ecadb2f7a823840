"""What the Python source calls things: the function that a line is in, and the name that it gives to what it makes."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_LONGEST = 60  # of an expression that is a name


class Place(NamedTuple):
    """A line of a file."""

    file: str
    line: int


@lru_cache(maxsize=256)
def _tree(path: str) -> ast.Module | None:
    try:
        return ast.parse(Path(path).read_text()) if path.endswith(".py") else None
    except (OSError, SyntaxError, ValueError):
        return None


@lru_cache(maxsize=4096)
def around(loc: Place) -> tuple[ast.stmt, ...]:
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


@lru_cache(maxsize=4096)
def function_at(loc: Place) -> str:
    """The name of the function that a line is in, or nothing."""
    functions = [node for node in around(loc) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return functions[-1].name if functions else ""


@lru_cache(maxsize=4096)
def makes_pipeline(loc: Place) -> bool:
    """Whether a line makes one of the DSL's pipelines: it initialises the full barriers of all stages, then the empty
    ones."""
    held = around(loc)
    calls = [node.func for node in ast.walk(held[-1]) if isinstance(node, ast.Call)] if held else []
    return any(isinstance(f, ast.Attribute) and f.attr == "create" and "Pipeline" in ast.unparse(f) for f in calls)


def stage_of(chain: list[Place], place: int, count: int) -> str:
    """The name of the barrier that is number ``place`` of the ``count`` which a line initialises, reached by a chain of
    calls: what the kernel calls it, and what the helper does. A line that makes a pipeline ends the chain."""
    pipeline = next((i for i, line in enumerate(chain, 1) if makes_pipeline(line)), 0)
    chain = chain[: pipeline or len(chain)]
    first, *rest = [made_at(line).removeprefix("self.") for line in chain]
    names = [first, *[name for name in rest if re.fullmatch(r"\w+", name)][:1]]
    label = ".".join(name for name in dict.fromkeys(names) if name)
    if label and count % 2 == 0 and pipeline:
        return f"{label}.{'full' if place < count // 2 else 'empty'}[{place % (count // 2)}]"
    return label and f"{label}[{place}]"


def named_at(chain: list[Place]) -> str:
    """What a line, or one that led to it, calls the named barrier that it uses."""
    return next(filter(None, map(_barrier_at, chain)), "")


@lru_cache(maxsize=4096)
def _barrier_at(loc: Place) -> str:
    """The barrier of ``self.ready.arrive_and_wait()`` (ready) or ``barrier(barrier_id=int(Names.Full) + stage)``
    (Names.Full + stage)."""
    statements = [node for node in around(loc)[-1:] if isinstance(node, (ast.Expr, ast.Assign))]
    for call in (node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call)):
        number = next((k.value for k in call.keywords if k.arg == "barrier_id"), None)
        if number is not None and not isinstance(number, ast.Constant):
            text = re.sub(r"\bint\(([\w.]+)\)", r"\1", ast.unparse(number))
            return text.replace("self.", "") if len(text) <= _LONGEST else ""
        function = call.func
        if isinstance(function, ast.Attribute) and re.match(r"arrive|wait|sync", function.attr):
            made = function.value
            if isinstance(made, ast.Call) and made.args and ast.unparse(made.func).endswith("NamedBarrier"):
                made = made.args[0]
            text = ast.unparse(made).removeprefix("self.")
            if re.fullmatch(r"[\w.\[\]]{1,40}", text) and not re.search(r"\b(arch|pipeline|cute|primitives)$", text):
                return text
    return ""


@lru_cache(maxsize=4096)
def made_at(loc: Place) -> str:
    """What a line that initialises something calls it: ``name="..."``, the variable that it is assigned to, or the
    call's first argument."""
    held = around(loc)
    if not held or isinstance(held[-1], (ast.FunctionDef, ast.AsyncFunctionDef)):
        return ""
    for call in (node for node in ast.walk(held[-1]) if isinstance(node, ast.Call)):
        for keyword in call.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, (ast.Constant, ast.JoinedStr)):
                pieces = getattr(keyword.value, "values", [keyword.value])  # of f"full of {name}": "full"
                text = "".join(str(piece.value) for piece in pieces if isinstance(piece, ast.Constant))
                return text.strip().removesuffix(" of")
    match held[-1]:
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
            return ast.unparse(target)
        case ast.Expr(value=ast.Call(args=[first, *_])):
            return ast.unparse(first)
    return ""
