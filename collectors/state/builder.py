"""The network's state: what hop records say, per directed link and per flow, and the frozen snapshot of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from collectors.clocks.estimator import ClockEstimator
from collectors.counters import Counters
from collectors.decode.samples import Fate
from collectors.decode.stitch import Stitcher
from collectors.jobs.accounts import JobAccounts
from collectors.settings import StateSettings
from collectors.state.accumulator import PlainStore, Store
from collectors.state.link_states import LinkColumns
from collectors.state.loss import LinkLoss, LossMeter
from collectors.state.nominal import nominal_link
from collectors.state.path_states import PathMaker, PathStates
from collectors.statistics.sketch import Sketch
from collectors.statistics.window import WindowFigures
from collectors.values import DelaySource, DropRecord, FlowKey, HopRecord, LinkState, ReporterState, Snapshot
from dataplane.clock import Clock
from dataplane.topology.values import DirectedLink, LinkKey, Topology


class NetworkStateBuilder:
    """Adds up hop records; `snapshot` is all that deciders see of it. Topology and settings bound its memory."""

    def __init__(  # noqa: PLR0917 - what the native core brings is given by place
        self,
        topology: Topology,
        clock: Clock,
        settings: StateSettings | None = None,
        counters: Counters | None = None,
        store: Store | None = None,
        stitcher: Stitcher | None = None,
    ) -> None:
        self._topology = topology
        self._clock = clock
        self._settings = settings or StateSettings()
        counters = Counters() if counters is None else counters
        self._stitcher = Stitcher(topology, self._settings, counters) if stitcher is None else stitcher
        self._store: Store = PlainStore(self._settings, counters) if store is None else store
        self._clocks = ClockEstimator(topology, self._settings.clocks)
        self._losses = LossMeter(
            topology,
            window_ns=self._settings.window_ns,
            wait_ns=self._settings.longest_wait_ns,
            sample_every=self._settings.sample_every,
        )
        self._jobs = JobAccounts(topology, self._settings.jobs, counters)
        self._columns = LinkColumns(
            topology, stale_after_ns=self._settings.stale_after_ns, tx_window_ns=self._settings.tx_window_ns
        )

    @property
    def jobs(self) -> JobAccounts:
        """The jobs that switches add up for."""
        return self._jobs

    @property
    def store(self) -> Store:
        """Where samples and paths add up."""
        return self._store

    def add(self, records: Sequence[HopRecord]) -> None:
        """Take records, those of one report together; late and unordered ones find their place or are counted."""
        stitched = self._stitcher.stitch(records)
        for sample in stitched.samples:
            self._store.take_sample(sample)
        for path in stitched.paths:
            self._store.take_path(path)
        self._take_fates(stitched.fates)

    def _take_fates(self, fates: Iterable[Fate]) -> None:
        for fate in fates:
            self._losses.count(fate)

    def drop(self, drops: Sequence[DropRecord]) -> None:
        """Take packets that switches say they dropped."""
        for drop in drops:
            self._losses.dropped(drop)

    def tick(self, now_ns: int, reporters: Callable[[], Mapping[tuple[int, int], ReporterState]]) -> None:
        """Bring clocks and accounts of reports up to date, at their interval; call it often."""
        if not self._clocks.is_due(now_ns):
            return
        self._take_fates(self._stitcher.take_fates())
        self._losses.note_reporting(self._stitcher.reporting())
        if self._losses.counts_packets:
            self._losses.take_reporters(reporters().values(), now_ns)
        corrections = self._clocks.update(now_ns, self._store.take_flights(self._columns.number))
        self._stitcher.correct(corrections)
        self._store.correct(corrections)

    def count(self, flow: FlowKey, ip_bytes: int, source_ns: int | None = None) -> None:
        """Take note of one measured packet of a flow, once per packet: what the flow's rate is estimated from.

        `source_ns` is when it came to its first switch, by that switch's clock.
        """
        self._store.take_packet(flow, ip_bytes, self._clock.now_ns(), source_ns)

    def snapshot(self, reporters: Mapping[tuple[int, int], ReporterState] | None = None) -> Snapshot:
        """Return the state now: every directed link of the topology, and every flow heard of lately."""
        self._take_fates(self._stitcher.take_fates())
        self._losses.note_reporting(self._stitcher.reporting())
        now_ns = self._clock.now_ns()
        links = self._links(now_ns)
        maker = PathMaker(self._topology, links, now_ns, self._settings.stale_after_ns)
        paths = PathStates(self._store.flows(now_ns), maker)
        jobs = self._jobs.states(now_ns)
        return Snapshot(now_ns, links, paths, dict(reporters or {}), self._clocks.states(), jobs)

    def delays(self) -> dict[LinkKey, Sketch]:
        """Return sketches of the delays behind the figures of links that were heard of lately."""
        now_ns = self._clock.now_ns()
        found: dict[LinkKey, Sketch] = {}
        for key in self._topology.directed_links:
            figures = self._store.link(key)
            if figures is not None and figures.samples and now_ns - figures.newest_ns <= self._settings.stale_after_ns:
                found[key] = self._store.delays(key)
        return found

    def _links(self, now_ns: int) -> Mapping[LinkKey, LinkState]:
        seen = self._store.link_columns()
        if seen is None:
            return {key: self._link(link, now_ns) for key, link in self._topology.directed_links.items()}
        told = self._losses.told
        samples = self._columns.packets(seen, now_ns) if told else []
        number = self._columns.number
        losses = {key: loss for key in told if (loss := self._losses.loss(key, now_ns, samples[number[key]]))}
        return self._columns.states(seen, now_ns, losses, self._clocks.corrections.columns.uncertainty_ns)

    def _link(self, link: DirectedLink, now_ns: int) -> LinkState:
        figures = self._store.link(link.key)
        age_ns = None if figures is None else max(now_ns - figures.newest_ns, 0)
        if figures is None or age_ns is None or age_ns > self._settings.stale_after_ns:
            return nominal_link(link, age_ns, self._losses.loss(link.key, now_ns, 0))
        loss = self._losses.loss(link.key, now_ns, figures.samples)
        return self._measured(link, figures, age_ns, loss)

    def _measured(self, link: DirectedLink, figures: WindowFigures, age_ns: int, loss: LinkLoss | None) -> LinkState:
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
            loss=None if loss is None else loss.share,
            age_ns=age_ns,
            samples=figures.samples,
            source=figures.source,
            delay_ewma_ns=figures.delay_ewma_ns,
            delay_max_ns=figures.delay_max_ns,
            delay_uncertainty_ns=(
                self._clocks.uncertainty_ns(link.key) if figures.source is DelaySource.CORRECTED_STAMPS else None
            ),
            loss_source=None if loss is None else loss.source,
            buffer_occupancy_frames=figures.buffer_occupancy_frames,
            lost_packets=None if loss is None else loss.packets,
        )
