"""The network's state, built from hop records per directed link and per flow, and its frozen snapshot.

`NetworkStateBuilder` builds the links from columns; `collectors.reference.builder` builds them one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from collectors.clocks.estimator import ClockEstimator
from collectors.counters import Counters
from collectors.decode.samples import Fate
from collectors.decode.stitch import Stitcher
from collectors.jobs.accounts import JobAccounts
from collectors.settings import StateSettings
from collectors.state.accumulator import ColumnStore, FlowsInColumns, SeenFlows, Store
from collectors.state.link_states import LinkColumns, LinkStates, link_states_of
from collectors.state.loss import LossMeter
from collectors.state.path_figures import PathMaker, path_columns
from collectors.state.path_states import PathStates
from collectors.statistics.link_windows import LinkWindows
from collectors.statistics.sketch import Sketch
from collectors.values import (
    DropRecord,
    FlowKey,
    HopRecord,
    LinkState,
    NetworkSignals,
    PathState,
    RecordKind,
    ReporterState,
    Snapshot,
)
from dataplane.clock import Clock
from dataplane.topology.values import Endpoint, LinkKey, Topology
from dataplane.wire.drop_reasons import DropReason

_WITH_PLACE = frozenset({RecordKind.STACK, RecordKind.HOP_BY_HOP})
"""Kinds of records whose index gives their hop's position on the path."""

_SKETCHES: Final = 16
"""Sketches of links made before other threads get the state."""


CompleteLinks = Callable[[LinkStates, int], LinkStates]
"""Returns links at a time (ns) with more of their figures known."""
CompletePaths = Callable[[Mapping[FlowKey, PathState], LinkStates, int], Mapping[FlowKey, PathState]]
"""Returns flows' paths, and further ones."""


