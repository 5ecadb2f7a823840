"""Bulk copies between shared memories: a launch that names no cluster may not have them, though its block is one."""

from collections.abc import Iterator

import numpy as np

from .case import HEADER, Case, integers

MAPPED = """
mapa.shared::cluster.u32 v, v, n;
mapa.shared::cluster.u32 k, m, n;"""


def add_case(name: str, mapped: bool) -> Case:
    """One block adds 32 words of its shared memory to 32 others."""
    a = integers("bulk/add.u32", 0, 40, (32,)).astype(np.uint32)
    text = (
        HEADER
        + f""".visible .entry litmus(.param .u64 a, .param .u64 b)
{{
.shared .align 128 .b8 s[384];\n.reg .b64 x, y;\n.reg .b32 i, m, t, u, v, n, k;\n.reg .pred p, q;
mov.u32 i, %tid.x;\nmul.wide.u32 y, i, 4;\nld.param.u64 x, [a];\nadd.u64 x, x, y;\nld.global.b32 v, [x];
mov.u32 m, s;\nshl.b32 t, i, 2;\nadd.u32 t, t, m;\nst.shared.b32 [t+128], v;\nmov.u32 n, 7;\nst.shared.b32 [t+256], n;
setp.eq.u32 p, i, 0;\n@p mbarrier.init.shared.b64 [m], 1;\n@p fence.mbarrier_init.release.cluster;\n\
fence.proxy.async;\nbar.sync 0;
@p mbarrier.arrive.expect_tx.shared.b64 _, [m], 128;\nadd.u32 u, m, 128;\nadd.u32 v, m, 256;\n\
mov.u32 n, 0;\nmov.u32 k, m;{MAPPED if mapped else ""}
@p cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [v], [u], 128, [k];
WAIT:\nmbarrier.try_wait.parity.shared.b64 q, [m], 0;\n@!q bra WAIT;
ld.shared.b32 v, [t+256];\nld.param.u64 x, [b];\nadd.u64 x, x, y;\nst.global.b32 [x], v;\nret;\n}}\n"""
    )
    return Case(name, text, (a, np.zeros(32, np.uint32)), 1, faults=True)


def cases() -> Iterator[Case]:
    yield add_case("bulk.no_cluster", False)
    yield add_case("bulk.no_cluster.mapa", True)
