"""Whether a worker that comes can have a seat in the job that it asks for."""

from __future__ import annotations

from collections.abc import Collection

from controller.aggregation.service.job_state import JobState, Phase
from dataplane.allreduce.formats import MOST_WORKERS
from dataplane.allreduce.jobs.messages import Hello

_LONGEST_NAME = 200
_PORTS = 0xFFFF


def problem_of(hello: Hello, hosts: Collection[str], job: JobState | None) -> str | None:
    """Return why a worker cannot have a seat in `job`, or in a new one; None if it can."""
    if hello.host not in hosts:
        return f"the topology has no host {hello.host!r}"
    if not (1 <= len(hello.job) <= _LONGEST_NAME and hello.job.isprintable()):
        return f"a job's name has 1 to {_LONGEST_NAME} printable characters"
    if not 1 <= hello.workers <= (hello.capacity or hello.workers) <= MOST_WORKERS:
        return f"{hello.workers} workers with a capacity of {hello.capacity or hello.workers} cannot be"
    host, server_port = hello.server or (hello.host, hello.udp_port)
    if host not in hosts:
        return f"the topology has no host {host!r}"
    if not (1 <= hello.udp_port <= _PORTS and 1 <= server_port <= _PORTS):
        return f"UDP port {hello.udp_port} or {server_port} cannot be"
    window = hello.window
    if window is not None and (window < 1 or window & (window - 1)):
        return f"a window of {window} items is no power of two"
    return None if job is None else _misfit(job, hello)


def _misfit(job: JobState, hello: Hello) -> str | None:
    asked = job.hello
    for what, theirs, its in (
        ("workers", asked.workers, hello.workers),
        ("window", job.window, job.window if hello.window is None else hello.window),
        ("capacity", job.capacity, job.capacity if hello.capacity is None else hello.capacity),
        ("main server", asked.server, hello.server),
        ("boundaries", asked.boundaries, hello.boundaries),
    ):
        if theirs != its:
            return f"{hello.host} asks for {what} {its}, the others for {theirs}"
    there = job.members.get(hello.host) or job.joiners.get(hello.host)
    if there is not None and there.disconnected_ns is None:
        return f"{hello.host} has a worker in it already"
    others = len((job.remaining.keys() | job.joiners.keys()) - {hello.host})
    most = asked.workers if job.phase is Phase.GATHERING else job.capacity
    return f"it has its {most} workers" if others >= most else None
