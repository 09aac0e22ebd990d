"""Records forged by a hostile task to fake another task's end, wherever it can write."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from controller.apiserver.resources import Pod
from controller.workloads.centres.engines.base import JobOrder, JobState
from tests.controller.workloads.centres.engines.container_world import ContainersWorld
from tests.controller.workloads.centres.engines.ray_cluster import RayCluster
from tests.controller.workloads.centres.engines.worlds import RayWorld, SlurmWorld, World

SUCCESS = json.dumps({"exit_code": 0, "reason": "", "started_ns": 1, "finished_ns": 2})


@contextmanager
def forged(world: World, victim: JobOrder, state: JobState) -> Iterator[None]:
    """Keep forging the victim's success while a test looks."""
    records(world.root / "attacker-1" / "x", victim, state.id)
    records(world.root / "attacker-1", victim, state.id)
    if isinstance(world, SlurmWorld):
        queue_at_slurm(world, victim)
    elif isinstance(world, RayWorld):
        queue_at_ray(world.cluster, victim)
    elif isinstance(world, ContainersWorld):
        make_pod(world, victim, state.id)
    over = threading.Event()
    is_shared = isinstance(world, SlurmWorld | RayWorld)  # elsewhere jobs cannot reach each other's folders
    writer = threading.Thread(target=overwrite, args=(victim.folder / ".millrace", over))
    if is_shared:
        writer.start()
    try:
        yield
    finally:
        over.set()
        if is_shared:
            writer.join()


def labels_of(victim: JobOrder) -> dict[str, str]:
    """Return the labels that once marked a job."""
    return {**victim.mark.labels, "millrace.unit": victim.unit, "millrace.units": "1"}


def records(folder: Path, victim: JobOrder, job: str) -> None:
    """Write all files that once marked a job's folder."""
    own = folder / ".millrace"
    own.mkdir(parents=True)
    written = {"labels": victim.mark.labels, "unit": victim.unit, "units": 1, "folder": str(folder), "token": "f" * 32}
    for name, text in (("order.json", json.dumps(written)), ("id", job), ("ended.json", SUCCESS)):
        (own / name).write_text(text)


def overwrite(folder: Path, over: threading.Event) -> None:
    """Write success into another job's folder, faster than it is read."""
    while not over.is_set():
        with suppress(OSError):
            (folder / "forged").write_text(SUCCESS)
            (folder / "forged").replace(folder / "ended.json")
        over.wait(0.005)


def queue_at_slurm(world: SlurmWorld, victim: JobOrder) -> None:
    """Queue a job with the victim's name and comment, which are public."""
    queue = json.loads(world.cluster.run("squeue", "--json"))["jobs"]
    name = victim.mark.job_name
    comments = [job["comment"] for job in queue if job["name"] == name] or [json.dumps({"labels": labels_of(victim)})]
    words = (f"--job-name={name}", f"--comment={comments[0]}", "--output=/dev/null", "--partition=batch")
    world.cluster.run("sbatch", "--chdir=/tmp", *words, "--wrap=true")


def queue_at_ray(cluster: RayCluster, victim: JobOrder) -> None:
    """Queue a job with the victim's metadata under its mark's former job name."""
    metadata = labels_of(victim) | {"millrace.folder": "/tmp"}
    body: dict[str, Any] = {"entrypoint": "true", "submission_id": victim.mark.job_name, "metadata": metadata}
    cluster.queue(body)


def make_pod(world: ContainersWorld, victim: JobOrder, job: str) -> None:
    """Create pods with the victim's labels and name prefix."""
    pods = world.containers.world.client.of(Pod)
    pod = pods.get(job)
    for number, labels in enumerate((labels_of(victim), pod.metadata.labels)):
        name = f"{victim.mark.job_name}-forged-{number}"
        pods.create(Pod(metadata=type(pod.metadata)(name=name, labels=labels), spec=pod.spec))
