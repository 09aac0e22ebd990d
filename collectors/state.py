"""The network's state: what hop records say, per directed link and per flow, and the frozen snapshot of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from collectors.counters import Count, Counters
from collectors.rate import FRAMING_BYTES, RateMeter
from collectors.settings import StateSettings
from collectors.stitch import LinkSample, SeenPath, Stitcher
from collectors.values import DelaySource, FlowKey, HopRecord, LinkState, PathState, ReporterState, Snapshot
from collectors.window import LinkWindow, WindowFigures
from dataplane.clock import Clock
from dataplane.fabric.topology import DirectedLink, LinkKey, Topology


class NetworkStateBuilder:
    """Adds up hop records; `snapshot` is all that deciders see of it. Topology and settings bound its memory."""

    def __init__(
        self,
        topology: Topology,
        clock: Clock,
        settings: StateSettings | None = None,
        counters: Counters | None = None,
    ) -> None:
        self._topology = topology
        self._clock = clock
        self._settings = settings or StateSettings()
        self._counters = Counters() if counters is None else counters
        self._stitcher = Stitcher(topology, self._settings, self._counters)
        self._windows: dict[LinkKey, LinkWindow] = {}
        self._paths: OrderedDict[FlowKey, SeenPath] = OrderedDict()
        self._rates: OrderedDict[FlowKey, RateMeter] = OrderedDict()
        self._node_time_ns: dict[int, int] = {}

    def add(self, records: Sequence[HopRecord]) -> None:
        """Take records, those of one report together; late and unordered ones find their place or are counted."""
        stitched = self._stitcher.stitch(records)
        for sample in stitched.samples:
            self._add_sample(sample)
        for path in stitched.paths:
            self._add_path(path)

    def count(self, flow: FlowKey, ip_bytes: int) -> None:
        """Take note of one measured packet of a flow, once per packet: what the flow's rate is estimated from."""
        meter = self._rates.get(flow)
        if meter is None:
            meter = self._rates[flow] = RateMeter(self._settings.rate_window_ns)
            if len(self._rates) > self._settings.max_flows:
                # Flows without a path, of unknown hosts perhaps, have no other bound.
                self._rates.popitem(last=False)
                self._counters[Count.RATES_FORGOTTEN] += 1
        self._rates.move_to_end(flow)
        meter.add(self._clock.now_ns(), (ip_bytes + FRAMING_BYTES) * self._settings.sample_every)

    def _add_sample(self, sample: LinkSample) -> None:
        behind_ns = self._behind_newest(sample)
        if behind_ns > self._settings.window_ns:
            self._counters[Count.LATE_SAMPLES] += 1
            return
        window = self._windows.get(sample.link)
        if window is None:
            window = self._windows[sample.link] = LinkWindow(self._settings)
        window.add(sample, sample.received_ns - behind_ns)

    def _behind_newest(self, sample: LinkSample) -> int:
        """Return how far a sample is behind the newest of its node, by the node's clock.

        Beyond the age at which state is stale it is no late report but a clock that was set back or began anew.
        """
        if sample.node_time_ns is None:
            return 0
        newest = self._node_time_ns.get(sample.node_id, sample.node_time_ns)
        behind_ns = newest - sample.node_time_ns
        if behind_ns <= 0 or behind_ns > self._settings.stale_after_ns:
            self._node_time_ns[sample.node_id] = sample.node_time_ns
            return 0
        return behind_ns

    def _add_path(self, path: SeenPath) -> None:
        known = self._paths.pop(path.flow, None)
        self._paths[path.flow] = path if known is None or not self._is_older(path, known) else known
        if len(self._paths) > self._settings.max_flows:
            forgotten, _ = self._paths.popitem(last=False)
            self._rates.pop(forgotten, None)
            self._counters[Count.FLOWS_FORGOTTEN] += 1

    def _is_older(self, path: SeenPath, known: SeenPath) -> bool:
        if path.switches[0] != known.switches[0] or path.source_time_ns is None or known.source_time_ns is None:
            return False
        return 0 < known.source_time_ns - path.source_time_ns <= self._settings.stale_after_ns

    def snapshot(self, reporters: Mapping[tuple[int, int], ReporterState] | None = None) -> Snapshot:
        """Return the state now: every directed link of the topology, and every flow heard of lately."""
        now_ns = self._clock.now_ns()
        links = {key: self._link(link, now_ns) for key, link in self._topology.directed_links.items()}
        self._forget_paths(now_ns)
        paths = {flow: self._path(seen, links, now_ns) for flow, seen in self._paths.items()}
        return Snapshot(now_ns, links, paths, dict(reporters or {}))

    def _forget_paths(self, now_ns: int) -> None:
        limit_ns = now_ns - self._settings.forget_path_after_ns
        for flow in [flow for flow, seen in self._paths.items() if seen.received_ns < limit_ns]:
            del self._paths[flow]
            self._rates.pop(flow, None)
        # A flow whose path never became known has no entry above; its meter goes when it has run dry.
        for flow in [flow for flow, meter in self._rates.items() if flow not in self._paths and meter.is_dry(limit_ns)]:
            del self._rates[flow]

    def _link(self, link: DirectedLink, now_ns: int) -> LinkState:
        window = self._windows.get(link.key)
        if window is None:
            return _nominal(link, None)
        age_ns = max(now_ns - window.newest_ns, 0)
        if age_ns > self._settings.stale_after_ns:
            return _nominal(link, age_ns)
        return self._measured(link, window.figures(), age_ns)

    def _path(self, seen: SeenPath, links: Mapping[LinkKey, LinkState], now_ns: int) -> PathState:
        """Add up the path's links; a path of one switch between two unknown hosts has none, and no delay or limit."""
        states = [links[key] for key in seen.links]
        meter = self._rates.get(seen.flow)
        return PathState(
            flow=seen.flow,
            switches=seen.switches,
            delay_ns=sum(state.delay_mean_ns for state in states),
            bottleneck_bps=min((state.available_bps for state in states), default=0),
            age_ns=max(now_ns - seen.received_ns, 0),
            rate_bps=None if meter is None else meter.rate_bps(now_ns),
        )

    def _measured(self, link: DirectedLink, figures: WindowFigures, age_ns: int) -> LinkState:
        bits = 8 * (figures.tx_bytes_per_window or 0)
        used_bps = min(bits * 1_000_000_000 // self._settings.tx_window_ns, link.rate_bps)
        return LinkState(
            link=link.key,
            rate_bps=link.rate_bps,
            delay_mean_ns=link.delay_ns if figures.delay_mean_ns is None else figures.delay_mean_ns,
            delay_p50_ns=link.delay_ns if figures.delay_p50_ns is None else figures.delay_p50_ns,
            delay_p99_ns=link.delay_ns if figures.delay_p99_ns is None else figures.delay_p99_ns,
            queue_occupancy_frames=figures.queue_occupancy_frames or 0.0,
            utilisation=used_bps / link.rate_bps,
            available_bps=link.rate_bps - used_bps,
            loss=None,
            age_ns=age_ns,
            samples=figures.samples,
            source=figures.source,
        )


def _nominal(link: DirectedLink, age_ns: int | None) -> LinkState:
    return LinkState(
        link=link.key,
        rate_bps=link.rate_bps,
        delay_mean_ns=link.delay_ns,
        delay_p50_ns=link.delay_ns,
        delay_p99_ns=link.delay_ns,
        queue_occupancy_frames=0.0,
        utilisation=0.0,
        available_bps=link.rate_bps,
        loss=None,
        age_ns=age_ns,
        samples=0,
        source=DelaySource.NOMINAL,
    )
