"""A controller that dies silently with open connections: its successor is primary at once."""

from __future__ import annotations

import asyncio

from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.process import connector
from dataplane.clock import VirtualClock
from dataplane.switch.p4runtime import P4RuntimeCore, P4RuntimeServer
from dataplane.switch.p4runtime.server import Keepalive
from dataplane.switch.switch import PortSettings, Switch
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import Topology
from tests.black_hole import BlackHole
from tests.waiting import finish_within

BOUND_S = 60.0
FOR_EVER = Keepalive(interval_s=3600, timeout_s=3600)
RETRY = RetrySettings(first_wait_ns=10_000_000, longest_wait_ns=100_000_000)


def rack() -> Topology:
    return leaf_spine(1, 1, 1)


def test_new_controller_takes_over_from_a_dead_one_at_once() -> None:
    topology = rack()
    (name, *_) = (node.name for node in topology.switches)
    device = topology.switch[name].node_id

    def settings(address: str) -> DaemonSettings:
        return DaemonSettings(
            topology="unused", switches={node.name: address for node in topology.switches}, retry=RETRY
        )

    async def run(way: BlackHole, address: str) -> None:
        # The switch does not notice the death: only the election id counts.
        async with connector(settings(way.address), topology)(name) as dying:
            assert await dying.install_pipeline()
            way.swallow()
            async with connector(settings(address), topology)(name) as living:
                assert not await living.install_pipeline()
                assert await living.read() == {}

    core = P4RuntimeCore(Switch(device, [PortSettings(number) for number in range(1, 5)], VirtualClock()))
    with (
        P4RuntimeServer(core, ["127.0.0.1:0"], keepalive=FOR_EVER) as server,
        BlackHole(server.ports[0]) as way,
    ):
        asyncio.run(finish_within(run(way, f"127.0.0.1:{server.ports[0]}"), BOUND_S))
