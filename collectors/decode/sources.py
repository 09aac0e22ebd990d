"""Check of report sources: only reports of switches that the topology knows, from their declared addresses, count.

A node id in a report is trusted only if the datagram came from that switch's report source, or from a relay that has
checked it. Callers that pass payloads without a source answer for them: the node id then only has to be known.
`collectors.native.kernels.sources` is the same in native memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from typing import Final

from collectors.counters import Count
from dataplane.topology.addressing import report_source
from dataplane.topology.values import Topology

VERSION: Final = 2
GROUP_BYTES: Final = 8
ELSEWHERE: Final = 0
"""Stands for an address that is not IPv4, or from which no report can come."""


class ReportSources:
    """The report sources of a topology's switches, plus the relays; addresses are 32-bit numbers."""

    def __init__(self, topology: Topology, relays: Iterable[str] | None) -> None:
        """Check the addresses of no report where `relays` is None."""
        self._names = {node.node_id: node.name for node in topology.switches}
        self._sources = {node.node_id: int(report_source(node)) for node in topology.switches}
        self._relays = None if relays is None else {int(IPv4Address(relay)) for relay in relays}

    @property
    def are_checked(self) -> bool:
        """Return whether the source of reports is checked."""
        return self._relays is not None

    @property
    def relays(self) -> Iterator[int]:
        """The addresses from which reports of any switch may come."""
        return iter(sorted(self._relays or ()))

    def refusal(self, payload: bytes, address: int | None) -> Count | None:
        """Return why a payload does not count, None if it does; `address` is None if the caller answers for it."""
        node_id = node_id_of(payload)
        if node_id not in self._sources and is_group(payload):
            return Count.UNKNOWN_REPORTER
        if address is None or self._relays is None or address in self._relays:
            return None
        return None if self._sources.get(node_id) == address else Count.WRONG_SOURCE

    def explain(self, payload: bytes, address: int, source: object = None) -> str:
        """Return in a line why a payload from an address does not count; `source` is a better name of the sender."""
        node_id = node_id_of(payload)
        came = source or ("no IPv4 address" if address == ELSEWHERE else IPv4Address(address))
        if node_id not in self._names:
            return f"report from {came} names a node that is not in the topology"
        right = IPv4Address(self._sources[node_id])
        return f"report from {came} claims to be from {self._names[node_id]}, whose reports come from {right}"


def node_id_of(payload: bytes) -> int:
    """Return the node id in a report packet; for a payload too short for one, a number that no switch has."""
    return int.from_bytes(payload[4:GROUP_BYTES], "big") if len(payload) >= GROUP_BYTES else -1


def is_group(payload: bytes) -> bool:
    """Return whether a payload begins with a report group header of the version that is understood."""
    return len(payload) >= GROUP_BYTES and payload[0] >> 4 == VERSION
