"""Batches of bindings and dispatches: each request as if sent alone, and none done twice after a lost answer."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter

import httpx
import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.registry.batches import MOST_REQUESTS, bind_each, dispatch_each
from controller.apiserver.registry.dispatches import Dispatch, DispatchRequest, dispatch
from controller.apiserver.registry.placements import Binding, BindingRequest, NewDecision, PlacementAnswer, State, bind
from controller.apiserver.registry.task_state import DispatchAnswer, TaskState
from controller.apiserver.resources import Decision, Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.decision import DecisionSpec, Outcome
from controller.apiserver.resources.hardware import Request
from controller.apiserver.resources.node import NodeStatus
from controller.apiserver.resources.pod_group import PodGroupSpec
from controller.common.errors import ApiError, ForbiddenError, InvalidError, NotFoundError, StaleError, UnavailableError
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Play, Served
from tests.controller.apiserver.test_dispatches import NOW_NS, task
from tests.controller.apiserver.test_dispatches import state as task_state
from tests.controller.apiserver.test_placements import after, node, pod, state


def decision(name: str) -> NewDecision:
    return NewDecision(name=name, spec=DecisionSpec(subject_kind="pod", subjects=("p",), outcome=Outcome.BOUND))


def asks(*bindings: Binding, name: str | None = None) -> BindingRequest:
    return BindingRequest(bindings=bindings, decision=None if name is None else decision(name))


def onto(pod_name: str, node_name: str, **more: int) -> Binding:
    return Binding(pod=pod_name, node=node_name, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_bind_each_equals_binding_one_after_the_other(seed: int) -> None:
    rng = random.Random(seed)
    groups = (PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=2)),)
    pods = [pod(f"p{number}", Request(cpu_milli=rng.choice((500, 1500, 2500)))) for number in range(8)]
    pods += [pod(f"g{number}", group="g") for number in range(2)]
    before = state(*pods, nodes=tuple(node(f"h{number}") for number in range(3)), groups=groups)
    requests = [asks(onto(f"p{rng.randrange(10)}", f"h{rng.randrange(4)}"), name=f"d{number}") for number in range(12)]
    requests.insert(rng.randrange(12), asks(onto("g0", "h0"), onto("g1", "h1"), name="whole"))
    requests.insert(rng.randrange(12), asks(onto("g0", "h0"), name="part"))
    outcomes = bind_each(before, requests, {"d3"}, 5, Counter())
    alone = before
    for request, made in zip(requests, outcomes, strict=True):
        try:
            if request.decision is not None and request.decision.name == "d3":
                raise StaleError("Decision d3 already exists")
            expected: State | ApiError = bind(alone, request, 5)
        except ApiError as error:
            expected = error
        if isinstance(expected, ApiError):
            assert (type(made), str(made)) == (type(expected), str(expected))
            continue
        assert made == expected
        alone = after(alone, expected)
    assert any(isinstance(made, State) for made in outcomes)
    assert any(isinstance(made, StaleError) for made in outcomes)
    assert any(isinstance(made, NotFoundError) for made in outcomes)


def test_versions_are_those_before_the_batch() -> None:
    pods = [pod(name, Request(cpu_milli=500)) for name in "abcd"]
    requests = [
        asks(onto("a", "h1", shares_version=0, node_revision=7)),
        asks(onto("nobody", "h1", shares_version=0)),
        asks(onto("b", "h1", shares_version=0)),
        asks(onto("c", "h1", shares_version=1)),
        asks(onto("d", "h1", node_revision=7)),
    ]
    moved = Counter[str]()
    outcomes = bind_each(state(*pods), requests, set(), 5, moved)
    assert [isinstance(made, State) for made in outcomes] == [True, False, True, False, False]
    assert str(outcomes[3]) == "shares of Node h1 are at version 0, not 1"
    assert str(outcomes[4]) == "an earlier request of the batch writes Node h1"
    assert moved == {"h1": 2}


def test_a_request_that_was_carried_out_is_answered_again() -> None:
    before, request = state(pod("a")), asks(onto("a", "h1", pod_revision=3), name="d")
    (made,) = bind_each(before, [request], set(), 5, Counter())
    assert isinstance(made, State)
    then = after(before, made)
    bound = then.pods["a"]
    assert bound is not None
    then.pods["a"] = replace(bound, metadata=replace(bound.metadata, revision=9))
    assert bind_each(then, [request], {"d"}, 6, Counter()) == [PlacementAnswer(revision=9, pods=("a",), nodes=("h1",))]
    others = [asks(onto("a", "h1", pod_revision=3), name="e"), asks(onto("a", "h2"), name="d"), asks(onto("a", "h1"))]
    assert all(isinstance(outcome, StaleError) for outcome in bind_each(then, others, {"d"}, 6, Counter()))


def test_dispatch_each_equals_dispatching_one_after_the_other() -> None:
    tasks = [task(f"t{number}") for number in range(6)]
    before = task_state(*tasks)
    items = [Dispatch(task=f"t{number}", centre=f"c{1 + number % 3}", unit="large") for number in range(6)]
    items.append(Dispatch(task="t0", centre="c1", unit="large", shares_version=0))
    requests = [
        DispatchRequest(dispatches=(item,), decision=decision(f"d{number}")) for number, item in enumerate(items)
    ]
    outcomes, alone = dispatch_each(before, requests, set(), NOW_NS, Counter()), before
    for request, made in zip(requests, outcomes, strict=True):
        try:
            expected: TaskState | ApiError = dispatch(alone, request, NOW_NS)
        except ApiError as error:
            expected = error
        if isinstance(expected, ApiError):
            assert (type(made), str(made)) == (type(expected), str(expected))
            continue
        assert made == expected
        alone = TaskState(alone.tasks | expected.tasks, alone.centres | expected.centres)
    assert [isinstance(made, TaskState) for made in outcomes] == [True, True, False, True, True, False, False]
    again = dispatch_each(alone, requests[:1], {"d0"}, NOW_NS, Counter())
    assert again == [DispatchAnswer(revision=3, tasks=("t0",), centres=("c1",))]


async def _fill(served: Served, pods: int, nodes: int) -> None:
    """Create pods and ready nodes."""
    for number in range(nodes):
        made = node(f"h{number}")
        await served.client.of(Node).create(replace(made, metadata=Metadata(name=f"h{number}")))
    for number in range(pods):
        made_pod = pod(f"p{number}", Request(cpu_milli=100))
        await served.client.of(Pod).create(replace(made_pod, metadata=Metadata(name=f"p{number}")))


def test_a_refusal_fails_no_other_and_a_batch_may_be_sent_again(play: Play) -> None:
    async def act(served: Served) -> None:
        await _fill(served, 5, 2)
        client = served.client
        requests = [
            asks(onto("p0", "h0", shares_version=0), name="d0"),
            asks(onto("p1", "h0", shares_version=1), name="d1"),
            asks(onto("nobody", "h0"), name="d2"),
            asks(onto("p2", "h1"), onto("p2", "h1"), name="d3"),
            asks(onto("p3", "h1"), name="d4"),
        ]
        answers = await client.bind_each(requests)
        kinds = [type(answer) for answer in answers]
        assert kinds == [PlacementAnswer, StaleError, NotFoundError, InvalidError, PlacementAnswer]
        assert isinstance(answers[0], PlacementAnswer)
        assert isinstance(answers[4], PlacementAnswer)
        assert answers[0].revision == answers[4].revision, "it is one transaction"
        assert {decision.metadata.name for decision in (await client.of(Decision).list()).items} == {"d0", "d4"}
        before = (await client.of(Node).list()).items
        assert await client.bind_each(requests[:1]) == [answers[0]]
        assert (await client.of(Node).list()).items == before
        lines = [json.loads(line) for line in (served.folder / "audit").read_text().splitlines()]
        written = [(line["what"], line["status"]) for line in lines if line["path"] == "/v1/batches/bindings"]
        assert written[:3] == [("p0 -> h0", 200), ("p1 -> h0", 409), ("nobody -> h0", 404)]

    play(act)


def test_batch_beyond_a_transaction_is_executed_in_order(play: Play) -> None:
    async def act(served: Served) -> None:
        await _fill(served, MOST_REQUESTS, 2)
        requests = [
            asks(onto(f"p{number}", "h0", shares_version=0), name=f"d{number}") for number in range(MOST_REQUESTS)
        ]
        answers = await served.client.bind_each(requests)
        # The node has room for 40 of them.
        assert [isinstance(answer, PlacementAnswer) for answer in answers] == [
            number < 40 for number in range(MOST_REQUESTS)
        ]
        assert (await served.client.of(Node).get("h0")).shares_version == 40
        with pytest.raises(InvalidError, match="requests: "):
            await served.client.bind_each([*requests, asks(onto("p0", "h1"))])

    play(act)


def test_frequent_writes_of_a_node_hold_up_no_batch(play: Play) -> None:
    async def act(served: Served) -> None:
        await _fill(served, 24, 6)
        done = asyncio.Event()

        async def report() -> None:
            ready = True
            while not done.is_set():
                ready = not ready
                node = await served.client.of(Node).get("h0")
                made = replace(node, metadata=replace(node.metadata, revision=0), status=NodeStatus(ready=ready))
                await served.client.of(Node).replace_status(made)

        reporting = [asyncio.create_task(report()) for _ in range(3)]
        try:
            for begin in range(0, 24, 8):
                requests = [
                    asks(onto(f"p{begin + number}", f"h{number % 6}"), name=f"d{begin + number}") for number in range(8)
                ]
                for _ in range(20):
                    answers = await served.client.bind_each(requests)
                    # Bindings to the node that others write may be refused; the rest succeed at the first try.
                    assert all(isinstance(answer, PlacementAnswer) for index, answer in enumerate(answers) if index % 6)
                    if all(isinstance(answer, PlacementAnswer) for answer in answers):
                        break
        finally:
            done.set()
            await asyncio.gather(*reporting)
        assert all(pod.status.epoch == 1 for pod in (await served.client.of(Pod).list()).items)

    play(act)


def test_a_lost_answer_is_asked_for_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, send = list[str](), httpx.AsyncHTTPTransport.handle_async_request

    async def losing(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        answer = await send(self, request)
        sent.append(request.url.path)
        if sent.count("/v1/batches/bindings") == 1 and sent[-1] == "/v1/batches/bindings":
            await answer.aclose()
            raise httpx.ReadError("the connection was lost", request=request)
        return answer

    async def act(served: Served) -> None:
        await _fill(served, 2, 1)
        monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", losing)
        async with ApiClient(Place(served.socket), rng=random.Random(1)) as client:
            answers = await client.bind_each([asks(onto(f"p{number}", "h0"), name=f"d{number}") for number in range(2)])
            assert all(isinstance(answer, PlacementAnswer) for answer in answers)
            assert sent.count("/v1/batches/bindings") == 2
            assert len((await client.of(Node).get("h0")).shares) == 2
            sent.clear()
            with pytest.raises(UnavailableError, match="the connection was lost"):
                await client.bind_each([asks(onto("p0", "h0"))])  # without a decision nothing is recorded

    play(act)


def test_batches_are_for_schedulers(play: Play) -> None:
    async def act(served: Served) -> None:
        await _fill(served, 1, 1)
        for role in (Role.USER, Role.NODE, Role.PLACEMENT):
            async with await served.client_of(role, "h0" if role is Role.NODE else None) as client:
                with pytest.raises(ForbiddenError):
                    await client.bind_each([asks(onto("p0", "h0"))])
                with pytest.raises(ForbiddenError):
                    await client.dispatch_each([DispatchRequest(dispatches=(Dispatch(task="t", centre="c"),))])
        async with await served.client_of(Role.SERVICE) as client:
            (answers,) = await client.bind_each([asks(onto("p0", "h0"))])
            assert isinstance(answers, PlacementAnswer)

    play(act)
