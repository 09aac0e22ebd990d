"""The scheduler: pods that wait at the service access point are decided about one after the other, and bound.

Bound means one request that writes pods, their nodes' shares and the decision together, if nothing of it has changed
since: so two schedulers never give the same share away, and one that is killed has placed a pod whole or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_outcome
from typing import Final

from msgspec.structs import replace

from controller.api.client import ApiClient
from controller.api.registry.evictions import evict
from controller.api.registry.placements import Binding, BindingRequest, NewDecision, PlacementAnswer, State, bind
from controller.api.resources import Decision, Metadata, Node, Pod, PodGroup
from controller.api.resources.decision import DecisionSpec
from controller.api.resources.decision import Outcome as DecisionOutcome
from controller.api.resources.hardware import device_shares
from controller.cluster.hardware import Shares
from controller.errors import ApiError, ControllerError, NotFoundError, StaleError
from controller.schedulers.containers.preemption import Room, make_room
from controller.schedulers.costs import Costs
from controller.schedulers.framework import Choice, Explanation, Profile, Snapshot, explain, place_group
from controller.schedulers.framework.deciding import Examined, examine
from controller.schedulers.framework.explaining import explained
from controller.schedulers.serving import pod_lessons
from controller.schedulers.serving.decisions import decision_name, decision_of, is_measured
from controller.schedulers.serving.lessons import Lessons
from controller.schedulers.serving.metrics import Metrics
from controller.schedulers.serving.pending import PendingQueue
from controller.schedulers.serving.reports import lower_loads
from controller.schedulers.serving.room import cluster_of, eviction_of, priority_of, promised
from controller.schedulers.serving.view import ClusterView, is_ready, is_waiting
from controller.schedulers.settings import SchedulerSettings
from dataplane.clock import Clock

LOGGER: Final = logging.getLogger("millrace.scheduler")
_NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What was decided about a pod or a group; without shares it was refused, and `room` may be made for it."""

    pods: tuple[Pod, ...]
    choices: tuple[Choice, ...]
    shares: tuple[Shares, ...]
    explanations: tuple[Explanation, ...]
    reason: str
    room: Room | None = None
    examined: tuple[Examined, ...] = ()
    """What was said of each pod that gets shares."""


