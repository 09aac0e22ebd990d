"""The collector's core, without sockets: report payloads in, hop records and snapshots out, on any clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from collectors.counters import Count, Counters
from collectors.decode import reports as decode
from collectors.decode.hop_records import HopNumbering, drop_record
from collectors.decode.payloads import Payloads
from collectors.decode.reports import DecodedReport, MeasuredPacket
from collectors.decode.sequence import Accounting, Arrival, SequenceAccounting, content_mark
from collectors.native.bulk import BulkCore
from collectors.receive_clock import ReceiveClock
from collectors.settings import CollectorSettings, Core
from collectors.state.builder import NetworkStateBuilder
from collectors.state.link_notes import LinkNotes
from collectors.statistics.sketch import Sketch
from collectors.token_bucket import Allowance
from collectors.values import (
    CollectorStatus,
    DropRecord,
    FlowKey,
    HopRecord,
    JobNote,
    LinkStatus,
    RecordKind,
    Snapshot,
)
from dataplane.clock import Clock
from dataplane.errors import WireError
from dataplane.topology.schema import REPORT_UDP_PORT
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.ipv4 import PROTOCOL_UDP
from dataplane.wire.marking import Marking

RecordSink = Callable[[tuple[HopRecord, ...]], None]
DropSink = Callable[[tuple[DropRecord, ...]], None]


class Collector:
    """Turns report payloads into the network's state; never raises on any payload, counts it by name instead."""

    def __init__(self, topology: Topology, clock: Clock, settings: CollectorSettings | None = None) -> None:
        settings = settings or CollectorSettings()
        self._clock = ReceiveClock(clock)
        self._marking = marking_of(settings)
        known = topology.collector.udp_port if topology.collector else REPORT_UDP_PORT
        self._report_udp_port = known if settings.report_udp_port is None else settings.report_udp_port
        self._counters = Counters()
        self._bulk: BulkCore | None = None
        self._accounting: Accounting
        self._numbering: HopNumbering
        if settings.core is Core.NATIVE:
            self._bulk = BulkCore(topology, settings, self._marking, self._report_udp_port, self._counters)
            self._accounting, self._numbering = self._bulk.accounting, self._bulk.numbering
            store, stitcher = self._bulk.store, self._bulk.stitcher
        else:
            self._accounting = SequenceAccounting(settings.sequence, self._counters)
            self._numbering = HopNumbering(topology, self._counters, settings.state.max_flows)
            store, stitcher = None, None
        self._state = NetworkStateBuilder(topology, self._clock, settings.state, self._counters, store, stitcher)
        self._links = LinkNotes(topology)
        self._allowance = Allowance(settings.records_reports_per_s, clock)
        others = settings.other_reports_per_s
        self._others = None if others is None or self._bulk is None else Allowance(others, clock)
        self._sinks: list[RecordSink] = []
        self._drop_sinks: list[DropSink] = []
        self._last_problem: str | None = None

    @property
    def counters(self) -> Counters:
        """The counters, live: receiver and feed count theirs here too."""
        return self._counters

    @property
    def report_udp_port(self) -> int:
        """The UDP port that reports are sent to."""
        return self._report_udp_port

    def receive(self, payload: bytes, source: object = None) -> None:
        """Take one report's UDP payload; `source` (who sent it) only appears in the explanation of a refusal."""
        self._counters[Count.REPORTS] += 1
        try:
            decoded = decode.decode(payload, self._marking)
        except WireError as error:
            self._refuse(error, source)
            return
        now_ns = self._clock.now_ns()
        self._state.tick(now_ns, self._accounting.states)
        arrival = self._accounting.observe(decoded.group, content_mark(payload), now_ns)
        if arrival is Arrival.REPEATED:
            self._counters[Count.REPEATED] += 1
            return
        self._counters[Count.CONTESTED] += arrival is Arrival.CONTESTED
        records = tuple(self._records(decoded, now_ns))
        self._counters[Count.RECORDS] += len(records)
        for sink in self._sinks if records else ():
            sink(records)
        self._drops(decoded, now_ns)
        for item in decoded.items:
            self._state.jobs.add(decoded.group.node_id, item.said, item.child, now_ns)

    def receive_many(self, payloads: Payloads) -> None:
        """Take payloads in their order, in bulk where that can be; they count as of when they came.

        While somebody subscribes, so many reports as the settings allow are taken one by one, which makes records.
        """
        if payloads.age_ns:
            with self._clock.set_back(payloads.age_ns):
                self._receive_many(payloads)
        else:
            self._receive_many(payloads)

    def _receive_many(self, payloads: Payloads) -> None:
        self._state.tick(self._clock.now_ns(), self._accounting.states)
        done, count = 0, len(payloads)
        alone = self._allowance.take(count) if self._sinks else 0
        while done < count:
            if self._bulk is not None and done >= alone:
                begun = done
                done = self._take_in_bulk(self._bulk, payloads, done)
                if self._sinks:
                    self._counters[Count.RECORDS_WITHHELD] += done - begun
            if done < count:
                if self._others is not None and done >= alone:
                    self._others.take(1)
                self.receive(payloads.payload(done), payloads.source(done))
                done += 1

    def _take_in_bulk(self, bulk: BulkCore, payloads: Payloads, first: int) -> int:
        skip, drops = self._others is not None and not self._others.left, self._counters[Count.PACKET_DROPPED]
        wanted, now_ns = bool(self._drop_sinks), self._clock.now_ns()
        done = bulk.take(payloads, first, now_ns, skip_others=skip, leave_drops=wanted and not skip)
        for node_id, said, child in bulk.take_items():
            self._state.jobs.add(node_id, said, child, now_ns)
        if wanted:
            self._counters[Count.DROPS_WITHHELD] += self._counters[Count.PACKET_DROPPED] - drops
        return done

    def subscribe(self, sink: RecordSink) -> Callable[[], None]:
        """Call `sink` with each report's records, in travelling order; return what ends that."""
        self._sinks.append(sink)
        return lambda: self._sinks.remove(sink)

    def subscribe_drops(self, sink: DropSink) -> Callable[[], None]:
        """Call `sink` with the drops of each report that tells of any; return what ends that."""
        self._drop_sinks.append(sink)
        return lambda: self._drop_sinks.remove(sink)

    def note_jobs(self, notes: Mapping[int, JobNote]) -> None:
        """Take the names of jobs, of all of them by number, from who runs them."""
        self._state.jobs.note(notes)

    def note_links(self, statuses: Mapping[LinkKey, LinkStatus]) -> None:
        """Take the condition of all links that are watched, from who watches them; links of other fabrics are left out.

        It holds until the next time, ten seconds at most.
        """
        self._links.note(statuses, self._clock.now_ns())

    def snapshot(self) -> Snapshot:
        """Return the network's state now."""
        self._state.tick(self._clock.now_ns(), self._accounting.states)
        found = self._state.snapshot(self._accounting.states())
        return replace(found, statuses=self._links.statuses(found.taken_ns))

    def delays(self) -> dict[LinkKey, Sketch]:
        """Return sketches of the delays behind a snapshot's links, where there are any."""
        return self._state.delays()

    def status(self) -> CollectorStatus:
        """Return every counter that has counted, and why the last bad report was refused."""
        counted = {str(name): count for name, count in self._counters.items() if count}
        return CollectorStatus(self._clock.now_ns(), counted, self._last_problem)

    def _refuse(self, error: WireError, source: object) -> None:
        self._counters[Count.MALFORMED] += 1
        self._counters[f"{Count.MALFORMED} {error.header}"] += 1
        self._last_problem = str(error) if source is None else f"report from {source}: {error}"

    def _records(self, decoded: DecodedReport, now_ns: int) -> list[HopRecord]:
        self._counters[Count.NO_FLOW] += decoded.skipped
        self._counters[Count.RESERVED_TYPE] += decoded.reserved
        found: list[HopRecord] = []
        for packet in decoded.packets:
            if self._is_report(packet.flow):
                self._counters[Count.ABOUT_REPORTS] += 1
                continue
            if self._numbering.counts(packet):
                self._state.count(packet.flow, packet.ip_bytes, _source_ns(packet))
            records = self._numbering.records(decoded.group, packet, now_ns)
            # Packet by packet: two of a group may look the same.
            self._state.add(records)
            found += records
        return found

    def _drops(self, decoded: DecodedReport, now_ns: int) -> None:
        drops = [drop for drop in decoded.drops if drop.flow is None or not self._is_report(drop.flow)]
        self._counters[Count.ABOUT_REPORTS] += len(decoded.drops) - len(drops)
        self._counters[Count.PACKET_DROPPED] += len(drops)
        records = tuple(drop_record(decoded.group, drop, now_ns) for drop in drops)
        self._state.drop(records)
        for sink in self._drop_sinks if records else ():
            sink(records)

    def _is_report(self, flow: FlowKey) -> bool:
        return flow.protocol == PROTOCOL_UDP and flow.dst_port == self._report_udp_port


def _source_ns(packet: MeasuredPacket) -> int | None:
    """Return when a packet came to its first switch, where its report tells of all hops."""
    if packet.kind is not RecordKind.STACK or packet.missing_hops or not packet.hops:
        return None
    return packet.hops[0].metadata.ingress_timestamp


def marking_of(settings: CollectorSettings) -> Marking:
    """Return how INT packets are told, as the settings say it."""
    return Marking(
        dscp=settings.int_dscp,
        udp_port=settings.int_udp_port,
        dscp_mask=settings.int_dscp_mask,
        probe_marker=settings.int_probe_marker,
        gre_protocol=settings.int_gre_protocol,
        vxlan_gpe_port=settings.vxlan_gpe_udp_port,
        geneve_port=settings.geneve_udp_port,
    )
