"""Samples over time of the path to a centre, from a collector's history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

from collectors.history.query import query
from controller.network.base_paths import base_paths, next_hops
from controller.probing.errors import ProbeError
from controller.probing.hours.values import PathSample
from dataplane.topology.values import LinkKey, Topology

STEP_S: Final = 300.0
"""Duration that one sample of the path to a centre covers."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_LINKS: Final = """
    select epoch(time_bucket(to_seconds({step_s}), time)) as began, src, dst,
        sum(available_bps * snapshots) / sum(snapshots),
        coalesce(sum(delay_mean_ns * samples) / nullif(sum(samples), 0), avg(delay_mean_ns))
    from links
    where time >= make_timestamptz({start_us}) and time < make_timestamptz({end_us})
        and (src || ' ' || dst) in ({links})
    group by all order by began
"""


def ways(topology: Topology, src: str, dst: str) -> tuple[tuple[LinkKey, ...], ...]:
    """Return the links of each base path between two hosts, their own links included; ProbeError if there is none.

    Raises ProbeError for a host missing from the topology, too.
    """
    for host in (src, dst):
        if host not in topology.attachment:
            raise ProbeError(f"topology {topology.name} has no host {host}")
    first, last = topology.attachment[src].node, topology.attachment[dst].node
    paths = [(src, *path, dst) for path in base_paths(next_hops(topology), first, last)]
    if not paths or src == dst:
        raise ProbeError(f"topology {topology.name}: no path from {src} to {dst}")
    return tuple(tuple(LinkKey(*ends) for ends in pairwise(path)) for path in paths)


def path_samples(
    history: Path, paths: Sequence[Sequence[LinkKey]], start: datetime, end: datetime, *, step_s: float = STEP_S
) -> tuple[PathSample, ...]:
    """Return a collector's history of a path between two moments (with time zones), one sample per step.

    `paths` are the equal ones that traffic is divided over: free bandwidth is the least of any link, the delay the mean
    over the paths. Links that the history lacks (a host's own, towards it) do not count. Raises HistoryError if the
    folder is not a history.
    """
    names = ", ".join(sorted({f"'{_quoted(link.src)} {_quoted(link.dst)}'" for path in paths for link in path}))
    statement = _LINKS.format(step_s=float(step_s), start_us=_us(start), end_us=_us(end), links=names)
    steps: dict[float, dict[LinkKey, tuple[float, float]]] = {}
    for batch in query(history, statement).batches:
        for time_s, src, dst, available_bps, delay_ns in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            steps.setdefault(time_s, {})[LinkKey(src, dst)] = (available_bps, delay_ns)
    return tuple(_path_samples(steps, paths))


def _path_samples(
    steps: Mapping[float, Mapping[LinkKey, tuple[float, float]]], paths: Sequence[Sequence[LinkKey]]
) -> Iterator[PathSample]:
    for time_s in sorted(steps):
        links = steps[time_s]
        delays = [sum(links[link][1] for link in path if link in links) for path in paths]
        yield PathSample(time_s, min(bps for bps, _ in links.values()), sum(delays) / len(delays))


def _quoted(name: str) -> str:
    return name.replace("'", "''")


def _us(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise ProbeError(f"{moment.isoformat()} has no time zone")
    return (moment - _EPOCH) // timedelta(microseconds=1)
