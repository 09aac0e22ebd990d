"""Watches whose connections end between events of one transaction: the events share a revision, and none is lost."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.apiserver.client import ApiClient, Event, Place, SyncApiClient
from controller.apiserver.client.resuming import WatchProgress
from controller.apiserver.registry.events import EventType
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.hardware import Hardware
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Container, PodSpec
from dataplane.local.deadline import local_timeout
from tests.adversary.histories.proxy import Proxy
from tests.controller.apiserver.api_server import WAIT_S, Served, serving, settings_in
from tests.examples import examples

POD = Pod(metadata=Metadata(name="a"), spec=PodSpec(containers=(Container(name="main", image="x"),)))
PODS = tuple(f"p{number}" for number in range(4))


class FirstBound:
    """Proxy that cuts the first connection that binds a pod, after that pod's line."""

    def __init__(self) -> None:
        self.cuts = 0

    def __call__(self, data: bytes) -> bytes | None:
        start = data.find(b'"phase":"bound"')
        if self.cuts or start < 0:
            return None
        self.cuts += 1
        return data[: data.index(b"\n", start) + 1]


async def bound_at_once(served: Served) -> int:
    """Bind all pods in one transaction, and return the revision before."""
    for name in PODS:
        spec = PodSpec(containers=(Container(name="main", image="x"),))
        await served.client.of(Pod).create(Pod(metadata=Metadata(name=name), spec=spec))
    node = Node(metadata=Metadata(name="h1"), spec=NodeSpec(hardware=Hardware(cpu_milli=1000)))
    revision = (await served.client.of(Node).create(node)).metadata.revision
    await served.client.bind(BindingRequest(bindings=tuple(Binding(pod=name, node="h1") for name in PODS)))
    await served.client.of(Pod).delete(PODS[0])
    return revision


def is_right(events: list[Event[Pod]], revision: int) -> None:
    """Each pod is bound once, all at one revision; bookmarks never go back."""
    revisions = [event.revision for event in events]
    assert revisions == sorted(revisions)
    told = [(event.name, event.revision) for event in events if event.type is EventType.PUT]
    assert told == [*((name, revision + 1) for name in PODS), (PODS[0], revision + 2)]


def test_a_torn_watch_loses_no_part_of_a_transaction(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_timeout(WAIT_S, "a test"), serving(settings_in(tmp_path), tmp_path) as served:
            revision = await bound_at_once(served)
            cut, events = FirstBound(), list[Event[Pod]]()
            async with (
                Proxy(served.socket, cut) as proxy,
                ApiClient(Place(proxy.url)) as client,
                aclosing(client.of(Pod).watch(revision)) as watch,
            ):
                async for event in watch:
                    events.append(event)
                    if event.revision == revision + 2:
                        break
            assert cut.cuts == 1
            is_right(events, revision)

    asyncio.run(main())


def test_a_torn_synchronous_watch_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_timeout(WAIT_S, "a test"), serving(settings_in(tmp_path), tmp_path) as served:
            revision = await bound_at_once(served)
            cut = FirstBound()
            async with Proxy(served.socket, cut) as proxy:
                events = await asyncio.to_thread(watched, proxy.url, revision)
            assert cut.cuts == 1
            is_right(events, revision)

    asyncio.run(main())


def watched(url: str, revision: int) -> list[Event[Pod]]:
    """Return the events of the two transactions after a revision."""
    events = []
    client = SyncApiClient(Place(url))
    watch = client.of(Pod).watch(revision)
    for event in watch:
        events.append(event)
        if event.revision == revision + 2:
            break
    watch.close()
    client.close()
    return events


@st.composite
def transactions(draw: st.DrawFn) -> list[Event[Pod]]:
    """Draw events in revision order, some sharing a revision."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    return [
        Event(EventType.PUT, f"p{number}", 10 + revision, POD)
        for revision, size in enumerate(sizes)
        for number in range(size)
    ]


@settings(max_examples=examples(30))
@given(transactions(), st.data())
def test_each_event_arrives_once_across_cuts(events: list[Event[Pod]], data: st.DataObject) -> None:
    progress, told = WatchProgress(9), list[Event[Pod]]()
    while told != events:
        assert progress.after is not None
        left = [event for event in events if event.revision > progress.after]
        bookmark: Event[Pod] = Event(EventType.BOOKMARK, "", progress.after)
        if progress.is_new(bookmark) and told:
            assert told[-1].revision <= bookmark.revision
        cut = data.draw(st.integers(1, len(left)))
        told += [event for event in left[:cut] if progress.is_new(event)]
        assert told == events[: len(told)]
