"""Forecasts of the network to each centre, from the probes there and the collector's history of the path."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from controller.apiserver.resources import ProbeResult
from controller.common.errors import ControllerError
from controller.probing.hours import NetworkWindow, PathSample, ProbeSample, good_hours
from controller.probing.hours.good import WINDOW_S
from controller.probing.hours.samples import probe_samples
from controller.probing.hours.windows import network_windows
from controller.scheduling.serving.tasks.view import TasksView
from controller.scheduling.tasks.values import PendingTask
from dataplane.clock import NS_PER_S
from dataplane.errors import MillraceError
from dataplane.topology.values import Topology

LOGGER: Final = logging.getLogger("millrace.scheduler")
_FRESH_NS: Final = 600 * NS_PER_S
"""Validity of a forecast, and of the history read for it."""
_MOST_WAYS: Final = 64
"""Paths read from the history per round; the others follow in the next."""
Pair = tuple[str, str]
"""A host that tasks read from, and a centre."""


class Hours:
    """Forecasts by host and centre; renewed when a probe has returned, or after ten minutes."""

    def __init__(self, view: TasksView, history: Path | None = None, topology: Topology | None = None) -> None:
        self._view, self._history, self._topology = view, history, topology
        self._paths: dict[Pair, tuple[int, tuple[PathSample, ...]]] = {}
        self._windows: dict[Pair, tuple[object, tuple[NetworkWindow, ...] | None]] = {}

    async def read(self, tasks: Iterable[PendingTask], wall_ns: int) -> None:
        """Read the history of the paths that tasks' data would take; log failures."""
        if self._history is None or self._topology is None:
            return
        old = [pair for pair in self._pairs(tasks) if self._paths.get(pair, (0, ()))[0] + _FRESH_NS < wall_ns]
        for pair in old[:_MOST_WAYS]:
            try:
                samples = await asyncio.to_thread(self._path, pair, wall_ns)
            except (ControllerError, MillraceError) as error:
                LOGGER.warning("hours of centre %s: %s", pair[1], error)
                samples = ()
            self._paths[pair] = (wall_ns, samples)

    def windows(
        self, tasks: Iterable[PendingTask], results: Mapping[str, Sequence[ProbeResult]], wall_ns: int
    ) -> dict[Pair, tuple[NetworkWindow, ...]]:
        """Return the forecast of each path; unknown paths are left out."""
        by_pair = {pair: self._of(pair, results.get(pair[1], ()), wall_ns) for pair in self._pairs(tasks)}
        return {pair: windows for pair, windows in by_pair.items() if windows is not None}

    def _of(self, pair: Pair, results: Sequence[ProbeResult], wall_ns: int) -> tuple[NetworkWindow, ...] | None:
        read_ns, path = self._paths.get(pair, (0, ()))
        newest = results[-1].metadata.revision if results else 0
        key = (len(results), newest, read_ns, wall_ns // _FRESH_NS)
        cached = self._windows.get(pair)
        if cached is not None and cached[0] == key:
            return cached[1]
        good = good_hours(self._samples(results), path, wall_ns / NS_PER_S)
        windows = network_windows(good, wall_ns / NS_PER_S)
        self._windows[pair] = (key, windows)
        return windows

    def _samples(self, results: Sequence[ProbeResult]) -> tuple[ProbeSample, ...]:
        """Return the runs most telling about a centre's network: of a probe that uses it, else of the most frequent.

        Runs of one probe do similar work; runs of different probes are not compared.
        """
        by_probe: defaultdict[str, list[ProbeResult]] = defaultdict(list)
        for result in results:
            by_probe[result.spec.probe].append(result)
        probes = {name: probe for name in by_probe if (probe := self._view.probe(name)) is not None}
        candidates = [probe_samples(runs, probes) for runs in by_probe.values()]
        return max(
            candidates,
            key=lambda samples: (any(run.network_s is not None for run in samples), len(samples)),
            default=(),
        )

    def _pairs(self, tasks: Iterable[PendingTask]) -> list[Pair]:
        hosts = sorted({task.main_host for task in tasks} - {""})
        return [(host, name) for host in hosts for name in sorted(self._view.centres)]

    def _path(self, pair: Pair, wall_ns: int) -> tuple[PathSample, ...]:
        """Return the history of the path to a centre's first host that the topology knows."""
        # Import DuckDB only when a history is read.
        from controller.probing.hours.telemetry import path_samples, ways  # noqa: PLC0415

        assert self._history is not None
        assert self._topology is not None
        host, centre = pair
        hosts = [name for name in self._view.centres[centre].status.hosts if name in self._topology.attachment]
        if not hosts or host not in self._topology.attachment or host in hosts:
            return ()
        end = datetime.fromtimestamp(wall_ns / NS_PER_S, UTC)
        paths = ways(self._topology, host, hosts[0])
        return path_samples(self._history, paths, end - timedelta(seconds=WINDOW_S), end)
