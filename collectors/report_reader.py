"""Reading of a report in Python: its number goes to the accounts, its hops as records to the state.

With the native core, this reads the reports that the native decoder leaves, and those whose records subscribers want,
for `collectors.native.fallback`; with the reference core it reads all. The given `CoreParts` decide which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collectors.counters import Count, Counters
from collectors.decode import reports as decode
from collectors.decode.hop_records import HopIndices, RecordMaker, drop_record
from collectors.decode.reports import DecodedReport, MeasuredPacket
from collectors.decode.sequence import Accounting, Arrival, content_mark
from collectors.decode.sources import ReportSources
from collectors.state.builder import StateBuilder
from collectors.state.record_log import RecordLog, choice_of
from collectors.values import DropRecord, FlowKey, HopRecord, RecordKind
from dataplane.errors import WireError
from dataplane.topology.values import Topology
from dataplane.wire.ipv4 import PROTOCOL_UDP
from dataplane.wire.marking import Marking
from dataplane.wire.report_group import ReportGroup


@dataclass(frozen=True, slots=True)
class CoreParts:
    """A core's parts: accounts of numbers, indices of hops, the state, and the log of records for subscribers."""

    accounting: Accounting
    indices: HopIndices
    state: StateBuilder
    log: RecordLog


@dataclass(frozen=True, slots=True)
class ReadReport:
    """The drops that one report contained; the hops of nodes that the topology knows are in the log of records."""

    drops: tuple[DropRecord, ...]


class ReportReader:
    """Reads reports one by one; never raises on a payload, but counts it by name."""

    def __init__(
        self,
        topology: Topology,
        parts: CoreParts,
        counters: Counters,
        sources: ReportSources,
        *,
        marking: Marking,
        report_udp_port: int,
        most_drops: int,
    ) -> None:
        self._accounting = parts.accounting
        self._state = parts.state
        self._log = parts.log
        self._records = RecordMaker(topology, counters, parts.indices)
        self._counters = counters
        self._sources = sources
        self._known = topology.switch_by_id.keys()
        self._marking = marking
        self._report_udp_port = report_udp_port
        self._most_drops = most_drops
        self.last_problem: str | None = None
        """Reason for which the last bad report was refused."""

    def read(self, payload: bytes, source: object, now_ns: int, address: int | None = None) -> ReadReport | None:
        """Take a report that came now; None if it is malformed, was here already, or comes from the wrong address."""
        self._counters[Count.REPORTS] += 1
        refusal = self._sources.refusal(payload, address)
        if refusal is not None:
            self._counters[refusal] += 1
            if refusal is Count.WRONG_SOURCE and address is not None:
                self.last_problem = self._sources.explain(payload, address, source)
            return None
        try:
            decoded = decode.decode(payload, self._marking)
        except WireError as error:
            self._refuse(error, source)
            return None
        self._state.tick(now_ns, self._accounting.states)
        arrival = self._accounting.observe(decoded.group, content_mark(payload), now_ns)
        if arrival is Arrival.REPEATED:
            self._counters[Count.REPEATED] += 1
            return None
        self._counters[Count.CONTESTED] += arrival is Arrival.CONTESTED
        self._packets(decoded, now_ns)
        drops = self._drops(decoded, now_ns)
        for item in decoded.items:
            self._state.jobs.add(decoded.group.node_id, item.said, item.child, now_ns)
        return ReadReport(drops)

    def _refuse(self, error: WireError, source: object) -> None:
        self._counters[Count.MALFORMED] += 1
        self._counters[f"{Count.MALFORMED} {error.header}"] += 1
        self.last_problem = str(error) if source is None else f"report from {source}: {error}"

    def _packets(self, decoded: DecodedReport, now_ns: int) -> None:
        self._counters[Count.NO_FLOW] += decoded.skipped
        self._counters[Count.RESERVED_TYPE] += decoded.reserved
        for packet in decoded.packets:
            if self._is_report(packet.flow):
                self._counters[Count.ABOUT_REPORTS] += 1
                continue
            if self._records.counts(packet):
                self._state.count(packet.flow, packet.ip_bytes, _source_ns(packet))
            records = self._records.records(decoded.group, packet, now_ns)
            self._state.note_stamp(records)
            # Packet by packet: two of a group may look the same.
            self._state.add(records)
            self._counters[Count.RECORDS] += len(records)
            self._note(decoded.group, packet, records, now_ns)

    def _note(self, group: ReportGroup, packet: MeasuredPacket, records: Sequence[HopRecord], now_ns: int) -> None:
        """Log the records of a packet if subscribers get its report."""
        if not packet.hops:
            return
        choice = choice_of(packet.kind, group.node_id, group.sequence, packet.packet_id, packet.flow)
        if self._log.choose(choice, now_ns):
            self._log.put([record for record in records if record.node_id in self._known], choice)

    def _drops(self, decoded: DecodedReport, now_ns: int) -> tuple[DropRecord, ...]:
        drops = [drop for drop in decoded.drops if drop.flow is None or not self._is_report(drop.flow)]
        self._counters[Count.ABOUT_REPORTS] += len(decoded.drops) - len(drops)
        self._counters[Count.PACKET_DROPPED] += len(drops)
        self._counters[Count.DROPS_CAPPED] += max(len(drops) - self._most_drops, 0)
        records = tuple(drop_record(decoded.group, drop, now_ns) for drop in drops[: self._most_drops])
        self._state.drop(records)
        return records

    def _is_report(self, flow: FlowKey) -> bool:
        return flow.protocol == PROTOCOL_UDP and flow.dst_port == self._report_udp_port


def _source_ns(packet: MeasuredPacket) -> int | None:
    """Return when a packet came to its first switch, where its report has all hops."""
    if packet.kind is not RecordKind.STACK or packet.missing_hops or not packet.hops:
        return None
    return packet.hops[0].metadata.ingress_timestamp
