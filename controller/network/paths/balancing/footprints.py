"""Load that a flow puts on links when it takes a path: its packets, their telemetry, and the reports about them."""

from __future__ import annotations

from functools import lru_cache

from controller.network.paths.balancing.values import MeasuredFlow
from controller.network.paths.deciding.graph import Network, Rows
from controller.network.paths.telemetry_load import TelemetryLoad

Footprint = tuple[tuple[int, float, float], ...]
"""(row, share of the flow's rate, additional bits per packet)."""


class Footprints:
    """Looks up what paths cost; kept for one round."""

    def __init__(self, network: Network, watch: TelemetryLoad | None) -> None:
        self._network, self._watch = network, watch
        self.of = lru_cache(maxsize=65_536)(self._of)

    def _of(self, rows: Rows) -> Footprint:
        watch, table = self._watch, self._network.table
        if watch is None or not rows:
            return tuple((row, 1.0, 0.0) for row in rows)
        bits = {row: 8 * watch.carried_bytes(hop) for hop, row in enumerate(rows, 1)}
        switches = (int(table.tail[rows[0]]), *(int(table.head[row]) for row in rows))
        for switch, nbytes in watch.reports(switches):
            for row in self._network.report_rows(switch):
                bits[row] = bits.get(row, 0.0) + 8 * nbytes
        return tuple((row, float(row in rows), more) for row, more in bits.items())

    def loads(self, flow: MeasuredFlow, need_bps: float, rows: Rows) -> list[tuple[int, float]]:
        """Return the loads that a flow of a given need puts on links, in bit/s, when it takes a path."""
        pps = flow.packets_per_s
        return [(row, share * need_bps + bits * pps) for row, share, bits in self.of(rows)]
