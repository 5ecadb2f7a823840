"""PTX from anywhere never becomes Python: tokens of a real kernel changed into Python, and texts made for the generated
code.
"""

import builtins
import random
import re

import numpy as np
import pytest

from cutesync import emulator
from cutesync.emulator import codegen, gate, ptx
from cutesync.emulator.instructions.registry import UnknownInstruction
from cutesync.errors import CutesyncError

from ..compiled import compiled
from . import kernels_basic as basic
from .support import kernel_text

HOSTILE = (
    "canary()",
    "'+str(canary())+'",
    '"+canary()+"',
    '";canary();"',
    "\ncanary()\n",
    "\n canary()\n#",
    "x'+str(exec('canary()'))+'",
    "lambda:canary()",
    "f.warp.machine",
    "().__class__",
    "__class__",
    "__import__('os')",
    "np.load",
    "R[0]",
    "canary",
    "{canary()}",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ";",
    ":",
    "=",
    "@",
    "!",
    "~",
    "|",
    "\\",
    "'",
    '"',
    "#",
    "%",
    "$",
    "_",
    "0x",
    "1_0",
    "1e999",
    "-1",
    "9" * 30,
    "\u0661",
    "\u00aa",
    "%tid.x",
    "[%rd1]",
    "{%r1,%r2}",
    "%r1|%p1",
    "s32",
    "f16x2",
    "b128",
    "u48",
    "v4",
    "sync",
    "lt",
    "xor",
)


@pytest.fixture
def canary(monkeypatch):
    """``canary()`` is a builtin function here; the list it returns counts its calls."""
    called = []
    monkeypatch.setattr(builtins, "canary", lambda *_: called.append(1) or 0, raising=False)
    return called


def run(text: str, *arrays) -> None:
    """Run the text's kernel for a while, on addresses that may mean nothing to it."""
    names = re.findall(r"\.param", text[: text.index("{")])
    parameters = [arrays[i % len(arrays)].ctypes.data for i in range(len(names))]
    with emulator.emulate(max_steps=2000), emulator.DEVICE.arrays(*arrays):
        emulator.launch(text, (1, 1, 1), (32, 1, 1), parameters, shared_bytes=256)


def outcome(text: str, *arrays) -> str:
    try:
        run(text, *arrays)
    except CutesyncError as error:
        return type(error).__name__
    return "ran"


def test_tokens_changed_into_python(canary):
    x = np.zeros(256, np.int32)
    text = compiled(basic.exchange, np.zeros(32, np.int32)).__ptx__
    assert outcome(text, x) == "ran"
    body = text.index("{", text.index(".entry"))
    tokens = [m for m in re.finditer(r"[\w%$]+|[^\s\w%$]", text) if m.start() > body]
    chance, found = random.Random(7), set()
    for number in range(250):
        token, new = chance.choice(tokens), HOSTILE[number % len(HOSTILE)]
        new = chance.choice((new, token.group() + new, new + token.group()))
        found.add(outcome(text[: token.start()] + new + text[token.end() :], x))
        assert not canary, (token.group(), new)
    assert {"PtxSyntaxError", "UnknownInstruction", "ran"} <= found


