"""The collector's core, without sockets: report payloads in, hop records and snapshots out, on any clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import IPv4Address

from collectors.counters import Count, Counters
from collectors.decode.payloads import Payloads
from collectors.decode.sources import ReportSources
from collectors.native.core import NativeCore, native_parts
from collectors.receive_clock import ReceiveClock
from collectors.reference.core import reference_parts
from collectors.report_reader import ReportReader
from collectors.settings import CollectorSettings, Core
from collectors.state.link_notes import LinkNotes
from collectors.statistics.sketch import Sketch
from collectors.token_bucket import TokenBucket
from collectors.values import (
    CollectorStatus,
    DropRecord,
    HopRecord,
    JobNote,
    LinkStatus,
    Snapshot,
)
from dataplane.clock import Clock
from dataplane.topology.schema import REPORT_UDP_PORT
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.marking import Marking

RecordSink = Callable[[tuple[HopRecord, ...]], None]
DropSink = Callable[[tuple[DropRecord, ...]], None]


class Collector:
    """Turns report payloads into the network's state; never raises on any payload, counts it by name instead."""

    def __init__(self, topology: Topology, clock: Clock, settings: CollectorSettings | None = None) -> None:
        settings = settings or CollectorSettings()
        self._clock = ReceiveClock(clock)
        marking = marking_of(settings)
        known = topology.collector.udp_port if topology.collector else REPORT_UDP_PORT
        self._report_udp_port = known if settings.report_udp_port is None else settings.report_udp_port
        self._counters = Counters()
        self._native: NativeCore | None = None
        sources = ReportSources(topology, settings.relays)
        if settings.core is Core.NATIVE:
            self._native = NativeCore(topology, settings, marking, self._report_udp_port, self._counters, sources)
            parts = native_parts(self._native, topology, self._clock, settings, self._counters)
        else:
            parts = reference_parts(topology, self._clock, settings, self._counters)
        self._accounting, self._state = parts.accounting, parts.state
        self._reader = ReportReader(
            topology,
            parts,
            self._counters,
            sources,
            marking=marking,
            report_udp_port=self._report_udp_port,
            most_drops=settings.state.drops_per_report,
        )
        self._links = LinkNotes(topology)
        self._records_left = TokenBucket(settings.records_reports_per_s, clock)
        others = settings.other_reports_per_s
        self._others = None if others is None or self._native is None else TokenBucket(others, clock)
        self._sinks: list[RecordSink] = []
        self._drop_sinks: list[DropSink] = []

    @property
    def counters(self) -> Counters:
        """The counters, live: receiver and feed count theirs here too."""
        return self._counters

    @property
    def report_udp_port(self) -> int:
        """The UDP port that reports are sent to."""
        return self._report_udp_port

    def receive(self, payload: bytes, source: object = None, address: IPv4Address | None = None) -> None:
        """Take one report's UDP payload; `source` (who sent it) only appears in the explanation of a refusal.

        `address` is where it came from, which has to be its switch's report source; None: the caller answers for it.
        """
        self._receive(payload, source, None if address is None else int(address))

    def _receive(self, payload: bytes, source: object, address: int | None) -> None:
        read = self._reader.read(payload, source, self._clock.now_ns(), address)
        if read is None:
            return
        for sink in self._sinks if read.records else ():
            sink(read.records)
        for drop_sink in self._drop_sinks if read.drops else ():
            drop_sink(read.drops)

    def receive_many(self, payloads: Payloads) -> None:
        """Take payloads in their order, in bulk where that can be; they count as of when they came.

        While there are subscribers, as many reports as the settings allow are taken one by one, which makes records.
        """
        if payloads.age_ns:
            with self._clock.set_back(payloads.age_ns):
                self._receive_many(payloads)
        else:
            self._receive_many(payloads)

    def _receive_many(self, payloads: Payloads) -> None:
        self._state.tick(self._clock.now_ns(), self._accounting.states)
        done, count = 0, len(payloads)
        alone = self._records_left.take(count) if self._sinks else 0
        while done < count:
            if self._native is not None and done >= alone:
                begun = done
                done = self._take_natively(self._native, payloads, done)
                if self._sinks:
                    self._counters[Count.RECORDS_WITHHELD] += done - begun
            if done < count:
                if self._others is not None and done >= alone:
                    self._others.take(1)
                self._receive(payloads.payload(done), payloads.source(done), payloads.address(done))
                done += 1

    def _take_natively(self, native: NativeCore, payloads: Payloads, first: int) -> int:
        skip, drops = self._others is not None and not self._others.left, self._counters[Count.PACKET_DROPPED]
        wanted, now_ns = bool(self._drop_sinks), self._clock.now_ns()
        done = native.take(payloads, first, now_ns, skip_others=skip, leave_drops=wanted and not skip)
        if native.last_refusal is not None:
            self._reader.last_problem, native.last_refusal = native.last_refusal, None
        for node_id, said, child in native.take_items():
            self._state.jobs.add(node_id, said, child, now_ns)
        if wanted:
            self._counters[Count.DROPS_WITHHELD] += self._counters[Count.PACKET_DROPPED] - drops
        return done

    def subscribe(self, sink: RecordSink) -> Callable[[], None]:
        """Call `sink` with each report's records, in travelling order; return what ends that."""
        self._sinks.append(sink)
        return lambda: self._sinks.remove(sink)

    def subscribe_drops(self, sink: DropSink) -> Callable[[], None]:
        """Call `sink` with the drops of each report that has any; return what ends that."""
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
        return CollectorStatus(self._clock.now_ns(), counted, self._reader.last_problem)


def marking_of(settings: CollectorSettings) -> Marking:
    """Return how INT packets are recognised, from the settings."""
    return Marking(
        dscp=settings.int_dscp,
        udp_port=settings.int_udp_port,
        dscp_mask=settings.int_dscp_mask,
        probe_marker=settings.int_probe_marker,
        gre_protocol=settings.int_gre_protocol,
        vxlan_gpe_port=settings.vxlan_gpe_udp_port,
        geneve_port=settings.geneve_udp_port,
    )
