"""Links die under real daemons and real packets: traffic comes back without a human, and later goes home.

How long that takes is measured by tests/benchmarks/reaction.py; here it only has to happen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

import pytest

from collectors.values import LinkCondition, Snapshot
from controller.network.daemon_settings import LinkSettings
from dataplane.fabric.kernel import KernelFabric
from dataplane.topology.values import LinkKey
from tests.integration.kernel_circle import MS, TOPOLOGY, Circle, flow

pytestmark = pytest.mark.root

Act = Callable[[KernelFabric], None]
HOLD_NS = 1_000 * MS
CABLES = ("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Circle]:
    """Return the diamond, a ring of four, with its daemons; every link is known to be alive."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with KernelFabric(TOPOLOGY) as fabric:
        folder = tmp_path_factory.mktemp("dead")
        running = Circle(fabric, folder, flows=(), links=LinkSettings(return_after_ns=HOLD_NS))
        for name in ("collector", "paths", "controller"):
            running.start(name)
        fabric.wait_ready()
        running.until(lambda: running.log_count(": reconciled, ") >= len(TOPOLOGY.switches), "the controller")
        yield running


def are_alive(snapshot: Snapshot) -> bool:
    """Return whether every cable between switches is known to be up."""
    up = {key for key, status in snapshot.statuses.items() if status.condition is LinkCondition.UP}
    return up == {LinkKey(*ends) for a, b in CABLES for ends in ((a, b), (b, a))}


def kill(fabric: KernelFabric) -> None:
    fabric.stop_switch("b", kill=True)


FAULTS = [
    pytest.param(
        lambda fabric: fabric.set_link("a", "b", up=False),
        lambda fabric: fabric.set_link("a", "b", up=True),
        ("a", "b"),
        r"port 3 of a is (down|without carrier)|port \d of b is without carrier",
        id="device down",
    ),
    pytest.param(
        lambda fabric: fabric.lose("b", "d", lost=True),
        lambda fabric: fabric.lose("b", "d", lost=False),
        ("b", "d"),
        r"d no longer hears b|d reports that it does not hear b|b no longer hears d",
        id="lost one way",
    ),
    pytest.param(kill, lambda fabric: fabric.start_switch("b"), ("a", "b"), r"no longer hears b", id="switch killed"),
]


@pytest.mark.parametrize(("breaks", "mends", "ends", "cause"), FAULTS)
def test_traffic_comes_back_and_goes_home(
    circle: Circle, breaks: Act, mends: Act, ends: tuple[str, str], cause: str
) -> None:
    circle.until(lambda: are_alive(circle.snapshot()), "links that are alive")
    circle.until(circle.is_as_wanted, "the base routes")
    with circle.traffic(flow(1, "ha", "hd", 400_000), flow(2, "hw", "ha", 200_000)) as traffic:
        traffic.pass_packets(1, 30)
        breaks(circle.fabric)
        circle.until(lambda: LinkKey(*ends) in dead(circle.snapshot()), "a dead link")
        traffic.pass_packets(1, 30)
        circle.until(lambda: ways_to_hd(circle) == {("a", "c", "d")}, "the way around")
        assert re.search(cause, circle.snapshot().statuses[LinkKey(*ends)].cause)
        mends(circle.fabric)
        circle.until(lambda: are_alive(circle.snapshot()), "links that are alive again")
        circle.until(lambda: ways_to_hd(circle) == {("a", "b", "d")}, "the way home")
        traffic.pass_packets(1, 30)
    traffic.assert_whole(2)


def dead(snapshot: Snapshot) -> set[LinkKey]:
    return {key for key, status in snapshot.statuses.items() if status.condition is LinkCondition.DOWN}


def ways_to_hd(circle: Circle) -> set[tuple[str, ...]]:
    """Return the last seen ways of packets to hd."""
    host = TOPOLOGY.host["hd"].ipv4
    return {path.switches for key, path in circle.snapshot().paths.items() if key.dst == host}
