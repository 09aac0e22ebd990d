"""The network's state over the plain store, link by link: as `collectors.state.link_states` does over columns."""

from __future__ import annotations

from collections.abc import Mapping

from collectors.counters import Counters
from collectors.reference.accumulator import PlainStore
from collectors.reference.stitch import PlainStitcher
from collectors.settings import StateSettings
from collectors.state.accumulator import Store
from collectors.state.builder import StateBuilder
from collectors.state.loss import LinkLoss
from collectors.state.nominal import nominal_link
from collectors.statistics.window import PASSED_ON, WindowFigures
from collectors.values import DelaySource, LinkState, LoadSource
from dataplane.clock import NS_PER_S, Clock
from dataplane.topology.values import DirectedLink, LinkKey, Topology


class PlainStateBuilder(StateBuilder):
    """Builds the state in plain Python, in its own store unless one is given."""

    def __init__(
        self,
        topology: Topology,
        clock: Clock,
        settings: StateSettings | None = None,
        counters: Counters | None = None,
        store: Store | None = None,
    ) -> None:
        settings = settings or StateSettings()
        counters = Counters() if counters is None else counters
        store = PlainStore(topology, settings, counters) if store is None else store
        super().__init__(topology, clock, settings, counters, store, PlainStitcher(topology, settings, counters))

    def _links(self, now_ns: int) -> Mapping[LinkKey, LinkState]:
        return {key: self._link(link, now_ns) for key, link in self._topology.directed_links.items()}

    def _link(self, link: DirectedLink, now_ns: int) -> LinkState:
        figures = self._store.link(link.key)
        age_ns = None if figures is None else max(now_ns - figures.newest_ns, 0)
        if figures is None or age_ns is None or age_ns > self._settings.stale_after_ns:
            return nominal_link(link, age_ns, self._losses.loss(link.key, now_ns, 0))
        loss = self._losses.loss(link.key, now_ns, figures.samples)
        return self._measured(link, figures, age_ns, loss)

    def _measured(self, link: DirectedLink, figures: WindowFigures, age_ns: int, loss: LinkLoss | None) -> LinkState:
        used_bps, newest = self._used_bps(link, figures.tx_bytes_per_window or 0), figures.newest_tx_bytes
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
            delay_uncertainty_ns=(
                self._clocks.uncertainty_ns(link.key) if figures.source is DelaySource.CORRECTED_STAMPS else None
            ),
            loss_source=None if loss is None else loss.source,
            lost_packets=None if loss is None else loss.packets,
            load_source=None if newest is None else LoadSource.TELEMETRY,
            newest_utilisation=None if newest is None else self._used_bps(link, newest) / link.rate_bps,
            **{name: getattr(figures, name) for name in PASSED_ON},
        )

    def _used_bps(self, link: DirectedLink, nbytes: int) -> int:
        """Return bytes of one of the switch's own windows as bit/s, at most the link's rate."""
        return min(8 * nbytes * NS_PER_S // self._settings.tx_window_ns, link.rate_bps)
