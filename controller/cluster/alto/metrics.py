"""Cost types, and their values from the cost map's arrays.

Units are RFC 9439's: microseconds, bytes a second, per cent. Metrics with the prefix `priv:` are this server's own:
they state the basis of the other figures, pair by pair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from controller.cluster.alto.values import CostContext, CostMode, CostType, Provenance
from controller.cluster.cost_map.columns import AVAILABLE, DELAY, LOSS
from controller.cluster.cost_map.pairs import PairColumns
from controller.cluster.cost_map.values import PPB, UNLIMITED_BPS, UNREACHABLE_NS
from dataplane.clock import NS_PER_MS

Numbers = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]

_NS_PER_US: Final = 1000
_MEAN: Final = "a mean; this server keeps no medians of paths, so the metric without an operator is also the mean"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its values for pairs that have any, and the cost map figure that it is derived from.

    `figure` is its bit in `measured`, 0 for a metric that itself states the basis of figures.
    """

    name: str
    mode: CostMode
    unit: str
    description: str
    figure: int
    values: Callable[[PairColumns], tuple[Numbers, Flags]]

    @property
    def cost_type(self) -> CostType:
        """The cost type as in the directory."""
        return CostType(cost_mode=self.mode, cost_metric=self.name, description=self.description)

    @property
    def type_name(self) -> str:
        """A name for the cost type, in resource ids and paths."""
        return f"{self.name.replace(':', '-')}-{'num' if self.mode is CostMode.NUMERICAL else 'ord'}"

    def context(self, pairs: PairColumns, state_age_ns: int) -> CostContext:
        """Return the source of the values: `estimation` if telemetry has measured any of them, else `nominal`."""
        figure = self.figure or DELAY | AVAILABLE | LOSS
        # The upper bits mean that part of the path was measured, the lower ones that all of it was.
        partly_measured = pairs.measured & (figure << 3) != 0
        whole = partly_measured & (pairs.measured & figure == figure)
        # Leave out pairs of a host with itself: no delay and unlimited bandwidth.
        is_pair = (pairs.delay_ns != 0) | (pairs.available_bps != UNLIMITED_BPS)
        measured, partly = (int(np.count_nonzero(flags & is_pair)) for flags in (whole, partly_measured & ~whole))
        ages = pairs.age_ns[pairs.age_ns >= 0]
        oldest_ns = int(ages.max()) + state_age_ns if len(ages) else None
        provenance = Provenance(
            unit=self.unit,
            pairs_measured=measured,
            pairs_partly_measured=partly,
            pairs_nominal=int(np.count_nonzero(is_pair)) - measured - partly,
            state_age_ms=state_age_ns / NS_PER_MS,
            oldest_figure_age_ms=None if oldest_ns is None else oldest_ns / NS_PER_MS,
        )
        return CostContext(cost_source="estimation" if measured + partly else "nominal", parameters=provenance)


def _delay_us(pairs: PairColumns) -> tuple[Numbers, Flags]:
    return pairs.delay_ns / _NS_PER_US, pairs.delay_ns != UNREACHABLE_NS


def _rank(pairs: PairColumns) -> tuple[Numbers, Flags]:
    """Return each delay's rank among all: 1 for the least; equal delays share a rank."""
    present = pairs.delay_ns != UNREACHABLE_NS
    ranks = np.zeros(pairs.delay_ns.shape, np.int64)
    ranks[present] = 1 + np.unique(pairs.delay_ns[present], return_inverse=True)[1].reshape(-1)
    return ranks, present


def _available_bytes(pairs: PairColumns) -> tuple[Numbers, Flags]:
    return pairs.available_bps // 8, (pairs.available_bps < UNLIMITED_BPS) & (pairs.delay_ns != UNREACHABLE_NS)


def _loss_percent(pairs: PairColumns) -> tuple[Numbers, Flags]:
    return pairs.loss_ppb / (PPB // 100), np.ones(pairs.loss_ppb.shape, np.bool_)


def _age_ms(pairs: PairColumns) -> tuple[Numbers, Flags]:
    return pairs.age_ns / NS_PER_MS, pairs.age_ns >= 0


def _basis(figure: int) -> Callable[[PairColumns], tuple[Numbers, Flags]]:
    def values(pairs: PairColumns) -> tuple[Numbers, Flags]:
        partly = pairs.measured & (figure << 3) != 0
        whole = partly & (pairs.measured & figure != 0)
        return partly.astype(np.int64) + whole, pairs.delay_ns != UNREACHABLE_NS

    return values


_N, _O = CostMode.NUMERICAL, CostMode.ORDINAL
_US, _BYTES, _PERCENT = "microseconds", "bytes/s", "percent"
_OWN: Final = "whether the {} is nominal (0), measured on some links of the path (1) or on all (2)"

METRICS: Final[tuple[Metric, ...]] = (
    Metric("routingcost", _N, _US, "One-way delay in microseconds.", DELAY, _delay_us),
    Metric("routingcost", _O, "rank", "Rank by one-way delay among all pairs of the answer's map.", DELAY, _rank),
    Metric("delay-ow:mean", _N, _US, "One-way delay in microseconds, queues included.", DELAY, _delay_us),
    Metric("delay-ow", _N, _US, f"One-way delay in microseconds: {_MEAN}.", DELAY, _delay_us),
    Metric("lossrate:mean", _N, _PERCENT, "Packets lost, in per cent.", LOSS, _loss_percent),
    Metric("lossrate", _N, _PERCENT, f"Packets lost, in per cent: {_MEAN}.", LOSS, _loss_percent),
    Metric("bw-available:mean", _N, _BYTES, "Free bandwidth, in bytes per second.", AVAILABLE, _available_bytes),
    Metric("bw-available", _N, _BYTES, f"Free bandwidth, in bytes per second: {_MEAN}.", AVAILABLE, _available_bytes),
    Metric("priv:millrace-age", _N, "milliseconds", "Age of the oldest measured figure on the path.", 0, _age_ms),
    Metric("priv:millrace-delay-basis", _N, "basis", _OWN.format("delay"), 0, _basis(DELAY)),
    Metric("priv:millrace-bandwidth-basis", _N, "basis", _OWN.format("free bandwidth"), 0, _basis(AVAILABLE)),
    Metric("priv:millrace-loss-basis", _N, "basis", _OWN.format("loss"), 0, _basis(LOSS)),
)
"""All cost types."""

BY_TYPE: Final = {(metric.mode.value, metric.name): metric for metric in METRICS}
