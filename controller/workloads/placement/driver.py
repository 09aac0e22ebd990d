"""Main loop of the workload controller: follows the API server, decides in rounds, writes, and looks again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.apiserver.client import ApiClient
from controller.apiserver.client.values import Event, Listing
from controller.apiserver.registry.events import EventType
from controller.apiserver.resources import Node, Pod, PodGroup
from controller.common.errors import ApiError, NotFoundError, StaleError, UnavailableError
from controller.workloads.placement.deciding import reconcile
from controller.workloads.placement.settings import PlacementSettings
from controller.workloads.placement.values import Action, Decided, MarkSilent, ReleaseSilent
from controller.workloads.placement.view import KINDS, Known, View
from controller.workloads.placement.writing import Written, write
from dataplane.clock import NS_PER_S, Clock


class Metrics:
    """Counters in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.actions = Counter(
            "millrace_placement_actions",
            "Writes that took effect, by kind.",
            ["action"],
            registry=self.registry,
        )
        self.conflicts = Counter(
            "millrace_placement_conflicts",
            "Writes that lost to an earlier one and were decided again.",
            registry=self.registry,
        )
        self.failures = Counter(
            "millrace_placement_failures", "Writes that failed for another reason.", registry=self.registry
        )
        self.silent = Gauge("millrace_placement_silent_nodes", "Nodes that do not report.", registry=self.registry)
        self.held = Gauge(
            "millrace_placement_held",
            "1 while pods of silent nodes wait because many nodes are silent.",
            registry=self.registry,
        )
        self.stuck = Gauge(
            "millrace_placement_stuck_pods", "Pods that a reporting node does not stop.", registry=self.registry
        )
        self.nodes = Gauge("millrace_placement_nodes", "Known nodes.", registry=self.registry)
        self.pods = Gauge("millrace_placement_pods", "Known pods.", registry=self.registry)
        self.groups = Gauge("millrace_placement_groups", "Known groups.", registry=self.registry)
        self.seconds = Histogram(
            "millrace_placement_round_seconds",
            "Duration of a round of decisions, without its writes.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
            registry=self.registry,
        )


LOGGER: Final = logging.getLogger("millrace.placement")
_AT_A_TIME: Final = 16
"""Concurrent writes."""
_REST: Final = 4
"""Rest after a round, as a multiple of its duration: deciding uses at most a fifth of a core."""
_SEEN_S: Final = 2.0
"""Time for watches to report writes before the next decision is made anyway."""
_AGAIN_NS: Final = NS_PER_S
"""Delay of the next decision after a failed write."""


