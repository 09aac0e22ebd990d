"""Decided bindings, sent in batches: while one batch is in flight, the next is decided.

Each decision sees those before it as if they were already carried out. Refused bindings are decided again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.placements import (
    Binding,
    BindingRequest,
    NewDecision,
    PlacementAnswer,
    State,
    bind,
)
from controller.apiserver.resources import Pod
from controller.apiserver.resources.hardware import device_shares
from controller.common.errors import ApiError, StaleError, TooLargeError
from controller.scheduling.pods import PodProfile
from controller.scheduling.serving.assumptions import Assumption
from controller.scheduling.serving.outcomes import Knowledge, Outcome
from controller.scheduling.serving.view import ClusterView

MOST_BINDINGS: Final = 32
"""Pods and groups per batch: with pod, node, decision and group each, as many as one transaction takes."""
MOST_BYTES: Final = 1 << 19
"""Bytes per batch; servers accept requests of 1 MiB by default, and a batch may exceed this limit by one decision."""

_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Decided:
    """A pod or group with its nodes: the request to the server, and its assumed effect meanwhile."""

    name: str
    subject: str
    outcome: Outcome
    profile: PodProfile
    request: BindingRequest
    assumption: Assumption
    begun_ns: int

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its pods, in their order."""
        return tuple(binding.node for binding in self.request.bindings)


Answers = Sequence[tuple[Decided, PlacementAnswer | ApiError]]


class Binder:
    """Collects decided bindings and sends them; `answered` is called with the result of each batch."""

    def __init__(self, client: ApiClient, answered: Callable[[Answers], Awaitable[None]]) -> None:
        self._client, self._answered = client, answered
        self._batch: list[Decided] = []
        self._nbytes = 0
        self._versions: dict[str, int] = {}
        """Versions of the nodes' shares before the batch, as named in the request."""
        self._moved: dict[str, int] = {}
        """Number of versions by which the batch has moved them in the view."""
        self._is_outdated = False
        """True once the view contradicts the batch: nothing more can be added."""
        self._sending: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing waits to be sent."""
        return not self._batch

    @property
    def is_full(self) -> bool:
        """True if the waiting bindings should be sent before more is decided."""
        return len(self._batch) >= MOST_BINDINGS or self._nbytes >= MOST_BYTES or self._is_outdated

    @property
    def is_sending(self) -> bool:
        """True if a batch is in flight; there is never more than one."""
        return self._sending is not None and not self._sending.done()

    def add(
        self, name: str, outcome: Outcome, decision: NewDecision, knowledge: Knowledge, *, begun_ns: int, now_ns: int
    ) -> None:
        """Add a decided pod or group, and assume it in the view; it is sent with the next batch.

        Raise StaleError if the view itself does not allow the binding.
        """
        view, profile = knowledge.view, knowledge.profiles[outcome.pods[0].spec.profile]
        request = request_of(outcome, decision, profile, knowledge, self._versions)
        try:
            expected = bind(_state(view, outcome.pods, request), request, now_ns, self._moved)
        except StaleError:
            self._is_outdated = bool(self._batch)
            raise
        for node in expected.nodes:
            self._versions.setdefault(node, view.nodes[node].shares_version)
            self._moved[node] = view.nodes[node].shares_version + 1 - self._versions[node]
        subject, assumption = name.partition("/")[2], view.assume(expected)
        self._batch.append(Decided(name, subject, outcome, profile, request, assumption, begun_ns))
        self._nbytes += len(_ENCODER.encode(request))

    def send(self, group: asyncio.TaskGroup) -> None:
        """Send the waiting bindings."""
        assert not self.is_sending
        self._sending = group.create_task(self._send(self.take_back()))

    def take_back(self) -> list[Decided]:
        """Return the waiting bindings without sending them."""
        batch, self._batch, self._nbytes = self._batch, [], 0
        self._versions, self._moved, self._is_outdated = {}, {}, False
        return batch

    async def _send(self, batch: Sequence[Decided]) -> None:
        await self._answered(list(zip(batch, await self._answers(batch), strict=True)))

    async def _answers(self, batch: Sequence[Decided]) -> Sequence[PlacementAnswer | ApiError]:
        try:
            return await self._client.bind_each([decided.request for decided in batch])
        except TooLargeError as error:
            if len(batch) == 1:
                return [error]
            # Halve it until the parts fit; a request that is too large by itself is refused above.
            half = len(batch) // 2
            return [*await self._answers(batch[:half]), *await self._answers(batch[half:])]
        except ApiError as error:
            return [error] * len(batch)


def request_of(
    outcome: Outcome, decision: NewDecision, profile: PodProfile, knowledge: Knowledge, versions: Mapping[str, int]
) -> BindingRequest:
    """Return the request that binds pods to their nodes, if neither they nor their nodes' shares have changed since.

    `versions` are those of the shares before the batch, for nodes that it already changes.
    """
    snapshot = knowledge.snapshot
    nodes = [placement.node for placement in decision.spec.placements]
    bindings = tuple(
        Binding(
            pod=pod.metadata.name,
            node=node,
            devices=device_shares(shares),
            operator_devices=profile.operator_devices(choice.subject, snapshot, choice.candidate, shares),
            pod_revision=pod.metadata.revision,
            shares_version=versions.get(node, knowledge.view.nodes[node].shares_version),
        )
        for pod, choice, node, shares in zip(outcome.pods, outcome.choices, nodes, outcome.shares, strict=True)
    )
    return BindingRequest(bindings=bindings, decision=decision)


def _state(view: ClusterView, pods: Sequence[Pod], request: BindingRequest) -> State:
    """Return the known state behind a binding, to be checked as the server will."""
    groups: Mapping[str, None] = dict.fromkeys(pod.spec.group for pod in pods if pod.spec.group is not None)
    return State(
        {pod.metadata.name: pod for pod in pods},
        {binding.node: view.nodes[binding.node] for binding in request.bindings},
        {name: view.groups[name] for name in groups if name in view.groups},
    )
