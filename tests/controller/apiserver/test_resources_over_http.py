"""Resources through a server and the client: write, read, list, watch, bind."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from msgspec.structs import replace

from controller.apiserver.client import Event, Listing, Place, SyncApiClient
from controller.apiserver.registry.events import EventType
from controller.apiserver.registry.placements import Binding, BindingRequest, NewDecision, Release, ReleaseRequest
from controller.apiserver.resources import KINDS, Decision, Metadata, Node, Pod, PodGroup, UnitPool
from controller.apiserver.resources.decision import DecisionSpec, Outcome
from controller.apiserver.resources.hardware import Hardware, Request
from controller.apiserver.resources.node import NodeSpec, NodeStatus
from controller.apiserver.resources.pod import Container, Phase, PodSpec
from controller.apiserver.resources.pod_group import MOST_PODS, PodGroupSpec
from controller.apiserver.resources.unit_pool import UnitHolding, UnitPoolSpec
from controller.common.errors import ApiError, GoneError, InvalidError, NotFoundError, StaleError
from tests.controller.apiserver.api_server import Play, Served


def pod(name: str, **labels: str) -> Pod:
    spec = PodSpec(containers=(Container(name="main", image="busybox"),), request=Request(cpu_milli=100))
    return Pod(metadata=Metadata(name=name, labels=labels), spec=spec)


def node(name: str) -> Node:
    return Node(metadata=Metadata(name=name), spec=NodeSpec(hardware=Hardware(cpu_milli=1000)))


async def happenings(events: AsyncIterator[Event[Pod]], count: int) -> list[Event[Pod]]:
    seen: list[Event[Pod]] = []
    while len(seen) < count:
        event = await anext(events)
        if event.type is not EventType.BOOKMARK:
            seen.append(event)
    return seen


def test_a_resource_is_written_read_changed_and_removed(play: Play) -> None:
    async def act(served: Served) -> None:
        pods = served.client.of(Pod)
        made = await pods.create(pod("a", tier="web"))
        assert made.metadata.uid
        assert made.metadata.created_ns > 0
        assert await pods.get("a") == made
        with pytest.raises(StaleError, match="Pod a already exists"):
            await pods.create(pod("a"))
        changed = await pods.replace(replace(made, spec=replace(made.spec, priority=5)))
        assert (changed.spec.priority, changed.metadata.uid) == (5, made.metadata.uid)
        with pytest.raises(StaleError, match=f"Pod a is at revision {changed.metadata.revision}, no longer at"):
            await pods.replace(made)
        with pytest.raises(StaleError):
            await pods.delete("a", expected=made.metadata.revision)
        await pods.delete("a")
        with pytest.raises(NotFoundError, match="there is no Pod a"):
            await pods.get("a")

    play(act)


@pytest.mark.parametrize("name", ["a?x=1", "a#x", "a/status", "../pods/a", "a%3Fx", "a\x1b[2J", "ä"])
def test_names_special_in_urls_are_distinct(play: Play, name: str) -> None:
    async def act(served: Served) -> None:
        pods = served.client.of(Pod)
        made = await pods.create(pod("a"))
        for call in (pods.get, pods.delete):
            with pytest.raises(ApiError):
                await call(name)
        with pytest.raises(InvalidError, match="invalid name: URL"):
            await pods.get("a" * 100_000)
        with pytest.raises(InvalidError, match="invalid name: URL"):
            await anext(served.client.logs("a" * 100_000))
        assert await pods.get("a") == made

    play(act)


def test_node_has_one_manager_until_lease_end_or_sign_off(play: Play) -> None:
    async def act(served: Served) -> None:
        nodes = served.client.of(Node)

        async def report(**status: object) -> Node:
            reported_status = NodeStatus(**status)  # type: ignore[arg-type]
            return await nodes.replace_status(Node(metadata=Metadata(name="h1"), status=reported_status))

        made = await nodes.create(node("h1"))
        latest = await report(manager="a", ready=True)
        for other in ("b", ""):
            with pytest.raises(
                StaleError, match="Node h1 has a manager, of state folder a, whose lease has not expired"
            ):
                await report(manager=other, signed_off=True)
        await nodes.replace_status(replace(latest, status=replace(latest.status, ready=False)))  # reported as silent
        await report(manager="a", signed_off=True)
        assert (await report(manager="b")).status.manager == "b"
        await nodes.replace(replace(made, metadata=Metadata(name="h1"), spec=NodeSpec(lease_s=0.5)))
        latest = await report(manager="b")
        while latest.status.manager == "b":
            with contextlib.suppress(StaleError):
                taken = await report(manager="c")
                assert (taken.status.heartbeat_ns or 0) >= (latest.status.heartbeat_ns or 0) + 500_000_000
                latest = taken

    play(act)


def test_spec_and_status_are_written_apart(play: Play) -> None:
    async def act(served: Served) -> None:
        nodes = served.client.of(Node)
        made = await nodes.create(node("h1"))
        status = replace(made, status=NodeStatus(ready=True, heartbeat_ns=1), spec=NodeSpec(unschedulable=True))
        reported = await nodes.replace_status(replace(status, metadata=Metadata(name="h1")))
        assert reported.status.ready
        assert not reported.spec.unschedulable
        assert (reported.status.heartbeat_ns or 0) > made.metadata.created_ns  # the server's clock, not the node's
        wanted = replace(made, metadata=Metadata(name="h1"), spec=NodeSpec(unschedulable=True))
        changed = await nodes.replace(wanted)
        assert changed.status == reported.status
        assert changed.spec.unschedulable

    play(act)


def test_lists_come_in_pages_of_one_revision_and_by_labels(play: Play) -> None:
    async def act(served: Served) -> None:
        pods = served.client.of(Pod)
        for number in range(7):
            await pods.create(pod(f"p{number}", tier="web" if number % 2 else "data", number=str(number)))
        async with httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=served.socket.removeprefix("unix:")), base_url="http://api"
        ) as http:
            first = (await http.get("/v1/pods", params={"limit": 3})).json()
            await pods.delete("p5")
            second = (await http.get("/v1/pods", params={"limit": 9, "continue": first["continue"]})).json()
            wrong = await http.get("/v1/pods", params={"continue": "!"})
        assert [document["metadata"]["name"] for document in (*first["items"], *second["items"])] == [
            f"p{n}" for n in range(7)
        ]
        assert (second["revision"], second["continue"]) == (first["revision"], None)
        assert (wrong.status_code, wrong.json()["detail"]) == (
            400,
            "continue: not a continuation of a list of this server",
        )

        async def names(labels: str = "", fields: str = "") -> list[str]:
            return [pod.metadata.name for pod in (await pods.list(labels=labels, fields=fields)).items]

        assert await names("tier=web") == ["p1", "p3"]
        assert await names("tier!=web,number") == ["p0", "p2", "p4", "p6"]
        assert await names("!tier") == []
        assert await names(fields="phase=pending,name=p3") == ["p3"]
        for labels, fields, problem in (("a=b=c", "", "one of a=b"), ("", "colour=red", "cannot be selected by")):
            with pytest.raises(InvalidError, match=problem):
                await pods.list(labels=labels, fields=fields)

    play(act)


def test_watch_reports_events_and_resumes(play: Play) -> None:
    async def act(served: Served) -> None:
        pods = served.client.of(Pod)
        start = (await pods.create(pod("a", tier="web"))).metadata.revision
        second = await pods.create(pod("b"))
        changed = await pods.replace(replace(second, metadata=replace(second.metadata, labels={"tier": "web"})))
        await pods.replace(replace(changed, metadata=replace(changed.metadata, labels={})))
        await pods.delete("a")
        everything = await happenings(pods.watch(start), 4)
        assert [(happening.type.value, happening.name) for happening in everything] == [
            ("PUT", "b"),
            ("PUT", "b"),
            ("PUT", "b"),
            ("DELETE", "a"),
        ]
        assert everything[0].resource == second
        rest = await happenings(pods.watch(everything[1].revision), 2)
        assert rest == everything[2:]
        selected = await happenings(pods.watch(start, labels="tier=web"), 3)
        assert [(happening.type.value, happening.name) for happening in selected] == [
            ("PUT", "b"),
            ("DELETE", "b"),
            ("DELETE", "a"),
        ]

    play(act)


def test_follow_yields_a_list_and_then_changes(play: Play) -> None:
    async def act(served: Served) -> None:
        pods = served.client.of(Pod)
        made = await pods.create(pod("a"))
        follow = pods.follow()
        listing = await anext(follow)
        assert isinstance(listing, Listing)
        assert listing.items == (made,)
        await served.client.of(Node).create(node("h1"))
        await pods.delete("a")
        while not isinstance(event := await anext(follow), Event) or event.type is EventType.BOOKMARK:
            pass
        assert (event.type, event.name, event.resource) == (EventType.DELETE, "a", made)
        await follow.aclose()

    play(act)


def test_watch_from_a_dropped_revision_is_gone(play: Play) -> None:
    async def act(served: Served) -> None:
        pods = served.client.of(Pod)
        await pods.create(pod("a"))
        with pytest.raises(GoneError, match="is in the future"):
            await anext(pods.watch(10_000))

    play(act)


def test_a_group_of_fifty_is_bound_in_one_transaction(play: Play) -> None:
    async def act(served: Served) -> None:
        client = served.client
        names = [f"w{number}" for number in range(MOST_PODS)]
        await client.of(PodGroup).create(PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=MOST_PODS)))
        for name in names:
            made = pod(name)
            await client.of(Pod).create(replace(made, spec=replace(made.spec, group="g")))
            await client.of(Node).create(node(f"n-{name}"))
        decision = NewDecision(
            name="d", spec=DecisionSpec(subject_kind="podgroup", subjects=("g",), outcome=Outcome.BOUND)
        )
        bindings = tuple(Binding(pod=name, node=f"n-{name}", shares_version=0) for name in names)
        answer = await client.bind(BindingRequest(bindings=bindings, decision=decision))
        assert set(answer.pods) == set(names)
        placed = (await client.of(Pod).list(fields="phase=bound")).items
        assert {placed_pod.status.node for placed_pod in placed} == {f"n-{name}" for name in names}
        assert {placed_pod.metadata.revision for placed_pod in placed} == {answer.revision}
        assert (await client.of(Decision).get("d")).metadata.revision == answer.revision
        with pytest.raises(StaleError, match="shares of Node n-w0 are at version 1, not 0"):
            await client.bind(BindingRequest(bindings=bindings[:1]))

    play(act)


def test_a_pod_that_holds_a_share_goes_when_it_is_released(play: Play) -> None:
    async def act(served: Served) -> None:
        client = served.client
        await client.of(Pod).create(pod("a"))
        await client.of(Node).create(node("h1"))
        await client.bind(BindingRequest(bindings=(Binding(pod="a", node="h1"),)))
        with pytest.raises(StaleError, match="Node h1 has shares held by a"):
            await client.of(Node).delete("h1")
        going = await client.of(Pod).delete("a")
        assert going.metadata.deleting_ns is not None
        assert (await client.of(Pod).get("a")).status.phase is Phase.BOUND
        await client.release(ReleaseRequest(releases=(Release(pod="a", epoch=1),)))
        with pytest.raises(NotFoundError):
            await client.of(Pod).get("a")
        assert (await client.of(Node).delete("h1")).shares == ()

    play(act)


def test_concurrent_bindings_never_overcommit(play: Play) -> None:
    async def act(served: Served) -> None:
        client = served.client
        await client.of(Node).create(node("h1"))  # 1000 thousandths of cores: ten pods
        names = [f"p{number}" for number in range(20)]
        for name in names:
            await client.of(Pod).create(pod(name))

        async def bind(name: str) -> bool:
            for _ in range(40):
                try:
                    await client.bind(BindingRequest(bindings=(Binding(pod=name, node="h1"),)))
                except StaleError as error:
                    if "does not fit" in str(error):
                        return False
                    continue
                return True
            raise AssertionError(name)

        bound = await asyncio.gather(*(bind(name) for name in names))
        current = await client.of(Node).get("h1")
        assert sum(bound) == len(current.shares) == 10
        assert current.shares_version == 10

    play(act)


def test_units_are_shared_out_by_compare_and_swap(play: Play) -> None:
    async def act(served: Served) -> None:
        pools = served.client.of(UnitPool)
        made = await pools.create(UnitPool(metadata=Metadata(name="gpus"), spec=UnitPoolSpec(units=100)))
        shares = (UnitHolding(holder="i", units=50), UnitHolding(holder="ii", units=50))
        first = await served.client.share_units("gpus", shares, expected=made.metadata.revision)
        assert [(share.holder, share.units) for share in first.shares] == [("i", 50), ("ii", 50)]
        with pytest.raises(StaleError, match="no longer at"):
            await served.client.share_units("gpus", shares, expected=made.metadata.revision)
        more = (*shares, UnitHolding(holder="iii", units=1))
        with pytest.raises(StaleError, match="UnitPool gpus has 100 units, not 101"):
            await served.client.share_units("gpus", more, expected=first.metadata.revision)
        with pytest.raises(StaleError, match="held units"):
            await pools.replace(replace(first, spec=UnitPoolSpec(units=99)))

    play(act)


def test_the_synchronous_client_does_the_same(play: Play) -> None:
    async def act(served: Served) -> None:
        def blocking() -> None:
            with SyncApiClient(Place(served.socket), tries=1) as client:
                pods = client.of(Pod)
                made = pods.create(pod("a"))
                assert pods.list().items == (made,)
                changed = pods.replace(replace(made, spec=replace(made.spec, priority=1)))
                events = (event for event in pods.watch(made.metadata.revision) if event.type is EventType.PUT)
                assert next(events).resource == changed
                events.close()
                with pytest.raises(NotFoundError):
                    pods.get("b")
                pods.delete("a")
                assert client.health().status == "ok"

        await asyncio.to_thread(blocking)

    play(act)


def test_openapi_names_every_kind_and_referenced_schema(play: Play) -> None:
    async def act(served: Served) -> None:
        transport = httpx.AsyncHTTPTransport(uds=served.socket.removeprefix("unix:"))
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
            answer = await http.get("/openapi.json")
        document = answer.json()
        assert answer.status_code == 200
        assert document["openapi"].startswith("3.1")
        assert {kind.name for kind in KINDS} <= document["components"]["schemas"].keys()
        for kind in KINDS:
            assert {"get", "post"} <= document["paths"][f"/v1/{kind.plural}"].keys()
            assert {"get", "put", "delete"} <= document["paths"][f"/v1/{kind.plural}/{{name}}"].keys()
        text = json.dumps(document)
        referred = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
        assert referred <= document["components"]["schemas"].keys()
        operations = [part["operationId"] for path in document["paths"].values() for part in path.values()]
        assert len(set(operations)) == len(operations)

    play(act)
