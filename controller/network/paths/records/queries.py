"""From a query to the recorder's answer."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

from collectors.values import FlowKey, HopRecord
from controller.common.errors import PathError
from controller.network.intents import FlowSpec
from controller.network.paths.records.recorder import Recorder
from controller.network.paths.records.values import RecordQuery, RecordRow
from dataplane.topology.values import Topology

EXPLAINED_ROWS = 24
"""Rows of the record table that an explanation shows."""


def rows_between(recorder: Recorder, topology: Topology, flow: FlowSpec) -> tuple[RecordRow, ...]:
    """Return the newest records of a flow's hosts as rows with names, newest packet first, its hops in order."""
    src, dst = topology.host[flow.src_host], topology.host[flow.dst_host]
    records = recorder.between(src.ipv4, dst.ipv4, EXPLAINED_ROWS)
    if src.ipv6 is not None and dst.ipv6 is not None:
        records += recorder.between(src.ipv6, dst.ipv6, EXPLAINED_ROWS)
    newest: dict[int, int] = {}
    for record in records:
        newest[record.packet_id] = max(newest.get(record.packet_id, 0), record.received_ns)
    records.sort(key=lambda record: (-newest[record.packet_id], record.packet_id, record.hop_index))
    return tuple(_row(topology, record) for record in records[:EXPLAINED_ROWS])


def _row(topology: Topology, record: HopRecord) -> RecordRow:
    node = topology.switch_by_id.get(record.node_id)
    name = f"node {record.node_id}" if node is None else node.name
    ports = {} if node is None else topology.neighbours[node.name]
    peer = None if record.egress_port is None else ports.get(record.egress_port)
    return RecordRow(
        record.received_ns,
        record.packet_id,
        record.hop_index,
        name,
        "" if peer is None else peer.node,
        record.hop_latency_ns,
        record.queue_occupancy_frames,
    )


def answer(recorder: Recorder, topology: Topology, query: RecordQuery) -> list[HopRecord]:
    """Return the records that a query selects, newest first, all if it names nothing; PathError if it names two."""
    chosen = [part for part in (query.src or query.dst, query.link, query.start_ns) if part is not None]
    if len(chosen) > 1:
        raise PathError("a query takes exactly one of two addresses, a link or a time span")
    if not chosen:
        return recorder.newest(query.limit)
    if query.link is not None:
        return recorder.of_link(topology, query.link, query.limit)
    if query.start_ns is not None:
        if query.end_ns is None:
            raise PathError("a time span needs a start and an end")
        if not 0 <= query.start_ns <= query.end_ns < 1 << 63:
            raise PathError(f"{query.start_ns} to {query.end_ns} ns is not a valid time span")
        return recorder.in_time(query.start_ns, query.end_ns, query.limit)
    return _by_addresses(recorder, query)


def _by_addresses(recorder: Recorder, query: RecordQuery) -> list[HopRecord]:
    src, dst = _address(query.src), _address(query.dst)
    if query.protocol is None:
        if query.src_port is not None or query.dst_port is not None:
            raise PathError("a query by ports needs the protocol")
        return recorder.between(src, dst, query.limit)
    for name, number, most in (
        ("protocol", query.protocol, 0xFF),
        ("src_port", query.src_port or 0, 0xFFFF),
        ("dst_port", query.dst_port or 0, 0xFFFF),
    ):
        if not 0 <= number <= most:
            raise PathError(f"a query by addresses: {name} {number} is not between 0 and {most}")
    key = FlowKey(src, dst, query.protocol, query.src_port or 0, query.dst_port or 0)
    return recorder.of_flow(key, query.limit)


def _address(text: str | None) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text or "")
    except ValueError as error:
        raise PathError(f"a query by addresses: {text or ''!r} is neither an IPv4 nor an IPv6 address") from error
