"""From a query to the recorder's answer."""

from __future__ import annotations

from ipaddress import ip_address

from collectors.values import FlowKey, HopRecord
from controller.errors import PathError
from controller.paths.codec import RecordQuery
from controller.paths.recorder import Recorder
from dataplane.fabric.topology import Topology


def answer(recorder: Recorder, topology: Topology, query: RecordQuery) -> list[HopRecord]:
    """Return what a query selects, newest first, everything if it names nothing; raise PathError if it names two."""
    chosen = [part for part in (query.src or query.dst, query.link, query.start_ns) if part is not None]
    if len(chosen) > 1:
        raise PathError("a query names two addresses, a link or a span of time, and only one of them")
    if not chosen:
        return recorder.newest(query.limit)
    if query.link is not None:
        return recorder.of_link(topology, query.link, query.limit)
    if query.start_ns is not None:
        if query.end_ns is None:
            raise PathError("a span of time has a start and an end")
        if not 0 <= query.start_ns <= query.end_ns < 1 << 63:
            raise PathError(f"{query.start_ns} to {query.end_ns} ns is no span of time")
        return recorder.in_time(query.start_ns, query.end_ns, query.limit)
    return _by_addresses(recorder, query)


def _by_addresses(recorder: Recorder, query: RecordQuery) -> list[HopRecord]:
    try:
        src, dst = ip_address(query.src or ""), ip_address(query.dst or "")
    except ValueError as error:
        raise PathError(f"a query by addresses: {error}") from error
    if query.protocol is None:
        if query.src_port is not None or query.dst_port is not None:
            raise PathError("a query by ports names the protocol, too")
        return recorder.between(src, dst, query.limit)
    for name, number, most in (
        ("protocol", query.protocol, 0xFF),
        ("src_port", query.src_port or 0, 0xFFFF),
        ("dst_port", query.dst_port or 0, 0xFFFF),
    ):
        if not 0 <= number <= most:
            raise PathError(f"a query by addresses: {name} {number} is not 0 to {most}")
    key = FlowKey(src, dst, query.protocol, query.src_port or 0, query.dst_port or 0)
    return recorder.of_flow(key, query.limit)
