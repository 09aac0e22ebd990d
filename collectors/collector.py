"""The collector's core, without sockets: report payloads in, hop records and snapshots out, on any clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Final, TypeVar

from collectors.counters import Count, Counters
from collectors.decode.payloads import Payloads
from collectors.decode.sources import ReportSources
from collectors.errors import CollectorError
from collectors.native.core import NativeCore, native_parts
from collectors.native.reception import Reception, Stop
from collectors.native.state_lock import StateLock
from collectors.reading_budget import ReadingBudget
from collectors.receive_clock import ReceiveClock
from collectors.record_columns import RecordColumns
from collectors.reference.core import reference_parts
from collectors.report_reader import ReportReader
from collectors.settings import CollectorSettings, Core
from collectors.state.builder import CompleteLinks, CompletePaths
from collectors.state.link_notes import LinkNotes
from collectors.state.record_log import KeptRecords
from collectors.statistics.link_windows import LinkWindows
from collectors.statistics.sketch import Sketch
from collectors.values import (
    CollectorStatus,
    DropRecord,
    HopRecord,
    JobNote,
    LinkStatus,
    NetworkSignals,
    ReporterState,
    Snapshot,
)
from dataplane.clock import Clock
from dataplane.load.values import NO_LOAD, DaemonLoad
from dataplane.topology.schema import REPORT_UDP_PORT
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.marking import Marking

RecordSink = Callable[[tuple[HopRecord, ...]], None]
ColumnSink = Callable[[RecordColumns], None]
DropSink = Callable[[tuple[DropRecord, ...]], None]


_NO_LIMIT: Final = 1 << 62
_SLICE: Final = 4096
"""Payloads that native code takes before other threads that want the state have it."""


class Collector:
    """Turns report payloads into the network's state; it never raises on a payload, but counts it by name.

    Its methods may be called from any thread; only one thread at a time may pass payloads. The state has a lock, for
    which `snapshot` and other readers wait a few milliseconds at most: the thread that processes payloads yields to
    them.
    """

    def __init__(self, topology: Topology, clock: Clock, settings: CollectorSettings | None = None) -> None:
        settings = settings or CollectorSettings()
        self._clock, self._lock = ReceiveClock(clock), StateLock()
        marking = marking_of(settings)
        port = topology.collector.udp_port if topology.collector else REPORT_UDP_PORT
        self._report_udp_port = port if settings.report_udp_port is None else settings.report_udp_port
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
        self._budget = ReadingBudget(settings, clock, is_limited=self._native is not None)
        self._reception: Reception | None = None
        self._log, self._records_per_s = parts.log, settings.records_reports_per_s
        # Replaced, never changed: the receiving thread may be going through them.
        self._read_load: Callable[[], DaemonLoad] = lambda: NO_LOAD
        self._sinks: tuple[RecordSink, ...] = ()
        self._column_sinks: tuple[tuple[ColumnSink, int], ...] = ()
        self._drop_sinks: tuple[DropSink, ...] = ()

    @property
    def counters(self) -> Counters:
        """The counters, live: receiver and feed count theirs here too."""
        return self._counters

    @property
    def report_udp_port(self) -> int:
        """The UDP port that reports are sent to."""
        return self._report_udp_port

    def receive(self, payload: bytes, source: object = None, address: IPv4Address | None = None) -> None:
        """Take one report's UDP payload; `source` (its sender) only appears in the explanation of a refusal.

        `address` is where it came from, which must be its switch's report source; None: the caller answers for it.
        """
        with self._lock:
            self._receive(payload, source, None if address is None else int(address))
            self._hand_over_at_once()

    def _receive(self, payload: bytes, source: object, address: int | None) -> None:
        read = self._reader.read(payload, source, self._clock.now_ns(), address)
        if read is None:
            return
        for drop_sink in self._drop_sinks if read.drops else ():
            drop_sink(read.drops)

    def receive_many(self, payloads: Payloads) -> None:
        """Take payloads in order, in bulk where possible; they count as of their arrival."""
        with self._lock:
            self._log.say_behind(payloads.is_behind)
            if payloads.age_ns:
                with self._clock.set_back(payloads.age_ns):
                    self._receive_many(payloads)
            else:
                self._receive_many(payloads)
            self._hand_over_at_once()

    def _receive_many(self, payloads: Payloads) -> None:
        self._tick()
        done, count, native = 0, len(payloads), self._native
        while done < count:
            if native is not None:
                begun = done
                done = self._take_natively(native, payloads, done)
                self._lock.step_aside()
                if done < count and done == begun + _SLICE:
                    continue
            if done < count:
                self._read_row(payloads, done)
                self._lock.step_aside()
                done += 1

    def _read_row(self, payloads: Payloads, row: int, *, began_ns: int | None = None) -> None:
        """Read a payload in Python, and charge the time since `began_ns` for it, or since now."""
        began_ns = self._budget.now_ns() if began_ns is None else began_ns
        self._budget.take_other()
        self._receive(payloads.payload(row), payloads.source(row), payloads.address(row))
        self._budget.charge(began_ns)

    def _tick(self) -> None:
        self._state.tick(self._clock.now_ns(), self._accounting.states)

    def _take_natively(self, native: NativeCore, payloads: Payloads, first: int) -> int:
        skip, now_ns = not self._budget.allows_other, self._clock.now_ns()
        drops, wanted = self._counters[Count.PACKET_DROPPED], bool(self._drop_sinks)
        leave = wanted and not skip
        done = native.take(payloads, first, now_ns, skip_others=skip, leave_drops=leave, most=_SLICE)
        self._take_notes(native, now_ns, drops)
        return done

    def _take_notes(self, native: NativeCore, now_ns: int, drops: int) -> None:
        """Process what native code has noted for Python; `drops` is the number counted before."""
        if native.last_refusal is not None:
            self._reader.last_problem, native.last_refusal = native.last_refusal, None
        for node_id, completion, child in native.take_items():
            self._state.jobs.add(node_id, completion, child, now_ns)
        if self._drop_sinks:
            self._counters[Count.DROPS_WITHHELD] += self._counters[Count.PACKET_DROPPED] - drops

    def open_reception(self, fd: int, clock: Clock, wall_ns: Callable[[], int] = time.time_ns) -> Reception | None:
        """Return the reader of a bound UDP socket for `receive_from`; None if native code does not read reports."""
        if self._native is None:
            return None
        reception = Reception(fd, clock, wall_ns)
        self._native.share(reception, self._lock)
        self._reception = reception
        return reception

    def receive_from(self, reception: Reception, until_ns: int, *, waits: bool) -> Stop:
        """Receive until a time of the monotonic clock, and return why it ended; native code does most of it.

        It ends early when `reception` is woken and, unless it `waits`, once the socket is empty. Meanwhile another
        thread calls `settle` regularly: this one may have to wait long for the interpreter.
        """
        if self._native is None:
            raise CollectorError("the reference core reads no socket by itself")
        while True:
            self.settle(reception)
            stop = self._native.receive(reception, until_ns, waits=waits)
            self.settle(reception)
            if stop is not Stop.FOR_PYTHON:
                return stop
            with self._lock:
                self._read_next(reception)

    def settle(self, reception: Reception) -> None:
        """Count received reports and take those noted for Python; set how much Python has time to read."""
        native, state = self._native, reception.state
        if native is None:
            return
        with self._lock:
            self._tick()
            drops = self._counters[Count.PACKET_DROPPED]
            native.settle(reception)
            self._take_notes(native, state.now_ns or self._clock.now_ns(), drops)
            self._hand_over_at_once()
            skip = not self._budget.allows_other
            native.plan(reception, skip_others=skip, leave_drops=bool(self._drop_sinks) and not skip)

    def _read_next(self, reception: Reception) -> None:
        """Read the payload that the native loop has stopped at."""
        state = reception.state
        with self._clock.set_to(state.now_ns):
            self._read_row(reception.payloads, state.row, began_ns=state.returned_ns)
        reception.pass_row()

    def subscribe(self, sink: RecordSink) -> Callable[[], None]:
        """Call `sink` with each report's records, in travelling order; return a function that ends the subscription.

        It is called in the thread that passes payloads, while that holds the state: it must not wait. Several processes
        get the records faster as columns.
        """
        with self._lock:
            self._sinks = (*self._sinks, sink)
            self._want_records()
        return lambda: self._unsubscribe(sink)

    def _plan_again(self) -> None:
        # From now on the new subscriber gets records, too, even while native code is receiving.
        if self._reception is not None:
            self.settle(self._reception)

    def _unsubscribe(self, sink: RecordSink) -> None:
        with self._lock:
            self._sinks = without(self._sinks, sink)
            self._want_records()

    def subscribe_columns(self, sink: ColumnSink, reports_per_s: int | None = None) -> Callable[[], None]:
        """Have `hand_over_records` call `sink` with records of an even sample of reports; return a function to stop.

        The sample has about `reports_per_s`, if the settings allow that many.
        """
        entry = sink, _NO_LIMIT if reports_per_s is None else reports_per_s
        with self._lock:
            self._column_sinks = (*self._column_sinks, entry)
            self._want_records()
        return lambda: self._unsubscribe_columns(entry)

    def _unsubscribe_columns(self, entry: tuple[ColumnSink, int]) -> None:
        with self._lock:
            self._column_sinks = without(self._column_sinks, entry)
            self._want_records()

    def _want_records(self) -> None:
        wanted = max([_NO_LIMIT if self._sinks else 0, *(per_s for _, per_s in self._column_sinks)])
        self._log.want(min(wanted, self._records_per_s), is_capped=wanted > self._records_per_s)

    def hand_over_records(self) -> None:
        """Give subscribers the records since the last call; call it a few times per second."""
        with self._lock:
            kept = self._log.take()
        self._hand_over(kept)

    def _hand_over_at_once(self) -> None:
        if self._sinks:
            self._hand_over(self._log.take())

    def _hand_over(self, kept: KeptRecords) -> None:
        for column_sink, per_s in self._column_sinks:
            column_sink(kept.sample(per_s))
        for report in kept.sample(_NO_LIMIT).reports() if self._sinks else ():
            for sink in self._sinks:
                sink(report)

    def subscribe_drops(self, sink: DropSink) -> Callable[[], None]:
        """Call `sink` with the drops of each report that has any, like `subscribe`; return a function that ends it."""
        self._drop_sinks = (*self._drop_sinks, sink)
        self._plan_again()
        return lambda: self._unsubscribe_drops(sink)

    def _unsubscribe_drops(self, sink: DropSink) -> None:
        self._drop_sinks = without(self._drop_sinks, sink)

    def complete_by(self, links: CompleteLinks, paths: CompletePaths | None = None) -> None:
        """Complete snapshots with the state that devices export, where sources added before know nothing."""
        with self._lock:
            self._state.complete_by(links, paths)

    def take_exported_drops(self, drops: tuple[DropRecord, ...]) -> None:
        """Take drops that a device's agent noticed; the loss follows from its counters."""
        with self._lock:
            self._state.drop(drops, is_loss_counted=True)
        for drop_sink in self._drop_sinks:
            drop_sink(drops)

    def note_jobs(self, notes: Mapping[int, JobNote]) -> None:
        """Take the names of all jobs, by number, from their operator."""
        with self._lock:
            self._state.jobs.note(notes)

    def note_links(self, statuses: Mapping[LinkKey, LinkStatus]) -> None:
        """Take the condition of all watched links, from the watcher; links of other fabrics are left out.

        It is valid until the next call, ten seconds at most.
        """
        with self._lock:
            self._links.note(statuses, self._clock.now_ns())

    def snapshot(self) -> Snapshot:
        """Return the network's state now."""
        with self._lock:
            self._tick()
            state = self._state.snapshot(self._accounting.states())
            return replace(state, statuses=self._links.statuses(state.taken_ns))

    @property
    def link_places(self) -> Mapping[LinkKey, int]:
        """The places of links in what is kept of all, in the topology's order."""
        return self._state.link_places

    def link_windows(self) -> LinkWindows:
        """Return the sums behind the figures of all links, in the topology's order."""
        with self._lock:
            return self._state.link_windows()

    def reporters(self) -> Mapping[tuple[int, int], ReporterState]:
        """Return every account of reports, by node id and hardware id."""
        with self._lock:
            return self._accounting.states()

    def end_accounts(self, node_ids: Collection[int]) -> None:
        """End the accounts of switches that report to another collector now: if they return, nothing counts as lost."""
        with self._lock:
            self._accounting.end(node_ids)

    def take_signals(self) -> NetworkSignals:
        """Return the signs since the last call that the network has changed."""
        with self._lock:
            return self._state.take_signals()

    def begin_round(self) -> None:
        """Note that a round of decisions uses a snapshot of now: the present rates of flows are no longer news."""
        with self._lock:
            self._state.begin_round()

    def delays(self) -> dict[LinkKey, Sketch]:
        """Return sketches of the delays behind a snapshot's links, where there are any."""
        with self._lock:
            return self._state.delays(self._lock.step_aside)

    def status(self) -> CollectorStatus:
        """Return all non-zero counters, and why the last bad report was refused; never blocks."""
        # A copy, which takes one step: another thread may be counting.
        counted = {str(name): count for name, count in dict(self._counters).items() if count}
        return CollectorStatus(self._clock.now_ns(), counted, self._reader.last_problem, self._read_load())

    def report_load(self, read: Callable[[], DaemonLoad]) -> None:
        """Make `status` include the load that `read` returns, of this collector's process."""
        self._read_load = read


T = TypeVar("T")


def without(many: tuple[T, ...], element: T) -> tuple[T, ...]:
    """Return a tuple without its first element that equals the given one."""
    index = many.index(element)
    return (*many[:index], *many[index + 1 :])


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
        ifa_protocol=settings.ifa_protocol,
        ioam_namespace=settings.ioam_namespace,
        ioam_timestamps=settings.ioam_timestamps,
    )
