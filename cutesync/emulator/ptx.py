"""PTX text -> declarations and instructions, each with its operands, predicate and Python source line.

Only syntax lives here. A name declared in a brace scope (inline assembly uses them a lot) is renamed so that every
register and label of a function is unique. ``parse(text)`` raises ``PtxSyntaxError`` naming the line that it did not
understand.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from . import chains, words
from .declarations import declared, found, split, variable
from .gate import MALFORMED, NAME, reported
from .syntax import (
    NOWHERE,
    PARAM,
    SINK,
    SIZES,
    Function,
    Imm,
    Instr,
    Loc,
    Mem,
    Module,
    Not,
    Pair,
    Param,
    PtxSyntaxError,
    Reg,
    Special,
    Symbol,
    Vec,
)

__all__ = ["PtxSyntaxError", "parse"]

_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_FILE = re.compile(r"^\s*\.file\s+(\d+)\s+\"([^\"]*)\"", re.M)
_SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid|laneid|warpid|nwarpid|smid|nsmid|gridid|clusterid|nclusterid|cluster_ctaid|"
    r"cluster_nctaid|cluster_ctarank|cluster_nctarank|is_explicit_cluster|lanemask_\w+|clock|clock64|clock_hi|"
    r"globaltimer|globaltimer_lo|globaltimer_hi|dynamic_smem_size|total_smem_size|aggr_smem_size|envreg\d+|"
    r"current_graph_exec|pm\d+|reserved_smem\w*)(\.[xyzw])?",
    re.A,
)
_NUMBER = re.compile(r"-?(0[xX][0-9a-fA-F]{1,16}|\d{1,20})U?", re.A)
_FLOAT = re.compile(r"-?\d{1,40}\.\d{0,400}([eE][-+]?\d{1,4})?", re.A)
_OFFSET = re.compile(r"(.+?)\s*\+\s*(-?(?:0[xX][0-9a-fA-F]{1,16}|\d{1,20}))", re.A)
_INLINED = re.compile(r"\binlined_at (\d+) (\d+) (\d+)", re.A)
_VECTORS = {".v2": 2, ".v4": 4}
_MAX = 1 << 20  # registers or instructions of one function; compilers write far fewer

_MARK = re.compile(r'"[^"]*"?|[{};:\n]')  # what may end a statement, and quoted texts, which hold none
_LABEL = re.compile(r"[$%\w]+")
_LINE = re.compile(  # directives that end with their line
    r"\.(loc|file|version|target|address_size|section|pragma|reqntid|maxntid|minnctapersm|maxnreg|reqnctapercluster|"
    r"explicitcluster|blocksareclusters|noreturn)\b"
)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield ``(line number, statement)``; braces that open or close a scope and labels are statements of their own."""
    start, line, depth = 0, 1, 0
    for end in _MARK.finditer(text):
        mark, before = end[0], text[start : end.start()]
        head = before.strip()
        label, directive = mark == ":" and _LABEL.fullmatch(head), mark == "\n" and _LINE.match(head)
        if mark == "{" and (depth or (head and ".entry" not in head and ".func" not in head)):  # of operands
            depth += 1
        elif mark == "}" and depth:
            depth -= 1
        elif mark in "{};" or label or (directive and not depth):
            if head:
                yield line + before[: before.index(head)].count("\n"), head + (":" if label else "")
            line += before.count("\n")
            if mark in "{}":
                yield line, mark
            start = end.start() + (not directive)


@lru_cache(maxsize=8)
def _read_before(declared: tuple[str, ...]) -> dict[str, Instr]:
    """The instructions, by their texts, of kernels that declare the same registers: of one of which the text was
    changed a little, most have been read before."""
    return {}


