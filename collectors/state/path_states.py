"""Flows' paths: what a snapshot knows of each, made of the links' states when it is read."""

from __future__ import annotations

import math
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any

import numpy as np

from collectors.state.accumulator import FlowColumns, FlowsInColumns, SeenFlow, SeenFlows, SwitchPath
from collectors.statistics.columns import UNKNOWN
from collectors.values import FlowKey, LinkState, PathState
from dataplane.topology.values import LinkKey, Topology


@dataclass(frozen=True, slots=True)
class PathColumns:
    """Flows' paths side by side; `figures` go by `PathState`'s names, UNKNOWN and NaN where one is not known."""

    flows: FlowColumns
    figures: Mapping[str, Sequence[Any]]


class PathStates(Mapping[FlowKey, PathState]):
    """The paths of one snapshot; nothing that comes later changes them."""

    def __init__(self, seen: SeenFlows, maker: PathMaker) -> None:
        self._seen: SeenFlows | None = seen
        self._count = len(seen)
        self._maker = maker
        self._all: dict[FlowKey, PathState] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[FlowKey]:
        return iter(self._made())

    def __getitem__(self, key: FlowKey) -> PathState:
        return self._made()[key]

    def __repr__(self) -> str:
        return repr(self._made())

    def items(self) -> ItemsView[FlowKey, PathState]:
        """Return every flow with its path."""
        return self._made().items()

    def values(self) -> ValuesView[PathState]:
        """Return every flow's path."""
        return self._made().values()

    def columns(self) -> PathColumns | None:
        """Return all paths side by side; None where they were never so, or single ones were made already."""
        flows = self._seen
        return self._maker.columns(flows.columns()) if isinstance(flows, FlowsInColumns) else None

    def _made(self) -> dict[FlowKey, PathState]:
        # A reader in another thread at the same time makes the same once more.
        flows = self._seen
        if flows is not None:
            self._all = {seen.flow: self._maker.path(seen) for seen in flows}
            self._seen = None
        return self._all


class PathMaker:
    """Adds up what a path's links say at one time, once for all flows of one path."""

    def __init__(
        self, topology: Topology, links: Mapping[LinkKey, LinkState], now_ns: int, stale_after_ns: int
    ) -> None:
        self._topology = topology
        self._links = links
        self._now_ns = now_ns
        self._stale_after_ns = stale_after_ns
        self._of_path: dict[SwitchPath, tuple[int, int, int | None, int | None, float | None, int]] = {}

    def path(self, seen: SeenFlow) -> PathState:
        """Return a flow's path with its figures."""
        delay_ns, bottleneck_bps, p50, p99, loss, samples = self._known(seen.path)
        age_ns = max(self._now_ns - seen.received_ns, 0)
        return PathState(
            seen.flow,
            seen.path.switches,
            delay_ns,
            bottleneck_bps,
            age_ns,
            seen.rate_bps,
            p50,
            p99,
            loss,
            samples,
            seen.measured_bytes,
            seen.is_young,
            seen.gap_mean_ns,
            seen.gap_variation,
        )

    def columns(self, flows: FlowColumns) -> PathColumns:
        """Return the flows' paths with their figures, side by side."""
        figures = [[_number(one) for one in self._known(path)] for path in flows.paths]
        of_paths = zip(*figures, strict=True) if figures else [()] * 6
        numbers = flows.path.tolist()
        delay_ns, bottleneck_bps, p50, p99, loss, samples = (
            [column[number] for number in numbers] for column in of_paths
        )
        return PathColumns(
            flows,
            {
                "delay_ns": delay_ns,
                "bottleneck_bps": bottleneck_bps,
                "age_ns": np.maximum(self._now_ns - flows.received_ns, 0).tolist(),
                "rate_bps": flows.rate_bps,
                "delay_p50_ns": p50,
                "delay_p99_ns": p99,
                "loss": [math.nan if share == UNKNOWN else share for share in loss],
                "samples": samples,
                "measured_bytes": flows.measured_bytes,
                "is_young": flows.is_young,
                "gap_mean_ns": flows.gap_mean_ns.tolist(),
                "gap_variation": flows.gap_variation.tolist(),
            },
        )

    def _known(self, path: SwitchPath) -> tuple[int, int, int | None, int | None, float | None, int]:
        figures = self._of_path.get(path)
        if figures is None:
            figures = self._of_path[path] = self._figures(path)
        return figures

    def _figures(self, path: SwitchPath) -> tuple[int, int, int | None, int | None, float | None, int]:
        """Add up the path's links; one of one switch between two unknown hosts has none, and no delay or limit."""
        states = [self._links[key] for key in path.links]
        # What the switches do not see: from the source host to its switch.
        access_ns = states[0].delay_mean_ns if states and states[0].link.src not in self._topology.switch else 0
        figures = path.figures
        fresh = self._now_ns - figures.newest_ns <= self._stale_after_ns
        mean, p50, p99 = (
            None if delay is None or not fresh else delay + access_ns
            for delay in (figures.delay_mean_ns, figures.delay_p50_ns, figures.delay_p99_ns)
        )
        delay_ns = sum(state.delay_mean_ns for state in states) if mean is None else mean
        bottleneck_bps = min((state.available_bps for state in states), default=0)
        return delay_ns, bottleneck_bps, p50, p99, self._loss(states), figures.samples if fresh else 0

    def _loss(self, states: list[LinkState]) -> float | None:
        """Return the loss over a path's links; None where that of a link between switches, or of all, is unknown."""
        known = [state.loss for state in states if state.loss is not None]
        inner = [state for state in states if {state.link.src, state.link.dst} <= self._topology.switch.keys()]
        if not known or any(state.loss is None for state in inner):
            return None
        return 1.0 - math.prod(1.0 - loss for loss in known)


def _number(figure: float | None) -> float:
    return UNKNOWN if figure is None else figure