PLACES = {
    "relation": "setp.{}.s32 %p1, %r0, 3;",
    "relation of floats": "setp.{}.f32 %p1, %r0, %r1;",
    "relation of halves": "setp.{}.f16x2 %p1|%p2, %r0, %r1;",
    "type": "add.{} %r1, %r0, %r0;",
    "type of a move": "mov.{} %r1, %r0;",
    "rounding": "add.{}.f32 %r1, %r0, %r0;",
    "conversion": "cvt.{}.f32 %r1, %r0;",
    "shuffle": "shfl.sync.{}.b32 %r1, %r0, %r2, 31, -1;",
    "vote": "vote.sync.{}.b32 %r1, %p1, -1;",
    "reduction": "redux.sync.{}.s32 %r1, %r0, -1;",
    "atomic": "atom.global.{}.u32 %r1, [%a0], 1;",
    "target of set": "set.lt.{}.f16x2 %r1, %r0, %r1;",
    "space": "isspacep.{} %p1, %a0;",
    "address": "cvta.to.global.{} %rd1, %a0;",
    "rank": "mapa.shared::cluster.{} %r1, %r0, 0;",
    "register": "mov.u32 {}, %r0;",
    "operand": "add.s32 %r1, %r0, {};",
    "special register": "mov.u32 %r1, %{};",
    "offset": "ld.global.b32 %r1, [%a0+{}];",
    "label": "bra {};",
    "predicate": "@{} mov.u32 %r1, 0;",
    "declaration": ".reg .b32 {};",
    "variable": ".shared .b8 {}[4];",
    "call": "call.uni {}, ();",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("python", [text for text in HOSTILE if "canary" in text and text != "canary"])
def test_python_in_the_place_of(place, python, canary):
    text = kernel_text("\tmov.u32 %r0, %tid.x;\n\t" + PLACES[place].replace("{}", python), 1)
    assert outcome(text, np.zeros(64, np.int32)) in (
        "PtxSyntaxError",
        "UnknownInstruction",
        "ForeignCode",
        "ArgumentValueError",
    )
    assert not canary


@pytest.mark.parametrize("place", PLACES)
def test_words_of_ptx_in_the_wrong_place(place):
    """A legal word where the instruction has no such form is an error that has a type."""
    for word in ("sync", "f16x2", "xor", "u48", "tid.x", "_"):
        outcome(
            kernel_text("\tmov.u32 %r0, %tid.x;\n\t" + PLACES[place].replace("{}", word), 1), np.zeros(64, np.int32)
        )


GENERATED = {
    "an import": "    import os\n",
    "a builtin": "    open('x')\n",
    "an attribute": "    f.__class__\n",
    "a function of numpy": "    np.load('x')\n",
    "a global": "    canary()\n",
    "a function": "    def g(): return 1\n",
    "a second function": "    pass\ndef other(f):\n    pass\n",
    "a statement behind": "    pass\nprint(1)\n",
    "no Python": "    1 +\n",
    "a null": "    '\0'\n",
}


@pytest.mark.parametrize("what", GENERATED)
def test_the_gate_refuses(what, canary):
    with pytest.raises(gate.ForeignCode):
        gate.function("def segment(f):\n" + GENERATED[what], "segment", codegen._namespace())
    assert not canary


def test_the_gate_lets_generated_code_through():
    names = codegen._namespace()
    assert gate.function("def segment(f):\n    return int(np.full(3, 2)[0]) + abs(-1)\n", "segment", names)(None) == 3
    with pytest.raises(NameError):
        eval("open", names)


def test_a_handler_that_pastes_what_it_is_given_is_stopped(monkeypatch, canary):
    from cutesync.emulator.instructions import registry

    monkeypatch.setitem(registry._HANDLERS, ("nop",), (lambda e, instr: e.line("canary()"), False, False))
    with pytest.raises(gate.ForeignCode, match="canary"):
        run(kernel_text("\tnop;", 1), np.zeros(8, np.int32))
    assert not canary


@pytest.mark.parametrize(
    "text",
    [
        "",
        "}",
        "{",
        ".visible .entry k(",
        ".visible .entry k() {",
        ".func f() {",
        ".visible .entry k() { ret; ",
        '"',
        ".visible .entry k() { .reg .b32 %r<999999999999>; ret; }",
        ".visible .entry k() { .local .align 0 .b8 x[4]; ret; }",
        ".visible .entry k() { .local .b8 x[9999999999]; ret; }",
        ".global .b8 x[99999999999999];\n.visible .entry k() { ret; }",
        ".visible .entry k() { .reg .pred %p<2>; setp.eq.u32 %p1, " + "!" * 3000 + "%p1, 1; ret; }",
        ".visible .entry k() { brx.idx %r1, nowhere; ret; }",
        ".visible .entry k(.param .align 0 .b8 p[4]) { ret; }",
    ],
)
def test_texts_that_are_no_kernels(text):
    with pytest.raises(CutesyncError):
        emulator.launch(text, (1, 1, 1), (32, 1, 1), [])


def test_operands_that_no_compiler_writes_are_a_report():
    text = kernel_text(
        "\tmov.u64 %rd1, 0;\n\tmov.u32 %r1, smem;\n\tcp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 0;",
        1,
        shared=64,
    )
    with pytest.raises((emulator.EmulationError, UnknownInstruction)):
        run(text, np.zeros(64, np.int32))


def test_numbers_are_those_of_ptx():
    for number in ("1_0", "0b1_1", "\u0661", "9" * 5000):
        with pytest.raises(ptx.PtxSyntaxError):
            ptx.parse(kernel_text(f"\tmov.u32 %r1, {number};", 1))
