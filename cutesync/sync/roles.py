"""Warp specialisation: a block split into named groups of warps, each with a function and a register budget.

    block = Roles(Role("producer", 4, registers=40), Role("consumer", 8, registers=232))
    block.run(producer=lambda warp: ..., consumer=lambda warp: ...)     # in the kernel: each warp calls one of them

Registers move between warpgroups (4 warps), never between warps: ``setmaxnreg`` must be executed by a whole warpgroup.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..warp import LANES
from .wait import block_thread, in_role

WARPGROUP = 4
MOST_WARPS = 32
REGISTERS = 65536  # of a multiprocessor


def registers_at_launch(threads: int) -> int:
    """The most registers that a launch can give each thread of a block that has a multiprocessor to itself."""
    return REGISTERS // threads // 8 * 8


@dataclass(frozen=True)
class Role:
    """``warps`` warps that run one function; ``registers`` a thread from there on (None: what the compiler gave the
    kernel)."""

    name: str
    warps: int
    registers: int | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ArgumentValueError(
                explain("name of a role", repr(self.name), "an identifier: it is a keyword of run()")
            )
        if not 1 <= self.warps <= MOST_WARPS:
            raise ArgumentValueError(explain(f"role {self.name!r}", f"{self.warps} warps", f"1 to {MOST_WARPS}"))
        budget = self.registers
        if budget is not None and (budget % 8 or not 24 <= budget <= 256):
            raise ArgumentValueError(
                explain(f"registers of role {self.name!r}", budget, "a multiple of 8 from 24 to 256")
            )


class Roles:
    """The roles of a block, in warp order. ``threads`` is the block size to launch with."""

    def __init__(self, *roles: Role) -> None:
        names = [role.name for role in roles]
        if not roles or len(set(names)) != len(names):
            raise ArgumentValueError(explain("roles", ", ".join(names) or "none", "at least one, each name once"))
        self.roles, self.first = roles, {}
        total = 0
        for role in roles:
            self.first[role.name] = total
            total += role.warps
        if total > MOST_WARPS:
            sum_ = " + ".join(str(role.warps) for role in roles)
            raise ArgumentValueError(explain("roles", f"{sum_} = {total} warps", f"at most {MOST_WARPS} in a block"))
        self.threads = total * LANES
        self._check_registers()

    def _check_registers(self) -> None:
        budgeted = [role for role in self.roles if role.registers is not None]
        if not budgeted:
            return
        for role in self.roles:
            first = self.first[role.name]
            if role.registers is None or role.warps % WARPGROUP or first % WARPGROUP:
                came = f"role {role.name!r} with warps {first} to {first + role.warps - 1}, registers={role.registers}"
                raise ArgumentValueError(
                    explain(
                        "register budgets",
                        came,
                        f"one for every role, and roles of whole warpgroups ({WARPGROUP} warps, aligned)",
                    )
                )
        terms = " + ".join(f"{role.warps * LANES} * {role.registers}" for role in self.roles)
        used = sum(role.warps * LANES * (role.registers or 0) for role in self.roles)
        if used > REGISTERS:
            raise ArgumentValueError(
                explain("register budgets", f"{terms} = {used}", f"at most {REGISTERS} registers of a multiprocessor")
            )
        self._most = registers_at_launch(self.threads)

    def run(self, **functions) -> None:
        """In a kernel, all threads: each warp calls its role's function. One function a role, by name; it gets the
        number of its warp within the role (Int32)."""
        wanted = [role.name for role in self.roles]
        if sorted(functions) != sorted(wanted):
            raise ArgumentTypeError(
                explain("run()", ", ".join(functions) or "no function", f"one function for each of {', '.join(wanted)}")
            )
        warp = cute.arch.make_warp_uniform(block_thread() // LANES)
        for role in self.roles:
            _run_role(warp, self.first[role.name], role, getattr(self, "_most", 0), functions[role.name])


@cute.jit
def _run_role(
    warp, first: cutlass.Constexpr, role: cutlass.Constexpr, most: cutlass.Constexpr, function: cutlass.Constexpr
):
    if (warp >= first) & (warp < first + role.warps):
        if cutlass.const_expr(role.registers is not None):
            if cutlass.const_expr(role.registers > most):
                cute.arch.setmaxregister_increase(role.registers)
            elif cutlass.const_expr(role.registers < most):
                cute.arch.setmaxregister_decrease(role.registers)
        in_role(role.name, function, warp - first)
