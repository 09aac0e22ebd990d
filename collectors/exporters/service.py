"""Reception of sFlow datagrams from a UDP socket, in the event loop and in turns of bounded length."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from collectors.collector import Collector
from collectors.counters import Count
from collectors.exporters.settings import SflowSettings
from collectors.exporters.sflow import SflowState
from collectors.ingest.report_sources import WrappingCount, bound_socket
from dataplane.clock import Clock
from dataplane.event_loop.readable import whenever_readable
from dataplane.linux import read_backlog
from dataplane.topology.values import Topology

_LONGEST: Final = 65_535
_TURN: Final = 64
"""Datagrams taken before other work has its turn."""


class SflowReceiver:
    """Receives until cancelled; raises CollectorError for an address at which nothing can listen."""

    def __init__(self, collector: Collector, topology: Topology, settings: SflowSettings, clock: Clock) -> None:
        self._state = SflowState(topology, settings, clock, collector.counters, collector.take_exported_drops)
        self._socket = bound_socket(settings.address, settings.udp_port, settings.socket_buffer_bytes, "sFlow")
        self._lost = WrappingCount()
        self._counters = collector.counters
        collector.complete_by(self._state.links, self._state.paths)

    def __str__(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"sFlow on UDP port {port}" if host in {"0.0.0.0", "::"} else f"sFlow at {host} port {port}"  # noqa: S104

    @property
    def udp_port(self) -> int:
        """The port that receives datagrams."""
        port: int = self._socket.getsockname()[1]
        return port

    async def run(self) -> None:
        """Receive until cancelled, then close the socket."""
        try:
            await whenever_readable(self._socket, self.drain)
        finally:
            self.close()

    def drain(self) -> None:
        """Take what has arrived, for at most one turn."""
        backlog, lost = read_backlog(self._socket), self._lost.total
        if backlog is not None:
            self._lost.note(backlog.dropped)
            self._counters[Count.SFLOW_QUEUE_FULL] += self._lost.total - lost
        for _ in range(_TURN):
            try:
                payload, address = self._socket.recvfrom(_LONGEST)
            except BlockingIOError:
                return
            self._state.receive(payload, _plain(address[0]))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _plain(host: str) -> IPv4Address | IPv6Address:
    """Return a sender's address, of IPv4 where it came in over IPv6."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
