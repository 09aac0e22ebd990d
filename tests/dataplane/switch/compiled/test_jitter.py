"""A cable's jitter in machine code: as its Python twin draws it; frames stay in order."""

from __future__ import annotations

import pytest

from dataplane.native.library import kernel_library
from dataplane.switch.compiled.memory.port_table import PortTable
from dataplane.switch.compiled.memory.traffic import crossing_ns
from dataplane.switch.forwarding import PortCable
from dataplane.switch.traffic import PortSettings


@pytest.mark.parametrize(("delay_ns", "jitter_ns"), [(0, 0), (5_000, 0), (5_000, 1), (5_000, 5_000), (10**9, 10**8)])
def test_both_twins_draw_the_same(delay_ns: int, jitter_ns: int) -> None:
    settings = PortSettings(3, delay_ns=delay_ns, jitter_ns=jitter_ns)
    port = PortTable([settings], seed=11)[3]
    crossing = kernel_library(crossing_ns).bind(crossing_ns)
    cable = PortCable(settings, 11)
    departs = [index * 10 * 10**9 for index in range(500)]
    assert [crossing(port) for _ in departs] == [cable.arrival_ns(at_ns) - at_ns for at_ns in departs]
