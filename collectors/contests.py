"""Warnings about impostors: contested sequence numbers, and reports that come from the wrong source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from collectors.collector import Collector
from collectors.counters import Count
from collectors.values import ReporterState
from dataplane.topology.values import Topology

INTERVAL_S: Final = 10.0
FEWEST: Final = 16
"""In an interval; fewer may be a switch that began again at a number close by."""

Reporters = Mapping[tuple[int, int], ReporterState]


def contests(before: Reporters, now: Reporters, names: Mapping[int, str]) -> list[str]:
    """Return a line for each reporter that had `FEWEST` or more numbers contested between two moments."""
    lines = []
    for key, state in now.items():
        past = before.get(key)
        count = state.contested - (past.contested if past is not None else 0)
        if count >= FEWEST:
            who = names.get(state.node_id, "a node missing from the topology")
            lines.append(
                f"{count} reports of node {state.node_id} ({who}) reuse sequence numbers of its other reports: "
                "another sender uses its node id, or two switches share it"
            )
    return lines


class ContestWatch:
    """Checks a collector's reporters from time to time, and reports contested numbers, one line each."""

    def __init__(self, collector: Collector, topology: Topology, tell: Callable[[str], None]) -> None:
        self._collector, self._tell = collector, tell
        self._names = {node.node_id: node.name for node in topology.switches}
        self._before: Reporters = {}
        self._refused = 0

    def step(self) -> None:
        """Report what was contested, and how many reports came from the wrong source, since the last time."""
        now = self._collector.reporters()
        for line in contests(self._before, now, self._names):
            self._tell(line)
        self._before = now
        refused = self._collector.counters[Count.WRONG_SOURCE]
        if refused != self._refused:
            many, self._refused = refused - self._refused, refused
            self._tell(f"{many} reports were rejected: {self._collector.status().last_problem}")

    async def run(self) -> None:
        """Step at intervals until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.step()
