"""Windows of links and of paths, flows with path and rate, bounded: what `collectors.native.accumulator` keeps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from collectors.clocks.flights import Flights
from collectors.clocks.stamps import SwitchClock
from collectors.clocks.values import Corrections, FlightColumns
from collectors.counters import Count, Counters
from collectors.decode.samples import LinkSample
from collectors.decode.stitch import SeenPath
from collectors.reference.windows import windows_of
from collectors.settings import StateSettings
from collectors.state import admission
from collectors.state.accumulator import MOST_SWITCHES, SWEEP_NS, SeenFlow, SeenFlows, SwitchPath
from collectors.state.gaps import FlowGaps
from collectors.state.signals import RoundClock, SignalNotes
from collectors.statistics.link_windows import LinkWindows
from collectors.statistics.rate import FRAMING_BYTES, RateMeter
from collectors.statistics.sketch import Sketch
from collectors.statistics.window import Window, WindowFigures
from collectors.values import DelaySource, FlowKey, NetworkSignals
from dataplane.topology.values import LinkKey, Topology


@dataclass(slots=True)
class _Flow:
    meter: RateMeter
    heard_ns: int
    path: SeenPath | None = None
    weight: int = 0
    weight_epoch: int = 0
    gaps: FlowGaps = field(default_factory=FlowGaps)


class PlainStore:
    """Plain Python; when full, evicts the lightest flow, of equal ones the one unheard for longest."""

    def __init__(self, topology: Topology, settings: StateSettings, counters: Counters) -> None:
        self._settings = settings
        self._counters = counters
        self._links: dict[LinkKey, Window] = {}
        self._link_keys = tuple(topology.directed_links)
        self._clocks: dict[str, SwitchClock] = {}
        self._flows: OrderedDict[FlowKey, _Flow] = OrderedDict()
        self._credit = admission.Credit()
        self._routes: dict[tuple[str, ...], Window] = {}
        self._next_sweep_ns = 0
        self._flights = Flights()
        self._signals, self._rounds = SignalNotes(topology), RoundClock()

    def take_sample(self, sample: LinkSample) -> None:
        """Take one packet's sample of one link; samples older than the window are counted and left out."""
        self._flights.add(sample.difference)
        self._signals.note_queue(sample.link, sample.queue_occupancy_frames)
        behind_ns = self._behind_newest(sample)
        if behind_ns > self._settings.window_ns:
            self._counters[Count.LATE_SAMPLES] += 1
            return
        window = self._links.get(sample.link)
        if window is None:
            window = self._links[sample.link] = Window(self._settings)
        taken = window.add(
            max(sample.received_ns - behind_ns, 0),
            sample.delay_ns,
            sample.source or DelaySource.NOMINAL,
            queue_frames=sample.queue_occupancy_frames,
            tx_bytes=sample.tx_bytes_per_window,
            buffer_frames=sample.buffer_occupancy_frames,
        )
        if not taken:
            self._counters[Count.LATE_SAMPLES] += 1

    def link_windows(self) -> LinkWindows:
        """Return the windows of all directed links in the topology's order, to be merged with those of others."""
        windows = [self._links.get(key) for key in self._link_keys]
        return windows_of(windows, self._settings)

    def take_flights(self, places: Mapping[LinkKey, int]) -> FlightColumns:
        """Return the least difference of stamps of each link since the last call."""
        return self._flights.take(places)

    def correct(self, corrections: Corrections) -> None:
        """Take nothing: samples come with their delays."""

    def _behind_newest(self, sample: LinkSample) -> int:
        """Return how far a sample is behind the newest of its switch, by the switch's clock."""
        if sample.node_time_ns is None:
            return 0
        clock = self._clocks.get(sample.link.src)
        if clock is None:
            self._clocks[sample.link.src] = SwitchClock(self._settings, sample.node_time_ns, sample.received_ns)
            return 0
        return clock.behind(sample.node_time_ns, sample.received_ns)

    def take_path(self, path: SeenPath) -> None:
        """Take the whole path of one packet."""
        flow = self._touch(path.flow, path.received_ns, 0)
        if flow is None:
            return
        route = self._route(path.switches, path.received_ns)
        if route is None:
            self._counters[Count.ROUTES_FULL] += 1
            return
        if path.delay_ns is not None:
            route.add(path.received_ns, path.delay_ns, DelaySource.STAMPS)
        if flow.path is None or not self._is_older(path, flow.path):
            flow.path = self._believed(path)

    def _believed(self, path: SeenPath) -> SeenPath:
        """Return a path without its time if that is not trusted: it must not make later paths look older."""
        clock, stamp_ns = self._clocks.get(path.switches[0]), path.source_time_ns
        is_ahead = clock is not None and stamp_ns is not None and clock.runs_ahead(stamp_ns, path.received_ns)
        return replace(path, source_time_ns=None) if is_ahead else path

    def take_packet(self, flow: FlowKey, ip_bytes: int, now_ns: int, source_ns: int | None = None) -> None:
        """Note one measured packet of a flow, once per packet; the flow's rate is estimated from these."""
        units = admission.units_of(ip_bytes + FRAMING_BYTES)
        seen = self._touch(flow, now_ns, units)
        if seen is None:
            return
        seen.weight = min(self._weight(seen, now_ns) + units, admission.LARGEST_WEIGHT)
        seen.weight_epoch = self._epoch(now_ns)
        at_ns = now_ns if source_ns is None else _sent_ns(seen, now_ns, source_ns)
        seen.meter.add(at_ns, (ip_bytes + FRAMING_BYTES) * self._settings.sample_every)

    def take_stamp(self, flow: FlowKey, stamp_ns: int) -> None:
        """Note when a measured packet of a counted flow reached its first switch, by that switch's clock."""
        seen = self._flows.get(flow)
        if seen is None or not seen.meter.has_counted:
            return
        known_mean = seen.gaps.note(stamp_ns, self._rounds.round)
        if known_mean >= 0:
            self._signals.note_growth(flow, seen.gaps.mean, known_mean)

    def take_queue_report(self, link: LinkKey) -> None:
        """Note that a switch has reported a congested queue of a link."""
        self._signals.note_queue_report(link)

    def take_full_queue(self, link: LinkKey) -> None:
        """Note that a full queue of a link has refused a packet."""
        self._signals.note_full_queue(link)

    def take_signals(self) -> NetworkSignals:
        """Return the signs, since the last call, that the network has changed."""
        return self._signals.take()

    def begin_round(self, now_ns: int) -> None:
        """Begin a round of decisions, unless one has just begun."""
        self._rounds.begin(now_ns)

    def link(self, link: LinkKey) -> WindowFigures | None:
        """Return a link's figures, None when it was never heard of."""
        window = self._links.get(link)
        return None if window is None else window.figures()

    def delays(self, link: LinkKey) -> Sketch:
        """Return a sketch of the delays behind a link's figures."""
        window = self._links.get(link)
        return Sketch() if window is None else window.delays()

    def flows(self, now_ns: int) -> SeenFlows:
        """Return the flows whose path was seen recently."""
        seen_flows: list[SeenFlow] = []
        for key, flow in self._flows.items():
            path = flow.path
            if path is not None and now_ns - path.received_ns <= self._settings.forget_path_after_ns:
                over = SwitchPath(path.switches, path.links, self._routes[path.switches].figures())
                sending_ns = flow.meter.newest_ns + max(now_ns - flow.heard_ns, 0)
                seen_flows.append(
                    SeenFlow(
                        key,
                        over,
                        path.received_ns,
                        flow.meter.rate_bps(sending_ns),
                        flow.meter.nbytes(sending_ns) // self._settings.sample_every,
                        flow.meter.is_young(sending_ns),
                        flow.gaps.mean_ns,
                        flow.gaps.share,
                    )
                )
        return seen_flows

    @property
    def flow_count(self) -> int:
        """Number of flows, including those not heard of lately."""
        return len(self._flows)

    def _touch(self, key: FlowKey, now_ns: int, units: int) -> _Flow | None:
        """Return a flow, marked as heard of now; None if a packet of this weight does not gain it admission."""
        flow = self._flows.pop(key, None)
        weight = 0
        if flow is None and len(self._flows) >= self._settings.max_flows:
            admitted = self._make_room(now_ns, units)
            if admitted is None:
                return None
            weight = admitted
        if flow is None or self._is_over(flow, now_ns):
            flow = _Flow(RateMeter(self._settings.rate_window_ns), now_ns)
            flow.weight, flow.weight_epoch = weight, self._epoch(now_ns)
        flow.heard_ns = max(flow.heard_ns, now_ns)
        self._flows[key] = flow
        return flow

    def _make_room(self, now_ns: int, units: int) -> int | None:
        """Remove the lightest flow for a newcomer and return its weight; None if the newcomer is not admitted."""
        # The first of equal ones is the one unheard for longest: every touch moves a flow to the end.
        key = min(self._flows, key=lambda each: self._weight(self._flows[each], now_ns))
        lightest = self._weight(self._flows[key], now_ns)
        if not self._credit.admits(units, lightest):
            self._counters[Count.FLOWS_NOT_ADMITTED] += units != 0
            return None
        removed = self._flows.pop(key)
        self._counters[Count.FLOWS_FORGOTTEN] += not self._is_over(removed, now_ns)
        return lightest

    def _weight(self, flow: _Flow, now_ns: int) -> int:
        if self._is_over(flow, now_ns):
            return 0
        return admission.decayed(flow.weight, flow.weight_epoch, self._epoch(now_ns))

    def _epoch(self, now_ns: int) -> int:
        return admission.epoch_of(now_ns, self._settings.forget_path_after_ns)

    def _is_over(self, flow: _Flow, now_ns: int) -> bool:
        return now_ns - flow.heard_ns > self._settings.forget_path_after_ns

    def _route(self, switches: tuple[str, ...], now_ns: int) -> Window | None:
        """Return the window of a path over the switches; None if there is no room and no unused one to replace."""
        route = self._routes.get(switches)
        if route is None:
            if len(switches) > MOST_SWITCHES:
                return None
            if len(self._routes) >= self._settings.max_routes and now_ns >= self._next_sweep_ns:
                self._next_sweep_ns = now_ns + SWEEP_NS
                used = {flow.path.switches for flow in self._flows.values() if flow.path is not None}
                self._routes = {path: window for path, window in self._routes.items() if path in used}
            if len(self._routes) >= self._settings.max_routes:
                return None
            route = self._routes[switches] = Window(self._settings)
        return route

    def _is_older(self, path: SeenPath, current: SeenPath) -> bool:
        if path.switches[0] != current.switches[0] or path.source_time_ns is None or current.source_time_ns is None:
            return False
        return 0 < current.source_time_ns - path.source_time_ns <= self._settings.stale_after_ns


def _sent_ns(flow: _Flow, now_ns: int, source_ns: int) -> int:
    """Return when a packet of a flow was sent, on the time that runs from the first one's arrival."""
    last, meter = flow.path, flow.meter
    if last is None or last.source_time_ns is None or not meter.has_counted:
        return now_ns
    between_ns = source_ns - last.source_time_ns, now_ns - last.received_ns
    return meter.window.sent_ns(now_ns, meter.newest_ns, *between_ns)
