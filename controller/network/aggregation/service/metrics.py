"""Jobs of in-network aggregation as families of metrics; as many series as there are jobs and workers at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from controller.network.aggregation.service.messages import JobRow


def families(rows: Iterable[JobRow]) -> Iterator[Metric]:
    """Yield what Prometheus scrapes of a job service, of jobs that have not ended."""
    jobs = GaugeMetricFamily("millrace_jobs", "Jobs.", labels=["state"])
    wanted = GaugeMetricFamily("millrace_job_workers_wanted", "Workers that a job expects.", labels=["name"])
    workers = GaugeMetricFamily("millrace_job_workers", "Workers of a job.", labels=["name", "state"])
    heard = GaugeMetricFamily(
        "millrace_job_silent_seconds",
        "Seconds since the last message of the job's most silent worker.",
        labels=["name"],
    )
    living = [row for row in rows if row.ended_ns is None]
    for state, count in sorted(Counter(row.state for row in living).items()):
        jobs.add_metric([state], count)
    for row in living:
        wanted.add_metric([row.name], row.workers)
        for state, count in sorted(Counter(member.state for member in row.members).items()):
            workers.add_metric([row.name, state], count)
        if row.members:
            heard.add_metric([row.name], max(member.heard_ns for member in row.members) / 1e9)
    yield from (jobs, wanted, workers, heard)
