"""Launches of several devices at the same time: peer memory, scopes, the order of launches."""

import numpy as np
import pytest

from cutesync import emulator
from cutesync.emulator import POLICIES

from .support import kernel_text, reported

# p0: data, p1: flag, p2: result. Two devices run one kernel each, in one block of 32 threads.
SEND = "st.global.u32 [%a0], 7; {fence} {signal} [%a1], 1;"
RECEIVE = """
AGAIN:
\t{look} %r0, [%a1];
\tsetp.eq.u32 %p0, %r0, 0;
\t@%p0 bra AGAIN;
\t{fence}
\tld.global.u32 %r1, [%a0];
\tst.global.u32 [%a2], %r1;"""
FIRST_LANE = "\tmov.u32 %r9, %tid.x;\n\tsetp.ne.u32 %p9, %r9, 0;\n\t@%p9 ret;\n\t"


def kernel(body: str) -> str:
    return kernel_text(FIRST_LANE + body.replace("; ", ";\n\t"), 3)


def send(signal: str = "st.release.sys.global.u32", fence: str = "") -> str:
    return kernel(SEND.format(signal=signal, fence=fence))


def receive(look: str = "ld.acquire.sys.global.u32", fence: str = "") -> str:
    return kernel(RECEIVE.format(look=look, fence=fence))


class Memory:
    """Data, flag and result, registered as memory of the emulator."""

    def __init__(self) -> None:
        self.words = np.zeros(128, np.uint32)  # each word on its own 128 bytes

    def run(self, *launches: tuple[int, str, str], **options) -> int:
        """Launch the kernels (device, text, names of the parameters' words); return the result."""
        at = dict(zip("abcd", (self.words.ctypes.data + 128 * i for i in range(4))))
        with emulator.DEVICE.arrays(self.words), emulator.emulate(**options), emulator.at_once():
            for device, text, names in launches:
                emulator.launch(text, (1, 1, 1), (32, 1, 1), [at[name] for name in names], device=device)
        return int(self.words[64])


def passes(sender: str, receiver: str, **options) -> int:
    return Memory().run((1, receiver, "abc"), (0, sender, "abc"), **options)


FENCED = ("st.relaxed.sys.global.u32", "fence.acq_rel.sys;"), ("ld.relaxed.sys.global.u32", "fence.acq_rel.sys;")


@pytest.mark.parametrize(
    "sent, received",
    [((), ()), FENCED, (("red.release.sys.global.add.u32",), ()), (FENCED[0], ()), ((), FENCED[1])],
)
def test_a_message_between_devices_needs_scope_sys(sent, received):
    assert passes(send(*sent), receive(*received), schedules=2 * len(POLICIES)) == 7


WRONG = {
    "release at gpu scope": (("st.release.gpu.global.u32",), ()),
    "acquire at gpu scope": ((), ("ld.acquire.gpu.global.u32",)),
    "no release": (("st.relaxed.sys.global.u32",), ()),
    "no acquire": ((), ("ld.relaxed.sys.global.u32",)),
    "fence of the sender at gpu scope": ((FENCED[0][0], "fence.acq_rel.gpu;"), ()),
    "fence of the receiver at gpu scope": ((), (FENCED[1][0], "fence.acq_rel.gpu;")),
    "update at gpu scope": (("red.release.gpu.global.add.u32",), ()),
}


@pytest.mark.parametrize("case", WRONG)
def test_less_is_a_race(case):
    sent, received = WRONG[case]
    report = reported("race", "", passes, send(*sent), receive(*received), schedules=len(POLICIES))
    assert "device 0" in report and "device 1" in report, report


def test_the_same_message_on_one_device_needs_scope_gpu_only():
    sender, receiver = send("st.release.gpu.global.u32"), receive("ld.acquire.gpu.global.u32")
    memory = Memory()
    assert memory.run((1, sender, "abc"), (1, receiver, "abc"), schedules=len(POLICIES)) == 7


def test_a_device_runs_its_launches_in_order_and_others_do_not_wait_for_it():
    writer, reader = kernel("st.global.u32 [%a0], 5;"), kernel("ld.global.u32 %r0, [%a0]; st.global.u32 [%a2], %r0;")
    assert Memory().run((2, writer, "abc"), (2, reader, "abc"), schedules=4) == 5
    reported("race", "device 2", Memory().run, (2, writer, "abc"), (1, reader, "abc"), schedules=4)


def test_a_wait_for_a_launch_behind_another_that_waits_is_a_deadlock():
    memory = Memory()
    first = (0, receive(), "abc"), (0, send(), "acb")  # waits for b, then signals c
    second = (1, receive(), "acb"), (1, send(), "abc")  # waits for c, then signals b
    report = reported("deadlock", "", memory.run, *first, *second, schedules=2)
    assert "device 0" in report and "device 1" in report


def test_knowledge_passes_through_a_third_device():
    relay = receive().replace("st.global.u32", "st.release.sys.global.u32")
    launches = (0, send(), "abc"), (1, relay, "abd"), (2, receive(), "adc")
    assert Memory().run(*launches, schedules=len(POLICIES)) == 7
    weak = relay.replace("release.sys", "release.gpu")
    reported("race", "device 2", Memory().run, launches[0], (1, weak, "abd"), launches[2], schedules=len(POLICIES))
