"""The store of `collectors.reference.accumulator` in native memory."""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.clocks.values import Corrections, FlightColumns, StampDifference
from collectors.counters import Count, Counters
from collectors.decode.samples import LinkSample
from collectors.decode.stitch import SeenPath
from collectors.native.figures import FlowMemory, NativeFlows, NativePaths, columns_of, figures_of, signals_of
from collectors.native.kernel_calls import kernel_calls
from collectors.native.kernels.state.windows import NOTED_ROOM, ROW
from collectors.native.memory import CellMemory
from collectors.native.routes import RouteTables
from collectors.native.structures import (
    MOST_SWITCHES,
    NONE32,
    NONE64,
    WINDOW_SLOTS,
    ClockCell,
    FiguresCell,
    FlowCell,
    GrownCell,
    Hop,
    RouteCell,
    RouteHop,
    SwitchClockCell,
    WindowCell,
)
from collectors.native.tables import Counts, TelemetryTables
from collectors.native.topology import NativeTopology, address_words
from collectors.native.windows import link_windows
from collectors.settings import StateSettings
from collectors.state.accumulator import SeenFlows
from collectors.state.signals import MOST_GROWN, RoundClock
from collectors.statistics.columns import UNKNOWN, Integers
from collectors.statistics.link_windows import LinkWindows
from collectors.statistics.rate import RateWindow
from collectors.statistics.sketch import BUCKETS, Sketch, bucket_of
from collectors.statistics.window import RANK, WindowColumns, WindowFigures
from collectors.values import DelaySource, FlowKey, NetworkSignals
from dataplane.native import u8, u32, u64
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.ipv4 import PROTOCOL_UDP

_COUNTED = tuple(Count[field.upper()] for field, *_ in Counts._fields_ if field != "refused_row")
"""Counters for the fields of `Counts`, in their order; the last field is not a count."""
_COUNTS = struct.Struct(f"={len(_COUNTED)}Q")


