"""Fair queueing and lists from memory: one user's flood delays nobody else, and no list blocks the loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from controller.apiserver.listing import IndexedRegistry
from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.registry import Listing, Registry
from controller.apiserver.registry.selection import Selection
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.node import NODE
from controller.apiserver.resources.pod import POD, Container, PodSpec
from controller.apiserver.server.fairness import FairQueue
from controller.apiserver.storage.sqlite import SqliteStorage
from controller.common.errors import TooManyError
from controller.common.http_connections import ConnectionBook, ConnectionLimits, group_of
from dataplane.local.deadline import local_timeout


def test_users_share_seats_equally() -> None:
    """One user sends twenty requests at a time, another one: each gets half of the throughput."""
    now_s, served = 0.0, Counter[str]()

    async def run() -> None:
        nonlocal now_s
        queue = FairQueue(1, 64, 60.0, lambda: now_s)

        async def ask(name: str, count: int) -> None:
            nonlocal now_s
            for _ in range(count):
                seat = await queue.take(name)
                try:
                    await asyncio.sleep(0)
                    now_s += 0.01
                    served[name] += 1
                    if sum(served.values()) == 100:
                        done.set()
                finally:
                    seat.release()
                    seat.release()  # once is enough

        done = asyncio.Event()
        tasks = [asyncio.create_task(ask("flood", 50)) for _ in range(20)]
        tasks.append(asyncio.create_task(ask("ann", 500)))
        await done.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert queue.waiting == 0
        (await queue.take("ann")).release()

    asyncio.run(run())
    assert 40 <= served["ann"] <= 60


def test_queue_is_bounded_in_length_and_time() -> None:
    async def run() -> None:
        queue = FairQueue(1, 2, 0.05, lambda: 0.0)
        seat = await queue.take("ann")
        outcomes = await asyncio.gather(*(queue.take("ann") for _ in range(3)), return_exceptions=True)
        messages = [str(outcome) for outcome in outcomes if isinstance(outcome, TooManyError)]
        assert messages == [
            "no request slot was free for ann within 0.05 s",
            "no request slot was free for ann within 0.05 s",
            "ann has reached the limit of 2 waiting requests",
        ]
        seat.release()
        waiting = asyncio.create_task(queue.take("bob"))
        await asyncio.sleep(0)
        (await waiting).release()
        second = await queue.take("bob")
        gone = asyncio.create_task(queue.take("ann"))
        await asyncio.sleep(0)
        second.release()  # its turn has come, but it was cancelled
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        (await queue.take("ann")).release()

    asyncio.run(run())


def test_strangers_make_room_for_one_another() -> None:
    gone = list[str]()
    book = ConnectionBook(ConnectionLimits(known=4, of_user=2, strangers=4, strangers_of_address=3))
    opened = [book.open("a", lambda number=number: gone.append(f"a{number}")) for number in range(4)]  # type: ignore[misc]
    assert gone == ["a0"]
    for number in range(2):
        book.open("b", lambda number=number: gone.append(f"b{number}"))  # type: ignore[misc]
    assert gone == ["a0", "a1"]  # of the address with the most
    assert book.admit(opened[3], "ann", is_user=True) is None
    assert book.admit(opened[3], "ann", is_user=True) is None
    others = [book.open("c", lambda: None) for _ in range(3)]
    assert book.admit(others[0], "ann", is_user=True) is None
    assert book.admit(others[1], "ann", is_user=True) == "the limit of 2 connections per user is reached"
    assert book.admit(others[1], "bob", is_user=True) is None
    assert book.admit(others[2], "cid", is_user=True) == "the limit of connections of all users is reached"
    assert book.admit(others[2], "h1", is_user=False) is None
    last = book.open("d", lambda: None)
    assert book.admit(last, "h2", is_user=False) == "the limit of 4 connections is reached"
    for connection in (opened[3], *others, last):
        book.forget(connection)
        book.forget(connection)
    assert (book.known, book.refused, book.displaced) == (0, 3, 4)


@pytest.mark.parametrize(
    ("host", "group"),
    [("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8::1%eth0", "2001:db8::/64"), ("", "")],
)
def test_an_ipv6_network_is_one_address(host: str, group: str) -> None:
    assert group_of(host) == group


def pod(name: str, **labels: str) -> Pod:
    spec = PodSpec(containers=(Container(name="main", image="busybox"),))
    return Pod(metadata=Metadata(name=name, labels=labels), spec=spec)


def names(listing: Listing[Pod]) -> list[str]:
    return [pod.metadata.name for pod in listing.items]


def test_lists_from_memory_are_those_of_the_storage(tmp_path: Path) -> None:
    async def run() -> None:
        async with await SqliteStorage.open(str(tmp_path / "storage")) as storage:
            registry = IndexedRegistry(storage, lambda: 1)
            cache = ResourceCache(registry, lambda: 1)
            registry.follow(cache)
            plain = Registry(storage, lambda: 1)
            task = asyncio.create_task(cache.run())
            await cache.loaded.wait()
            await registry.create(NODE, Node(metadata=Metadata(name="h1")))
            for number in range(300):
                await registry.create(POD, pod(f"p{number:03}", **({"app": "web"} if number % 3 else {})))
            web = Selection.parse(POD, "app=web", "")
            for selection in (Selection(), web):
                assert await registry.list(POD, selection, limit=1000) == await plain.list(POD, selection, limit=1000)
            first = await registry.list(POD, web, limit=50)
            assert (len(first.items), first.after) == (50, "p074")
            await registry.delete(POD, "p076")
            await registry.create(POD, pod("p0755", app="web"))
            assert first.after is not None
            rest = await registry.list(POD, web, revision=first.revision, after=first.after, limit=1000)
            assert rest == await plain.list(POD, web, revision=first.revision, after=first.after, limit=1000)
            assert "p076" in names(rest)
            now = await registry.list(POD, web, after=first.after, limit=1000)
            assert names(now)[:2] == ["p0755", "p077"]
            for number in range(20):  # older pages come from the storage
                await registry.create(POD, pod(f"q{number}"))
                await registry.list(POD, limit=1)
            again = await registry.list(POD, web, revision=first.revision, after=first.after, limit=1000)
            assert again == rest
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def main() -> None:
        async with local_timeout(60, "a test"):
            await run()

    asyncio.run(main())
