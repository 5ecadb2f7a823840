"""mbarrier corner cases: one lane runs a script on one barrier and records what it sees."""

from collections.abc import Iterator

import numpy as np

from .case import HEADER, Case

SCRIPTS = {
    "count1": ["init 1", "wait 0", "wait 1", "arrive", "wait 0", "wait 1", "arrive", "wait 0", "wait 1"],
    "count3": ["init 3", "arrive", "arrive", "wait 0", "arrive", "wait 0", "wait 1"],
    "arrive.count": ["init 5", "arrive 2", "wait 0", "arrive 3", "wait 0", "arrive 5", "wait 1"],
    "pending": ["init 7", "arrive", "pending", "arrive 3", "pending", "arrive 3", "pending", "arrive", "pending"],
    "no.complete": ["init 4", "arrive.noComplete 2", "pending", "wait 0", "arrive", "arrive", "wait 0"],
    "drop": ["init 3", "drop", "pending", "arrive", "arrive", "wait 0", "arrive", "wait 1", "arrive", "wait 1"],
    "drop.all": ["init 2", "arrive", "drop", "wait 0", "arrive", "wait 1", "wait 0"],
    "tx.holds.phase": ["init 1", "expect 16", "arrive", "wait 0", "complete 8", "wait 0", "complete 8", "wait 0"],
    "tx.first": ["init 1", "complete 32", "expect 32", "wait 0", "arrive", "wait 0"],
    "tx.negative": ["init 2", "arrive", "complete 16", "wait 0", "arrive.expect 16", "wait 0"],
    "tx.negative.holds": ["init 1", "complete 16", "arrive", "wait 0", "expect 16", "wait 0"],
    "arrive.expect": ["init 1", "arrive.expect 64", "wait 0", "complete 64", "wait 0", "arrive.expect 0", "wait 1"],
    "tx.then.arrivals": ["init 2", "arrive.expect 8", "complete 8", "wait 0", "arrive", "wait 0"],
    "drop.expect": ["init 2", "drop.expect 8", "complete 8", "wait 0", "arrive", "wait 0", "arrive", "wait 1"],
    "reinit": [
        "init 1",
        "arrive",
        "wait 0",
        "inval",
        "init 2",
        "wait 1",
        "wait 0",
        "arrive",
        "wait 0",
        "arrive",
        "wait 0",
    ],
    "token": ["init 1", "arrive", "token", "token", "arrive", "token"],
    "token.old": ["init 2", "arrive", "token", "keep", "arrive", "token", "arrive", "token"],
    "try": ["init 1", "try 0", "try 1", "arrive", "try 0"],
    "big.count": ["init 1048575", "arrive 1048574", "pending", "wait 0", "arrive", "wait 0"],
    "big.tx": ["init 1", "expect 1048575", "arrive", "wait 0", "complete 1048575", "wait 0"],
}
BAR = ".shared::cta.b64"


def translate(script: list[str]) -> tuple[str, int]:
    """PTX for a script, and how many words it records. ``token`` tests the phase of the last arrival; ``keep`` freezes
    that token.
    """
    lines, records, kept = [], 0, False
    for step in script:
        verb, _, value = step.partition(" ")
        state = "spare" if kept else "state"
        plain = {
            "init": f"mbarrier.init{BAR} [bar], {value};",
            "inval": f"mbarrier.inval{BAR} [bar];",
            "expect": f"mbarrier.expect_tx.relaxed.cta{BAR} [bar], {value};",
            "complete": f"mbarrier.complete_tx.relaxed.cta{BAR} [bar], {value};",
            "arrive": f"mbarrier.arrive{BAR} {state}, [bar]{', ' + value if value else ''};",
            "arrive.noComplete": f"mbarrier.arrive.noComplete{BAR} {state}, [bar], {value};",
            "arrive.expect": f"mbarrier.arrive.expect_tx{BAR} {state}, [bar], {value};",
            "drop": f"mbarrier.arrive_drop{BAR} {state}, [bar];",
            "drop.expect": f"mbarrier.arrive_drop.expect_tx{BAR} {state}, [bar], {value};",
        }
        if verb == "keep":
            kept = True
        elif verb in plain:
            lines.append(plain[verb])
        else:
            lines += {
                "wait": [f"mbarrier.test_wait.parity{BAR} p, [bar], {value};", "selp.b32 t0, 1, 0, p;"],
                "try": [f"mbarrier.try_wait.parity{BAR} p, [bar], {value};", "selp.b32 t0, 1, 0, p;"],
                "token": [f"mbarrier.test_wait{BAR} p, [bar], state;", "selp.b32 t0, 1, 0, p;"],
                "pending": ["mbarrier.pending_count.b64 t0, state;"],
            }[verb] + [f"st.global.b32 [p0+{4 * records}], t0;"]
            records += 1
    return "\n".join(lines), records


def cases() -> Iterator[Case]:
    for name, script in SCRIPTS.items():
        body, records = translate(script)
        text = "\n".join(
            [
                HEADER,
                ".visible .entry litmus(.param .u64 out)\n{",
                ".reg .b64 p0, state, spare;",
                ".reg .b32 bar, t0;",
                ".reg .pred p;",
                ".shared .align 8 .b8 barrier[8];",
                "mov.u32 bar, barrier;",
                "ld.param.u64 p0, [out];",
                "mov.u32 t0, %tid.x;",
                "setp.ne.u32 p, t0, 0;",
                "@p ret;",
                body,
                "ret;\n}\n",
            ]
        )
        agree = (
            np.less_equal if name == "try" else np.equal
        )  # try_wait may be false in spite of all, and the emulator makes use of that
        yield Case(f"mbarrier.{name}", text, (np.zeros(records, np.uint32),), 0, None, agree)
