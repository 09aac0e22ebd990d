"""Relay of reports from the collector's host of a fabric to a collector's socket."""

from __future__ import annotations

import socket
from contextlib import closing
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from dataplane.errors import FabricError
from dataplane.fabric.live.values import ReportCounters
from dataplane.topology.addressing import report_source
from dataplane.topology.values import Topology

_NODE_ID: Final = slice(4, 8)
"""Position of the reporter's node ID in a report packet (`dataplane.wire.report_group`)."""
_SEND_BUFFER_BYTES: Final = 4 << 20


class ReportRelay:
    """Sends payloads to a collector without blocking; close it at the end.

    The collector no longer sees where reports came from, so the relay checks: a report that did not come from the
    report source of the switch that it names is counted as forged and dropped.
    """

    def __init__(self, topology: Topology, address: str | None, counters: ReportCounters) -> None:
        """Send to HOST:PORT, or nowhere for None; raise FabricError for an invalid address."""
        self._sources = {node.node_id: report_source(node) for node in topology.switches}
        self._counters = counters
        self._socket = None if address is None else _connected(address)

    def forward(self, payload: bytes, source: IPv4Address | IPv6Address) -> None:
        """Relay a report received from an address; one that cannot be sent is counted."""
        if self._sources.get(int.from_bytes(payload[_NODE_ID], "big")) != source:
            self._counters.forged += 1
            return
        if self._socket is None:
            self._counters.ignored += 1
            return
        try:
            self._socket.send(payload)
        except OSError:
            # Nothing listens at the moment (an earlier report's ICMP answer says so), or the buffer is full.
            self._counters.refused += 1
        else:
            self._counters.forwarded += 1

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        family, kind, protocol, _, target = addresses[0]
        opened = socket.socket(family, kind, protocol)
    except (OSError, ValueError) as error:
        raise FabricError(
            f"reports to {address!r}: {getattr(error, 'strerror', None) or 'is not HOST:PORT'}"
        ) from error
    opened.setblocking(False)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    try:
        opened.connect(target)
    except OSError as error:
        with closing(opened):
            raise FabricError(f"reports to {address}: {error.strerror}") from error
    return opened
