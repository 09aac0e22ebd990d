"""sFlow over a real UDP socket, beside a collector's other work."""

from __future__ import annotations

import asyncio
import socket

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.exporters.service import SflowReceiver
from collectors.exporters.settings import DeviceSettings, SflowSettings
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey
from tests.collectors.reports import build_topology
from tests.dataplane.wire.golden_sflow import COUNTERS, COUNTERS_OF_3
from tests.waiting import HANG_S, until

OVS = DeviceSettings("s1", "127.0.0.1", interfaces={3: 1, 5: 2})


def receiver_of(**settings: object) -> tuple[Collector, SflowReceiver, VirtualClock]:
    topology, clock = build_topology(), VirtualClock()
    collector = Collector(topology, clock)
    stated = SflowSettings((OVS,), udp_port=0, **settings)  # type: ignore[arg-type]
    return collector, SflowReceiver(collector, topology, stated, clock), clock


async def _counted(collector: Collector, datagrams: int) -> None:
    await until(lambda: collector.counters[Count.SFLOW_DATAGRAMS] >= datagrams, "no datagram came")


@pytest.mark.parametrize("address", ["127.0.0.1", "::"])
def test_datagrams_complete_the_state(address: str) -> None:
    async def scenario() -> None:
        collector, receiver, clock = receiver_of(address=address)
        running = asyncio.create_task(receiver.run())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for datagrams, payload in enumerate((COUNTERS_OF_3, COUNTERS), 1):
                sender.sendto(payload, ("127.0.0.1", receiver.udp_port))
                await _counted(collector, datagrams)
                clock.advance_to(10**9)
        assert collector.snapshot().links[LinkKey("s1", "h1")].utilisation == pytest.approx(8 * 3126 / 1e9)
        running.cancel()
        await asyncio.wait([running], timeout=HANG_S)

    asyncio.run(scenario())


def test_an_address_in_use_is_named() -> None:
    _, receiver, _ = receiver_of()
    with pytest.raises(CollectorError, match=f"cannot receive sFlow on UDP 127.0.0.1 port {receiver.udp_port}"):
        SflowReceiver(
            Collector(build_topology(), VirtualClock()),
            build_topology(),
            SflowSettings((OVS,), udp_port=receiver.udp_port),
            VirtualClock(),
        )
    receiver.close()
