"""Names of warp roles: those that the user gives, that ``sync.in_role`` names, or that the source shows.

In the source a role is a branch of the kernel: the name in its condition (``if warp_idx == self.mma_warp_id``: mma),
the end of pipelines that it has (``pipeline.producer_acquire``: producer), or the function that it calls (``if
warp_idx < 4: self.load(...)``: load).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..arguments import integer
from ..errors import ArgumentTypeError, ArgumentValueError, explain, shown
from .source import Place, around, function_at

_MOST_WARPS = 32
_WARP = {"warp", "warps", "wg", "wgs", "warpgroup", "warpgroups"}
_TASKS = {"producer", "consumer", "mma", "tma", "dma", "load", "store", "epi", "epilogue", "epilog", "scheduler"}
_EMPTY = _WARP | {
    *("group", "groups", "idx", "id", "ids", "index", "num", "number", "count", "is", "in", "first", "last", "leader"),
    *("self", "make", "uniform", "arch", "cute", "per", "block", "cta", "local", "thread", "threads", "lane", "size"),
}


def given(roles: Any) -> dict[int, str]:
    """The names of warps, by their number in the block. ``roles`` maps names to the warps that have them."""
    if not isinstance(roles, Mapping):
        raise ArgumentTypeError(explain("roles", shown(roles), "a mapping of names to warps: {'load': [0]}"))
    names: dict[int, str] = {}
    for name, warps in roles.items():
        if not isinstance(name, str) or not name:
            raise ArgumentTypeError(explain("roles", shown(name), "names that are text"))
        try:
            numbers = list(warps)
        except TypeError:
            raise ArgumentTypeError(
                explain(f"roles[{name!r}]", shown(warps), "the numbers of warps: range(4)")
            ) from None
        for warp in numbers:
            integer(warp, f"roles[{name!r}]", 0, _MOST_WARPS - 1)
            if names.setdefault(int(warp), name) != name:
                raise ArgumentValueError(explain("roles", f"warp {warp} as {names[warp]!r} and {name!r}", "one each"))
    return names


def parse(text: str) -> dict[str, range]:
    """``load=0-3,mma=4-11`` as roles."""
    found: dict[str, range] = {}
    for piece in text.split(","):
        match = re.fullmatch(r"\s*([^=,]+?)\s*=\s*(\d{1,2})(?:-(\d{1,2}))?\s*", piece)
        if not match:
            raise ArgumentValueError(explain("--roles", text, "names and warps: load=0-3,mma=4-11"))
        first, last = int(match[2]), int(match[3] or match[2])
        if match[1] in found or last < first:
            raise ArgumentValueError(explain("--roles", text, "each name once, with its first and last warp"))
        found[match[1]] = range(first, last + 1)
    return found


@lru_cache(maxsize=4096)
def of_chain(chain: tuple[Place, ...]) -> str:
    """The role of the warps that run a line, from the calls that led there, the kernel's line first; or nothing."""
    otherwise = ""  # where the branch of the others has a name
    for place, following in zip(chain, (*chain[1:], None)):
        function: list[ast.stmt] = []
        for node in around(place):
            function = [] if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else [*function, node]
        branches = [node for node in function if isinstance(node, ast.If) and place.line > (node.test.end_lineno or 0)]
        of_warps = False
        for branch in branches:
            about, name, negative = _condition(branch.test)
            taken = place.line <= (branch.body[-1].end_lineno or 0)
            if name and taken is not negative:
                return name
            otherwise = otherwise or (name and f"not {name}")
            end = _end_of_pipelines(branch.body if taken else branch.orelse) if about else ""
            of_warps |= about
            if end:
                return end
        called = function_at(following) if of_warps and following is not None else ""
        if called and _calls(function[-1], called):
            return called
    return otherwise


def _calls(statement: ast.stmt, name: str) -> bool:
    """Whether a statement calls a function or a method of its own object: those of others are helpers of all roles."""
    functions = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return any(ast.unparse(function) in (name, f"self.{name}") for function in functions)


def _end_of_pipelines(body: list[ast.stmt]) -> str:
    """ "producer" or "consumer", if the statements are one of both."""
    calls = [node.attr for statement in body for node in ast.walk(statement) if isinstance(node, ast.Attribute)]
    ends = {end for end in ("producer", "consumer") for call in calls if call.startswith(f"{end}_")}
    return ends.pop() if len(ends) == 1 else ""


def _condition(test: ast.expr) -> tuple[bool, str, bool]:
    """Whether a condition is about warps, the role that it names, and whether it holds for all warps but those."""
    negative = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    compared = test.operand if isinstance(test, ast.UnaryOp) else test
    if isinstance(compared, ast.Compare):
        negative ^= isinstance(compared.ops[0], (ast.NotEq, ast.Gt, ast.GtE, ast.NotIn))
    about, name = False, ""
    for node in ast.walk(test):
        word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        pieces = [piece.lower() for piece in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", word)]
        rest = [piece for piece in pieces if piece not in _EMPTY]
        of_warp = bool(_WARP & set(pieces))
        about |= of_warp
        if rest and (of_warp or (pieces[0] == "is" and set(rest) <= _TASKS)):
            about, name = True, name or " ".join(rest)
    return about, name, negative
