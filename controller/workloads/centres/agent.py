"""The agent of a compute centre: reports its units, runs the tasks dispatched to it, and reports their outcome.

Jobs outlive the agent. Each step is decided afresh from what the API and the engine say (deciding.py); anything else
that the agent remembers only saves it requests.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from controller.apiserver.agents import reporting
from controller.apiserver.agents.secret_files import SecretError, secrets_of
from controller.apiserver.agents.server_clock import ServerClock
from controller.apiserver.client import ApiClient
from controller.apiserver.client.values import Listing
from controller.apiserver.registry.dispatches import Pick
from controller.apiserver.registry.events import EventType
from controller.apiserver.resources import Centre, Metadata, Task
from controller.apiserver.resources import ProbeTask as ProbeTaskResource
from controller.apiserver.resources.centre import CentreStatus, UnitType
from controller.apiserver.resources.task import TaskPhase
from controller.apiserver.sessions.values import TaskSessionRequest
from controller.common.errors import (
    ApiError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StaleError,
    UnauthorizedError,
)
from controller.probing import files
from controller.probing.errors import ProbeError
from controller.probing.values import ProbeTask
from controller.workloads.centres import deciding
from controller.workloads.centres.configuring import Configurer
from controller.workloads.centres.deciding import Cause, Step, Terms, View, decide
from controller.workloads.centres.ends import TaskEnds, kind_of
from controller.workloads.centres.engines.base import JOB_ENDED, Engine, JobMark, JobPhase, JobState
from controller.workloads.centres.errors import CentreError, EngineError, OrderError
from controller.workloads.centres.learning import Learner
from controller.workloads.centres.logs.kept import KeptOutputs
from controller.workloads.centres.logs.sessions import Attempt, TaskLogs
from controller.workloads.centres.metrics import Drop, Failure, Metrics
from controller.workloads.centres.programs import mark_of, order_of
from controller.workloads.centres.settings import CentreSettings, OnStop
from controller.workloads.centres.units import with_stand_in
from controller.workloads.centres.warming import Warmer

LOGGER: Final = logging.getLogger("millrace.centre")
_LINES: Final = 256


class Agent:
    """See the module; construct it inside the event loop that runs it. `now_ns` is a monotonic clock."""

    def __init__(
        self,
        client: ApiClient,
        engine: Engine,
        configurer: Configurer,
        settings: CentreSettings,
        *,
        jobs_folder: Path,
        identity: str,
        now_ns: Callable[[], int],
        metrics: Metrics,
        learner: Learner,
        outputs: KeptOutputs,
        warmer: Warmer | None = None,
    ) -> None:
        self._client, self._engine, self._configurer = client, engine, configurer
        self.settings, self._folder, self._identity = settings, jobs_folder, identity
        self._clock, self._metrics, self._warmer = ServerClock(now_ns), metrics, warmer
        self._learner = learner
        self._outputs = outputs
        self._ends = TaskEnds(client, settings, jobs_folder, learner=learner, outputs=outputs, metrics=metrics)
        self._logs = TaskLogs(client, settings.centre, self.attempt_of, lambda: self._ends.output_bytes)
        self._tasks: dict[str, Task] | None = None
        self._jobs: dict[JobMark, JobState] = {}
        self._probes: dict[str, ProbeTask | None] = {}
        self._busy: set[str] = set()
        self._wake, self._report_now, self._known = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._listed = asyncio.Event()
        self._report_s = settings.report_s or reporting.FIRST_REPORT_S
        self._problems: dict[str, str] = {}
        self._signs_off = False

    async def run(self) -> None:
        """Report, and handle tasks, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report_for_ever())
            group.create_task(self._follow())
            group.create_task(self._listen())
            group.create_task(self._run_steps())
            group.create_task(self._answer_sessions())
            group.create_task(self._configurer.run(self._engine, self._note_configuration))
            if self._warmer is not None:
                group.create_task(self._warmer.run())

    async def sign_off(self) -> None:
        """Close the centre to tasks; end jobs if the settings say so, otherwise leave them to the next agent."""
        self._signs_off = True
        if self.settings.on_stop is OnStop.STOP:
            await self._end_all()
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(reporting.SIGN_OFF_S):
                await self._report()

    async def _end_all(self) -> None:
        """End all jobs and give their tasks back; leave the rest to the next agent when time runs out."""
        tasks = {mark_of(task, self.settings.centre): task for task in (self._tasks or {}).values()}

        async def end(job: JobState) -> None:
            if job.phase not in JOB_ENDED:
                await self._engine.cancel(job.id, self.settings.grace_s)
                if job.mark in tasks:
                    reason = "its centre has signed off"
                    await self._ends.give_back(tasks[job.mark], TaskPhase.PENDING, reason, Cause.SIGNED_OFF)

        with suppress(ApiError, EngineError, TimeoutError):
            async with asyncio.timeout(self.settings.grace_s + reporting.SIGN_OFF_S):
                jobs = await self._engine.jobs()
                await asyncio.gather(*(end(job) for job in jobs))
                self._jobs = {job.mark: job for job in await self._engine.jobs() if job.phase not in JOB_ENDED}

    def reload(self, settings: CentreSettings) -> None:
        """Apply new settings; the engine's settings and the centre's name stay."""
        self.settings = self._ends.settings = settings
        self._report_now.set()
        self._wake.set()

    @property
    def problem(self) -> str:
        """Reason why the centre takes no tasks; empty if it does."""
        if self._signs_off:
            return "its agent has stopped"
        for subject in ("engine", "configuration"):
            if self._problems.get(subject):
                return self._problems[subject]
        if self._configurer.types is None:
            return "trying which probe kernels run here"
        if not any(unit.count for unit in self._configurer.types):
            return f"it has no units: {'; '.join(self._engine.notes) or 'the engine has none'}"
        if self._tasks is None:
            return "its tasks are not listed yet"
        return ""

    def _note_configuration(self) -> None:
        self._report_now.set()
        self._wake.set()

    async def _report_for_ever(self) -> None:
        while True:
            self._report_now.clear()
            wait_s = self._report_s
            try:
                async with asyncio.timeout(reporting.patience_s(self._report_s)):
                    centre = await self._report()
                self._report_s = reporting.report_s(self.settings.report_s, centre.spec.lease_s)
                self._note_problem("api", "")
                self._known.set()
            except (ForbiddenError, UnauthorizedError) as error:
                if not self._known.is_set():
                    raise
                self._failed(Failure.REPORT, str(error))
                wait_s = min(wait_s, reporting.AGAIN_S)
            except (ApiError, TimeoutError) as error:
                self._failed(Failure.REPORT, str(error) or reporting.NO_ANSWER)
                wait_s = min(wait_s, reporting.AGAIN_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._report_now.wait()

    async def _report(self) -> Centre:
        """Write the centre's status; create the centre if it is missing."""
        if self._configurer.types is not None:
            self._note_problem("units", "" if any(unit.count for unit in self._configurer.types) else self.problem)
        centres, name = self._client.of(Centre), self.settings.centre
        report = Centre(metadata=Metadata(name=name), status=self._status())
        try:
            written = await centres.replace_status(report)
        except NotFoundError:
            await centres.create(Centre(metadata=Metadata(name=name, labels=self.settings.labels)))
            LOGGER.info("centre %s created", name)
            written = await centres.replace_status(report)
        if written.status.heartbeat_ns is not None:
            self._clock.learn(written.status.heartbeat_ns)
            self._configurer.reported(written.status.heartbeat_ns)
        self._metrics.reported()
        return written

    def _status(self) -> CentreStatus:
        configurer = self._configurer
        notes = tuple(note[:1024] for note in (*self._engine.notes, *configurer.notes))
        self._metrics.is_ready = not self.problem
        self._metrics.drops.labels(Drop.NOTE).inc(max(0, len(notes) - _LINES))
        return CentreStatus(
            ready=not self.problem,
            reason=self.problem[:1024],
            engine=self._engine.name,
            hosts=self.settings.hosts,
            units=with_stand_in(configurer.types or (), self.settings.sql.stand_in),
            asks_for_probe=configurer.asks_for_probe,
            corrections=self._learner.report,
            type_corrections=self._learner.type_report,
            corrections_version=self._learner.corrections.version,
            agent=self._identity,
            signed_off=self._signs_off and not self._jobs,
            notes=notes[:_LINES],
        )

    async def _follow(self) -> None:
        """Follow the tasks that hold units here."""
        await self._known.wait()
        fields = f"centre={self.settings.centre},phase!=succeeded,phase!=failed"
        while True:
            try:
                async for told in self._client.of(Task).follow(fields=fields):
                    if isinstance(told, Listing):
                        if told.age_s is not None:
                            break  # cached because the server's storage is away: it may be outdated
                        held = (task.at(self.settings.centre) for task in told.items)
                        self._tasks = {task.metadata.name: task for task in held if task.is_held}
                        self._listed.set()
                        self._report_now.set()
                    elif told.type is EventType.BOOKMARK:
                        continue
                    elif (
                        told.type is EventType.DELETE
                        or told.resource is None
                        or not (task := told.resource.at(self.settings.centre)).is_held
                    ):
                        (self._tasks or {}).pop(told.name, None)
                    elif self._tasks is not None:
                        self._tasks[told.name] = task
                    self._wake.set()
            except ApiError as error:
                self._failed(Failure.API, str(error))
            await asyncio.sleep(reporting.AGAIN_S)

    async def _listen(self) -> None:
        """Look again whenever the engine reports a change."""
        while True:
            try:
                async for _ in self._engine.changes():
                    self._wake.set()
            except EngineError as error:
                self._failed(Failure.ENGINE, str(error))
            await asyncio.sleep(reporting.AGAIN_S)

    async def _answer_sessions(self) -> None:
        """Answer sessions once tasks and jobs are known: until then, output that is there would seem gone."""
        await self._listed.wait()
        while True:
            try:
                self._jobs = {job.mark: job for job in await self._engine.jobs()}
                break
            except EngineError as error:
                self._failed(Failure.ENGINE, str(error))
            await asyncio.sleep(reporting.AGAIN_S)
        await self._logs.run()

    def attempt_of(self, request: TaskSessionRequest) -> Attempt:
        """Return what is known of an attempt at a task; raise CentreError for an impossible one."""
        centre, uid = self.settings.centre, request.uid
        mark = JobMark(centre, request.task, uid, request.epoch, request.is_probe)
        if "/" in mark.job_name:
            raise CentreError(f"task {request.task}: {uid[:8]!r} is not the beginning of a uid")
        job, task = self._jobs.get(mark), (self._tasks or {}).get(request.task)
        current = task is not None and (task.metadata.uid, task.status.epoch) == (uid, request.epoch)
        is_held = current and (uid, request.epoch) not in self._ends.ended
        nothing_yet = ""
        if job is None or job.phase is JobPhase.QUEUED:
            nothing_yet = "it waits for units: it has no output yet"
        elif job.output_comes_at_end:
            nothing_yet = f"engine {self._engine.name} has the output of this task only once it has ended"
        return Attempt(
            folder=(job.folder if job is not None else None) or self._folder / mark.job_name,
            kept=self._outputs.find(mark),
            # Until its completion is acknowledged: only then is its output kept.
            goes_on=is_held or (job is not None and job.phase not in JOB_ENDED),
            nothing_yet=nothing_yet,
        )

    async def _run_steps(self) -> None:
        """Carry out due steps in a loop; long steps do not block the others."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                for step in await self._steps():
                    key = _key(step)
                    if key not in self._busy:
                        self._busy.add(key)
                        group.create_task(self._do(key, step))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.look_s):
                        await self._wake.wait()

    async def _steps(self) -> tuple[Step, ...]:
        if self._tasks is None or self._configurer.types is None:
            return ()
        try:
            jobs = await self._engine.jobs()
        except EngineError as error:
            self._metrics.is_away()
            self._failed(Failure.ENGINE, str(error))
            self._report_now.set()
            return ()
        if self._problems.get("engine"):
            self._report_now.set()
        self._note_problem("engine", "")
        self._jobs = {job.mark: job for job in jobs}
        units, trials = self._configurer.types, self._configurer.trials
        self._metrics.stands(units, jobs, trials)
        tasks = tuple(self._tasks.values())
        self._ends.keep_only(tasks, self._jobs.keys())
        await self._read_probes(tasks)
        view = View(
            self.settings.centre,
            tasks,
            self._jobs,
            units,
            self._probes,
            self._clock.now_ns(),
            Terms(self.settings.most_waiting, self.settings.wait_s),
            frozenset(self._ends.ended),
            trials,
            self.settings.probe_counts,
        )
        return decide(view)

    async def _read_probes(self, tasks: tuple[Task, ...]) -> None:
        """Read the probe tasks to run: each is written once, so each is read once."""
        wanted = {task.spec.program.entry for task in tasks if task.spec.is_probe}
        self._probes = {name: probe for name, probe in self._probes.items() if name in wanted}
        for name in wanted - self._probes.keys():
            try:
                resource = await self._client.of(ProbeTaskResource).get(name)
                self._probes[name] = files.of_spec(name, resource.spec)
            except (NotFoundError, InvalidError):
                self._probes[name] = None
            except ProbeError as error:
                LOGGER.warning("ProbeTask %s: %s", name, error)
                self._probes[name] = None
            except ApiError as error:
                self._failed(Failure.API, str(error))

    async def _do(self, key: str, step: Step) -> None:
        try:
            await self._take(step)
        except (StaleError, NotFoundError) as error:
            LOGGER.debug("%s: %s", key, error)
            self._metrics.drops.labels(Drop.STEP).inc()
        except ApiError as error:
            self._failed(Failure.API, str(error))
            await asyncio.sleep(reporting.AGAIN_S)
        except (EngineError, OSError) as error:  # a full disk, for example, must not end the agent
            LOGGER.warning("%s: %s", key, error)
            self._metrics.failures.labels(Failure.ENGINE).inc()
            await asyncio.sleep(reporting.AGAIN_S)
        finally:
            self._busy.discard(key)
            self._wake.set()

    async def _take(self, step: Step) -> None:
        match step:
            case deciding.Answer(task, could_run, reasons):
                await self._ends.answer(task, could_run, reasons)
            case deciding.PickUnit(task, unit, units, could_run):
                name, epoch = task.metadata.name, task.status.epoch
                await self._client.pick(Pick(task=name, epoch=epoch, unit=unit, units=units, could_run=could_run))
            case deciding.Begin(task, unit, probe):
                await self._begin(task, unit, probe)
            case deciding.NoteRunning(task, job):
                status = replace(task.status, phase=TaskPhase.RUNNING, engine_id=job.id[:1024])
                await self._client.of(Task).replace_status(replace(task, status=status))
            case deciding.Complete(task, job):
                await self._finish(task, job)
            case deciding.GiveBack(task, phase, reason, cause):
                await self._ends.give_back(task, phase, reason, cause)
            case deciding.Cancel(job, why, task, then, cause):
                LOGGER.info("ending job %s: %s", job.id, why)
                await self._engine.cancel(job.id, self.settings.grace_s)
                if task is not None:
                    await self._ends.give_back(task, then, why, cause)
            case deciding.Forget(job):
                await self._engine.forget(job.id)

    async def _begin(self, task: Task, unit: UnitType, probe: ProbeTask | None) -> None:
        try:
            order = order_of(task, unit, self.settings, self._folder, probe, await self._secrets_of(task))
            if self._warmer is not None and task.spec.is_probe:
                order = dataclasses.replace(order, environment={**order.environment, **self._warmer.environment})
            job = await self._engine.submit(order)
        except (CentreError, SecretError, OSError) as error:
            if isinstance(error, EngineError) and not isinstance(error, OrderError):
                raise  # retried
            await self._ends.give_back(task, TaskPhase.FAILED, str(error), Cause.UNFIT)
            return
        self._metrics.begun.labels(kind_of(task)).inc()
        LOGGER.info(
            "task %s runs as job %s on %d units of type %s", task.metadata.name, job, task.status.units, unit.name
        )

    async def _secrets_of(self, task: Task) -> Mapping[str, str]:
        """Return the secrets that a task's program names; a probe's user must not influence the measurement."""
        wanted = {} if task.spec.is_probe else task.spec.program.secrets
        folder = None if self.settings.secrets is None else Path(self.settings.secrets)
        return await asyncio.to_thread(secrets_of, folder, task.metadata.project, wanted)

    async def _finish(self, task: Task, job: JobState) -> None:
        """Report a task's outcome, and forget its job."""
        probe = self._probes.get(task.spec.program.entry) if task.spec.is_probe else None
        phase, has_learned = await self._ends.report(task, job, probe)
        is_probed = task.spec.is_probe and phase is TaskPhase.SUCCEEDED
        if is_probed:
            self._configurer.probed(task.metadata.created_ns)
        if is_probed or has_learned:
            self._report_now.set()
        await self._engine.forget(job.id)

    def _failed(self, failure: Failure, problem: str) -> None:
        """Count a failure, and log it once."""
        self._metrics.failures.labels(failure).inc()
        self._note_problem("engine" if failure is Failure.ENGINE else "api", problem)

    def _note_problem(self, subject: str, problem: str) -> None:
        """Log a problem once, and the recovery from it."""
        if problem != self._problems.get(subject, ""):
            LOGGER.warning("%s", problem) if problem else LOGGER.info("%s: recovered", subject)
        self._problems[subject] = problem


def _key(step: Step) -> str:
    """Return the subject of a step: only one step per subject runs at a time."""
    task = getattr(step, "task", None)
    if task is not None:
        return f"task {task.metadata.name}"
    job = getattr(step, "job")  # noqa: B009 - all that have no task have a job
    return f"task {job.mark.task}"
