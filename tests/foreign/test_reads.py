"""P4Runtime reads as the specification has clarified them."""

from __future__ import annotations

import pytest
from finsy.proto import p4r

from dataplane.switch.p4runtime import P4RuntimeCore
from tests.dataplane.switch.interpreter.harness import own_program
from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell, read_config


@pytest.mark.parametrize("name", ["counter_entry", "meter_entry", "register_entry"])
@pytest.mark.parametrize("index", [0, 3, 1 << 40])
def test_id_0_selects_every_cell_whatever_the_index(name: str, index: int) -> None:
    switch = FakeSwitch()
    switch.commit(own_program("p4rt_entities"))
    shell = Shell(P4RuntimeCore(switch), read_config().p4info)
    everything, indexed = p4r.Entity(), p4r.Entity()
    getattr(everything, name).SetInParent()
    getattr(indexed, name).index.index = index
    assert shell.read(indexed) == shell.read(everything) != []
