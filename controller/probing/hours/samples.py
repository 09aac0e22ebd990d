"""Results of probes as samples over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from controller.apiserver.resources import ProbeResult
from controller.apiserver.resources.probe_result import ProbeRun
from controller.probing.hours.values import ProbeSample
from controller.probing.values import ProbeTask
from dataplane.clock import NS_PER_S

NETWORK_KERNELS: Final = frozenset({"network-pull"})
"""Kernels that come with Millrace and use the network."""


def probe_samples(
    results: Iterable[ProbeResult],
    probes: Mapping[str, ProbeTask],
    *,
    units: int | None = None,
    network_kernels: Collection[str] = NETWORK_KERNELS,
) -> tuple[ProbeSample, ...]:
    """Return the runs of one probe at one centre on this many units, by time; None: the number measured most often.

    `probes` are by name: their uses of kernels, and the repetitions of each. Without its probe the network's part of a
    run is unknown. Failed runs do not count.
    """
    runs = [
        (result, run)
        for result in results
        for run in result.status.runs
        if run.outcome == "succeeded" and run.run_times_s and min(run.run_times_s) > 0
    ]
    if not runs:
        return ()
    often = Counter(run.units for _, run in runs)
    chosen = max(often, key=lambda count: (often[count], -count)) if units is None else units
    samples = (
        _sample(result, run, probes.get(result.spec.probe), network_kernels)
        for result, run in runs
        if run.units == chosen
    )
    return tuple(sorted(samples, key=lambda sample: sample.time_s))


def _sample(
    result: ProbeResult, run: ProbeRun, probe: ProbeTask | None, network_kernels: Collection[str]
) -> ProbeSample:
    time_s = (run.started_ns or result.metadata.created_ns) / NS_PER_S
    run_time_s = _mean(run.run_times_s)
    if probe is None or not any(run.kernels_s.values()):
        return ProbeSample(time_s, run_time_s)
    parts: dict[bool, list[float]] = {True: [], False: []}
    for use in probe.uses:
        if seconds := run.kernels_s.get(use.name):
            parts[use.kernel in network_kernels].append(use.repetitions * _mean(seconds))
    network_s, compute_s = (sum(parts[uses_network]) if parts[uses_network] else None for uses_network in (True, False))
    return ProbeSample(time_s, run_time_s, network_s, compute_s)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
