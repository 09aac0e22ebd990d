"""Workers that a job's items wait for, and why: the cable to their switch, its queue, or their own computing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from collectors.values import ChildState, JobState, LinkState
from dataplane.topology.values import LinkKey

_BUSY: Final = 0.8
"""Share of a link's rate from which it counts as full: a window's bursts hide in its mean."""
_LOSSY: Final = 0.001
"""Share of frames lost from which repetitions explain a wait."""
_QUEUED: Final = 0.5
"""Share of the wait from which delay on the link, rather than the worker, explains it."""


class Cause(StrEnum):
    """Cause of a worker's lateness."""

    CABLE = "cable"
    LOSS = "loss"
    QUEUE = "queue"
    COMPUTE = "compute"
    NOT_LATE = "not late"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Straggler:
    """A contributor to a job at a switch, with the share of items it was last of and the wait that it caused.

    `used`, `queue_frames` and `loss` are the greater of both directions of its link, None where no telemetry came.
    `repeated_per_item` is the whole job's at that switch.
    """

    job: str
    at: str
    worker: str
    last_share: float
    wait_caused_ns: int
    wait_mean_ns: int | None
    cause: Cause
    used: float | None
    queue_frames: float | None
    loss: float | None
    repeated_per_item: float


def stragglers(jobs: Iterable[JobState], links: Mapping[LinkKey, LinkState]) -> list[Straggler]:
    """Return contributors to jobs, those that cause most of the waiting first."""
    found = [_straggler(job, child, links) for job in jobs for child in job.children]
    return sorted(found, key=lambda row: (-row.wait_caused_ns, row.job, row.at, row.worker))


def _straggler(job: JobState, child: ChildState, links: Mapping[LinkKey, LinkState]) -> Straggler:
    switch, worker = child.key.switch, child.key.name
    both = [links[key] for key in (LinkKey(worker, switch), LinkKey(switch, worker)) if key in links]
    measured = [link for link in both if link.age_ns is not None]
    losses = [link.loss for link in measured if link.loss is not None]
    return Straggler(
        job=str(job.key.job) if job.name is None else job.name,
        at=switch,
        worker=worker,
        last_share=child.last_share,
        wait_caused_ns=child.wait_caused_ns,
        wait_mean_ns=child.wait_mean_ns,
        cause=_cause(child, measured),
        used=max((link.utilisation for link in measured), default=None),
        queue_frames=max((link.queue_occupancy_frames for link in measured), default=None),
        loss=max(losses, default=None),
        repeated_per_item=job.repeated_per_item,
    )


def _cause(child: ChildState, links: list[LinkState]) -> Cause:
    if not child.wait_mean_ns:
        return Cause.NOT_LATE
    if not links:
        return Cause.NOT_MEASURED
    if max(link.utilisation for link in links) >= _BUSY:
        return Cause.CABLE
    if max(link.loss or 0.0 for link in links) >= _LOSSY:
        return Cause.LOSS
    # Both directions: a result that comes late lets the next contribution begin late.
    if sum(link.delay_mean_ns for link in links) >= _QUEUED * child.wait_mean_ns:
        return Cause.QUEUE
    return Cause.COMPUTE
