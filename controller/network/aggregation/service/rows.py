"""Jobs as users see them: the service's state of workers, and their place in the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controller.network.aggregation.service.job_state import JobState, Phase, WorkerState
from controller.network.aggregation.service.messages import JobRow, MemberRow
from dataplane.topology.values import LinkKey


@dataclass(frozen=True, slots=True)
class Place:
    """A job in the network: its switches, the root first, the links to it, and the switch of each worker."""

    switches: tuple[str, ...] = ()
    links: tuple[LinkKey, ...] = ()
    parents: Mapping[str, str] = field(default_factory=dict)


def row_of(job: JobState, now_ns: int, place_of: Callable[[int], Place]) -> JobRow:
    """Return a job's row; `place_of` returns the place of a job's number."""
    installed, is_over = job.installed, job.phase is Phase.ENDED
    place = Place() if installed is None or is_over else place_of(installed.number)
    working = "waiting" if installed is None else "working"
    seats = [(worker, working) for worker in job.remaining.values()]
    seats += [(job.members[host], "leaving") for host in job.leaving]
    seats += [(worker, "joining") for worker in job.joiners.values()]
    seats += [] if job.main_server is None else [(job.main_server, "serving")]
    members = [_member(worker, state, now_ns, place.parents.get(worker.hello.host)) for worker, state in seats]
    return JobRow(
        job.name,
        None if installed is None else installed.number,
        job.phase.value,
        job.size if installed is not None else job.hello.workers,
        () if is_over else tuple(sorted(members, key=lambda member: member.host)),
        None if installed is None else installed.epoch,
        job.window,
        job.capacity,
        place.switches,
        job.reason,
        now_ns - job.ended_ns if is_over else None,
        place.links,
    )


def _member(worker: WorkerState, state: str, now_ns: int, switch: str | None) -> MemberRow:
    is_lost = worker.disconnected_ns is not None
    return MemberRow(worker.hello.host, "disconnected" if is_lost else state, now_ns - worker.heard_ns, switch)
