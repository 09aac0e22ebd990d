"""Clients that read and write a few registers of the API concurrently, and record requests and answers.

Registers are pods: a label is the value. A crew of other pods is bound and released in one transaction each time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from controller.apiserver.client import ApiClient, Event, Listing
from controller.apiserver.client.calls import Call, age_of
from controller.apiserver.registry.events import EventType
from controller.apiserver.registry.placements import Binding, BindingRequest, Release, ReleaseRequest
from controller.apiserver.resources import Metadata, Pod
from controller.apiserver.resources.pod import Container, PodSpec
from controller.common.errors import NotFoundError, StaleError, TooManyError, UnavailableError
from tests.adversary.histories.linearizability import Operation
from tests.adversary.histories.register import Action, Outcome, Verb
from tests.adversary.histories.watching import Seen, Stretch, Writes

NODE: Final = "h1"
PATIENCE_S: Final = 1.5
"""Maximum wait for an answer; after it the request is lost, and may still take effect."""
VALUE: Final = "value"
PARITY: Final = "parity"
_SPEC: Final = PodSpec(containers=(Container(name="main", image="x"),))
_VERBS: Final = (Verb.GET, Verb.CREATE, Verb.PUT, Verb.DELETE, None)
_WEIGHTS: Final = (6, 3, 8, 2, 2)
"""None is a list, which reads all registers at once."""


@dataclass(slots=True)
class Record:
    """Log of all clients and watches of a trial, on one clock."""

    history: list[Operation[Action]] = field(default_factory=list)
    writes: Writes = field(default_factory=Writes)
    seen: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """The revision of each register's values, and the time of its first observation."""
    deletions: dict[tuple[str, int], int] = field(default_factory=dict)
    """Time when a register was first seen deleted, by name and revision."""
    watches: dict[str, list[Stretch]] = field(default_factory=dict)
    answered: int = 0
    is_caught_up: bool = False
    """True once all watches have delivered everything."""
    problems: list[str] = field(default_factory=list)

    @property
    def outcomes(self) -> Counter[str]:
        """Number of operations by outcome."""
        return Counter(operation.action.outcome.value for operation in self.history)

    def note(self, client: str, action: Action, called: int) -> None:
        """Take note of an operation that has been answered, or was given up, just now."""
        now = time.monotonic_ns()
        if action.outcome is Outcome.LOST:
            if action.verb is Verb.DELETE:
                self.writes.lost_deletions.add(action.name)
            if action.verb is not Verb.GET:
                self.history.append(Operation(client, action, called, None))
            return
        self.answered += 1
        self.history.append(Operation(client, action, called, now))
        if action.outcome is Outcome.DONE and action.revision is not None:
            if action.value is not None:
                self.see(action.name, action.value, action.revision, now)
            if action.verb is not Verb.GET:
                self.writes.acknowledged[action.name, action.revision] = action.value

    def see(self, name: str, value: str, revision: int, at: int) -> None:
        """Record an observation."""
        self.seen.setdefault((name, value), (revision, at))


def value_of(pod: Pod) -> str:
    """Return a register's value, or how often a pod of the crew was bound and whether it is."""
    return pod.metadata.labels.get(VALUE) or f"{pod.status.node or 'nowhere'}-{pod.status.epoch}"


def _labels(value: str | None) -> dict[str, str]:
    """Return the labels of a register: one out of two values is in a selection."""
    return {} if value is None else {VALUE: value, PARITY: "even" if value[-1] in "02468" else "odd"}