class NativeStore:
    """Stores the same as `PlainStore`, with the same bounds; it evicts one of the oldest flows, not the oldest."""

    def __init__(self, topology: Topology, settings: StateSettings, counters: Counters) -> None:
        self._settings = settings
        self._counters = counters
        self._calls = kernel_calls()
        self._tables = TelemetryTables()
        self._address, self._counts = self._tables.address, self._tables.counts
        self._topology = NativeTopology(topology, self._tables.topology)
        self._kept: list[CellMemory] = []
        self._route_tables = RouteTables(self._topology)
        self._rate = RateWindow(settings.rate_window_ns)
        # numpy takes long to make these.
        self._flow_type, self._route_type, self._clock_type = map(np.dtype, (FlowCell, RouteCell, ClockCell))
        self._put_times(settings)
        self._put_windows(len(self._topology.link_keys) + settings.max_routes)
        self._put_flows(settings.max_flows)
        self._put_routes(settings.max_routes)
        self._clocks = self._cells(ClockCell, len(self._topology.link_keys))
        self._tables.clocks.links = self._clocks.pointer
        self._tables.clocks.switches = self._cells(SwitchClockCell, len(self._topology.switches)).pointer
        self._grown, self._rounds = self._cells(GrownCell, MOST_GROWN), RoundClock()
        self._tables.signals.grown, self._tables.signals.most_grown = self._grown.pointer, MOST_GROWN
        self._figures_of = 0
        self._flow_memory = FlowMemory()

    @property
    def native(self) -> TelemetryTables:
        """Native structure that kernels take."""
        return self._tables

    @property
    def topology(self) -> NativeTopology:
        """The numbers of switches and links."""
        return self._topology

    @property
    def flow_count(self) -> int:
        """Number of flows, including those not heard of lately."""
        return int(self._tables.flows.count)

    @property
    def flow_bytes(self) -> int:
        """Memory that the flow table takes when full, in bytes."""
        return self._flows.nbytes + self._flow_index.nbytes

    def _cells(self, kind: Any, count: int, *, huge: bool = False) -> CellMemory:  # noqa: ANN401 - u32 or a struct
        self._kept.append(CellMemory(kind, count, huge=huge))
        return self._kept[-1]

    def _put_times(self, settings: StateSettings) -> None:
        tables = self._tables
        tables.windows.slot_ns = max(settings.window_ns // WINDOW_SLOTS, 1)
        tables.windows.tx_window_ns, tables.windows.window_ns = settings.tx_window_ns, settings.window_ns
        tables.limits.stale_ns, tables.limits.forget_ns = settings.stale_after_ns, settings.forget_path_after_ns
        tables.limits.probe = NONE64 if settings.probe_udp_port is None else settings.probe_udp_port << 8 | PROTOCOL_UDP
        tables.limits.lead_ns = settings.window_ns // 2
        tables.limits.longest_ns, tables.flows.rate_slot_ns = settings.longest_link_delay_ns, self._rate.slot_ns
        tables.flows.rate_lead_ns = self._rate.lead_ns

    def _put_windows(self, count: int) -> None:
        self._windows, self._buckets = self._cells(WindowCell, count), self._cells(u32, count * ROW)
        self._tables.windows.cells, self._tables.windows.buckets = self._windows.pointer, self._buckets.pointer
        self._tables.windows.noted = self._cells(u64, NOTED_ROOM).pointer
        self._tables.windows.touched = self._cells(u8, count).pointer
        self._figures: NDArray[np.void] = np.zeros(count, np.dtype(FiguresCell))
        self._changed_rows: NDArray[np.uint32] = np.zeros(count, np.uint32)
        self._is_changed = np.zeros(count, np.bool_)

    def _put_flows(self, most: int) -> None:
        places = 1 << (2 * most - 1).bit_length()
        # The last cell is for packets whose flow is not admitted.
        self._flows = self._cells(FlowCell, most + 1, huge=True)
        self._flow_index = self._cells(u64, places, huge=True)
        self._tables.flows.cells, self._tables.flows.most = self._flows.pointer, most
        self._tables.flows.index, self._tables.flows.mask = self._flow_index.pointer, places - 1

    def _put_routes(self, most: int) -> None:
        places = 1 << (2 * most - 1).bit_length()
        self._route_cells = self._cells(RouteCell, most)
        self._route_nodes = self._cells(u32, most * MOST_SWITCHES)
        self._tables.routes.hops = self._cells(RouteHop, most * MOST_SWITCHES).pointer
        self._tables.routes.cells, self._tables.routes.nodes = self._route_cells.pointer, self._route_nodes.pointer
        self._tables.routes.index, self._tables.routes.mask = self._cells(u64, places).pointer, places - 1
        self._tables.routes.free, self._tables.routes.most = self._cells(u32, most).pointer, most

    def begin_batch(self, now_ns: int) -> None:
        """Set the time of subsequent packets."""
        self._calls.begin_batch(self._address, now_ns)

    def count(self) -> None:
        """Add what the kernels have counted to the counters."""
        # All at once: each field by its name would cost more than native code takes for a hundred reports.
        for name, counted in zip(_COUNTED, _COUNTS.unpack_from(self._counts), strict=True):
            if counted:
                self._counters[name] += counted
        ctypes.memset(self._counts.address, 0, _COUNTS.size)

    def take_sample(self, sample: LinkSample) -> None:
        """Take one packet's sample of one link; samples older than the window are counted and left out."""
        self.begin_batch(sample.received_ns)
        hop = Hop(
            link=self._topology.link_number[sample.link],
            switch=self._topology.switch_by_id[sample.node_id],
            arrived_ns=word(sample.node_time_ns),
            queue=half(sample.queue_occupancy_frames),
            tx_bytes=half(sample.tx_bytes_per_window),
            buffer=half(sample.buffer_occupancy_frames),
        )
        source = RANK[sample.source or DelaySource.NOMINAL]
        self._calls.take_sample(self._tables, hop, sample.received_ns, word(sample.delay_ns), source)
        self.count()
        if sample.difference is not None:
            self._note_flight(sample.difference)

    def _note_flight(self, seen: StampDifference) -> None:
        """Note a flight where the kernels note theirs: of equal ones the first counts."""
        cell = self._clocks.pointer[self._topology.link_number[seen.link]]
        if not cell.samples or seen.flight_ns < cell.flight_ns:
            cell.flight_ns, cell.left_ns, cell.received_ns = seen.flight_ns, seen.tail_stamp_ns, seen.received_ns
        cell.samples += seen.samples

    def take_flights(self, places: Mapping[LinkKey, int]) -> FlightColumns:
        """Return the least difference of stamps of each link since the last call."""
        del places
        cells = self._clocks.rows(self._clock_type)
        columns = (cells[name].astype(np.int64) for name in ("left_ns", "flight_ns", "received_ns", "samples"))
        flights = FlightColumns(*columns)
        cells["samples"] = 0
        return flights

    def correct(self, corrections: Corrections) -> None:
        """Use these corrections for the differences of stamps from now on."""
        cells, columns = self._clocks.rows(self._clock_type), corrections.columns
        cells["at_ns"], cells["offset_ns"], cells["drift_ppb"] = columns.at_ns, columns.offset_ns, columns.drift_ppb
        cells["uncertainty_ns"], cells["is_corrected"] = columns.uncertainty_ns, columns.uncertainty_ns != UNKNOWN

    def take_path(self, path: SeenPath) -> None:
        """Take the whole path of one packet."""
        self.begin_batch(path.received_ns)
        switches = np.array([self._topology.switch_number[name] for name in path.switches], np.uint32)
        self._calls.take_path(
            self._tables, key_words(path.flow), switches, len(switches), word(path.source_time_ns), word(path.delay_ns)
        )
        self.count()

    def take_packet(self, flow: FlowKey, ip_bytes: int, now_ns: int, source_ns: int | None = None) -> None:
        """Note one measured packet of a flow, once per packet."""
        self.begin_batch(now_ns)
        self._calls.take_packet(self._tables, key_words(flow), ip_bytes, word(source_ns))
        self.count()

    def take_stamp(self, flow: FlowKey, stamp_ns: int) -> None:
        """Note when a measured packet of a counted flow reached its first switch, by that switch's clock."""
        self._calls.take_stamp(self._tables, key_words(flow), stamp_ns)

    def take_queue_report(self, link: LinkKey) -> None:
        """Note that a switch has reported a congested queue of a link."""
        self._tables.signals.queue_reported |= self._is_inner(link)

    def take_full_queue(self, link: LinkKey) -> None:
        """Note that a full queue of a link has refused a packet."""
        self._tables.signals.queue_full |= self._is_inner(link)

    def _is_inner(self, link: LinkKey) -> bool:
        ends = self._tables.topology.links[self._topology.link_number[link]]
        return NONE32 not in {ends.head_switch, ends.tail_switch}

    def take_signals(self) -> NetworkSignals:
        """Return the signs, since the last call, that the network has changed."""
        signals = self._tables.signals
        taken = signals_of(signals, self._grown.rows(np.dtype(GrownCell))[: signals.grown_count])
        signals.queue = signals.queue_reported = signals.queue_full = 0
        signals.grown_count = signals.unlisted = 0
        return taken

    def begin_round(self, now_ns: int) -> None:
        """Begin a round of decisions, unless one has just begun."""
        self._tables.signals.round = self._rounds.begin(now_ns)

    def link(self, link: LinkKey) -> WindowFigures | None:
        """Return a link's figures, None when it was never heard of."""
        return self._window_figures(self._topology.link_number[link])

    def delays(self, link: LinkKey) -> Sketch:
        """Return a sketch of the delays behind a link's figures."""
        number = self._topology.link_number[link]
        window = self._windows.rows(np.dtype(WindowCell))[number]
        slots = window["slots"]
        inside = (slots["number"] != 0) & (slots["number"] + (WINDOW_SLOTS - 1) > window["newest_slot"])
        best = max(slots["source"][inside], default=0)
        counted = inside & (slots["delays"] != 0) & (slots["source"] == best)
        if not counted.any():
            return Sketch()
        # As `count_index` has it: sixteen buckets of a slot side by side, then those of the next slot.
        slots = slots[counted]
        least, greatest = int(slots["least"].min()), int(slots["greatest"].max())
        first, last = bucket_of(least) // 16, bucket_of(greatest) // 16
        row = self._buckets.rows(np.uint32)[number * ROW :][: BUCKETS * WINDOW_SLOTS]
        counts = row.reshape(-1, WINDOW_SLOTS, 16)[first : last + 1, counted].sum(axis=1).ravel()
        (buckets,) = np.nonzero(counts)
        return Sketch(
            count=int(slots["delays"].sum()),
            total=int(slots["total"].sum()),
            least=least,
            greatest=greatest,
            buckets=Counter(dict(zip((buckets + 16 * first).tolist(), counts[buckets].tolist(), strict=True))),
        )

    def link_windows(self) -> LinkWindows:
        """Return the windows of all directed links in the topology's order."""
        count = self._tables.topology.link_count
        return link_windows(self._tables, self._windows.rows(np.dtype(WindowCell))[:count])

    def _window_figures(self, row: int) -> WindowFigures | None:
        cell = self._all_figures()[row]
        return figures_of(cell) if cell["known"] else None

    def changed_links(self) -> Integers:
        """Return the places of the links whose figures have changed since the last call."""
        self._all_figures()
        changed = self._is_changed[: self._tables.topology.link_count]
        places: Integers = np.flatnonzero(changed).astype(np.int64)
        changed[:] = False
        return places

    def link_columns(self, places: Integers) -> WindowColumns:
        """Return the figures of some directed links, by their places in the topology's order."""
        return columns_of(self._all_figures()[places])

    def _all_figures(self) -> NDArray[np.void]:
        """Return the current figures of links and routes, in memory that later calls change."""
        begun = self._tables.batch.begun
        if self._figures_of != begun:
            self._figures_of = begun
            count = self._tables.topology.link_count + self._tables.routes.count
            changed = self._calls.read_figures(self._tables, count, self._figures, self._changed_rows)
            self._is_changed[self._changed_rows[:changed]] = True
        return self._figures

    def flows(self, now_ns: int) -> SeenFlows:
        """Return the flows whose path was seen recently."""
        cells = self._flows.rows(self._flow_type)[: self._tables.flows.count]
        oldest_ns = max(now_ns - self._settings.forget_path_after_ns, 0)
        listed = (cells["route"] != NONE32) & (cells["path_ns"] >= oldest_ns)
        routes = self._tables.routes.count
        table = self._route_tables.table(
            self._route_nodes.rows(np.uint32).reshape(-1, MOST_SWITCHES)[:routes],
            self._route_cells.rows(self._route_type)["length"][:routes],
        )
        first = self._tables.topology.link_count
        figures = self._all_figures()[first : first + routes].copy()
        paths = NativePaths(table, self._topology.hosts, self._topology.host_links, figures)
        return NativeFlows(cells[listed], paths, self._rate, self._settings.sample_every, now_ns, self._flow_memory)


def key_words(flow: FlowKey) -> NDArray[np.uint64]:
    """Return the words of a flow's key."""
    about = flow.src_port << 32 | flow.dst_port << 16 | flow.protocol << 8 | flow.src.version
    return np.array([*address_words(flow.src), *address_words(flow.dst), about], np.uint64)


def word(number: int | None) -> int:
    """Return a number of 64 bits, all ones for None."""
    return NONE64 if number is None else number


def half(number: int | None) -> int:
    """Return a number of 32 bits, all ones for None."""
    return NONE32 if number is None else number
