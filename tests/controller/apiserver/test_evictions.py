"""Evictions: bound pods are asked to stop, keep their state until released, and then get the stated outcome."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from controller.apiserver.registry.evictions import Eviction, EvictionRequest, Nomination, evict
from controller.apiserver.registry.placements import (
    Binding,
    BindingRequest,
    NewDecision,
    Release,
    ReleaseRequest,
    State,
)
from controller.apiserver.registry.placements import release as released
from controller.apiserver.resources import Decision, Metadata, Node, Pod
from controller.apiserver.resources.decision import DecisionSpec, Outcome
from controller.apiserver.resources.hardware import Hardware
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Container, Phase, PodSpec, PodStatus
from controller.common.errors import ApiError, InvalidError, NotFoundError, StaleError
from tests.controller.apiserver.api_server import Play, Served

WAITING = PodStatus()
RUNNING = PodStatus(phase=Phase.RUNNING, node="h1", epoch=2)


def pod(name: str, status: PodStatus = WAITING, **metadata: int) -> Pod:
    spec = PodSpec(containers=(Container(name="main", image="busybox"),))
    return Pod(metadata=Metadata(name=name, **metadata), spec=spec, status=status)  # type: ignore[arg-type]


def node(name: str) -> Node:
    return Node(metadata=Metadata(name=name), spec=NodeSpec(hardware=Hardware(cpu_milli=4000)))


def state(*pods: Pod) -> State:
    return State({pod.metadata.name: pod for pod in pods}, {"h1": node("h1")})


def test_an_evicted_pod_stops_and_another_is_promised_the_room() -> None:
    asked = EvictionRequest(
        evictions=(Eviction(pod="a", epoch=2, reason="for b", then=Phase.FAILED),),
        nominations=(Nomination(pod="b", node="h1"),),
    )
    before = state(pod("a", RUNNING), pod("b"))
    made = evict(before, asked)
    assert made.pods["a"] is not None
    assert made.pods["b"] is not None
    assert made.pods["a"].status == replace(RUNNING, phase=Phase.STOPPING, then=Phase.FAILED, reasons=("for b",))
    assert made.pods["b"].status == PodStatus(nominated="h1")
    assert not made.nodes, "it keeps its shares until the release"
    gone = released(State(made.pods, before.nodes), ReleaseRequest(releases=(Release(pod="a", epoch=2),)), 5)
    assert gone.pods["a"] is not None
    assert (gone.pods["a"].status.phase, gone.pods["a"].status.then) == (Phase.PENDING, None)


@pytest.mark.parametrize(
    ("evictions", "nominations", "error", "problem"),
    [
        ("x@2", "", NotFoundError, "there is no Pod x"),
        ("a@2,a@2", "", InvalidError, "Pod a is given twice"),
        ("a@1", "", StaleError, "Pod a is in epoch 2, no longer in 1"),
        ("b@0", "", StaleError, "Pod b is on no node"),
        ("c@2", "", StaleError, "Pod c is already being evicted"),
        ("d@2", "", StaleError, "Pod d is already being deleted"),
        ("a@2", "a@h1", InvalidError, "Pod a is given twice"),
        ("a@2", "c@h1", StaleError, "Pod c no longer waits: it is stopping"),
        ("a@2", "b@h9", NotFoundError, "there is no Node h9"),
    ],
)
def test_impossible_eviction_is_refused_in_one_line(
    evictions: str, nominations: str, error: type[ApiError], problem: str
) -> None:
    before = state(
        pod("a", RUNNING),
        pod("b"),
        pod("c", replace(RUNNING, phase=Phase.STOPPING, then=Phase.PENDING)),
        pod("d", RUNNING, deleting_ns=1),
    )
    asked = EvictionRequest(
        evictions=tuple(Eviction(pod=item[0], epoch=int(item[2:])) for item in evictions.split(",")),
        nominations=tuple(Nomination(pod=item[0], node=item[2:]) for item in nominations.split(",") if item),
    )
    with pytest.raises(error, match=problem):
        evict(before, asked)


def test_afterwards_a_pod_is_pending_or_failed() -> None:
    with pytest.raises(msgspec.ValidationError, match="must become pending or failed, not running"):
        msgspec.json.decode(b'{"pod": "a", "epoch": 1, "then": "running"}', type=Eviction)


def test_over_http_a_late_report_does_not_undo_an_eviction(play: Play) -> None:
    async def act(served: Served) -> None:
        client = served.client
        await client.of(Node).create(node("h1"))
        created = await client.of(Pod).create(pod("a"))
        await client.of(Pod).create(pod("b"))
        await client.bind(BindingRequest(bindings=(Binding(pod="a", node="h1"),)))
        spec = DecisionSpec(subject_kind="pod", subjects=("b",), outcome=Outcome.PREEMPTING, preempted=("a",))
        await client.evict(
            EvictionRequest(
                evictions=(Eviction(pod="a", epoch=1, reason="room for b"),),
                nominations=(Nomination(pod="b", node="h1"),),
                decision=NewDecision(name="why", spec=spec),
            )
        )
        assert (await client.of(Decision).get("why")).spec.preempted == ("a",)
        late = replace(created, metadata=Metadata(name="a"), status=PodStatus(phase=Phase.RUNNING, epoch=1))
        status = (await client.of(Pod).replace_status(late)).status
        assert (status.phase, status.then, status.node, status.reasons) == (
            Phase.STOPPING,
            Phase.PENDING,
            "h1",
            ("room for b",),
        )
        with pytest.raises(StaleError, match="already being evicted"):
            await client.evict(EvictionRequest(evictions=(Eviction(pod="a", epoch=1),)))
        await client.release(ReleaseRequest(releases=(Release(pod="a", epoch=1),)))
        await client.bind(BindingRequest(bindings=(Binding(pod="b", node="h1"),)))
        assert (await client.of(Pod).get("b")).status.nominated is None

    play(act)
