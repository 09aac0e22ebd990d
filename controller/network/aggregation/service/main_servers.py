"""The main server's seat in a job: it is no worker, holds up nobody, and may leave and return."""

from __future__ import annotations

from controller.network.aggregation.service.job_state import JobState, WorkerState
from controller.network.aggregation.service.settings import JobSettings
from controller.network.intents import Worker
from dataplane.allreduce.jobs.messages import Hello


def adopt_terms(job: JobState, hello: Hello, settings: JobSettings) -> None:
    """Give a job the terms of its first worker; until one comes, those of its main server."""
    default = hello.workers if settings.capacity is None else max(settings.capacity, hello.workers)
    job.hello, job.size = hello, hello.workers
    job.window = settings.window if hello.window is None else hello.window
    job.capacity = default if hello.capacity is None else hello.capacity


def is_missing(job: JobState) -> bool:
    """Return whether a job waits for its main server to join."""
    asked = job.hello.server
    return asked is not None and asked[1] == 0 and job.main_server is None


def server_of(job: JobState) -> Worker | None:
    """Return where a job's switches send what is for its main server."""
    if job.main_server is not None:
        return job.main_server.worker
    return None if job.hello.server is None else Worker(*job.hello.server)


def with_server(job: JobState) -> list[WorkerState]:
    """Return the members, and the main server if it has a seat."""
    return [*job.members.values(), *([] if job.main_server is None else [job.main_server])]


def present(job: JobState) -> str:
    """Return who has come, for the reason why a job does not start."""
    workers = f"{len(job.members)} of {job.hello.workers} workers ({' '.join(sorted(job.members))})"
    return f"{workers} and no main server" if is_missing(job) else workers
