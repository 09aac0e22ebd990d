"""Answers reflect every acknowledged write, even if the watch lags and the storage goes away."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.apiserver.registry.acknowledged import AcknowledgedWrites
from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.encoding import encode, key_of
from controller.apiserver.registry.placements import Binding, BindingRequest, NewDecision
from controller.apiserver.registry.registry import Registry
from controller.apiserver.registry.selection import ALL, Selection
from controller.apiserver.resources import Pod
from controller.apiserver.resources.decision import DECISION, DecisionSpec, Outcome
from controller.apiserver.resources.node import NODE
from controller.apiserver.resources.pod import POD
from controller.apiserver.service import Service
from controller.apiserver.storage import Event, Put, Stored
from controller.apiserver.storage.sqlite import SqliteStorage
from controller.apiserver.tokens import TokenRequest, Tokens
from controller.common.errors import NotFoundError, StorageError, UnavailableError
from dataplane.errors import AccessError
from dataplane.local.deadline import local_timeout
from dataplane.rpc.access import Role
from dataplane.rpc.access.values import LOCAL
from tests.controller.apiserver.test_resources_over_http import node, pod


class HeldStorage(SqliteStorage):
    """A storage whose watches deliver only released revisions, and that can become unavailable."""

    def hold(self) -> None:
        self.let, self.is_away = asyncio.Semaphore(0), False

    async def watch(self, prefix: str, *, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        async with aclosing(super().watch(prefix, after=after)) as watch:
            async for events in watch:
                await self.let.acquire()
                yield events

    async def get(self, key: str, *, revision: int | None = None) -> Stored | None:
        self._check()
        return await super().get(key, revision=revision)

    async def scan(self, prefix: str, **wanted: Any) -> Any:
        self._check()
        return await super().scan(prefix, **wanted)

    async def revision(self) -> int:
        self._check()
        return await super().revision()

    def _check(self) -> None:
        if self.is_away:
            raise StorageError("it was unplugged")


class Bench:
    """A service whose cache follows only as far as its watch is released."""

    def __init__(self, storage: HeldStorage, service: Service, tokens: Tokens) -> None:
        self.storage, self.service, self.tokens = storage, service, tokens

    async def bring(self, revision: int) -> None:
        """Release the watch up to a revision."""
        while self.service.cache.ring.revision < revision:
            before = self.service.cache.ring.revision
            self.storage.let.release()
            while self.service.cache.ring.revision == before:
                await asyncio.sleep(0)

    async def pods(self) -> tuple[Pod, ...]:
        """Return the listed pods after checking each against the result of a get."""
        listing, age_ns = await self.service.list(LOCAL, POD, ALL, revision=None, after="", limit=100)
        assert (age_ns is not None) is self.storage.is_away
        assert not self.storage.is_away or listing.revision == self.service.cache.ring.revision
        for resource in listing.items:
            assert (await self.service.get(LOCAL, POD, resource.metadata.name))[0] == resource
        return listing.items


def play(tmp_path: Path, act: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with local_timeout(30, "a test"), AsyncExitStack() as stack:
            storage = await stack.enter_async_context(await HeldStorage.open(str(tmp_path / "storage")))
            storage.hold()
            registry, tokens = Registry(storage, time.time_ns), Tokens(storage, time.time_ns)
            cache = ResourceCache(registry, time.monotonic_ns)
            following = [asyncio.create_task(cache.run()), asyncio.create_task(tokens.run())]
            await cache.loaded.wait()
            await tokens.loaded.wait()
            try:
                await act(Bench(storage, Service(registry, cache), tokens))
            finally:
                for task in following:
                    task.cancel()
                await asyncio.gather(*following, return_exceptions=True)

    asyncio.run(main())


def test_each_kind_of_write_is_read_while_the_storage_is_away(tmp_path: Path) -> None:
    async def act(bench: Bench) -> None:
        service = bench.service
        made = await service.create(LOCAL, POD, pod("a"))
        await service.create(LOCAL, POD, pod("b"))
        await service.create(LOCAL, NODE, node("h1"))
        changed = await service.replace(
            LOCAL, POD, "a", replace(made, spec=replace(made.spec, priority=3)), expected=None
        )
        await service.delete(LOCAL, POD, "b", expected=None)
        spec = DecisionSpec(subject_kind="pod", subjects=("a",), outcome=Outcome.BOUND)
        wanted = BindingRequest(bindings=(Binding(pod="a", node="h1"),), decision=NewDecision(name="d", spec=spec))
        answer = await service.bind(LOCAL, wanted)
        there = await bench.pods()
        assert [(pod.metadata.name, pod.status.node, pod.spec.priority) for pod in there] == [("a", "h1", 3)]
        held = (await service.get(LOCAL, NODE, "h1"))[0]

        bench.storage.is_away = True
        while service.cache.ring.revision < answer.revision:
            assert await bench.pods() == there
            assert (await service.get(LOCAL, NODE, "h1"))[0] == held
            assert (await service.get(LOCAL, DECISION, "d"))[0].metadata.revision == answer.revision
            with pytest.raises(NotFoundError, match="there is no Pod b"):
                await service.get(LOCAL, POD, "b")
            await bench.bring(service.cache.ring.revision + 1)  # one by one, each older than the acknowledged one
        assert await bench.pods() == there
        assert changed.metadata.revision < there[0].metadata.revision == answer.revision

    play(tmp_path, act)


def test_later_writes_of_others_count_once_watched(tmp_path: Path) -> None:
    async def act(bench: Bench) -> None:
        made = await bench.service.create(LOCAL, POD, pod("a"))
        theirs = await bench.storage.put(key_of(POD, "a"), encode(replace(made, spec=replace(made.spec, priority=9))))
        bench.storage.is_away = True
        assert await bench.pods() == (made,)
        await bench.bring(theirs)
        assert [(pod.metadata.revision, pod.spec.priority) for pod in await bench.pods()] == [(theirs, 9)]

    play(tmp_path, act)


def test_watches_stay_in_order_whatever_was_acknowledged(tmp_path: Path) -> None:
    async def act(bench: Bench) -> None:
        service = bench.service
        web = Selection.parse(POD, "tier=web", "")
        lines = await service.watch(LOCAL, POD, web, None)
        made = await service.create(LOCAL, POD, pod("a", tier="web"))
        moved = replace(made, metadata=replace(made.metadata, labels={"tier": "db"}))
        await service.replace(LOCAL, POD, "a", moved, expected=None)
        gone = await service.delete(LOCAL, POD, "a", expected=None)
        assert await bench.pods() == ()
        await bench.bring(gone.metadata.revision)
        told = [msgspec.json.decode(line) for _ in range(2) for line in (await anext(lines)).splitlines()]
        # After its label changes the watch no longer selects it, so its deletion is not reported.
        assert [line["type"] for line in told] == ["BOOKMARK", "PUT", "DELETE"]
        assert told[2]["object"]["metadata"]["labels"] == {"tier": "web"}
        await lines.aclose()  # type: ignore[attr-defined]

    play(tmp_path, act)


def test_server_with_a_hanging_watch_takes_no_more_writes(tmp_path: Path) -> None:
    async def act(bench: Bench) -> None:
        bench.service.registry.acknowledged._capacity = 2
        for name in "ab":
            made = await bench.service.create(LOCAL, POD, pod(name))
        with pytest.raises(UnavailableError, match="the storage's watch is 2 writes behind; writes are refused"):
            await bench.service.create(LOCAL, POD, pod("c"))
        assert [pod.metadata.name for pod in await bench.pods()] == ["a", "b"]
        await bench.bring(made.metadata.revision)
        await bench.service.create(LOCAL, POD, pod("c"))

    play(tmp_path, act)


def test_revoked_token_stays_revoked_when_its_creation_arrives(tmp_path: Path) -> None:
    async def act(bench: Bench) -> None:
        made = await bench.tokens.create(TokenRequest(name="ann", role=Role.USER))
        assert bench.tokens.principal_of(made.token).role is Role.USER
        await bench.tokens.revoke(made.shown.id)
        for _ in range(2):
            with pytest.raises(AccessError, match="unknown, or was revoked"):
                bench.tokens.principal_of(made.token)
            bench.storage.let.release()
            while made.shown.id not in bench.tokens._records:  # its creation was delivered, its deletion was not yet
                await asyncio.sleep(0)

    play(tmp_path, act)


@pytest.mark.parametrize("seed", range(20))
def test_acknowledgements_and_events_agree_in_any_order(seed: int) -> None:
    """Acknowledgements arrive in any order, watch events in order: each key has the newest of both."""
    rng = random.Random(seed)
    history = [(revision, rng.choice("abcd"), rng.choice((None, revision))) for revision in range(1, 60)]
    pending, brought, told, newest = list(history), dict[str, int](), 0, dict[str, tuple[int, int | None]]()
    writes = AcknowledgedWrites[int]()
    while pending or told < len(history):
        if pending and rng.random() < 0.6:
            revision, key, value = pending.pop(rng.randrange(min(len(pending), 8)))
            writes.note(key, revision, value)
        elif told < len(history):
            revision, key, value = history[told]
            told += 1
            brought.pop(key, None)
            if value is not None:
                brought[key] = value
            writes.reach(revision)
        else:
            continue
        newest[key] = max(newest.get(key, (0, None)), (revision, value), key=lambda pair: pair[0])
        now = {key: value for key, (_, value) in newest.items() if value is not None}
        assert dict(writes.over(brought)) == now
        assert {key: writes.get(key, brought.get(key)) for key in now} == now
    assert writes.over(brought) is brought
    assert not writes._order


def test_a_write_of_which_the_watch_knows_already_is_not_kept() -> None:
    writes = AcknowledgedWrites[int]()
    writes.reach(5)
    writes.note("a", 5, 1)
    assert writes.get("a", 2) == 2


def test_writes_past_the_registry_are_not_acknowledged(tmp_path: Path) -> None:
    async def act(bench: Bench) -> None:
        revision = await bench.storage.transact((Put(key_of(POD, "a"), encode(pod("a"))),))
        bench.storage.is_away = True
        assert await bench.pods() == ()
        await bench.bring(revision)
        assert [pod.metadata.name for pod in await bench.pods()] == ["a"]

    play(tmp_path, act)
