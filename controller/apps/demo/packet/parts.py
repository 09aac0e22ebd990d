"""A frame as a sequence of headers with their fields in words, and the changes by each hop.

Everything is decoded by the modules of dataplane/wire from the frame's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dataplane.topology.values import Topology
from dataplane.wire import ethernet, int_md, int_mx, int_shim, ipv4, report_group, report_individual, report_int, udp
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_shim import IntType
from dataplane.wire.marking import INT_DSCP
from dataplane.wire.report_individual import IndividualHeader, InnerType

_INSTRUCTIONS: Final = (
    *("node", "ports", "latency", "queue", "ingress time", "egress time", "level 2 ports", "transmitted", "buffer"),
)
"""Instruction bits 0 to 8 of INT v2.1, section 5.7."""

Fields = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A header, or the payload: its name, bytes, and fields by name; `was` has old values."""

    kind: str
    title: str
    size: int
    fields: Fields
    is_new: bool = False
    was: Mapping[str, str] | None = None

    def lines(self) -> Iterator[str]:
        """Yield its fields in words, with their previous values."""
        for name, value in self.fields:
            old = None if self.was is None else self.was.get(name)
            text = f"{name} {value}".strip()
            yield text if old is None else f"{text} (was {old})"


def parts_of(frame: bytes, topology: Topology) -> tuple[Part, ...]:
    """Return the headers of a frame with an IPv4 packet; raise WireError for one that is malformed."""
    link = ethernet.decode(frame)
    fields = (("to", _mac(link.dst)), ("from", _mac(link.src)))
    return (Part("ethernet", "Ethernet", link.size, fields), *_ip_parts(frame, link.size, topology))


def report_parts(frame: bytes, topology: Topology) -> tuple[Part, ...]:
    """Return the headers of a frame that carries a telemetry report; raise WireError for one that is malformed."""
    outer = parts_of(frame, topology)[:3]
    at = sum(part.size for part in outer)
    group = report_group.decode(frame, at)
    fields = (("from", _node(topology, group.node_id)), ("number", str(group.sequence)))
    parts = [*outer, Part("group", "Report group", group.size, fields)]
    at += group.size
    while at < len(frame):
        header = report_individual.decode(frame, at)
        end = at + header.size + 4 * header.length_words
        if header.length_words == report_individual.TO_THE_END:
            end = len(frame)
        at += header.size
        if isinstance(header, IndividualHeader):
            parts += _report(header, frame[:end], at, topology, group.node_id)
        at = end
    return tuple(parts)


def changed(parts: Sequence[Part], before: Sequence[Part]) -> tuple[Part, ...]:
    """Return a frame's parts, marking what is new since the previous cable, with previous values of fields."""
    previous = {(part.kind, part.title): dict(part.fields) for part in before}
    marked = []
    for part in parts:
        old = previous.get((part.kind, part.title))
        was = {name: old[name] for name, value in part.fields if name in old and old[name] != value} if old else {}
        marked.append(replace(part, is_new=old is None, was=was))
    return tuple(marked)


def _report(header: IndividualHeader, data: bytes, at: int, topology: Topology, node_id: int) -> Iterator[Part]:
    names = ("dropped", "congested", "tracked", "intermediate")
    why = " ".join(name for name in names if getattr(header, name)) or "-"
    yield Part("individual", "Report", header.size, (("flags", why), ("inner", header.inner_type.name)))
    main = report_int.decode(data, at, header.metadata_words)
    hop = replace(main.metadata, node_id=node_id)
    fields = tuple(field for field in _hop_fields(hop, topology) if field[0] != "node")
    title = f"{_node(topology, node_id)}'s own hop"
    yield Part("hop", title, main.size, fields)
    at += main.size
    if header.inner_type is InnerType.ETHERNET:
        link = ethernet.decode(data, at)
        yield Part("ethernet", "Ethernet", link.size, (("to", _mac(link.dst)), ("from", _mac(link.src))))
        at += link.size
    yield from _ip_parts(data, at, topology)