class StateBuilder(ABC):
    """Accumulates hop records; deciders only see its `snapshot`. Topology and settings bound its memory."""

    def __init__(  # noqa: PLR0917 - where hops wait and samples add up is given by position
        self,
        topology: Topology,
        clock: Clock,
        settings: StateSettings,
        counters: Counters,
        store: Store,
        stitcher: Stitcher,
    ) -> None:
        self._topology = topology
        self._clock = clock
        self._settings = settings
        self._stitcher = stitcher
        self._store = store
        self._clocks = ClockEstimator(topology, self._settings.clocks)
        self._losses = LossMeter(
            topology,
            window_ns=self._settings.window_ns,
            wait_ns=self._settings.longest_wait_ns,
            sample_every=self._settings.sample_every,
        )
        self._jobs = JobAccounts(topology, self._settings.jobs, counters)
        self._complete_links: tuple[CompleteLinks, ...] = ()
        self._complete_paths: tuple[CompletePaths, ...] = ()
        self._link_index = {key: index for index, key in enumerate(topology.directed_links)}

    @property
    def jobs(self) -> JobAccounts:
        """The jobs that switches add up for."""
        return self._jobs

    @property
    def store(self) -> Store:
        """Store that accumulates samples and paths."""
        return self._store

    def complete_by(self, links: CompleteLinks, paths: CompletePaths | None = None) -> None:
        """Complete snapshots with state from another source, after those added before."""
        self._complete_links = (*self._complete_links, links)
        if paths is not None:
            self._complete_paths = (*self._complete_paths, paths)

    def add(self, records: Sequence[HopRecord]) -> None:
        """Take records, those of one report together; late and unordered ones find their place or are counted."""
        for record in records:
            link = self._link_of(record.node_id, record.egress_port) if record.kind is RecordKind.QUEUE else None
            if link is not None:
                self._store.take_queue_report(link)
        stitched = self._stitcher.stitch(records)
        for sample in stitched.samples:
            self._store.take_sample(sample)
        for path in stitched.paths:
            self._store.take_path(path)
        self._take_fates(stitched.fates)

    def _take_fates(self, fates: Iterable[Fate]) -> None:
        for fate in fates:
            self._losses.count(fate)

    def drop(self, drops: Sequence[DropRecord], *, is_loss_counted: bool = False) -> None:
        """Take packets that switches report as dropped; their loss may be counted elsewhere already."""
        for drop in drops:
            if not is_loss_counted:
                self._losses.dropped(drop)
            link = self._link_of(drop.node_id, drop.egress_port) if drop.reason == DropReason.QUEUE_FULL else None
            if link is not None:
                self._store.take_full_queue(link)

    def _link_of(self, node_id: int, port: int | None) -> LinkKey | None:
        """Return the link that leaves a node by a port, None where the topology has none."""
        switch = self._topology.switch_by_id.get(node_id)
        link = None if switch is None or port is None else self._topology.link_at.get(Endpoint(switch.name, port))
        return None if link is None else link.key

    def note_stamp(self, records: Sequence[HopRecord]) -> None:
        """Note when a packet reached its first switch, if its records show that."""
        if not records:
            return
        first = records[0]
        is_first = first.hop_index == 0 and first.kind in _WITH_PLACE and first.node_id in self._topology.switch_by_id
        if is_first and first.ingress_timestamp_ns is not None:
            self._store.take_stamp(first.flow, first.ingress_timestamp_ns)

    def take_signals(self) -> NetworkSignals:
        """Return the signs, since the last call, that the network has changed."""
        return self._store.take_signals()

    def begin_round(self) -> None:
        """Begin a round of decisions, based on a snapshot of now."""
        self._store.begin_round(self._clock.now_ns())

    def tick(self, now_ns: int, reporters: Callable[[], Mapping[tuple[int, int], ReporterState]]) -> None:
        """Update clocks and accounts of reports, at their interval; call it often."""
        if not self._clocks.is_due(now_ns):
            return
        self._take_fates(self._stitcher.take_fates())
        self._losses.note_reporting(self._stitcher.reporting())
        if self._losses.counts_packets:
            self._losses.take_reporters(reporters().values(), now_ns)
        corrections = self._clocks.update(now_ns, self._store.take_flights(self._link_index))
        self._stitcher.correct(corrections)
        self._store.correct(corrections)

    def count(self, flow: FlowKey, ip_bytes: int, source_ns: int | None = None) -> None:
        """Note one measured packet of a flow, once per packet; the flow's rate is estimated from these.

        `source_ns` is when it came to its first switch, by that switch's clock.
        """
        self._store.take_packet(flow, ip_bytes, self._clock.now_ns(), source_ns)

    def snapshot(self, reporters: Mapping[tuple[int, int], ReporterState] | None = None) -> Snapshot:
        """Return the state now: every directed link of the topology, and every flow heard of lately."""
        self._take_fates(self._stitcher.take_fates())
        self._losses.note_reporting(self._stitcher.reporting())
        now_ns = self._clock.now_ns()
        links = self._links(now_ns)
        for complete_links in self._complete_links:
            links = complete_links(link_states_of(links), now_ns)
        paths = self._paths(self._store.flows(now_ns), links, now_ns)
        for complete_paths in self._complete_paths:
            paths = complete_paths(paths, link_states_of(links), now_ns)
        jobs = self._jobs.states(now_ns)
        return Snapshot(now_ns, links, paths, reporters or {}, self._clocks.states(), jobs)

    def _paths(self, seen: SeenFlows, links: Mapping[LinkKey, LinkState], now_ns: int) -> Mapping[FlowKey, PathState]:
        """Return the flows' paths; columns are built from columns, on first access."""
        stale_ns = self._settings.stale_after_ns
        if isinstance(seen, FlowsInColumns):
            return PathStates(len(seen), lambda: path_columns(seen.columns(), link_states_of(links), now_ns, stale_ns))
        maker = PathMaker(self._topology, links, now_ns, stale_ns)
        return {flow.flow: maker.path(flow) for flow in seen}

    @property
    def link_places(self) -> Mapping[LinkKey, int]:
        """Each link's place in the topology's order."""
        return self._link_index

    def link_windows(self) -> LinkWindows:
        """Return the windows behind all links' figures, to be merged with those of other collectors."""
        return self._store.link_windows()

    def delays(self, step_aside: Callable[[], object] = lambda: None) -> dict[LinkKey, Sketch]:
        """Return sketches of the delays behind the figures of links that were heard of lately.

        Between some of them it calls `step_aside`, in which the state may change.
        """
        sketches: dict[LinkKey, Sketch] = {}
        for number, key in enumerate(self._measured_links(), 1):
            sketches[key] = self._store.delays(key)
            if number % _SKETCHES == 0:
                step_aside()
        return sketches

    def _measured_links(self) -> list[LinkKey]:
        now_ns, stale_ns = self._clock.now_ns(), self._settings.stale_after_ns
        return [
            key
            for key in self._topology.directed_links
            if (figures := self._store.link(key)) is not None
            and figures.samples
            and now_ns - figures.newest_ns <= stale_ns
        ]

    @abstractmethod
    def _links(self, now_ns: int) -> Mapping[LinkKey, LinkState]:
        """Return the state of every directed link."""


class NetworkStateBuilder(StateBuilder):
    """The state over a store that has its links' figures side by side."""

    def __init__(  # noqa: PLR0917 - as above
        self,
        topology: Topology,
        clock: Clock,
        settings: StateSettings,
        counters: Counters,
        store: ColumnStore,
        stitcher: Stitcher,
    ) -> None:
        super().__init__(topology, clock, settings, counters, store, stitcher)
        self._link_store = store
        self._columns = LinkColumns(
            topology, stale_after_ns=settings.stale_after_ns, tx_window_ns=settings.tx_window_ns
        )

    def _links(self, now_ns: int) -> Mapping[LinkKey, LinkState]:
        self._columns.update(self._link_store, now_ns)
        reported = self._losses.reported_links
        samples = self._columns.samples.tolist() if reported else []
        number = self._columns.number
        losses = {key: loss for key in reported if (loss := self._losses.loss(key, now_ns, samples[number[key]]))}
        return self._columns.states(now_ns, losses, self._clocks.corrections.columns.uncertainty_ns)
