"""Probes over real sockets: to every target, by several source ports in turn."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address

import pytest

from controller.common.errors import ControllerError
from controller.network.telemetry_probing.sender import ProbeSender, ProbeSettings

HOME = IPv4Address("127.0.0.1")


def test_probes_come_by_every_source_port_in_turn_and_count_on() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as target:
        target.bind((str(HOME), 0))
        target.settimeout(5)
        settings = ProbeSettings(udp_port=target.getsockname()[1], source_ports=3, payload_bytes=20)
        sender = ProbeSender(HOME, [HOME], settings, sleep=lambda _: asyncio.sleep(0))

        async def scenario() -> None:
            task = asyncio.create_task(sender.run())
            while sender.sent < 6:
                await asyncio.sleep(0)
            task.cancel()

        asyncio.run(scenario())
        heard = [target.recvfrom(100) for _ in range(6)]
    assert [int.from_bytes(payload[:8], "big") for payload, _ in heard] == list(range(6))
    assert {len(payload) for payload, _ in heard} == {20}
    ports = [source[1] for _, source in heard]
    assert len(set(ports)) == 3
    assert ports[:3] == ports[3:]


def test_an_address_that_is_not_ours_is_a_clear_error() -> None:
    sender = ProbeSender(IPv4Address("192.0.2.1"), [HOME])
    with pytest.raises(ControllerError, match=r"cannot send probes from 192\.0\.2\.1: "):
        asyncio.run(sender.run())
