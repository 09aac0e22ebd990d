"""The scheduler: waiting pods at the API server are decided one after the other, and bound.

A binding is one request that writes pods, their nodes' shares and the decision together, if none of them has changed
since: so two schedulers never give the same share away, and a killed scheduler has placed a pod whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.evictions import evict
from controller.apiserver.registry.placements import NewDecision, State
from controller.apiserver.resources import Decision, Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.decision import DecisionSpec
from controller.apiserver.resources.decision import Outcome as DecisionOutcome
from controller.common.errors import ApiError, ControllerError, NotFoundError, StaleError
from controller.common.standby.pair import MayDecide, at_once
from controller.scheduling.costs import Costs
from controller.scheduling.framework.lessons import learners_of
from controller.scheduling.pods import PodProfile
from controller.scheduling.serving import pod_lessons
from controller.scheduling.serving.binding import Answers, Binder, Decided
from controller.scheduling.serving.decisions import decision_name
from controller.scheduling.serving.lessons import Lessons
from controller.scheduling.serving.metrics import Metrics
from controller.scheduling.serving.outcomes import Knowledge, Outcome, outcome_of, spec_of
from controller.scheduling.serving.pending import PendingQueue
from controller.scheduling.serving.projects import follow_weights
from controller.scheduling.serving.reports import lower_loads
from controller.scheduling.serving.room import eviction_of
from controller.scheduling.serving.view import ClusterView, is_ready, is_waiting
from controller.scheduling.settings import SchedulerSettings
from dataplane.clock import NS_PER_S, Clock

LOGGER: Final = logging.getLogger("millrace.scheduler")
_BREATH_NS: Final = 5_000_000
"""Time after which deciding yields to other tasks of the event loop."""


class Scheduler:
    """Places pods of its profiles. `run` follows the API server and decides, until it is cancelled."""

    def __init__(
        self,
        client: ApiClient,
        settings: SchedulerSettings,
        profiles: Mapping[str, PodProfile],
        *,
        costs: Costs,
        clock: Clock,
        metrics: Metrics,
        on_nodes: Callable[[Iterable[Node]], None] = lambda _: None,
        may_decide: MayDecide = at_once,
    ) -> None:
        """`on_nodes` is called with nodes as they report; nothing is decided before `may_decide` returns."""
        self._on_nodes, self._may_decide = on_nodes, may_decide
        self.view = ClusterView()
        self.queue = PendingQueue(settings.queue, self.view.shares.of)
        self.profiles = dict(profiles)
        self._client, self._settings, self._costs = client, settings, costs
        self._clock, self._metrics = clock, metrics
        self._changed = asyncio.Event()
        self._listed: set[type[Node | Pod | PodGroup]] = set()
        self._reported: dict[str, tuple[str, str]] = {}
        self._unknown_profiles: set[str] = set()
        self._is_away = False
        self._binder = Binder(client, self._answered)
        self.lessons = Lessons(clock, learners_of(profiles), lambda: pod_lessons.utilisation_of(self.view))
        metrics.learning.ask("pods", lambda: self.lessons.learners)

    async def run(self) -> None:
        """Follow and decide until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in (Node, Pod, PodGroup):
                group.create_task(self._follow(kind))
            group.create_task(follow_weights(self._client, self.view.shares.weights))
            group.create_task(self._decide_forever(group))
            group.create_task(self.lessons.run())

    def undecided(self) -> tuple[int, int | None]:
        """Return how many pods and groups wait for a decision, and for how long (ns) the oldest has."""
        return self.queue.undecided(self._clock.now_ns())

    def take_profiles(self, profiles: Mapping[str, PodProfile]) -> None:
        """Use other profiles from now on; refused pods are tried again."""
        self.profiles = dict(profiles)
        self.lessons.take(learners_of(profiles))
        self._unknown_profiles.clear()
        self._refill()
        self.queue.wake(self._clock.now_ns())
        self._changed.set()

    def note_unreachable(self, line: str) -> None:
        """Record that the API server is unreachable; only the first of several watches logs it."""
        if not self._is_away:
            self._is_away = True
            LOGGER.warning("%s", line)

    async def _follow(self, kind: type[Node | Pod | PodGroup]) -> None:
        async for event in self._client.of(kind).follow():
            if self._is_away:
                self._is_away = False
                LOGGER.info("the API server answers again")
            if hasattr(event, "items"):
                self.view.take_all(kind, event.items)
                if kind is Node:
                    self._on_nodes(node for node in event.items if isinstance(node, Node))
                if kind is Pod:
                    pod_lessons.read_outcomes(self.lessons, self.view)
                self._listed.add(kind)
                self._refill()
                self._wake()
            elif event.name:
                self._take(kind, event.name, event.resource if event.type != "DELETE" else None)

    def _take(self, kind: type[Node | Pod | PodGroup], name: str, resource: Node | Pod | PodGroup | None) -> None:
        """Take a resource's new state; retry waiting pods if that may help."""
        before = self.view.nodes.get(name) if kind is Node else None
        if resource is None:
            self.view.remove(kind, name)
            if kind is Pod:
                self._forget(name)
                self.lessons.gone(name)
            self._wake()
            return
        if not self.view.take(resource):
            return
        if isinstance(resource, Node):
            if before is None or before.status.heartbeat_ns != resource.status.heartbeat_ns:
                self._on_nodes((resource,))
            if before is None or _may_help(before, resource) or self._has_idled(before, resource):
                self._wake()
            return
        if isinstance(resource, Pod):
            pod_lessons.read_outcome(self.lessons, resource)
            self._put(resource)
        else:
            self._refill()
        self._changed.set()

    def _has_idled(self, before: Node, now: Node) -> bool:
        """Return whether a device has become idle enough to matter to a profile."""
        loads = lower_loads(before, now)
        return any(profile.lets_in(*change) for change in loads for profile in self.profiles.values())

    def _wake(self) -> None:
        self.queue.wake(self._clock.now_ns())
        self._changed.set()

    def _put(self, pod: Pod) -> None:
        """Queue a pod that should be placed here, or its group; others leave the queue."""
        name = pod.metadata.name
        if not is_waiting(pod):
            self._forget(name)
            return
        if pod.spec.profile not in self.profiles:
            self._note_unknown_profile(pod.spec.profile)
            return
        now_ns = self._clock.now_ns()
        if pod.spec.group is None:
            self.queue.put(f"pod/{name}", pod.spec.priority, now_ns, pod.metadata.account)
        elif self._group_is_complete(pod.spec.group):
            group = self.view.groups[pod.spec.group]
            self.queue.put(f"group/{pod.spec.group}", group.spec.priority, now_ns, group.metadata.account)
        self._metrics.waiting.set(len(self.queue))

    def _forget(self, pod: str) -> None:
        self.queue.forget(f"pod/{pod}")
        self._reported.pop(pod, None)
        self._metrics.waiting.set(len(self.queue))

    def _group_is_complete(self, name: str) -> bool:
        """Return whether a group has its required number of pods."""
        group = self.view.groups.get(name)
        return group is not None and 0 < group.needed <= len(self.view.members(name))

    def _refill(self) -> None:
        """Queue all pods to be placed, including those rejected by a full queue."""
        for pod in sorted(self.view.waiting(), key=lambda pod: (-pod.spec.priority, pod.metadata.created_ns)):
            self._put(pod)

    def _note_unknown_profile(self, profile: str) -> None:
        if profile not in self._unknown_profiles:
            self._unknown_profiles.add(profile)
            LOGGER.warning("pods of profile %s are left to another scheduler: no such profile here", profile)

    async def _decide_forever(self, group: asyncio.TaskGroup) -> None:
        """Decide about due pods, and send bindings once none is due or a batch is full."""
        await self._may_decide()
        breath_ns = self._clock.now_ns()
        while True:
            # Clear before deciding, so that a change meanwhile starts another decision.
            self._changed.clear()
            if self.queue.refused_full and self.queue.has_room:
                self.queue.refused_full = 0
                self._refill()
            # Nodes, pods and groups must all have been listed, or a decision would miss some.
            now_ns, is_ready = self._clock.now_ns(), len(self._listed) == 3
            name = self.queue.first_due(now_ns) if is_ready else None
            is_paused = name is None or self._binder.is_full
            if is_paused and not self._binder.is_empty and not self._binder.is_sending:
                self._binder.send(group)
                continue
            if name is None or is_paused:
                due_ns = self.queue.next_due_ns() if is_ready and name is None else None
                await self._wait(None if due_ns is None else max(due_ns - now_ns, 0))
                breath_ns = self._clock.now_ns()
                continue
            await self._decide(name)
            if self._clock.now_ns() - breath_ns > _BREATH_NS:
                # Let watches and answers run between decisions.
                await asyncio.sleep(0)
                breath_ns = self._clock.now_ns()

    async def _wait(self, wait_ns: int | None) -> None:
        try:
            async with asyncio.timeout(None if wait_ns is None else wait_ns / NS_PER_S):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _decide(self, name: str) -> None:
        """Decide about a pod or a group; a binding is batched, any other result is written at once."""
        kind, _, subject = name.partition("/")
        pods = self._pods_of(kind, subject)
        if not pods:
            self.queue.forget(name)
            return
        begun_ns, nodes = self._clock.now_ns(), tuple[str, ...]()
        try:
            knowledge = Knowledge(self.view, self.profiles, self._costs())
            outcome = outcome_of(subject, pods, knowledge, self._settings.explained_nodes)
            wall_ns = self._metrics.now_ns()
            begun_wall_ns = wall_ns - (self._clock.now_ns() - begun_ns)
            scheduler = self._settings.name
            spec = spec_of(
                kind, subject, outcome, knowledge, scheduler=scheduler, begun_ns=begun_wall_ns, now_ns=wall_ns
            )
            if outcome.shares:
                nodes = tuple(placement.node for placement in spec.placements)
                decision = NewDecision(name=decision_name(subject, secrets.token_hex(5)), spec=spec)
                self._binder.add(name, outcome, decision, knowledge, begun_ns=begun_ns, now_ns=wall_ns)
                self.queue.take_out(name)
                return
            if outcome.room is not None and outcome.room.victims:
                await self._evict(name, subject, outcome, spec)
            else:
                await self._refuse(name, subject, outcome, spec)
        except ControllerError as error:
            if isinstance(error, ApiError):
                # The write may have succeeded: read the current state.
                await self._read_again(pods, nodes)
            self._note_failed(name, error)
        self._metrics.seconds.observe((self._clock.now_ns() - begun_ns) / NS_PER_S)

    async def _answered(self, answers: Answers) -> None:
        """Process the answers to bindings; refused ones are decided again."""
        refused = [(decided, answer) for decided, answer in answers if isinstance(answer, ApiError)]
        if refused:
            pods = [pod for decided, _ in refused for pod in decided.outcome.pods]
            await self._read_again(pods, dict.fromkeys(node for decided, _ in refused for node in decided.nodes))
        is_room_released = False
        for decided, answer in answers:
            if isinstance(answer, ApiError):
                self.view.withdraw(decided.assumption)
                self._note_failed(decided.name, answer)
                for pod in decided.outcome.pods:
                    if (now := self.view.pods.get(pod.metadata.name)) is not None:
                        self._put(now)
            else:
                is_room_released |= self.view.confirm(decided.assumption, answer.revision)
                self._note_bound(decided)
            self._metrics.seconds.observe((self._clock.now_ns() - decided.begun_ns) / NS_PER_S)
        if refused:
            # Later decisions assumed that all of these were bound: they, and any built on them, would be refused.
            for decided in self._binder.take_back():
                self.view.withdraw(decided.assumption)
                self.queue.again(decided.name, self._clock.now_ns())
        if refused or is_room_released:
            self._wake()
        self._changed.set()

    def _note_bound(self, decided: Decided) -> None:
        outcome, nodes = decided.outcome, decided.nodes
        pod_lessons.bound(self.lessons, self.view, decided.profile, outcome.choices, outcome.examined)
        self.queue.bound(decided.name, self._clock.now_ns())
        self._metrics.waiting.set(len(self.queue))
        self._metrics.decisions.labels("bound").inc(len(nodes))
        for pod, node in zip(outcome.pods, nodes, strict=True):
            self._reported.pop(pod.metadata.name, None)
            reason = outcome.reason if len(nodes) == 1 else f"{node}, in {decided.subject}"
            LOGGER.info("pod %s: %s", pod.metadata.name, reason)

    def _note_failed(self, name: str, error: ControllerError) -> None:
        label, now_ns = name.replace("/", " ", 1), self._clock.now_ns()
        if isinstance(error, StaleError):
            self._metrics.conflicts.inc()
            LOGGER.info("%s: decided again: %s", label, error)
            self.queue.again(name, now_ns)
        else:
            self._metrics.failures.inc()
            LOGGER.warning("%s: %s", label, error)
            self.queue.refused(name, now_ns)
            self.queue.wake(now_ns)

    def _pods_of(self, kind: str, subject: str) -> tuple[Pod, ...]:
        if kind == "group":
            return self.view.members(subject) if self._group_is_complete(subject) else ()
        pod = self.view.pods.get(subject)
        return (pod,) if pod is not None and is_waiting(pod) and pod.spec.profile in self.profiles else ()

    async def _evict(self, name: str, subject: str, outcome: Outcome, spec: DecisionSpec) -> None:
        """Evict pods of a lower priority, and promise the room; who gets it is decided once it is free."""
        assert outcome.room is not None
        columns = self.view.snapshot(self._costs()).columns
        nodes = [columns.names[node] for node in outcome.room.nodes]
        decision = NewDecision(name=decision_name(subject, secrets.token_hex(5)), spec=spec)
        label = name.replace("/", " ", 1)
        request = eviction_of(self.view, outcome.pods, outcome.room, nodes, decision=decision, subject=label)
        if request is None:
            await self._refuse(name, subject, outcome, replace(spec, outcome=DecisionOutcome.REFUSED, preempted=()))
            return
        pods = {pod: self.view.pods[pod] for pod in request.pods}
        groups = {pod.spec.group for pod in pods.values() if pod.spec.group is not None}
        known_groups = {group: self.view.groups[group] for group in groups if group in self.view.groups}
        expected = evict(State(dict(pods), {node: self.view.nodes[node] for node in nodes}, known_groups), request)
        answer = await self._client.evict(request)
        is_room_released = self.view.confirm(self.view.assume(expected), answer.revision)
        self.queue.refused(name, self._clock.now_ns())
        if is_room_released:
            self._wake()
        self._reported.pop(subject, None)
        self._metrics.decisions.labels("preempting").inc()
        LOGGER.info("%s: %s", name.replace("/", " ", 1), outcome.reason)

    async def _refuse(self, name: str, subject: str, outcome: Outcome, spec: DecisionSpec) -> None:
        self.queue.refused(name, self._clock.now_ns())
        self._metrics.decisions.labels("refused").inc()
        kind = outcome.kind or outcome.reason
        if self._reported.get(subject, ("", ""))[0] != kind:
            LOGGER.info("%s: %s", name.replace("/", " ", 1), outcome.reason)
            decision = Decision(metadata=Metadata(name=decision_name(subject, secrets.token_hex(5))), spec=spec)
            await self._client.of(Decision).create(decision)
            # Only once it is written, so that a failed write is repeated.
            self._reported[subject] = (kind, spec.reason)
        # Figures alone are no news: pods keep those of the decision that was stored.
        await self._write_reason(outcome.pods, self._reported[subject][1])

    async def _write_reason(self, pods: Sequence[Pod], reason: str) -> None:
        """Write why pods wait, unless that is already written; binding clears it."""
        for pod in pods:
            if pod.status.reasons == (reason,):
                continue
            updated = replace(pod, status=replace(pod.status, reasons=(reason,)))
            try:
                # Apply at once, because a binding names the revision of its pod.
                self._take(Pod, pod.metadata.name, await self._client.of(Pod).replace_status(updated))
            except NotFoundError:
                LOGGER.info("pod %s is gone", pod.metadata.name)

    async def _read_again(self, pods: Sequence[Pod], nodes: Iterable[str]) -> None:
        """Read the current state behind a decision without waiting for the watch; failures are left to the watch."""
        wanted: list[tuple[type[Node | Pod], str]] = [(Pod, pod.metadata.name) for pod in pods]
        wanted += [(Node, name) for name in nodes]
        try:
            for kind, name in wanted:
                try:
                    self._take(kind, name, await self._client.of(kind).get(name))
                except NotFoundError:
                    self._take(kind, name, None)
        except ApiError as error:
            LOGGER.warning("%s", error)


def _may_help(before: Node, now: Node) -> bool:
    """Return whether a change of a node may let in a pod that was refused."""
    return (
        (is_ready(now) and not is_ready(before))
        or before.hardware != now.hardware
        or before.metadata.labels != now.metadata.labels
        or before.shares != now.shares
        or before.pools != now.pools
    )