class Client:
    """One that does one thing after the other, at random."""

    def __init__(self, name: str, api: ApiClient, record: Record, registers: Sequence[str], rng: random.Random) -> None:
        self._name, self._api, self._record, self._rng = name, api, record, rng
        self._registers, self._number = registers, 0
        self._revisions: dict[str, int] = {}
        """Last revision seen of each register."""

    async def run(self, stop: asyncio.Event) -> None:
        """Go on until it is to stop."""
        while not stop.is_set():
            verb = self._rng.choices(_VERBS, _WEIGHTS)[0]
            if verb is None:
                await self._list()
            else:
                await self._act(verb, self._rng.choice(self._registers))
            await asyncio.sleep(self._rng.uniform(0, 0.01))

    async def _act(self, verb: Verb, name: str) -> None:
        """Ask once, and note what came of it."""
        self._number += 1
        value = f"{self._name}-{self._number}" if verb in (Verb.CREATE, Verb.PUT) else None
        expected = self._revisions.get(name) if verb in (Verb.PUT, Verb.DELETE) and self._rng.random() < 0.6 else None
        called = time.monotonic_ns()
        if value is not None:
            self._record.writes.called[name, value] = called
        asked = Action(name, verb, Outcome.LOST, value, None, expected)
        try:
            async with asyncio.timeout(PATIENCE_S):
                answered = await self._answered(asked)
        except (UnavailableError, TimeoutError):
            answered = asked
        except TooManyError:
            return
        if answered is not None:
            self._record.note(self._name, answered, called)
        if answered is asked:
            await asyncio.sleep(self._rng.uniform(0.05, 0.5))

    async def _answered(self, asked: Action) -> Action | None:
        """Return a request with its answer, None for one that says nothing."""
        name, pods = asked.name, self._api.of(Pod)
        pod = Pod(metadata=Metadata(name=name, labels=_labels(asked.value)), spec=_SPEC)
        try:
            match asked.verb:
                case Verb.GET:
                    answer = await self._api.answer(Call("GET", f"/v1/pods/{name}"))
                    if age_of(answer) is not None:
                        return None  # from memory, as it says
                    stored = msgspec.json.decode(answer.content, type=Pod)
                case Verb.CREATE:
                    stored = await pods.create(pod)
                case Verb.PUT:
                    metadata = msgspec.structs.replace(pod.metadata, revision=asked.expected or 0)
                    stored = await pods.replace(msgspec.structs.replace(pod, metadata=metadata))
                case Verb.DELETE:
                    stored = await pods.delete(name, expected=asked.expected)
        except NotFoundError:
            self._revisions.pop(name, None)
            return Action(name, asked.verb, Outcome.ABSENT, asked.value, None, asked.expected)
        except StaleError:
            if asked.verb is not Verb.CREATE and asked.expected is None:
                return None  # others were faster, eight times
            self._revisions.pop(name, None)
            return Action(name, asked.verb, Outcome.STALE, asked.value, None, asked.expected)
        self._revisions[name] = stored.metadata.revision
        value = value_of(stored) if asked.verb is Verb.GET else asked.value
        return Action(name, asked.verb, Outcome.DONE, value, stored.metadata.revision, asked.expected)

    async def _list(self) -> None:
        """Read all registers at once, and look whether the crew is together."""
        called = time.monotonic_ns()
        try:
            async with asyncio.timeout(PATIENCE_S):
                listing = await self._api.of(Pod).list()
        except (UnavailableError, TooManyError, TimeoutError):
            return
        if listing.age_s is not None:
            return
        pods = {pod.metadata.name: pod for pod in listing.items}
        for name in self._registers:
            pod = pods.get(name)
            outcome = Outcome.ABSENT if pod is None else Outcome.DONE
            value, revision = (None, None) if pod is None else (value_of(pod), pod.metadata.revision)
            self._record.note(self._name, Action(name, Verb.GET, outcome, value, revision), called)
        values = {value_of(pod) for name, pod in pods.items() if name not in self._registers}
        if len(values) > 1:
            self._record.problems.append(f"a list of revision {listing.revision} has half a transaction: {values}")


class Crew:
    """Pods that are bound and released together, each time in one transaction."""

    def __init__(self, api: ApiClient, record: Record, names: Sequence[str]) -> None:
        self._api, self._record, self._names = api, record, names

    async def create(self) -> None:
        """Create the pods, one after the other."""
        for name in self._names:
            pod = await self._api.of(Pod).create(Pod(metadata=Metadata(name=name), spec=_SPEC))
            self._note((name,), value_of(pod), pod.metadata.revision)

    async def run(self, stop: asyncio.Event) -> None:
        """Bind and release until it is to stop."""
        while not stop.is_set():
            with suppress(UnavailableError, TooManyError, StaleError, TimeoutError):
                async with asyncio.timeout(PATIENCE_S):
                    await self._once()
            await asyncio.sleep(0.02)

    async def _once(self) -> None:
        pod = await self._api.of(Pod).get(self._names[0])
        status = pod.status
        is_free = status.node is None
        value = f"{NODE}-{status.epoch + 1}" if is_free else f"nowhere-{status.epoch}"
        for name in self._names:
            self._record.writes.called.setdefault((name, value), time.monotonic_ns())
        if is_free:
            bindings = tuple(Binding(pod=name, node=NODE) for name in self._names)
            answer = await self._api.bind(BindingRequest(bindings=bindings))
        else:
            releases = tuple(Release(pod=name, epoch=status.epoch) for name in self._names)
            answer = await self._api.release(ReleaseRequest(releases=releases))
        self._note(self._names, value, answer.revision)

    def _note(self, names: Iterable[str], value: str, revision: int) -> None:
        for name in names:
            self._record.writes.called.setdefault((name, value), 0)
            self._record.writes.acknowledged[name, revision] = value


async def watch(name: str, api: ApiClient, record: Record, *, labels: str = "") -> None:
    """Follow all pods until cancelled, over as many connections as it takes."""
    stretches = record.watches.setdefault(name, [])
    async for told in api.of(Pod).follow(labels=labels):
        now = time.monotonic_ns()
        if isinstance(told, Listing):
            contents = {pod.metadata.name: (value_of(pod), pod.metadata.revision) for pod in told.items}
            stretches.append(Stretch(told.revision, contents, is_aged=told.age_s is not None))
            for listed, (value, revision) in contents.items():
                record.see(listed, value, revision, now)
        elif told.type is EventType.BOOKMARK:
            stretches[-1].bookmark(told.revision)
        else:
            stretches[-1].events.append(_seen(told, now))
            stretches[-1].bookmark(told.revision - 1)
            if told.type is EventType.DELETE and not labels:
                record.deletions.setdefault((told.name, told.revision), now)
            elif told.resource is not None:
                record.see(told.name, value_of(told.resource), told.revision, now)


def _seen(event: Event[Pod], now: int) -> Seen:
    is_put = event.type is EventType.PUT and event.resource is not None
    return Seen(now, event.name, event.revision, value_of(event.resource) if is_put and event.resource else None)


async def contents(api: ApiClient, labels: str = "") -> dict[str, tuple[str, int]]:
    """Return what there is, once the server says so of its storage."""
    while True:
        with suppress(UnavailableError):
            listing = await api.of(Pod).list(labels=labels)
            if listing.age_s is None:
                return {pod.metadata.name: (value_of(pod), pod.metadata.revision) for pod in listing.items}
        await asyncio.sleep(0.05)