class _Reader:
    def __init__(self, text: str):
        self.files = {int(n): path for n, path in _FILE.findall(text)}
        self.module = Module()
        self.function: Any = None  # the ``Function`` that is being read
        self.scopes: list[dict[str, object]] = []
        self.scope_ids = 0
        self.loc = NOWHERE
        self.inlined: dict[tuple[int, int, int], tuple[tuple[str, int], ...]] = {}  # calls that led to a place
        self.last_label = ""
        self.declared: tuple[str, ...] = ()  # the registers of the function that is being read, outside inner scopes
        text = _COMMENT.sub(" ", text)
        text = "\n".join(_strip_line_comment(line) for line in text.split("\n"))
        text = re.sub(r"\.section\s+\.debug\w*\s*\{.*?\n\s*\}", "", text, flags=re.S)
        for number, statement in self.without_functions([(n, " ".join(s.split())) for n, s in _statements(text)]):
            try:
                self.statement(statement)
            except PtxSyntaxError:
                raise
            except MALFORMED as fault:
                raise PtxSyntaxError(f"PTX line {number}: cannot read {statement!r} ({fault})") from fault
        if self.function is not None:
            raise PtxSyntaxError(f"the PTX text ends within {self.function.name}")

    def without_functions(self, statements: list[tuple[int, str]]) -> list[tuple[int, str]]:
        """Separate the bodies of device functions: each call is replaced by the body (``inline``)."""
        self.bodies: dict[str, tuple[list[str], list[str], list[str]]] = {}
        rest, at = [], 0
        while at < len(statements):
            header = statements[at][1]
            at += 1
            if not (re.match(r"(\.\w+\s+)*\.func\b", header) and at < len(statements) and statements[at][1] == "{"):
                rest.append((statements[at - 1][0], header))
                continue
            depth, body = 1, []
            while depth:
                at += 1
                depth += {"{": 1, "}": -1}.get(statements[at][1], 0)
                body.append(statements[at][1])
            at += 1
            lists = [[declared(p)[2] for p in split(inner)] for inner in re.findall(r"\(([^)]*)\)", header)]
            name = found(r"([$\w]+)\s*\([^()]*\)\s*(?:\.\w+\s*)*$", header)[1]
            self.bodies[name] = (lists[0] if len(lists) > 1 else [], lists[-1], body[:-1])
        return rest

    def inline(self, rest: str) -> None:
        """``call (results), name, (arguments)`` of a device function: its body in a scope with the parameters."""
        pieces = split(rest)
        name = next(p for p in pieces if p in self.bodies)
        given = [split(p[1:-1]) for p in pieces if p.startswith("(")]
        results, parameters, body = self.bodies[name]
        if len(given) < (2 if results else 1):
            given.append([])
        bound = dict(zip(results + parameters, map(self.lookup, given[0] + given[1] if results else given[0])))
        if any(scope.get("function") == name for scope in self.scopes):
            raise PtxSyntaxError(f"the recursive call of {name} at {self.loc} is not supported")
        self.open_scope(function=name, **bound)
        for s in body:
            guard = re.match(r"(@!?\S+\s+)?ret\b", s)
            self.statement(f"{guard.group(1) or ''}bra END_OF_CALL" if guard else s)
        self.statement("END_OF_CALL:")
        self.scopes.pop()

    def open_scope(self, **names) -> None:
        self.scope_ids += 1
        self.scopes.append({"#": self.scope_ids, **names})

    def statement(self, s: str) -> None:
        if s == "{":
            self.declared = self.declared if self.scopes else ()
            self.open_scope()
        elif s == "}":
            self.scopes.pop()
            if not self.scopes:
                self.module.functions[self.function.name] = self.function
                self.function = None
        elif self.function is None or not self.scopes:
            self.top_level(s)
        elif s.endswith(":") and " " not in s:
            self.last_label = s[:-1]
            self.function.labels[self.local_label(s[:-1])] = len(self.function.code)
        elif s.startswith("."):
            self.directive(s)
        else:
            self.instruction(s)

    def local_label(self, name: str) -> str:
        """Labels of inline assembly are local to their scope: they are renamed with the scope's number."""
        return name if len(self.scopes) <= 1 else f"{name}@{self.scopes[-1]['#']}"

    def top_level(self, s: str) -> None:
        if ".entry" in s:
            self.function = Function(found(r"\.entry\s+([$\w]+)", s)[1])
            inner = s[s.index("(") + 1 : s.rindex(")")] if "(" in s else ""
            offset = 0
            for piece in split(inner):
                size, align, pname = declared(piece)
                offset = -(-offset // align) * align
                self.function.params.append(Param(pname, size, align, offset))
                offset += size
            self.dimensions(s[s.rindex(")") + 1 :] if ")" in s else s)
        elif s.startswith((".reqntid", ".reqnctapercluster", ".maxntid")):
            self.dimensions(s)
        elif re.match(r"(\.\w+\s+)*\.(global|const|shared)\b", s):
            self.module.variables.append(variable(s))

    def dimensions(self, s: str) -> None:
        for name, attribute in (("reqntid", "block"), ("maxntid", "max_threads"), ("reqnctapercluster", "cluster")):
            match = re.search(rf"\.{name}\s+([\d, ]+)", s)
            if match and self.function:
                setattr(self.function, attribute, tuple(int(v) for v in match.group(1).split(",") if v.strip()))

    def directive(self, s: str) -> None:
        word = s.split()[0]
        if word == ".loc":
            if len(self.scopes) == 1:  # inline assembly keeps the line of the statement that holds it
                self.loc = self.location(s)
        elif word == ".reg":
            self.declare_registers(s)
            self.declared = (*self.declared, s) if len(self.scopes) == 1 else self.declared
        elif word in (".shared", ".local", ".global", ".const", ".extern"):
            self.function.variables.append(variable(s))
        elif word == ".branchtargets":
            self.function.tables[self.last_label] = [self.label(name) for name in split(s.split(None, 1)[1])]
        elif word == ".param":
            self.declared = (*self.declared, s) if len(self.scopes) == 1 else self.declared
            size, _, name = declared(s)
            self.declare_one(name, size * 8, len(self.scopes), PARAM)
        elif word not in (".pragma", ".file", ".callprototype"):
            raise PtxSyntaxError(f"unknown directive {s!r} at {self.loc}")

    def location(self, s: str) -> Loc:
        """The line of a ``.loc``. Of an inlined function, ``inlined_at`` says where it is called; that place, which may
        be in an inlined function itself, has a ``.loc`` of its own before."""
        number, line, column = (int(piece.rstrip(",")) for piece in [*s.split()[1:4], "0"][:3])
        file, at = self.files.get(number, "?"), _INLINED.search(s)
        calls: tuple[tuple[str, int], ...] = ()
        if at is not None:
            where = int(at[1]), int(at[2]), int(at[3])
            calls = (*self.inlined.get(where, ()), (self.files.get(where[0], "?"), where[1]))
        self.inlined[number, line, column] = calls
        return Loc(file, line, calls) if calls else Loc(file, line, *chains.of(file, line, column))

    def declare_registers(self, s: str) -> None:
        _, kind, names = s.split(None, 2)
        members = _VECTORS.get(kind, 0)
        if members:
            kind, names = names.split(None, 1)
        kind = kind.lstrip(".")
        bits = 1 if kind == "pred" else SIZES[kind] * 8
        depth = len(self.scopes)
        for name in split(names):
            match = re.fullmatch(r"([%$\w]+)<(\d+)>", name)
            if match and int(match[2]) > _MAX:
                raise PtxSyntaxError(f"{self.function.name} has more than {_MAX} registers")
            for one in [f"{match[1]}{i}" for i in range(int(match[2]))] if match else [name]:
                if members:
                    self.declare_vector(one, bits, depth, members)
                else:
                    self.declare_one(one, bits, depth)

    def declare_vector(self, name: str, bits: int, depth: int, members: int) -> None:
        """``.reg .v4 .f32 v``: registers of their own, named ``v.x`` to ``v.w`` or ``v.r`` to ``v.a``."""
        for letters in zip("xyzw"[:members], "rgba"):
            self.declare_one(f"{name}${letters[0]}", bits, depth)
            for letter in letters:
                self.scopes[-1][f"{name}.{letter}"] = self.scopes[-1][f"{name}${letters[0]}"]
        self.scopes[-1][name] = Vec(tuple(self.scopes[-1][f"{name}.{letter}"] for letter in "xyzw"[:members]))

    def declare_one(self, name: str, bits: int, depth: int, prefix: str = "") -> None:
        if not NAME.fullmatch(name):
            raise PtxSyntaxError(f"{name!r} at {self.loc} is no name of PTX")
        if len(self.function.registers) >= _MAX:
            raise PtxSyntaxError(f"{self.function.name} has more than {_MAX} registers")
        unique = prefix + (name if depth <= 1 else f"{name}@{self.scopes[-1]['#']}")
        reg = Reg(unique, bits)
        self.scopes[-1][name] = reg
        self.function.registers[unique] = reg

    def lookup(self, name: str):
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def label(self, name: str) -> str:
        """The name of a label used here, with its scopes; ``_resolve_labels`` finds the innermost one that holds it."""
        return name if len(self.scopes) <= 1 else f"{name}@{'.'.join(str(s['#']) for s in reversed(self.scopes))}"

    def instruction(self, s: str) -> None:
        if len(self.function.code) >= _MAX:
            raise PtxSyntaxError(f"{self.function.name} has more than {_MAX} instructions")
        before = _read_before(self.declared).get(s) if len(self.scopes) == 1 else None
        if before is not None:
            self.function.code.append(replace(before, loc=self.loc))
            return
        pred, negated = None, False
        text = s
        if s.startswith("@"):
            guard, s = s.split(None, 1)
            negated = guard.startswith("@!")
            pred = self.lookup(guard.lstrip("@!"))
            if pred is None:
                raise PtxSyntaxError(f"unknown predicate {guard} at {self.loc}")
        opcode, _, rest = s.partition(" ")
        parts = words.opcode(opcode)
        if parts is None:
            raise PtxSyntaxError(f"{opcode!r} at {self.loc} is no opcode of PTX")
        if opcode.startswith("call") and pred is None and any(p in self.bodies for p in split(rest)):
            return self.inline(rest)
        if opcode == "bra" or opcode.startswith("bra."):
            target = rest.strip()
            if not NAME.fullmatch(target):
                raise PtxSyntaxError(f"{target!r} at {self.loc} is no label of PTX")
            args: tuple = (Symbol(self.label(target)),)
        else:
            args = tuple(self.field(self.operand(a), opcode) for a in split(rest))
        instr = Instr(opcode, parts, args, pred, negated, self.loc, text)
        self.function.code.append(instr)
        if len(self.scopes) == 1 and parts[0] not in ("bra", "call") and "param" not in opcode:
            _read_before(self.declared)[text] = instr

    def field(self, operand, opcode: str):
        """A member of a call's structure parameter is a register of its own, named by its offset."""
        if (
            isinstance(operand, Mem)
            and isinstance(operand.base, Reg)
            and operand.base.name.startswith(PARAM)
            and operand.base.bits > 64
        ):
            member = Reg(f"{operand.base.name}+{operand.offset}", 8 * SIZES[opcode.rsplit(".", 1)[1]])
            self.function.registers[member.name] = member
            return Mem(member)
        return operand

    def operand(self, a: str):
        if a.startswith("["):
            return self.memory(a[1:-1])
        if a.startswith(("{", "(")):
            return Vec(tuple(self.operand(x) for x in split(a[1:-1])))
        if "|" in a:
            first, second = a.split("|")
            return Pair(self.operand(first.strip()), self.operand(second.strip()))
        if a.startswith("!"):
            return Not(self.operand(a[1:].strip()))
        return self.atom(a)

    def atom(self, a: str):
        if a == "_":
            return SINK
        reg = self.lookup(a)
        if reg is not None:
            return reg
        if _SPECIAL.fullmatch(a):
            return Special(a[1:])
        if a == "WARP_SZ":
            return Imm(32)
        if _NUMBER.fullmatch(a):
            return Imm(int(a.rstrip("U"), 0))
        if re.fullmatch(r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}", a):
            return Imm(int(a[2:], 16), 4 * len(a) - 8)
        if _FLOAT.fullmatch(a):
            return Imm(int.from_bytes(struct.pack("<d", float(a)), "little"), 64)
        if NAME.fullmatch(a):
            return Symbol(a)
        match = _OFFSET.fullmatch(a)
        if match and NAME.fullmatch(match.group(1)):
            return Symbol(match.group(1), int(match.group(2), 0))
        raise PtxSyntaxError(f"cannot read the operand {a!r} at {self.loc}")

    def memory(self, inner: str) -> Mem:
        pieces = split(inner)
        base, offset = pieces[0], 0
        match = _OFFSET.fullmatch(base)
        if match:
            base, offset = match.group(1).strip(), int(match.group(2), 0)
        return Mem(self.atom(base), offset, tuple(self.operand(p) for p in pieces[1:]))


def _strip_line_comment(line: str) -> str:
    at = line.find("//")
    return line if at < 0 or line.lstrip().startswith(".file") else line[:at]


def _resolve_labels(function: Function) -> None:
    for instr in function.code:
        if instr.parts[0] != "bra":
            continue
        plain, _, chain = instr.args[0].name.partition("@")
        candidates = [f"{plain}@{c}" for c in chain.split(".") if c] + [plain]
        found = next((c for c in candidates if c in function.labels), None)
        if found is None:
            raise PtxSyntaxError(f"{instr.where()} jumps to a label that is nowhere")
        instr.args = (Symbol(found),)


def parse(text: str) -> Module:
    """Read a PTX module. Raises ``PtxSyntaxError`` on text it does not understand."""
    with reported(lambda fault: PtxSyntaxError(f"cannot read the PTX text ({type(fault).__name__}: {fault})")):
        module = _Reader(text).module
        for function in module.functions.values():
            _resolve_labels(function)
    return module
