"""Two native switches with blocked Python: they keep exchanging hellos."""

from __future__ import annotations

import ctypes

from dataplane.nic import memory_pair
from dataplane.switch.compiled.switch import NativeSwitch
from dataplane.switch.ports.states import HelloSession, HelloSettings, HelloState, PortState
from dataplane.switch.traffic import PortSettings
from tests.waiting import wait_until

SAID = HelloSettings(interval_ns=50_000_000, multiplier=6)
HELD_US = 900_000
"""Three times the detection time."""


def hello_of(switch: NativeSwitch) -> HelloSession:
    session = switch.port_states()[1].hello
    assert session is not None
    return session


def test_python_that_stands_still_is_no_dead_neighbour() -> None:
    near, far = memory_pair()
    lost: list[PortState] = []
    with NativeSwitch(1, [PortSettings(1)], {1: near}) as first, NativeSwitch(2, [PortSettings(1)], {1: far}) as other:
        for switch in (first, other):
            switch.add_port_listener(lambda state: lost.append(state) if not state.is_usable else None)
            switch.set_hello(1, SAID)
        wait_until(
            lambda: hello_of(first).remote_state is hello_of(other).remote_state is HelloState.UP, "they did not meet"
        )
        before = hello_of(first).received
        ctypes.PyDLL(None).usleep(HELD_US)  # while holding the interpreter's lock
        assert hello_of(first).received >= before + SAID.multiplier
        assert hello_of(first).state is hello_of(other).state is HelloState.UP
    assert not lost
    near.close()
    far.close()
