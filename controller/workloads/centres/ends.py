"""Ends of tasks: their completions, what is learned from them, and the output that is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.completions import Completion, CompletionRequest, NewResult
from controller.apiserver.resources import Task
from controller.apiserver.resources.probe_result import ProbeResultStatus
from controller.apiserver.resources.task import TaskPhase
from controller.common.errors import ForbiddenError, InvalidError, NotFoundError, StaleError, TooLargeError
from controller.probing.values import ProbeTask
from controller.workloads.centres.deciding import Cause
from controller.workloads.centres.engines.base import JobMark, JobState
from controller.workloads.centres.engines.jobs.places import OMISSION_BYTES
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.learning import Learner
from controller.workloads.centres.logs.kept import KeptLimits, KeptOutputs
from controller.workloads.centres.metrics import Drop, JobKind, Metrics
from controller.workloads.centres.outcomes import completion_of
from controller.workloads.centres.settings import CentreSettings

LOGGER: Final = logging.getLogger("millrace.centre")


class TaskEnds:
    """Reports ends of tasks; its settings may be replaced at any time."""

    def __init__(
        self,
        client: ApiClient,
        settings: CentreSettings,
        jobs_folder: Path,
        *,
        learner: Learner,
        outputs: KeptOutputs,
        metrics: Metrics,
    ) -> None:
        self.settings = settings
        self._client, self._folder, self._metrics = client, jobs_folder, metrics
        self._learner, self._outputs = learner, outputs
        self._kept: set[JobMark] = set()
        self.ended: set[tuple[str, int]] = set()
        """Attempts that were reported or are no longer ours: uids of tasks, and epochs."""

    def keep_only(self, tasks: Iterable[Task], jobs: Collection[JobMark]) -> None:
        """Forget attempts other than of these tasks and jobs."""
        self._kept.intersection_update(jobs)
        self.ended &= {(task.metadata.uid, task.status.epoch) for task in tasks}

    async def answer(self, task: Task, could_run: tuple[str, ...], reasons: tuple[str, ...]) -> None:
        """Report which unit types could run a task that only asks."""
        item = Completion(
            task=task.metadata.name,
            epoch=task.status.epoch,
            phase=TaskPhase.SUCCEEDED,
            result=NewResult(status=ProbeResultStatus(could_run=could_run)) if task.spec.is_probe else None,
            could_run=could_run,
            reasons=reasons,
        )
        await self._complete(task, item)

    async def give_back(self, task: Task, phase: TaskPhase, reason: str, cause: Cause) -> None:
        """Release a task's units without a result."""
        LOGGER.info("task %s given back: %s", task.metadata.name, reason)
        name, epoch = task.metadata.name, task.status.epoch
        item = Completion(task=name, epoch=epoch, phase=phase, reasons=(reason[:1000],))
        if await self._complete(task, item):
            self._metrics.given_back.labels(kind_of(task), cause).inc()

    async def report(self, task: Task, job: JobState, probe: ProbeTask | None) -> tuple[TaskPhase, bool]:
        """Report a task's outcome, with its results; if these are rejected, without them.

        Return the phase reported, and whether anything was learned.
        """
        folder = job.folder or self._folder / job.mark.job_name
        await self._keep_output(task, job, folder)
        item = await asyncio.to_thread(completion_of, task, job, folder, probe)
        try:
            counts = await self._complete(task, item)
        except (InvalidError, TooLargeError) as error:
            reason = f"its result was rejected: {error}"[:1000]
            self._metrics.drops.labels(Drop.RESULT).inc()
            item = replace(item, phase=TaskPhase.FAILED, result=None, reasons=(reason,))
            counts = await self._complete(task, item)
        if counts:
            self._metrics.ended.labels(kind_of(task), item.phase).inc()
        if counts and item.phase is TaskPhase.SUCCEEDED:
            return item.phase, await self._learn(task, folder)
        return item.phase, False

    async def _learn(self, task: Task, folder: Path) -> bool:
        try:
            return await asyncio.to_thread(self._learner.learn, task, folder)
        except CentreError as error:  # a full disk, for example: what was learned is lost with this process
            LOGGER.warning("%s", error)
            return False

    async def _keep_output(self, task: Task, job: JobState, folder: Path) -> None:
        """Keep the ends of a job's output, before its folder may go; a full disk costs output, not the outcome."""
        if job.mark in self._kept:
            return  # the report is retried every second while the API server is away
        self._kept.add(job.mark)
        settings = self.settings
        limits = KeptLimits(settings.kept_outputs, settings.kept_output_bytes, self.output_bytes)
        try:
            await asyncio.to_thread(self._outputs.keep, job.mark, task.metadata.account, folder, limits)
        except OSError as error:
            LOGGER.warning("task %s: its output is not kept: %s", task.metadata.name, error)
            self._metrics.drops.labels(Drop.OUTPUT).inc()

    @property
    def output_bytes(self) -> int:
        """Most bytes that a keeper writes of one output."""
        return self.settings.output_limit_bytes + OMISSION_BYTES

    async def _complete(self, task: Task, item: Completion) -> bool:
        """Complete a task; return False if it is no longer ours, as it is gone or was dispatched again."""
        counts = True
        item = replace(item, centre=self.settings.centre if task.status.members else None)
        try:
            await self._client.complete(CompletionRequest(completions=(item,)))
        except (StaleError, NotFoundError, ForbiddenError) as error:
            LOGGER.info("task %s, epoch %d: its outcome came too late: %s", item.task, item.epoch, error)
            self._metrics.drops.labels(Drop.COMPLETION).inc()
            counts = False
        self.ended.add((task.metadata.uid, task.status.epoch))
        return counts


def kind_of(task: Task) -> JobKind:
    """Return how metrics count a task."""
    return JobKind.PROBE if task.spec.is_probe else JobKind.TASK
