"""Producers over network devices: packets taken by the kernel are reported sent, in order; lost ones are counted."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dataplane.nic import PortKind
from dataplane.nic.manager.packet_manager import PacketManager
from tests.dataplane.nic.bursts import Driver
from tests.dataplane.nic.conftest import Cable, receive
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
KINDS = [PortKind.PACKET_V2, PortKind.PACKET_V3, PortKind.XDP]
FRAMES = 600


@pytest.fixture
def manager() -> Iterator[PacketManager]:
    made = PacketManager(1, name="here", longest_frame=2018)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
def test_packets_leave_in_order_and_are_reported_sent(cable: Cable, manager: PacketManager, kind: PortKind) -> None:
    with cable.open("here", kind) as here, cable.open("there") as there:
        driver, producer = Driver(manager), manager.add_producer("p", queue_packets=64)
        frames = [number.to_bytes(2, "big") * (7 + number) for number in range(FRAMES)]
        arrived: list[bytes] = []
        for frame in frames:
            while (position := producer.send(frame)) is None:
                driver.transmit(here.queues[0])
                arrived += there.receive(100)

        def is_sent() -> bool:
            driver.transmit(here.queues[0])
            return position is not None and producer.sent(position)

        wait_until(is_sent)
        arrived += receive(there, FRAMES - len(arrived))
        assert arrived == frames
        reading = producer.read()
        assert (reading.sent, reading.waiting, reading.on_device) == (FRAMES, 0, 0)
        assert not any(reading.drops[reason] for reason in ("too_long", "refused", "down"))
        assert here.read_counters().drops == {}


@pytest.mark.parametrize("kind", [PortKind.PACKET_V2, PortKind.XDP])
def test_a_device_that_goes_down_loses_packets_by_name(cable: Cable, manager: PacketManager, kind: PortKind) -> None:
    with cable.open("here", kind) as here:
        driver, producer = Driver(manager), manager.add_producer("p")
        producer.send(bytes(60))
        driver.transmit(here.queues[0])
        cable.change("here", state="down")
        for _ in range(5):
            producer.send(bytes(60))

        def is_over() -> bool:
            driver.transmit(here.queues[0])
            return producer.sent(5)

        wait_until(is_over)
        reading = producer.read()
        assert (reading.sent, reading.drops["down"], reading.on_device) == (1, 5, 0)


def test_frames_beyond_the_mtu_are_counted_and_others_sent(cable: Cable, manager: PacketManager) -> None:
    with cable.open("here") as here, cable.open("there") as there:
        driver, producer = Driver(manager), manager.add_producer("p")
        for length in (2014, 2015, 9000, 13, 60):
            producer.send(bytes(length))
        driver.transmit(here.queues[0])
        assert [len(frame) for frame in receive(there, 2)] == [2014, 60]
        assert (producer.read().drops["too_long"], producer.read().drops["refused"]) == (2, 1)