class MainController:
    """Brings the actual state to the wanted one. `run` works until it is cancelled."""

    def __init__(self, client: ApiClient, settings: PlacementSettings, *, clock: Clock, metrics: Metrics) -> None:
        self.view = View(clock.now_ns())
        self.settings = settings
        self._client, self._clock, self._metrics = client, clock, metrics
        self._changed, self._told = asyncio.Event(), asyncio.Condition()
        self._away: set[Known] = set()
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Follow, decide and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind in KINDS:
                group.create_task(self._follow(kind))
            group.create_task(self._work())

    def note_away(self, line: str) -> None:
        """Note that the API server is awaited; only the first of several watches reports it."""
        if not self._away:
            LOGGER.warning("%s", line)
        self._away = set(KINDS)

    async def _follow(self, kind: Known) -> None:
        async for told in self._client.of(kind).follow():
            if kind in self._away:
                self._back(kind)
            self._take(kind, told)
            async with self._told:
                self._told.notify_all()

    def _back(self, kind: Known) -> None:
        self._away.discard(kind)
        if kind is Node:
            # Nodes could not report either: silence counts from now.
            self.view.count_anew(self._clock.now_ns())
            LOGGER.info("the API server answers again; counting the silence of nodes anew")
        self._changed.set()

    def _take(self, kind: Known, told: Listing[Node | Pod | PodGroup] | Event[Node | Pod | PodGroup]) -> None:
        """Take a watch's event; a report that changes nothing else triggers no decision."""
        now_ns = self._clock.now_ns()
        if isinstance(told, Listing):
            self.view.take_all(kind, told.items, told.revision, now_ns)
            self._changed.set()
            return
        if told.type is EventType.DELETE:
            self.view.remove(kind, told.name, told.revision)
            self._changed.set()
        elif told.resource is not None:
            if not isinstance(told.resource, Node) or self._matters(told.resource):
                self._changed.set()
            self.view.take(told.resource, now_ns)
        self.view.note_revision(kind, told.revision)

    def _matters(self, node: Node) -> bool:
        current = self.view.nodes.get(node.metadata.name)
        if current is None or current.node.status.ready != node.status.ready:
            return True
        before = current.node
        return (
            before.spec != node.spec or before.shares != node.shares or before.metadata.labels != node.metadata.labels
        )

    async def _work(self) -> None:
        """Decide whenever something has changed or is due; never while nodes cannot be heard."""
        while True:
            self._changed.clear()
            due_ns, took_ns = None, 0
            if not self._away:
                begun_ns = self._clock.now_ns()
                decided = reconcile(self.view, begun_ns, self.settings)
                took_ns = self._clock.now_ns() - begun_ns
                self._note(decided, took_ns)
                due_ns = decided.due_ns
                if not await self._write_all(decided.actions):
                    due_ns = min(due_ns or self._clock.now_ns() + _AGAIN_NS, self._clock.now_ns() + _AGAIN_NS)
            await asyncio.sleep(_REST * took_ns / NS_PER_S)
            await self._wait(due_ns)

    async def _wait(self, due_ns: int | None) -> None:
        wait_s = None if due_ns is None else max(due_ns - self._clock.now_ns(), 0) / NS_PER_S
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _write_all(self, actions: Iterable[Action]) -> bool:
        """Write everything and wait until watches have reported it; return whether nothing failed."""
        turns = asyncio.Semaphore(_AT_A_TIME)

        async def one(action: Action) -> Written | None:
            async with turns:
                return await self._write(action)

        written = await asyncio.gather(*map(one, actions))
        wanted: dict[Known, int] = {}
        for done in written:
            for kind in () if done is None else done.kinds:
                wanted[kind] = max(wanted.get(kind, 0), done.revision if done is not None else 0)
        await self._seen(wanted)
        return None not in written

    async def _write(self, action: Action) -> Written | None:
        try:
            done = await write(self._client, action)
        except (StaleError, NotFoundError) as error:
            self._metrics.conflicts.inc()
            LOGGER.info("decided again: %s", error)
            return None
        except ApiError as error:
            self._metrics.failures.inc()
            if not (self._away and isinstance(error, UnavailableError)):
                LOGGER.warning("%s: %s", type(action).__name__, error)
            return None
        self._metrics.actions.labels(type(action).__name__).inc()
        LOGGER.info("%s", done.line)
        now_ns = self._clock.now_ns()
        if isinstance(action, MarkSilent):
            self.view.note_silence(action.node.metadata.name, now_ns)
        elif isinstance(action, ReleaseSilent) and action.counts:
            self.view.note_emptied(action.node, action.heartbeat_ns, now_ns)
        return done

    async def _seen(self, wanted: dict[Known, int]) -> None:
        """Return once the writes are known, or after a while."""
        if not wanted:
            return
        try:
            async with asyncio.timeout(_SEEN_S), self._told:
                await self._told.wait_for(
                    lambda: all(self.view.revisions.get(kind, 0) >= revision for kind, revision in wanted.items())
                )
        except TimeoutError:
            pass

    def _note(self, decided: Decided, took_ns: int) -> None:
        metrics, view = self._metrics, self.view
        metrics.seconds.observe(took_ns / NS_PER_S)
        for gauge, number in (
            (metrics.silent, len(decided.silent)),
            (metrics.held, int(bool(decided.held))),
            (metrics.stuck, len(decided.stuck)),
            (metrics.nodes, len(view.nodes)),
            (metrics.pods, len(view.pods)),
            (metrics.groups, len(view.groups)),
        ):
            gauge.set(number)
        lines = {line.split(",", 1)[0]: line for line in decided.stuck}
        if decided.held:
            lines["held"] = decided.held
        for key, line in lines.items():
            if key not in self._said:
                LOGGER.warning("%s", line)
        self._said = lines
