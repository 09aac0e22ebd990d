"""Results of probes over time: by centre, probe, type of units and number of them, within a window."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.apiserver.client.synchronous import SyncApiClient
from controller.apiserver.resources import ProbeResult
from controller.apiserver.resources.probe_result import ProbeRun


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Key of comparable results over time: the same probe at the same centre, on units of one type."""

    centre: str
    probe: str
    unit: str

    def __str__(self) -> str:
        return f"{self.probe} at {self.centre}" + (f", {self.unit}" if self.unit else "")


def read_results(
    client: SyncApiClient,
    *,
    centre: str | None = None,
    probe: str | None = None,
    task_type: str | None = None,
    since_ns: int = 0,
    until_ns: int | None = None,
) -> tuple[ProbeResult, ...]:
    """Return the results that the API server keeps of a window of time, the oldest first; raise ApiError.

    Its settings (`retention.probe_results`, `probe_results_age`) bound how many it keeps, and for how long.
    """
    chosen = {"centre": centre, "probe": probe, "task-type": task_type}
    fields = ",".join(f"{name}={value}" for name, value in chosen.items() if value is not None)
    return within(client.of(ProbeResult).list(fields=fields).items, since_ns, until_ns)


def within(results: Iterable[ProbeResult], since_ns: int, until_ns: int | None = None) -> tuple[ProbeResult, ...]:
    """Return the results from a start time on, and before an end time if given, the oldest first."""
    recent = [
        result
        for result in results
        if result.metadata.created_ns >= since_ns and (until_ns is None or result.metadata.created_ns < until_ns)
    ]
    return tuple(sorted(recent, key=lambda result: (result.metadata.created_ns, result.metadata.name)))


def by_place(results: Iterable[ProbeResult]) -> dict[Place, tuple[ProbeResult, ...]]:
    """Return results by place, in their original order; results without a run have none."""
    grouped: dict[Place, list[ProbeResult]] = {}
    for result in results:
        if result.status.runs:
            key = Place(result.spec.centre, result.spec.probe, result.status.unit or result.spec.unit or "")
            grouped.setdefault(key, []).append(result)
    return {key: tuple(grouped[key]) for key in sorted(grouped)}


def run_times_by_units(results: Iterable[ProbeResult]) -> Mapping[int, Sequence[float]]:
    """Return all run times of successful runs by number of units, as the threshold search needs them."""
    times: dict[int, list[float]] = {}
    for result in results:
        for run in result.status.runs:
            if is_good(run):
                times.setdefault(run.units, []).extend(run.run_times_s)
    return times


def is_good(run: ProbeRun) -> bool:
    """Return whether a run succeeded and has times."""
    return run.outcome == "succeeded" and bool(run.run_times_s) and run.units > 0
