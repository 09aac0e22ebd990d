"""A cable between two switch processes: after any fault of it or of one of them both ends notice, and meet again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.dataplane.switch.hellos.linked import Linked
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.root

DRIVERS = {"native": (), "python": ("--pipeline", "interpreter")}


@pytest.mark.parametrize("driver", DRIVERS)
def test_both_ends_know_what_befalls_the_cable_and_each_other(driver: str, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with Linked(tmp_path, DRIVERS[driver]) as linked:
        a, b = linked.a, linked.b
        linked.say_hello(20_000, 5)
        wait_until(lambda: (a.stats()["1"]["hello"] or {}).get("state") == "UP", "the statistics do not say so")
        assert a.stats()["1"]["hello"]["received"] > 0
        with linked.dropping("b1"):  # one way only: a hears b, and learns from it that b does not hear a
            b.wait_for_line("neighbour lost: no hello for")
            a.wait_for_line("neighbour lost: it does not receive our hellos")
        linked.met()
        linked.set_up("a1", is_up=False)
        a.wait_for_line("port 1 (a1) is down; other ports continue")
        b.wait_for_line("port 1 (b1) is down (no carrier); other ports continue")
        for end in (a, b):
            end.wait_for_line("neighbour lost")
        linked.set_up("a1", is_up=True)
        for end in (a, b):
            end.wait_for_line("is up again")
        linked.met()
        b.signal(signal.SIGSTOP)
        a.wait_for_line("neighbour lost: no hello for")
        b.signal(signal.SIGCONT)
        linked.met()
        assert b.count("no hello for") <= 2  # of the drop and of the device, not of its own sleep
        b.signal(signal.SIGKILL)
        a.wait_for_line("neighbour lost: no hello for")


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_switch_that_is_stopped_tells_its_neighbour(driver: str, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with Linked(tmp_path, DRIVERS[driver]) as linked:
        linked.say_hello(100_000, 250)  # by silence it would take 25 s
        linked.b.signal(signal.SIGTERM)
        linked.a.wait_for_line("neighbour lost: its port is disabled")
        assert linked.b.process.wait(HANG_S) == 0
        assert linked.b.count("neighbour") == 1  # that they met