def _ip_parts(data: bytes, at: int, topology: Topology) -> Iterator[Part]:
    ip = ipv4.decode(data, at)
    hosts = topology.host_by_address
    ends = tuple(
        f"{hosts[address].name} {address}" if address in hosts else str(address) for address in (ip.src, ip.dst)
    )
    fields = (("from", ends[0]), ("to", ends[1]), ("DSCP", str(ip.dscp)), ("TTL", str(ip.ttl)))
    yield Part("ip", "IPv4", ip.size, (*fields, ("length", str(ip.total_length))))
    at += ip.size
    header = udp.decode(data, at)
    ports = ("ports", f"{header.src_port} > {header.dst_port}")
    yield Part("udp", "UDP", header.size, (ports, ("length", str(header.length))))
    at += header.size
    if ip.dscp == INT_DSCP:
        shim = int_shim.decode(data, at)
        end = at + shim.size + 4 * shim.length_words
        words = (("type", shim.int_type.name), ("behind it", f"{shim.length_words} words"))
        yield Part("shim", "INT shim", shim.size, (*words, ("DSCP was", str(shim.original_dscp))))
        yield from _int_parts(data, at + shim.size, end, shim.int_type, topology)
        at = end
    left = max(0, len(data) - at)
    if left:
        yield Part("payload", "Payload", left, ())


def _int_parts(data: bytes, at: int, end: int, kind: IntType, topology: Topology) -> Iterator[Part]:
    if kind is IntType.MX:
        mx = int_mx.decode(data, at, end - at)
        yield Part("int", "INT-MX", mx.size, (("asks for", _requested(mx.instructions)),))
        return
    header = int_md.decode(data, at)
    left = (("hops left", str(header.remaining_hops)), ("words a hop", str(header.hop_ml)))
    yield Part("int", "INT-MD", header.size, (("asks for", _requested(header.instructions)), *left))
    at += header.size
    for hop in int_md.decode_stack(header, data, at, end - at):
        name = "a hop" if hop.node_id is None else f"hop {_node(topology, hop.node_id)}"
        yield Part("hop", name, 4 * header.hop_ml, _hop_fields(hop, topology))


def _hop_fields(hop: HopMetadata, topology: Topology) -> Fields:
    """Return a hop's values for the requested instructions."""
    node = None if hop.node_id is None else topology.switch_by_id.get(hop.node_id)
    peers = {} if node is None else topology.neighbours[node.name]

    def port(number: int | None) -> str:
        return "-" if number is None else f"{number} ({peers[number].node})" if number in peers else str(number)

    queue = None if hop.queue_occupancy is None else f"{hop.queue_occupancy} frames"
    fields = (
        ("node", None if hop.node_id is None else str(hop.node_id)),
        ("in", None if hop.ingress_interface is None else port(hop.ingress_interface)),
        ("out", None if hop.egress_interface is None else port(hop.egress_interface)),
        ("latency", None if hop.hop_latency is None else f"{hop.hop_latency / 1000:g} us"),
        ("queue", queue),
        ("came", _time(hop.ingress_timestamp)),
        ("left", _time(hop.egress_timestamp)),
        ("transmitted", None if hop.tx_utilisation is None else f"{hop.tx_utilisation} bytes"),
    )
    return tuple((name, value) for name, value in fields if value is not None)


def _time(time_ns: int | None) -> str | None:
    return None if time_ns is None else f"{time_ns / 1e6:.6f} ms"


def _requested(bitmap: int) -> str:
    bits = [bit for bit in range(16) if bitmap & 0x8000 >> bit]
    return ", ".join(_INSTRUCTIONS[bit] if bit < len(_INSTRUCTIONS) else f"bit {bit}" for bit in bits)


def _node(topology: Topology, node_id: int) -> str:
    node = topology.switch_by_id.get(node_id)
    return f"node {node_id}" if node is None else node.name


def _mac(address: int) -> str:
    return ":".join(f"{byte:02x}" for byte in address.to_bytes(6, "big"))
