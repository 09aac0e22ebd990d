"""Bindings that were decided on, sent in batches: while one is on its way the next is decided.

Each decision sees those before it as if they were carried out already. What the server refuses is decided again.
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
from controller.scheduling.framework import Profile
from controller.scheduling.serving.assumptions import Assumption
from controller.scheduling.serving.outcomes import Knowledge, Outcome
from controller.scheduling.serving.view import ClusterView

MOST_BINDINGS: Final = 32
"""Pods and groups of one batch: with pod, node, decision and group each, as many as one transaction takes."""
MOST_BYTES: Final = 1 << 19
"""Of one batch; servers take requests of 1 MiB by default, and a batch may exceed this by one decision."""

_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Decided:
    """A pod or a group that gets nodes: what the server is asked for, and what counts as done meanwhile."""

    name: str
    subject: str
    outcome: Outcome
    profile: Profile
    request: BindingRequest
    assumption: Assumption
    begun_ns: int

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its pods, in their order."""
        return tuple(binding.node for binding in self.request.bindings)


Answers = Sequence[tuple[Decided, PlacementAnswer | ApiError]]


class Binder:
    """Collects what was decided, and sends it; `answered` is called with what came of each batch."""

    def __init__(self, client: ApiClient, answered: Callable[[Answers], Awaitable[None]]) -> None:
        self._client, self._answered = client, answered
        self._batch: list[Decided] = []
        self._nbytes = 0
        self._versions: dict[str, int] = {}
        """Of nodes' shares before the batch: what is sent names these."""
        self._moved: dict[str, int] = {}
        """By how much the batch has moved them in the view."""
        self._is_outdated = False
        """The view has learnt of something that the batch contradicts: nothing more fits with it."""
        self._sending: asyncio.Task[None] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._batch

    @property
    def is_full(self) -> bool:
        """Whether what waits is to be sent before more is decided."""
        return len(self._batch) >= MOST_BINDINGS or self._nbytes >= MOST_BYTES or self._is_outdated

    @property
    def is_sending(self) -> bool:
        """Whether a batch is on its way; there is never more than one."""
        return self._sending is not None and not self._sending.done()

    def add(
        self, name: str, outcome: Outcome, decision: NewDecision, known: Knowledge, *, begun_ns: int, now_ns: int
    ) -> None:
        """Take what was decided about a pod or a group, and assume it in the view; it is sent with the next batch.

        Raise StaleError where the view itself does not let it be bound.
        """
        view, profile = known.view, known.profiles[outcome.pods[0].spec.profile]
        request = request_of(outcome, decision, profile, known, self._versions)
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
        """Send what waits."""
        assert not self.is_sending
        self._sending = group.create_task(self._send(self.take_back()))

    def take_back(self) -> list[Decided]:
        """Return what waits to be sent, which no longer is."""
        batch, self._batch, self._nbytes = self._batch, [], 0
        self._versions, self._moved, self._is_outdated = {}, {}, False
        return batch

    async def _send(self, batch: Sequence[Decided]) -> None:
        await self._answered(list(zip(batch, await self._answers(batch), strict=True)))

    async def _answers(self, batch: Sequence[Decided]) -> Sequence[PlacementAnswer | ApiError]:
        try:
            return await self._client.bind_each([one.request for one in batch])
        except TooLargeError as error:
            if len(batch) == 1:
                return [error]
            half = len(batch) // 2
            return [*await self._answers(batch[:half]), *await self._answers(batch[half:])]
        except ApiError as error:
            return [error] * len(batch)


def request_of(
    outcome: Outcome, decision: NewDecision, profile: Profile, known: Knowledge, versions: Mapping[str, int]
) -> BindingRequest:
    """Return what binds pods where they were placed, if neither they nor their nodes' shares have changed since.

    `versions` are those that shares had before the batch, of nodes that it changes already.
    """
    snapshot = known.snapshot
    nodes = [placement.node for placement in decision.spec.placements]
    bindings = tuple(
        Binding(
            pod=pod.metadata.name,
            node=node,
            devices=device_shares(shares),
            operator_devices=profile.operator_devices(choice.pod, snapshot, choice.node),
            pod_revision=pod.metadata.revision,
            shares_version=versions.get(node, known.view.nodes[node].shares_version),
        )
        for pod, choice, node, shares in zip(outcome.pods, outcome.choices, nodes, outcome.shares, strict=True)
    )
    return BindingRequest(bindings=bindings, decision=decision)


def _state(view: ClusterView, pods: Sequence[Pod], request: BindingRequest) -> State:
    """Return what is known of what a binding is about, to be looked through as the server will."""
    groups: Mapping[str, None] = dict.fromkeys(pod.spec.group for pod in pods if pod.spec.group is not None)
    return State(
        {pod.metadata.name: pod for pod in pods},
        {binding.node: view.nodes[binding.node] for binding in request.bindings},
        {name: view.groups[name] for name in groups if name in view.groups},
    )
