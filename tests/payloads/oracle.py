"""Oracle: a frame leaves a fabric towards a host as it entered, or is a counted drop, which no payload may cause."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.network.tables.telemetry.int_domain import IntDomain
from dataplane.topology.addressing import mac_at
from dataplane.topology.values import Topology
from tests.payloads import envelopes, shapes
from tests.payloads.chain import ACROSS, HOPS_ACROSS, SAME_LEAF, TOPOLOGY, Fabric
from tests.payloads.envelopes import Envelope, Marked

BURST = 256
ETHERNET_BYTES, SHIELD_BYTES = 14, 24
STRANGE_MARKER = 0
"""Bytes that most easily precede INT in a payload by chance."""


@dataclass(slots=True)
class Verdict:
    """Outcome of payloads; `changed` are examples of those that arrived different, or were lost uncounted."""

    sent: int = 0
    changed: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        """Count what another verdict has."""
        self.sent, self.changed = self.sent + other.sent, self.changed + other.changed
        self.dropped += other.dropped
        self.examples = (self.examples + other.examples)[:8]


def marked_by(domain: IntDomain) -> Marked:
    """Return the marks that a domain has in headers."""
    by_dscp = domain.udp_port is None and domain.probe_marker is None
    return Marked(
        dscp=domain.dscp if by_dscp else 0,
        dscp_mask=domain.dscp_mask if by_dscp else 0,
        udp_port=domain.udp_port,
        gre_protocol=domain.gre_protocol.to_bytes(2, "big") if domain.tunnels else None,
    )


def headers_of(domain: IntDomain) -> tuple[shapes.Header, ...]:
    """Return the headers that payloads in a domain are made of, its own probe marker among them."""
    own = () if domain.probe_marker is None else (domain.probe_marker, domain.probe_marker)
    return shapes.headers_for((STRANGE_MARKER, *own))


@dataclass(frozen=True, slots=True)
class Case:
    """A payload on its way: the frame as it is sent, as it is to arrive, and whether its headers allow a drop."""

    sent: bytes
    expected: bytes
    may_be_dropped: bool


def make_cases(
    rng: random.Random,
    domain: IntDomain,
    way: tuple[str, str],
    payloads: Sequence[bytes],
    *,
    topology: Topology = TOPOLOGY,
    frame_bytes: int | None = None,
) -> list[Case]:
    """Return payloads in envelopes, each drawn; with `frame_bytes` payloads end where the frame would get longer."""
    src, dst = (topology.host[name] for name in way)
    edge, marked = topology.attachment[dst.name], marked_by(domain)
    last_mac = mac_at(topology, edge.node, edge.port)
    hops = 1 if topology.attachment[src.name].node == edge.node else HOPS_ACROSS
    marks = (marked.dscp,) if rng.random() < 0.2 else ()
    cases = []
    for drawn in payloads:
        payload = drawn
        is_named = rng.random() < 0.03
        envelope = envelopes.draw_named(rng) if is_named else envelopes.draw(rng, marks)
        sent = envelopes.frame(topology, src, dst, envelope, payload)
        if frame_bytes is not None and len(sent) > frame_bytes:
            payload = payload[: max(0, len(payload) - len(sent) + frame_bytes)]
            sent = envelopes.frame(topology, src, dst, envelope, payload)
        expected = envelopes.routed(sent, dst.mac, last_mac, hops)
        cases.append(Case(sent, expected, _is_excused(envelope, payload, domain, marked, len(sent) - ETHERNET_BYTES)))
    return cases


def _is_excused(envelope: Envelope, payload: bytes, domain: IntDomain, marked: Marked, packet_bytes: int) -> bool:
    """Return whether a frame may be dropped: by its headers or length, or as a forgery that cannot get INT of its own.

    That needs a checksum that can be restored: TCP's 0xffff is another spelling of 0, and zero says that there may be
    sums or names behind UDP.
    """
    if envelopes.may_be_dropped(envelope, marked):
        return True
    marker = domain.probe_marker
    is_forged = marker is not None and (envelope.tunnel + payload).startswith(marker.to_bytes(8, "big"))
    if domain.mtu_bytes is not None and packet_bytes > domain.mtu_bytes - SHIELD_BYTES * is_forged:
        return True
    if not is_forged:
        return False
    ports = (
        envelope.dst_port == envelopes.AGGREGATION_PORT,
        envelopes.STORE_PORT in (envelope.src_port, envelope.dst_port),
    )
    return envelope.checksum == (0xFFFF if envelope.kind == "tcp" else 0) and (envelope.kind == "tcp" or any(ports))


def judge(fabric: Fabric, way: tuple[str, str], cases: Sequence[Case], *, reports: bool = True) -> Verdict:
    """Send payloads over a fabric and compare what arrives."""
    verdict = Verdict()
    for start in range(0, len(cases), BURST):
        burst = cases[start : start + BURST]
        carried = fabric.carry(way[0], [case.sent for case in burst], reports=reports)
        arrived = carried.arrived.pop(way[1], [])
        carried.arrived.pop("collector", None)
        strays = sum(map(len, carried.arrived.values()))
        verdict.add(compare(burst, arrived, carried.drops, strays))
    return verdict


def compare(cases: Sequence[Case], arrived: Sequence[bytes], drops: dict[str, int], strays: int) -> Verdict:
    """Match what arrived, which is in order, with what should; each frame that did not is to be a counted drop."""
    verdict = Verdict(sent=len(cases), dropped=Counter(drops))
    later = Counter(case.expected for case in cases)
    missing, at = [], 0
    for case in cases:
        later[case.expected] -= 1
        if at < len(arrived) and arrived[at] == case.expected:
            at += 1
        elif at == len(arrived) or case.may_be_dropped or later[arrived[at]] > 0:
            missing.append(case)
        else:
            verdict.changed += 1
            verdict.examples.append(f"sent {case.sent.hex()}\nwant {case.expected.hex()}\ngot  {arrived[at].hex()}")
            at += 1
    wrong = [case for case in missing if not case.may_be_dropped]
    verdict.examples += [f"dropped  {case.sent.hex()} {drops}" for case in wrong[:2]]
    uncounted = abs(len(missing) - sum(drops.values()))
    verdict.changed += max(len(wrong), uncounted) + len(arrived) - at + strays
    if uncounted or strays or at < len(arrived):
        verdict.examples.append(f"{len(missing)} missing, drops {drops}, {strays} strays, {len(arrived) - at} too many")
    return verdict


def try_payloads(
    fabric: Fabric, domain: IntDomain, seed: str, count: int, *, systematic: bool = False, reports: bool = True
) -> Verdict:
    """Send this many payloads over a fabric with a domain's marks, half of them to the same leaf.

    `systematic`: before, each header at each offset, both ways.
    """
    rng, headers, verdict = random.Random(seed), headers_of(domain), Verdict()
    for way in (SAME_LEAF, ACROSS):
        payloads = list(shapes.every(rng.getrandbits(32), headers)) if systematic else []
        payloads += [shapes.draw(rng, headers, shapes.LARGE_BYTES) for _ in range(count // 2)]
        verdict.add(judge(fabric, way, make_cases(rng, domain, way, payloads), reports=reports))
    return verdict
