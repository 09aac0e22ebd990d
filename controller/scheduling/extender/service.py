"""The extender's answers, independent of the transport: requests as bytes in, answers as bytes out.

Nodes and pods are looked up in the event loop; decisions run outside it, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from controller.common.errors import ControllerError, SchedulerError
from controller.scheduling.costs import Costs
from controller.scheduling.extender import messages, objects
from controller.scheduling.extender.annotations import PodAnnotations, annotations_of
from controller.scheduling.extender.books import Books
from controller.scheduling.extender.deciding import filter_nodes, may_run, score_nodes, untolerated
from controller.scheduling.extender.kube_api import KubernetesApi
from controller.scheduling.extender.messages import (
    ExtenderArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
    MetaPod,
    MetaVictims,
    NodeListResult,
)
from controller.scheduling.extender.metrics import Metrics
from controller.scheduling.extender.recent import Recent
from controller.scheduling.extender.settings import ExtenderSettings
from controller.scheduling.extender.unbound import Unbound
from controller.scheduling.pods import PendingPod, PodProfile, Snapshot
from dataplane.clock import Clock

LOGGER: Final = logging.getLogger("millrace.extender")

_ASSUMED_NS: Final = 60_000_000_000
"""Time within which the watch must confirm a binding."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Inputs:
    """A pod as policies see it, and the state for its decision."""

    profile: PodProfile
    pod: PendingPod
    snapshot: Snapshot
    emptied: Snapshot
    untolerated: Mapping[str, objects.Taint]
    annotations: PodAnnotations


