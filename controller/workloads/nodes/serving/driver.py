"""Carries out decisions about the pods of a node: one step at a time for each pod, many pods in parallel.

It has a view of all containers, refreshed after each action and each end of a container. It decides nothing about a pod
with an action in progress, or since the view was taken: so no decision rests on outdated state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from collectors.devices.root import Root
from controller.apiserver.agents.secret_files import secrets_of
from controller.apiserver.client import ApiClient
from controller.apiserver.registry.placements import Release as ReleaseItem
from controller.apiserver.registry.placements import ReleaseRequest
from controller.apiserver.resources.pod import Container, Phase, Pod
from controller.common.errors import ApiError, ControllerError, StaleError, reason_of
from controller.workloads.nodes import mps
from controller.workloads.nodes.deciding.orders import Place, order_of
from controller.workloads.nodes.deciding.planning import plan
from controller.workloads.nodes.deciding.records import NOTHING, Memory, after_failure, after_start, observe
from controller.workloads.nodes.deciding.values import (
    MANAGER_LABEL,
    Action,
    Actual,
    Release,
    Remove,
    Run,
    Step,
    Stop,
    Wanted,
)
from controller.workloads.nodes.lease import LeaseKeeper
from controller.workloads.nodes.runtimes.base import OUT_OF_MEMORY_CODE, ContainerPhase, ContainerState, Image, Runtime
from controller.workloads.nodes.runtimes.errors import ContainerError, OrderError
from controller.workloads.nodes.serving.attempts import MOST_DEATHS, Attempts
from controller.workloads.nodes.serving.dismissals import Dismissal, Dismissals
from controller.workloads.nodes.settings import NodeSettings
from dataplane.cgroup_limits import limit, remove_empty
from dataplane.clock import NS_PER_S

LOGGER: Final = logging.getLogger("millrace.node")
_REST_NS: Final = 1_000_000_000
"""Pause of a pod after a failed action."""
_LOOK_AGAIN_S: Final = 1.0
_EMPTY_POLL_S: Final = 0.05


@dataclass(slots=True)
class _Task:
    """Step in progress for a pod; `starts` is the binding whose containers it creates, None if it creates none."""

    task: asyncio.Task[None]
    starts: tuple[str, int] | None


class Driver:
    """Pods of one node. Set `pods` by `take`; `run` until cancelled. Confined to one event loop."""

    def __init__(
        self,
        client: ApiClient,
        runtime: Runtime,
        keeper: LeaseKeeper,
        place: Place,
        settings: NodeSettings,
        *,
        now_ns: Callable[[], int],
        on_change: Callable[[str], None],
        on_release: Callable[[str], Awaitable[None]],
    ) -> None:
        """`on_change` gets the name of each pod that may have news to report.

        `on_release` is called before a pod's release, to report its containers for the last time.
        """
        self.pods: dict[str, Pod] | None = None
        self.view: tuple[Actual, ...] = ()
        self.memory: Memory = NOTHING
        self.problem: str | None = "its containers are not listed yet"
        self.is_settled = False
        """True while no unwanted container runs."""
        self.on_pull: Callable[[Image], None] = lambda _: None
        """Callback for each image that a pod is about to run."""
        self._client, self._runtime, self._keeper = client, runtime, keeper
        self.place, self._settings, self._terms = place, settings, settings.restart.terms
        self.find_mps = mps.finder(settings.mps, settings.runtime.kind, f"{place.node}-{place.identity}", Root())
        self._secrets = None if settings.secrets is None else Path(settings.secrets)
        self._now_ns, self._on_change, self._on_release = now_ns, on_change, on_release
        self._changed, self._dirty = asyncio.Event(), asyncio.Event()
        self._turns, self._view_turn = count(1), 0
        self._acted: dict[str, int] = {}
        self._resting: dict[str, int] = {}
        self._tasks: dict[str, _Task] = {}
        self._slots = asyncio.Semaphore(settings.at_once)
        self._pulls = asyncio.Semaphore(settings.pulls)
        self._looked = asyncio.Event()
        self._attempts = Attempts(Path(settings.state).absolute() / "attempts")
        self._fenced: set[str] = set()
        self._left: set[str] = set()
        """Pods without containers whose control groups still exist."""
        self._released: set[tuple[str, int]] = set()
        self._failure: BaseException | None = None
        self._dismissals = Dismissals(Path(settings.state).absolute() / "dismissed.json")

    def take(self, pods: Mapping[str, Pod] | None) -> None:
        """Replace the wanted pods; None: unknown at present."""
        before = self.pods or {}
        if pods is not None:
            told = {(pod.metadata.uid, pod.status.epoch) for pod in pods.values()}
            self._released &= told
            pods = {
                name: pod for name, pod in pods.items() if (pod.metadata.uid, pod.status.epoch) not in self._released
            }
        self.pods = None if pods is None else {name: _newer(before.get(name), pod) for name, pod in pods.items()}
        if pods is not None:
            bound = {pod.metadata.uid: pod.status.epoch for pod in pods.values()}
            self.memory = self.memory.only(bound)
            self._dismissals.keep(bound)
            self._end_obsolete_starts(pods)
            self._attempts.keep(bound)
        self._changed.set()

    def note_written(self, pod: Pod) -> None:
        """Take a pod just written here, unless a newer one is known."""
        if self.pods is not None and (current := self.pods.get(pod.metadata.name)) is not None:
            self.pods[pod.metadata.name] = _newer(pod, current)

    def look(self) -> None:
        """Request a fresh view."""
        self._dirty.set()

    def wanted(self) -> dict[str, Wanted] | None:
        """Return the pods that should run, None if unknown."""
        if self.pods is None:
            return None
        return {name: self.wanted_of(pod) for name, pod in self.pods.items()}

    def wanted_of(self, pod: Pod) -> Wanted:
        """Return a pod's demands."""
        wanted = Wanted.of(pod, self.memory.of(pod.metadata.uid, pod.status.epoch))
        dismissed = self._dismissals.of(wanted.uid, wanted.epoch)
        if dismissed is None:
            return wanted
        if dismissed.grace_ns is not None:
            wanted = replace(wanted, grace_ns=min(wanted.grace_ns, dismissed.grace_ns))
        if pod.metadata.deleting_ns is not None or pod.status.then is not None:
            return wanted
        # A stop may be our own doing, without a phase for the pod afterwards.
        return replace(wanted, going=dismissed.phase, reasons=(dismissed.reason,))

    def dismiss(self, pod: Pod, phase: Phase, reason: str, *, grace_s: float | None = None) -> None:
        """Stop a pod, within `grace_s` if that is shorter than its own grace, and release it with this phase.

        The phase of a pod that is already dismissed for good stays.
        """
        most_ns = None if grace_s is None else round(grace_s * NS_PER_S)
        self._dismissals.add(Dismissal(pod.metadata.uid, pod.status.epoch, phase, reason, most_ns))
        self._on_change(pod.metadata.name)
        self._changed.set()

    def containers_of(self, pod: str) -> list[Actual]:
        """Return a pod's containers as last seen."""
        return [container for container in self.view if container.pod == pod]

    async def wait_empty(self) -> None:
        """Return once no pod is bound here, and no container is left."""
        while self.view or self.pods or self._tasks:
            self._looked.clear()
            self._dirty.set()
            await self._looked.wait()
            await asyncio.sleep(_EMPTY_POLL_S)

    async def run(self) -> None:
        """Look, decide and act until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._look_for_ever())
                group.create_task(self._follow_ends())
                group.create_task(self._decide_for_ever())
        finally:
            tasks = [started.task for started in self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_for_ever(self) -> None:
        while True:
            self._dirty.clear()
            turn, ok = next(self._turns), True
            try:
                states = await self._runtime.list(self.place.node)
            except Exception as error:  # noqa: BLE001 - one pod's or one look's trouble, not the manager's
                if self.problem != reason_of(error):
                    LOGGER.warning("%s", reason_of(error))
                self.problem, ok = reason_of(error), False
            else:
                self._take_view(states, turn)
            self._changed.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.look_s if ok and not self._left else _LOOK_AGAIN_S):
                    await self._dirty.wait()

    def _take_view(self, states: tuple[ContainerState, ...], turn: int) -> None:
        before = {container.id: container for container in self.view}
        was_away, self.problem, self._view_turn = self.problem is not None, None, turn
        self.view = tuple(
            Actual.of(state) for state in states if state.labels.get(MANAGER_LABEL) == self.place.identity
        )
        if was_away:
            LOGGER.info("found %d containers", len(self.view))
        self._note_killed()
        self.memory = observe(self.memory, self.view, self._now_ns(), self._terms, fenced=self._fenced)
        self._fenced &= {container.id for container in self.view}
        now = {container.id: container for container in self.view}
        changed = {
            container.pod
            for container in (*before.values(), *now.values())
            if before.get(container.id) != now.get(container.id)
        }
        self._acted = {name: acted for name, acted in self._acted.items() if acted > turn}
        for name in changed:
            self._on_change(name)
        self._left |= {container.pod for container in before.values()}
        self._left -= {container.pod for container in self.view} | self._tasks.keys()
        # A monitor may take a moment longer than its container.
        self._left = {name for name in self._left if not remove_empty(self.place.cgroup_of(name))}
        self._looked.set()

    async def _follow_ends(self) -> None:
        reported = ""
        while True:
            try:
                async with aclosing(self._runtime.events()) as ends:
                    async for _ in ends:
                        reported = ""
                        self._dirty.set()
            except Exception as error:  # noqa: BLE001 - one pod's or one look's trouble, not the manager's
                if reason_of(error) != reported:
                    LOGGER.warning("ends of containers are not reported: %s", reason_of(error))
                reported = reason_of(error)
            await asyncio.sleep(_LOOK_AGAIN_S)
            self._dirty.set()

    async def _decide_for_ever(self) -> None:
        while True:
            self._changed.clear()
            if self._failure is not None:
                raise self._failure
            wake_ns = self._decide()
            left = None if wake_ns is None else max(0.0, (wake_ns - self._now_ns()) / NS_PER_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    def _decide(self) -> int | None:
        """Begin the steps due now, and return when to decide again at the latest."""
        if self._view_turn == 0:
            return None
        now_ns, wanted = self._now_ns(), self.wanted()
        self._resting = {name: until for name, until in self._resting.items() if until > now_ns}
        busy = {*self._tasks, *self._acted, *self._resting}
        due = plan(wanted, self.view, self._keeper.lease, now_ns, terms=self._terms, busy=busy)
        for step in due.steps:
            self._begin(step, wanted)
        if wanted is not None and not self.is_settled:
            self.is_settled = all(
                container.pod in wanted and container.is_of(wanted[container.pod]) for container in self.view
            )
            if self.is_settled:
                self._keeper.forget_killed()
                self._on_change("")
        wakes = [wake for wake in (due.wake_ns, *self._resting.values()) if wake is not None]
        return min(wakes, default=None)

    def _begin(self, step: Step, wanted: Mapping[str, Wanted] | None) -> None:
        starts = None
        if any(isinstance(action, Run) for action in step.actions):
            assert wanted is not None
            starts = (wanted[step.pod].uid, wanted[step.pod].epoch)
        pod = None if self.pods is None else self.pods.get(step.pod)
        task = asyncio.create_task(self._carry_out(step, pod), name=f"pod {step.pod}")
        self._tasks[step.pod] = _Task(task, starts)
        task.add_done_callback(lambda done: self._end(step.pod, done))

    def _end(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(name, None)
        if not task.cancelled():
            self._failure = self._failure or task.exception()
        self._acted[name] = next(self._turns)
        self._dirty.set()
        self._changed.set()

    def _end_obsolete_starts(self, pods: Mapping[str, Pod]) -> None:
        """Give up starts that are no longer wanted, such as fetching an image for minutes."""
        for name, busy in self._tasks.items():
            if busy.starts is None:
                continue
            pod = pods.get(name)
            wanted = None if pod is None else self.wanted_of(pod)
            if wanted is None or (wanted.uid, wanted.epoch) != busy.starts or wanted.going is not None:
                busy.task.cancel()

    async def _carry_out(self, step: Step, pod: Pod | None) -> None:
        if pod is None or not any(isinstance(action, Run) for action in step.actions):
            await self._carry_out_all(step, pod)
        elif (deaths := self._attempts.deaths(pod.metadata.uid)) >= MOST_DEATHS:
            LOGGER.warning("pod %s: held back: its start has ended this manager %d times", step.pod, deaths)
            self.dismiss(pod, Phase.FAILED, f"held back: its start has ended the node's manager {deaths} times")
        else:
            async with self._attempts.counted(pod.metadata.uid):
                await self._carry_out_all(step, pod)

    async def _carry_out_all(self, step: Step, pod: Pod | None) -> None:
        done = await asyncio.gather(
            *(self._act(step.pod, pod, action) for action in step.actions), return_exceptions=True
        )
        for error in done:
            if isinstance(error, Exception):  # one pod's failure must not end the manager, which all pods share
                LOGGER.warning("pod %s: %s", step.pod, reason_of(error))
                self._resting[step.pod] = self._now_ns() + _REST_NS
            elif isinstance(error, BaseException):
                raise error

    async def _act(self, name: str, pod: Pod | None, action: Action) -> None:
        match action:
            case Run():
                assert pod is not None
                await self._start(pod, action)
            case Stop():
                self._note_fenced(pod, action)
                LOGGER.info("pod %s: %s stopped", name, action.id[:12])
                await self._runtime.stop(action.id, action.grace_ns / NS_PER_S)
            case Remove():
                async with self._slots:
                    await self._runtime.remove(action.id)
            case Release():
                await self._release(name, action)

    def _note_fenced(self, pod: Pod | None, action: Stop) -> None:
        """Note a container that is stopped because the lease ends, though its pod should run."""
        lease = self._keeper.lease
        is_wanted = pod is None or self.wanted_of(pod).going is None
        if is_wanted and self._now_ns() >= lease.stop_ns(lease.length_ns):
            self._fenced.add(action.id)

    def _note_killed(self) -> None:
        """Note containers that the guard has killed, perhaps while no manager ran."""
        seen = self.memory.seen
        ended = {
            container.id
            for container in self.view
            if container.exit_code == OUT_OF_MEMORY_CODE
            and not container.state.is_out_of_memory
            and (container.id not in seen or seen[container.id].ended_ns is None)
        }
        if ended and self._keeper.has_killed():
            self._fenced |= ended

    def fence(self) -> None:
        """Note that the lease is over: it is the cause of any end from now on."""
        self._fenced |= {container.id for container in self.view if container.runs}
        self.is_settled = False
        for busy in self._tasks.values():
            if busy.starts is not None:
                busy.task.cancel()
        self.take(None)
        self._dirty.set()

    async def _start(self, pod: Pod, action: Run) -> None:
        """Start a container; record any failure."""
        key = (pod.metadata.uid, pod.status.epoch, action.container)
        container = next(candidate for candidate in pod.spec.containers if candidate.name == action.container)
        begun_ns = self._now_ns()
        try:
            state = await self._make(pod, container, action)
        except Exception as error:  # noqa: BLE001 - one pod's or one look's trouble, not the manager's
            LOGGER.warning("pod %s: %s: %s", pod.metadata.name, action.container, reason_of(error))
            record = after_failure(self.memory.record(key), reason_of(error), self._now_ns(), self._terms)
            self.memory = self.memory.with_record(key, record)
        else:
            took_ns = self._now_ns() - begun_ns
            LOGGER.info("pod %s: %s runs, started in %.3f s", pod.metadata.name, action.container, took_ns / NS_PER_S)
            self.memory = self.memory.with_record(key, after_start(self.memory.record(key), took_ns))
            # Recorded at once, for the report; decided about only after the next look.
            self.view = (*self.view, Actual.of(state))
        self._on_change(pod.metadata.name)

    async def _make(self, pod: Pod, container: Container, action: Run) -> ContainerState:
        image = None
        if container.image is not None:
            async with self._pulls:
                image = await self._runtime.pull(container.image)
                self.on_pull(image)
        digest = None if image is None else image.digest
        async with self._slots:
            secrets = await asyncio.to_thread(secrets_of, self._secrets, pod.metadata.project, container.secrets)
            order = order_of(self._place_now(), pod, container, attempt=action.attempt, image=digest, secrets=secrets)
            self._limit(pod)
            made = await self._runtime.create(order)
            try:
                await self._runtime.start_container(made)
            except Exception:
                with suppress(ContainerError):
                    await self._runtime.remove(made)
                raise
        return ContainerState(
            id=made,
            name=order.name,
            labels=order.labels,
            phase=ContainerPhase.RUNNING,
            image_digest=digest or "",
        )

    def _limit(self, pod: Pod) -> None:
        """Apply a pod's limits to all its containers together; a single one is held by its own."""
        if len(pod.spec.containers) > 1:
            group, limits = self.place.cgroup_of(pod.metadata.name), self.place.limits
            cpu_milli = pod.spec.request.cpu_milli or None
            try:
                limit(group, cpu_milli, limits.memory_of(pod), processes=limits.processes)
            except OSError as error:
                name, reason = pod.metadata.name, error.strerror or error
                raise OrderError(f"pod {name}: its limits: {error.filename or group}: {reason}") from None

    def _place_now(self) -> Place:
        """Return the current place of containers: a restarted fabric has new namespaces of the same names."""
        place, namespace = replace(self.place, mps=self.find_mps()), self.place.network_namespace
        if namespace is None:
            return place
        if not namespace.exists():
            raise OrderError(f"network namespace {namespace} does not exist")
        return replace(place, network_namespace=namespace.resolve())

    async def _release(self, name: str, action: Release) -> None:
        await self._on_release(name)
        item = ReleaseItem(pod=name, epoch=action.epoch, phase=action.phase, reasons=action.reasons)
        try:
            await self._client.release(ReleaseRequest(releases=(item,)))
        except StaleError as error:
            # It was bound again or deleted, as the watch will report in a moment.
            LOGGER.info("pod %s: %s", name, error)
            self._resting[name] = self._now_ns() + _REST_NS
            return
        except ApiError as error:
            raise ControllerError(f"its release: {error}") from None
        LOGGER.info("pod %s: released, %s", name, action.phase.value)
        # Recorded at once: its remains are unwanted now, whatever the watch still reports.
        self._released.add((action.uid, action.epoch))
        if self.pods is not None:
            self.take(self.pods)


def _newer(written: Pod | None, told: Pod) -> Pod:
    """Return the newer state of a pod: as watched, or as written here meanwhile."""
    if written is None or written.metadata.uid != told.metadata.uid:
        return told
    return written if written.metadata.revision > told.metadata.revision else told
