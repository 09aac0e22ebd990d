"""Shares of projects: incremental counts equal fresh ones, and turns give shares in proportion to weights."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apiserver.resources import Metadata, Node, Pod, Project
from controller.apiserver.resources.hardware import Device, DeviceNeed, Hardware, Request
from controller.apiserver.resources.node import NodeStatus, Share
from controller.apiserver.resources.pod import Container, PodSpec, PodStatus
from controller.apiserver.resources.project import ProjectSpec
from controller.scheduling.fairness import PodShares, Weights, in_turn
from controller.scheduling.serving.pending import PendingQueue
from controller.scheduling.settings import QueueSettings
from dataplane.topology.values import DeviceKind


def project(name: str, weight: float) -> Project:
    return Project(metadata=Metadata(name=name, project=name), spec=ProjectSpec(weight=weight))


def pod(name: str, of: str, cpu_milli: int, gpus: int = 0, node: str | None = "h1") -> Pod:
    needs = (DeviceNeed(kind=DeviceKind.GPU, count=gpus),) if gpus else ()
    request = Request(cpu_milli=cpu_milli, devices=needs)
    spec = PodSpec(containers=(Container(name="m", image="i"),), request=request)
    return Pod(metadata=Metadata(name=name, project=of), spec=spec, status=PodStatus(node=node))


def node(name: str, cpu_milli: int, gpus: int, pods: str = "pqr") -> Node:
    """Return a node with shares of these pods."""
    devices = tuple(Device(number=number, kind=DeviceKind.GPU) for number in range(gpus))
    return Node(
        metadata=Metadata(name=name),
        status=NodeStatus(hardware=Hardware(cpu_milli=cpu_milli, devices=devices)),
        shares=tuple(Share(pod=pod, uid=pod, epoch=1) for pod in pods),
    )


def test_a_share_is_that_of_the_dominant_resource() -> None:
    weights = Weights()
    weights.take_all([project("a", 2.0)])
    shares = PodShares(weights)
    shares.replace_node(None, node("h1", 10_000, 4))
    shares.replace_pod(None, pod("p", "a", 1_000, 2))
    shares.replace_pod(None, pod("q", "b", 3_000))
    shares.replace_pod(None, pod("r", "b", 9_000, node=None))
    assert shares.of("project a") == pytest.approx(0.5 / 2)
    assert shares.of("project b") == pytest.approx(0.3)
    assert shares.of("project c") == 0
    weights.take(project("b", 3.0))
    assert shares.of("project b") == pytest.approx(0.1)
    weights.remove("b")
    shares.replace_node(node("h1", 10_000, 4), node("h1", 30_000, 4))
    assert shares.of("project b") == pytest.approx(0.1)


def test_pods_that_ask_for_nothing_come_and_go() -> None:
    shares = PodShares(Weights())
    shares.replace_node(None, node("h1", 10_000, 4))
    first, second = pod("p", "a", 0), pod("q", "a", 0)
    shares.replace_pod(None, first)
    shares.replace_pod(None, second)
    shares.replace_pod(first, None)
    shares.replace_pod(second, second)
    assert shares.of("project a") == 0
    shares.replace_pod(second, None)
    assert shares.of("project a") == 0


def test_a_release_counts_once_its_pod_or_node_shows_it() -> None:
    shares, running = PodShares(Weights()), pod("p", "a", 1_000)
    shares.replace_pod(None, running)
    assert shares.of("project a") == 0, "on no known node"
    with_share, without = node("h1", 10_000, 0), node("h1", 10_000, 0, pods="qr")
    shares.replace_node(None, with_share)
    assert shares.of("project a") == pytest.approx(0.1)
    shares.replace_node(with_share, without)
    assert shares.of("project a") == 0, "the node was first"
    shares.replace_pod(running, None)
    assert shares.of("project a") == 0
    shares.replace_pod(None, running)
    shares.replace_node(without, with_share)
    assert shares.of("project a") == pytest.approx(0.1)
    shares.replace_pod(running, pod("p", "a", 1_000, node=None))
    assert shares.of("project a") == 0, "the pod was first"
    shares.replace_node(with_share, None)
    assert shares.of("project a") == 0


pods = st.builds(
    pod,
    st.sampled_from("pqr"),
    st.sampled_from("ab"),
    st.integers(0, 3_000),
    st.integers(0, 2),
    st.sampled_from(["h1", None]),
)


nodes = st.builds(node, st.sampled_from(["h1", "h2"]), st.just(10_000), st.just(4), st.sampled_from(["", "p", "qr"]))


@given(st.lists(pods | nodes | st.sampled_from("pqr"), max_size=30))
def test_incremental_shares_equal_a_fresh_count(changes: list[Pod | Node | str]) -> None:
    shares, pods_by_name, known_nodes = PodShares(Weights()), dict[str, Pod](), {"h1": node("h1", 10_000, 4)}
    shares.replace_node(None, known_nodes["h1"])
    for change in changes:
        if isinstance(change, Node):
            shares.replace_node(known_nodes.get(change.metadata.name), change)
            known_nodes[change.metadata.name] = change
        elif isinstance(change, str):
            shares.replace_pod(pods_by_name.pop(change, None), None)
        else:
            shares.replace_pod(pods_by_name.get(change.metadata.name), change)
            pods_by_name[change.metadata.name] = change
    anew = PodShares(Weights())
    for pod in pods_by_name.values():
        anew.replace_pod(None, pod)
    for there in known_nodes.values():
        anew.replace_node(None, there)
    assert [shares.of(f"project {name}") for name in "ab"] == [anew.of(f"project {name}") for name in "ab"]


tasks = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=30)


@given(tasks, st.dictionaries(st.sampled_from("abc"), st.floats(0, 5)))
def test_turns_are_those_of_the_smallest_share(tasks: list[tuple[str, int]], held: dict[str, float]) -> None:
    shares = {name: held.get(name, 0.0) for name in "abc"}
    left = list(enumerate(tasks))
    for number, (account, size) in in_turn(list(left), lambda entry: entry[1][0], lambda entry: entry[1][1], held):
        firsts = {other: next(index for index, entry in left if entry[0] == other) for _, (other, _) in left}
        assert firsts[account] == number
        assert shares[account] == min(shares[other] for other in firsts)
        shares[account] += size
        left.remove((number, (account, size)))
    assert left == []


def test_equal_priority_gives_the_turn_to_the_least_share() -> None:
    held = {"a": 0.5, "b": 0.25}
    queue = PendingQueue(QueueSettings(), lambda account: held[account])
    queue.put("pod/1", 0, 0, "a")
    queue.put("pod/2", 0, 0, "b")
    queue.put("pod/3", 0, 0, "b")
    assert queue.first_due(0) == "pod/2"
    queue.forget("pod/2")
    held["b"] = 0.75
    assert queue.first_due(0) == "pod/1"
    queue.put("pod/3", 1, 0, "b")
    assert queue.first_due(0) == "pod/3"
    queue.forget("pod/3")
    queue.forget("pod/1")
    assert queue.first_due(0) is None
    assert queue.next_due_ns() is None


def test_room_goes_to_the_next_in_turn_despite_earlier_refusals() -> None:
    held = {"a": 0.1, "b": 0.9}
    queue, now_ns = PendingQueue(QueueSettings(first_wait_ns=10, longest_wait_ns=10_000), lambda name: held[name]), 0
    for name in ("pod/1", "pod/2"):
        queue.put(name, 0, now_ns, "a")
    for _ in range(12):
        while (due := queue.first_due(now_ns)) is not None:
            queue.refused(due, now_ns)
        now_ns = queue.next_due_ns() or now_ns
    while (due := queue.first_due(now_ns)) is not None:
        queue.refused(due, now_ns)
    queue.put("pod/late", 0, now_ns + 20, "b")
    queue.wake(now_ns + 20)
    assert queue.first_due(now_ns + 20) == "pod/1"
    queue.bound("pod/1", now_ns + 20)
    assert queue.first_due(now_ns + 20) == "pod/2"
    queue.bound("pod/2", now_ns + 20)
    assert queue.first_due(now_ns + 20) == "pod/late"
