"""Admission of workers: whether an arriving worker can have a seat in the job that it asks for."""

from __future__ import annotations

from collections.abc import Collection

from controller.network.aggregation.cells import cells_for
from controller.network.aggregation.service.job_state import JobState, Phase
from controller.network.aggregation.service.settings import JobSettings
from controller.network.intents import Worker
from dataplane.allreduce.formats import MOST_WORKERS
from dataplane.allreduce.jobs.messages import Hello

_LONGEST_NAME = 200
_PORTS = 0xFFFF


def problem_of(
    hello: Hello, hosts: Collection[str], job: JobState | None, settings: JobSettings, jobs: int
) -> str | None:
    """Return why a worker cannot have a seat in `job`, or in a new one besides so many jobs; None if it can."""
    if hello.host not in hosts:
        return f"the topology has no host {hello.host!r}"
    if not (1 <= len(hello.job) <= _LONGEST_NAME and hello.job.isprintable()):
        return f"a job name must have 1 to {_LONGEST_NAME} printable characters"
    if not 1 <= hello.workers <= (hello.capacity or hello.workers) <= MOST_WORKERS:
        return f"{hello.workers} workers do not fit a capacity of {hello.capacity or hello.workers}"
    host, server_port = hello.server or (hello.host, hello.udp_port)
    if host not in hosts:
        return f"the topology has no host {host!r}"
    if not (1 <= hello.udp_port <= _PORTS and 0 <= server_port <= _PORTS):
        return f"UDP port {hello.udp_port} or {server_port} is invalid"
    window = hello.window
    if window is not None and (window < 1 or window & (window - 1)):
        return f"a window of {window} items is not a power of two"
    if job is None:
        return _excess(hello, settings, jobs)
    return _misfit_of_server(job, hello) if hello.is_main_server else _misfit(job, hello)


def _excess(hello: Hello, settings: JobSettings, jobs: int) -> str | None:
    """Return the limit that a new job would exceed."""
    window, workers = hello.window or settings.window, hello.capacity or hello.workers
    if cells_for(window) > settings.most_cells:
        return (
            f"a window of {window} items takes {cells_for(window)} cells, more than the {settings.most_cells} of a job"
        )
    if workers > settings.most_workers:
        return f"{workers} workers exceed the limit of {settings.most_workers} per job"
    return f"the limit of {jobs} concurrent jobs is reached" if jobs >= settings.most_jobs else None


def _misfit(job: JobState, hello: Hello) -> str | None:
    asked = job.hello
    if job.main_server is not None and hello.host == job.main_server.hello.host:
        return f"{hello.host} is its main server"
    if asked.is_main_server:
        return None if asked.workers == hello.workers else f"its main server expects {asked.workers} workers"
    for what, theirs, its in (
        ("workers", asked.workers, hello.workers),
        ("window", job.window, job.window if hello.window is None else hello.window),
        ("capacity", job.capacity, job.capacity if hello.capacity is None else hello.capacity),
        ("main server", asked.server, hello.server),
        ("boundaries", asked.boundaries, hello.boundaries),
        ("convergence", asked.convergence, hello.convergence),
    ):
        if theirs != its:
            return f"{hello.host} asks for {what} {its}, the others for {theirs}"
    there = job.members.get(hello.host) or job.joiners.get(hello.host)
    if there is not None and there.disconnected_ns is None:
        return f"{hello.host} already has a worker in it"
    others = len((job.remaining.keys() | job.joiners.keys()) - {hello.host})
    most = asked.workers if job.phase is Phase.GATHERING else job.capacity
    return f"it already has all {most} workers" if others >= most else None


def _misfit_of_server(job: JobState, hello: Hello) -> str | None:
    there = job.main_server
    if there is not None and (there.hello.host != hello.host or there.disconnected_ns is None):
        return f"{there.hello.host} is its main server"
    if hello.host in job.members or hello.host in job.joiners:
        return f"{hello.host} has a worker in it, and cannot be its main server as well"
    if hello.workers != job.hello.workers:
        return f"{hello.host} asks for workers {hello.workers}, the others for {job.hello.workers}"
    awaited = job.server or (None if job.hello.server is None else Worker(*job.hello.server))
    if awaited is not None and (awaited.host != hello.host or awaited.udp_port not in (0, hello.udp_port)):
        return f"its main server is {awaited.host} at UDP port {awaited.udp_port}"
    return "it has started without a main server" if awaited is None and job.phase is not Phase.GATHERING else None