class ExtenderService:
    """Answers a kube-scheduler. `books` come from the watch; without `api` only each request's nodes are known.

    Raises SchedulerError if an answer has no field for an error; `now_ns` is the time since 1970.
    """

    def __init__(
        self,
        settings: ExtenderSettings,
        profiles: Mapping[str, PodProfile],
        books: Books,
        *,
        api: KubernetesApi | None,
        costs: Costs,
        metrics: Metrics,
        clock: Clock,
        now_ns: Callable[[], int],
        worker: Executor,
    ) -> None:
        self.recent = Recent(settings.kept_decisions, settings.explained_nodes)
        self._settings, self._profiles, self._books, self._api = settings, profiles, books, api
        self._costs, self._metrics, self._clock, self._now_ns = costs, metrics, clock, now_ns
        self._worker = worker
        self.unbound = Unbound(clock, books.pods.__contains__)

    async def filter(self, body: bytes) -> bytes:
        """Return which nodes may run a pod, and why the others may not."""
        args = await self._run(messages.read_arguments, body)
        try:
            self._check_nodes(args)
            inputs = await self._inputs(args.pod, args)
            how = partial(
                filter_nodes,
                emptied=inputs.emptied,
                untolerated=inputs.untolerated,
                explained=self._settings.explained_nodes,
            )
            result = await self._run(how, inputs.profile, inputs.pod, args.names, inputs.snapshot)
        except ControllerError as error:
            self._note_failure("filter", args.pod, error)
            return msgspec.json.encode(ExtenderFilterResult(error=str(error)))
        if result.passed and self._api is not None:
            self.unbound.note(args.pod, inputs.annotations)
        decision = self.recent.filtered(args.pod, inputs.profile.name, result, self._now_ns())
        for policy, count in decision.refused_by.items():
            self._metrics.refused_nodes.labels(policy).inc(count)
        self._metrics.requests.labels("filter", "some" if result.passed else "none").inc()
        why = ", ".join(f"{count} by {policy}" for policy, count in decision.refused_by.items())
        LOGGER.info("pod %s: %d of %d nodes pass%s", decision.pod, decision.passed, decision.asked, why and f": {why}")
        final = {name: str(refusal) for name, refusal in result.refused.items() if refusal.is_final}
        others = {name: str(refusal) for name, refusal in result.refused.items() if not refusal.is_final}
        return await self._run(_filter_answer, args, frozenset(result.passed), others, final)

    async def prioritize(self, body: bytes) -> bytes:
        """Return a score from 0 to 10 for each node; raise SchedulerError, as the answer has no field for an error."""
        args = await self._run(messages.read_arguments, body)
        try:
            self._check_nodes(args)
            inputs = await self._inputs(args.pod, args)
            how = partial(score_nodes, stretch=self._settings.stretch, explained=self._settings.explained_nodes)
            scores = await self._run(how, inputs.profile, inputs.pod, args.names, inputs.snapshot)
        except ControllerError as error:
            self._note_failure("prioritize", args.pod, error)
            raise
        decision = self.recent.scored(args.pod, inputs.profile.name, scores, self._now_ns())
        self._metrics.requests.labels("prioritize", "some" if scores else "none").inc()
        if decision.scores:
            best = decision.scores[0]
            LOGGER.info(
                "pod %s: %s is best: score %d, %s", decision.pod, best.node, best.score, "; ".join(best.reasons)
            )
        return msgspec.json.encode([HostPriority(score.node, score.score) for score in scores])

    async def preempt(self, body: bytes) -> bytes:
        """Return the nodes on which a pod could run once their victims are gone; raise SchedulerError."""
        args = await self._run(messages.read_preemption, body)
        try:
            helped = await self._helped(args)
        except ControllerError as error:
            self._note_failure("preempt", args.pod, error)
            raise
        self._metrics.requests.labels("preempt", "some" if helped else "none").inc()
        LOGGER.info(
            "pod %s: preemption would help on %d of %d nodes", args.pod.full_name, len(helped), len(args.victims)
        )
        return msgspec.json.encode(ExtenderPreemptionResult(helped))

    async def bind(self, body: bytes) -> bytes:
        """Bind a pod to a node through the API server; the answer carries any error."""
        args = await self._run(messages.read_binding, body)
        full_name, error = f"{args.pod_namespace}/{args.pod_name}", ""
        try:
            if self._api is None:
                raise SchedulerError("no API server is configured: omit bindVerb")
            await self._api.bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node)
            # Count the binding until the watch shows it.
            pod = self.recent.pod(full_name, args.pod_uid)
            if pod is not None:
                self._books.assume(pod, args.node, self._clock.now_ns() + _ASSUMED_NS)
            LOGGER.info("pod %s is bound to %s", full_name, args.node)
        except ControllerError as problem:
            error = f"bind: {problem}"
            LOGGER.warning("pod %s: %s", full_name, error)
        self.unbound.discard(args.pod_uid)
        self._metrics.requests.labels("bind", "failed" if error else "some").inc()
        self.recent.bound(full_name, args.pod_uid, args.node, error, self._now_ns())
        return msgspec.json.encode(ExtenderBindingResult(error))

    def note_timeout(self, verb: str) -> None:
        """Count a request that was not answered in time."""
        self._metrics.requests.labels(verb, "late").inc()

    async def _helped(self, args: messages.ExtenderPreemptionArgs) -> dict[str, MetaVictims]:
        helped = {}
        for node, victims in args.victims.items():
            inputs = await self._inputs(args.pod, None, gone=frozenset(victims.uids))
            if node in inputs.untolerated:
                continue
            if self._api is None or await self._run(may_run, inputs.profile, inputs.pod, node, inputs.snapshot) is None:
                pods = tuple(MetaPod(uid) for uid in victims.uids)
                helped[node] = MetaVictims(pods, victims.budget_violations)
        return helped

    async def _inputs(
        self, pod: objects.Pod, args: ExtenderArgs | None, *, gone: frozenset[str] = frozenset()
    ) -> _Inputs:
        """Return the inputs of a decision about a pod; raise SchedulerError for invalid annotations."""
        annotations = annotations_of(pod)
        name = annotations.profile or next(iter(self._profiles))
        if (profile := self._profiles.get(name)) is None:
            names = ", ".join(self._profiles)
            raise SchedulerError(f"pod {pod.full_name}: unknown profile {name[:60]!r}; known: {names}")
        books = self._books
        if self._api is not None and not await self.unbound.settled(pod, annotations, self._settings.limits.settle_s):
            LOGGER.info("pod %s: deciding although a pod that it depends on is not bound yet", pod.full_name)
        if self._api is None and args is not None:
            books = await self._run(_books_of, books, args)
        books.expire(self._clock.now_ns())
        costs = self._costs()
        snapshot = books.snapshot(costs, gone=gone)
        refused = untolerated(
            {name: node.taints for name, node in books.nodes.items() if node.taints}, pod.spec.tolerations or ()
        )
        pending = books.pending(pod, annotations, gone=gone)
        return _Inputs(profile, pending, snapshot, books.emptied(snapshot, costs), refused, annotations)

    def _check_nodes(self, args: ExtenderArgs) -> None:
        if len(args.names) > self._settings.limits.nodes:
            raise SchedulerError(f"{len(args.names)} nodes; at most {self._settings.limits.nodes} are allowed")
        if self._api is None and args.nodes is None:
            raise SchedulerError(
                "the request has only the nodes' names, and no API server is configured: "
                "set nodeCacheCapable to false, or `kubernetes` in the extender's settings"
            )

    def _note_failure(self, verb: str, pod: objects.Pod, error: ControllerError) -> None:
        LOGGER.warning("pod %s: %s: %s", pod.full_name, verb, error)
        self._metrics.requests.labels(verb, "failed").inc()
        self.recent.failed(pod.full_name, pod.metadata.uid, str(error), self._now_ns())

    async def _run(self, call: Callable[..., T], *arguments: Any) -> T:  # noqa: ANN401 - the call's
        return await asyncio.get_running_loop().run_in_executor(self._worker, call, *arguments)


def _books_of(empty: Books, args: ExtenderArgs) -> Books:
    """Return the books of a request's nodes."""
    books = Books(empty.kind_of, empty.host_label)
    for entry in args.nodes or ():
        books.take_node(entry.node)
    return books


def _filter_answer(args: ExtenderArgs, passed: frozenset[str], others: dict[str, str], final: dict[str, str]) -> bytes:
    """Return the answer in the form of the request's nodes."""
    nodes, names = None, None
    if args.nodes is not None:
        nodes = NodeListResult(tuple(entry.raw for entry in args.nodes if entry.node.metadata.name in passed))
    else:
        names = tuple(name for name in args.names if name in passed)
    return msgspec.json.encode(ExtenderFilterResult(nodes, names, others, final))