class Scheduler:
    """Places pods of its profiles. `run` follows the service access point and decides, until it is cancelled."""

    def __init__(
        self,
        client: ApiClient,
        settings: SchedulerSettings,
        profiles: Mapping[str, Profile],
        *,
        costs: Costs,
        clock: Clock,
        metrics: Metrics,
        on_nodes: Callable[[Iterable[Node]], None] = lambda _: None,
    ) -> None:
        """`on_nodes` gets nodes as they report."""
        self._on_nodes = on_nodes
        self.view = ClusterView()
        self.queue = PendingQueue(settings.queue)
        self.profiles = dict(profiles)
        self._client, self._settings, self._costs = client, settings, costs
        self._clock, self._metrics = clock, metrics
        self._changed = asyncio.Event()
        self._listed: set[type[Node | Pod | PodGroup]] = set()
        self._said: dict[str, str] = {}
        self._strangers: set[str] = set()
        self._is_away = False
        self.lessons = Lessons(clock, pod_lessons.learners_of(profiles), lambda: pod_lessons.utilisation_of(self.view))
        metrics.learning.ask("pods", lambda: self.lessons.learners)

    async def run(self) -> None:
        """Follow and decide until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in (Node, Pod, PodGroup):
                group.create_task(self._follow(kind))
            group.create_task(self._decide_for_ever())
            group.create_task(self.lessons.run())

    def take_profiles(self, profiles: Mapping[str, Profile]) -> None:
        """Decide by other profiles from now on; who was refused is looked at again."""
        self.profiles = dict(profiles)
        self.lessons.take(pod_lessons.learners_of(profiles))
        self._strangers.clear()
        self._refill()
        self.queue.wake(self._clock.now_ns())
        self._changed.set()

    def note_away(self, line: str) -> None:
        """Take note that the service access point is waited for; of several watches the first one says it."""
        if not self._is_away:
            self._is_away = True
            LOGGER.warning("%s", line)

    async def _follow(self, kind: type[Node | Pod | PodGroup]) -> None:
        async for told in self._client.of(kind).follow():
            if self._is_away:
                self._is_away = False
                LOGGER.info("the service access point answers again")
            if hasattr(told, "items"):
                self.view.take_all(kind, told.items)
                if kind is Node:
                    self._on_nodes(node for node in told.items if isinstance(node, Node))
                if kind is Pod:
                    pod_lessons.look_at_all(self.lessons, self.view)
                self._listed.add(kind)
                self._refill()
                self._wake()
            elif told.name:
                self._take(kind, told.name, told.resource if told.type != "DELETE" else None)

    def _take(self, kind: type[Node | Pod | PodGroup], name: str, resource: Node | Pod | PodGroup | None) -> None:
        """Take what has become of a resource; who waits is looked at again if that may help."""
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
            pod_lessons.look_at(self.lessons, resource)
            self._put(resource)
        else:
            self._refill()
        self._changed.set()

    def _has_idled(self, before: Node, now: Node) -> bool:
        """Return whether a device is less busy in a way that a profile makes a difference of."""
        loads = lower_loads(before, now)
        return any(profile.lets_in(*one) for one in loads for profile in self.profiles.values())

    def _wake(self) -> None:
        self.queue.wake(self._clock.now_ns())
        self._changed.set()

    def _put(self, pod: Pod) -> None:
        """Let a pod wait that is to be placed here, or its group; any other does not."""
        name = pod.metadata.name
        if not is_waiting(pod):
            self._forget(name)
            return
        if pod.spec.profile not in self.profiles:
            self._note_stranger(pod.spec.profile)
            return
        now_ns = self._clock.now_ns()
        if pod.spec.group is None:
            self.queue.put(f"pod/{name}", pod.spec.priority, now_ns)
        elif self._group_is_complete(pod.spec.group):
            group = self.view.groups[pod.spec.group]
            self.queue.put(f"group/{pod.spec.group}", group.spec.priority, now_ns)
        self._metrics.waiting.set(len(self.queue))

    def _forget(self, pod: str) -> None:
        self.queue.forget(f"pod/{pod}")
        self._said.pop(pod, None)
        self._metrics.waiting.set(len(self.queue))

    def _group_is_complete(self, name: str) -> bool:
        """Return whether as many pods are there as a group has to have."""
        group = self.view.groups.get(name)
        return group is not None and 0 < group.needed <= len(self.view.members(name))

    def _refill(self) -> None:
        """Have all wait that are to be placed: those that there was no room for, too."""
        for pod in sorted(self.view.waiting(), key=lambda pod: (-pod.spec.priority, pod.metadata.created_ns)):
            self._put(pod)

    def _note_stranger(self, profile: str) -> None:
        if profile not in self._strangers:
            self._strangers.add(profile)
            LOGGER.warning("pods of profile %s are left to another scheduler: there is none of that name here", profile)

    async def _decide_for_ever(self) -> None:
        while True:
            self._changed.clear()
            now_ns = self._clock.now_ns()
            name = self.queue.first_due(now_ns) if len(self._listed) == 3 else None
            if name is None:
                due_ns = self.queue.next_due_ns() if len(self._listed) == 3 else None
                await self._wait(None if due_ns is None else max(due_ns - now_ns, 0))
                continue
            await self._decide(name)
            if self.queue.refused_full and self.queue.has_room:
                self.queue.refused_full = 0
                self._refill()

    async def _wait(self, wait_ns: int | None) -> None:
        try:
            async with asyncio.timeout(None if wait_ns is None else wait_ns / _NS_PER_S):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _decide(self, name: str) -> None:
        """Decide about a pod or a group, and write what came of it."""
        kind, _, subject = name.partition("/")
        pods = self._pods_of(kind, subject)
        if not pods:
            self.queue.forget(name)
            return
        begun_ns = self._clock.now_ns()
        try:
            outcome = self._outcome(subject, pods)
            spec = self._spec(kind, subject, outcome, begun_ns)
            if outcome.shares:
                await self._bind(name, subject, outcome, spec)
            elif outcome.room is not None and outcome.room.victims:
                await self._evict(name, subject, outcome, spec)
            else:
                await self._refuse(name, subject, outcome, spec)
        except StaleError as error:
            self._metrics.conflicts.inc()
            LOGGER.info("%s %s: decided again: %s", kind, subject, error)
            self.queue.again(name, self._clock.now_ns())
            await self._read_again(pods)
        except ControllerError as error:
            self._metrics.failures.inc()
            LOGGER.warning("%s %s: %s", kind, subject, error)
            self.queue.refused(name, self._clock.now_ns())
            self.queue.wake(self._clock.now_ns())
            if isinstance(error, ApiError):
                # Whether it was done is not known: what is there says so.
                await self._read_again(pods)
        self._metrics.seconds.observe((self._clock.now_ns() - begun_ns) / _NS_PER_S)

    def _pods_of(self, kind: str, subject: str) -> tuple[Pod, ...]:
        if kind == "group":
            return self.view.members(subject) if self._group_is_complete(subject) else ()
        pod = self.view.pods.get(subject)
        return (pod,) if pod is not None and is_waiting(pod) and pod.spec.profile in self.profiles else ()

    def _outcome(self, subject: str, pods: tuple[Pod, ...]) -> _Outcome:
        outcome = self._decided(subject, pods)
        if outcome.shares or not outcome.explanations:
            return outcome
        room = self._room(pods)
        if room is None:
            return outcome
        if not room.victims:
            return replace_outcome(outcome, room=room, reason=f"{outcome.reason}; it waits for pods that are stopping")
        lower = f"asked to go, being of lower priority: {', '.join(room.victims)}"
        return replace_outcome(outcome, room=room, reason=f"{outcome.reason}; {lower}")

    def _room(self, pods: tuple[Pod, ...]) -> Room | None:
        """Return who would have to go for pods that were refused, None where that helps nobody."""
        priority = priority_of(self.view, pods[0])
        held = (pod for pod in self.view.pods.values() if pod.status.node is not None)
        if not any(priority_of(self.view, pod) < priority or pod.status.then is not None for pod in held):
            return None
        costs = self._costs()
        snapshot = promised(self.view, self.profiles, pods, self.view.snapshot(costs))
        pending = [self.view.pending(pod) for pod in pods]
        cluster = cluster_of(self.view, snapshot, costs)
        return make_room(self.profiles[pods[0].spec.profile], pending, cluster, priority)

    def _decided(self, subject: str, pods: tuple[Pod, ...]) -> _Outcome:
        snapshot = promised(self.view, self.profiles, pods, self.view.snapshot(self._costs()))
        if reason := self._cannot(pods):
            return _Outcome(pods, (), (), (), reason)
        profile = self.profiles[pods[0].spec.profile]
        pending = [self.view.pending(pod) for pod in pods]
        most = self._settings.explained_nodes
        if len(pods) == 1:
            choice, examined = examine(profile, pending[0], snapshot)
            why = explained(profile, choice, examined, most=most)
            shares = (profile.shares(pending[0], snapshot, choice.node),) if choice.is_placed else ()
            return _Outcome(pods, (choice,), shares, (why,), why.summary, examined=(examined,))
        found = place_group(profile, pending, snapshot)
        if not found.is_placed:
            blocked = next((choice.pod for choice in found.choices if not choice.is_placed), pending[0])
            why = explain(profile, blocked, snapshot, most=most)
            return _Outcome(pods, (), (), (why,), f"group {subject} is not placed whole: {blocked.name}: {why.summary}")
        explained_all = list(_explained(profile, snapshot, found.choices, found.shares, most))
        explanations, examined_all = tuple(why for why, _ in explained_all), tuple(one for _, one in explained_all)
        reason = f"all {len(pods)} pods of group {subject}"
        return _Outcome(pods, found.choices, found.shares, explanations, reason, examined=examined_all)

    @staticmethod
    def _cannot(pods: Sequence[Pod]) -> str:
        """Return what of a request this scheduler does not know how to serve; empty if nothing."""
        profiles = {pod.spec.profile for pod in pods}
        if len(profiles) > 1:
            return f"its pods are of profiles {' and '.join(sorted(profiles))}: a group has one"
        return ""

    def _spec(self, kind: str, subject: str, outcome: _Outcome, begun_ns: int) -> DecisionSpec:
        spec = decision_of(
            outcome.explanations,
            outcome.shares,
            subject_kind="pod" if kind == "pod" else "podgroup",
            subjects=[subject] if kind == "pod" else [pod.metadata.name for pod in outcome.pods],
            scheduler=self._settings.name,
            reason=outcome.reason,
            begun_ns=self._metrics.now_ns() - (self._clock.now_ns() - begun_ns),
            decided_ns=self._metrics.now_ns(),
        )
        measured = None
        if outcome.shares:
            choice, snapshot = outcome.choices[-1], self.view.snapshot(self._costs())
            measured = is_measured(snapshot, choice.pod, snapshot.columns.names[choice.node])
        group = subject if kind == "group" else None
        if outcome.room is not None and outcome.room.victims:
            spec = replace(spec, outcome=DecisionOutcome.PREEMPTING, preempted=outcome.room.victims)
        return replace(spec, profile=outcome.pods[0].spec.profile, measured=measured, group=group)

    async def _bind(self, name: str, subject: str, outcome: _Outcome, spec: DecisionSpec) -> None:
        decision = NewDecision(name=decision_name(subject, secrets.token_hex(5)), spec=spec)
        names = [placement.node for placement in spec.placements]
        profile, snapshot = self.profiles[outcome.pods[0].spec.profile], self.view.snapshot(self._costs())
        bindings = tuple(
            Binding(
                pod=pod.metadata.name,
                node=node,
                devices=device_shares(shares),
                operator_devices=profile.operator_devices(choice.pod, snapshot, choice.node),
                pod_revision=pod.metadata.revision,
                shares_version=self.view.nodes[node].shares_version,
            )
            for pod, choice, node, shares in zip(outcome.pods, outcome.choices, names, outcome.shares, strict=True)
        )
        request = BindingRequest(bindings=bindings, decision=decision)
        expected = bind(self._state(outcome.pods, names), request, self._metrics.now_ns())
        answer = await self._client.bind(request)
        self._assume(expected, answer)
        pod_lessons.bound(self.lessons, self.view, profile, outcome.choices, outcome.examined)
        self.queue.forget(name)
        for pod, node in zip(outcome.pods, names, strict=True):
            self._said.pop(pod.metadata.name, None)
            self._metrics.decisions.labels("bound").inc()
            LOGGER.info("pod %s: %s", pod.metadata.name, outcome.reason if len(names) == 1 else f"{node}, in {subject}")

    def _state(self, pods: Sequence[Pod], nodes: Sequence[str]) -> State:
        """Return what is known of what a binding is about, to be looked through as the server will."""
        groups = {pod.spec.group for pod in pods if pod.spec.group is not None}
        return State(
            {pod.metadata.name: pod for pod in pods},
            {name: self.view.nodes[name] for name in nodes},
            {name: self.view.groups[name] for name in groups if name in self.view.groups},
        )

    def _assume(self, made: State, answer: PlacementAnswer) -> None:
        """Know what was bound before the watch says so: the next decision is about what is left."""
        for resource in (*made.pods.values(), *made.nodes.values(), *made.groups.values()):
            if resource is not None:
                metadata = replace(resource.metadata, revision=answer.revision)
                self.view.take(replace(resource, metadata=metadata))

    async def _evict(self, name: str, subject: str, outcome: _Outcome, spec: DecisionSpec) -> None:
        """Ask pods of a lower priority to go, and promise the room; who gets it is decided once it is there."""
        assert outcome.room is not None
        columns = self.view.snapshot(self._costs()).columns
        nodes = [columns.names[node] for node in outcome.room.nodes]
        decision = NewDecision(name=decision_name(subject, secrets.token_hex(5)), spec=spec)
        said = name.replace("/", " ", 1)
        request = eviction_of(self.view, outcome.pods, outcome.room, nodes, decision=decision, subject=said)
        if request is None:
            await self._refuse(name, subject, outcome, replace(spec, outcome=DecisionOutcome.REFUSED, preempted=()))
            return
        found = {one: self.view.pods[one] for one in request.pods}
        groups = {pod.spec.group for pod in found.values() if pod.spec.group is not None}
        known = {one: self.view.groups[one] for one in groups if one in self.view.groups}
        expected = evict(State(dict(found), {one: self.view.nodes[one] for one in nodes}, known), request)
        self._assume(expected, await self._client.evict(request))
        self.queue.refused(name, self._clock.now_ns())
        self._said.pop(subject, None)
        self._metrics.decisions.labels("preempting").inc()
        LOGGER.info("%s: %s", name.replace("/", " ", 1), outcome.reason)

    async def _refuse(self, name: str, subject: str, outcome: _Outcome, spec: DecisionSpec) -> None:
        self.queue.refused(name, self._clock.now_ns())
        self._metrics.decisions.labels("refused").inc()
        if self._said.get(subject) != outcome.reason:
            LOGGER.info("%s: %s", name.replace("/", " ", 1), outcome.reason)
            decision = Decision(metadata=Metadata(name=decision_name(subject, secrets.token_hex(5))), spec=spec)
            await self._client.of(Decision).create(decision)
            self._said[subject] = outcome.reason
        await self._tell(outcome.pods, spec.reason)

    async def _tell(self, pods: Sequence[Pod], reason: str) -> None:
        """Have pods say why they wait, those that do not say so yet; their binding clears it."""
        for pod in pods:
            if pod.status.reasons == (reason,):
                continue
            told = replace(pod, status=replace(pod.status, reasons=(reason,)))
            try:
                # Taken at once: a binding names the revision of its pod.
                self._take(Pod, pod.metadata.name, await self._client.of(Pod).replace_status(told))
            except NotFoundError:
                LOGGER.info("pod %s has gone", pod.metadata.name)

    async def _read_again(self, pods: Sequence[Pod]) -> None:
        """Read what a decision was about as it is now, without waiting for the watch; what fails is left to it."""
        try:
            for pod in pods:
                try:
                    self._take(Pod, pod.metadata.name, await self._client.of(Pod).get(pod.metadata.name))
                except NotFoundError:
                    self._take(Pod, pod.metadata.name, None)
            for node in (await self._client.of(Node).list()).items:
                self._take(Node, node.metadata.name, node)
        except ApiError as error:
            LOGGER.warning("%s", error)


def _explained(
    profile: Profile, snapshot: Snapshot, choices: Sequence[Choice], shares: Sequence[Shares], most: int
) -> Iterator[tuple[Explanation, Examined]]:
    """Yield why each pod of a group was placed where it is, each with what those before it took."""
    for choice, some in zip(choices, shares, strict=True):
        examined = examine(profile, choice.pod, snapshot)[1]
        yield explained(profile, choice, examined, most=most), examined
        snapshot = snapshot.taking(choice.node, some, choice.pod.group, choice.pod.peers)


def _may_help(before: Node, now: Node) -> bool:
    """Return whether what has changed of a node may let a pod in that was refused."""
    return (
        (is_ready(now) and not is_ready(before))
        or before.hardware != now.hardware
        or before.metadata.labels != now.metadata.labels
        or before.shares != now.shares
        or before.pools != now.pools
    )
