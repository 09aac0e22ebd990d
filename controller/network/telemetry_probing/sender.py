"""A host's probes, sent by UDP sockets: small packets at an interval to each of the hosts that its plan names."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from ipaddress import IPv4Address
from typing import Annotated

import msgspec

from collectors.settings import Port, Positive
from controller.common.errors import ControllerError
from controller.network.intents import PROBE_UDP_PORT
from dataplane.clock import NS_PER_S
from dataplane.config import Strict


class ProbeSettings(Strict, frozen=True):
    """Settings of a probe sender."""

    udp_port: Port = PROBE_UDP_PORT
    """The destination port; the same as the collector's `probe_udp_port` and the watch rule's `dst_port`."""

    interval_ns: Positive = 10_000_000
    """Time between two probes to the same host."""

    source_ports: Annotated[int, msgspec.Meta(ge=1, le=256)] = 4
    """Number of source ports that probes use in turn: equally good paths are chosen by a hash over the ports."""

    payload_bytes: Annotated[int, msgspec.Meta(ge=8, le=1400)] = 16
    """A sequence number, and zeros: small packets wait least and take least."""


class ProbeSender:
    """Sends from one host; `run` until cancelled. Packets that the kernel does not accept are counted in `refused`."""

    def __init__(
        self,
        source: IPv4Address,
        targets: Sequence[IPv4Address],
        settings: ProbeSettings | None = None,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._source, self._targets = source, targets
        self._settings = settings or ProbeSettings()
        self._sleep = sleep
        self.sent = self.refused = 0

    async def run(self) -> None:
        """Send until cancelled; raise ControllerError when the source address is not this machine's."""
        with ExitStack() as stack:
            sockets = [stack.enter_context(self._open()) for _ in range(self._settings.source_ports)]
            turn = 0
            while True:
                self._send(sockets[turn % len(sockets)], turn)
                turn += 1
                await self._sleep(self._settings.interval_ns / NS_PER_S)

    def _open(self) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.bind((str(self._source), 0))
        except OSError as error:
            opened.close()
            raise ControllerError(f"cannot send probes from {self._source}: {error.strerror}") from error
        # A full queue is counted as a refusal and must not stop the other probes.
        opened.setblocking(False)
        return opened

    def _send(self, by: socket.socket, turn: int) -> None:
        payload = turn.to_bytes(8, "big").ljust(self._settings.payload_bytes, b"\0")
        for target in self._targets:
            try:
                by.sendto(payload, (str(target), self._settings.udp_port))
            except OSError:
                # A full queue, or the target's refusal of an earlier probe.
                self.refused += 1
            else:
                self.sent += 1
