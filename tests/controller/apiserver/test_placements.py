"""Bindings and releases, decided from stored state."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controller.apiserver.registry.placements import (
    Binding,
    BindingRequest,
    Release,
    ReleaseRequest,
    State,
    bind,
    release,
)
from controller.apiserver.resources import Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.hardware import Device, DeviceNeed, DeviceShare, Hardware, MemoryMedium, Request
from controller.apiserver.resources.node import NodeSpec, NodeStatus
from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.apiserver.resources.pod import Container, Phase, PodSpec
from controller.apiserver.resources.pod_group import GroupPhase, PodGroupSpec
from controller.apiserver.resources.task import OperatorCount
from controller.common.errors import ApiError, InvalidError, NotFoundError, StaleError
from dataplane.topology.values import DeviceKind, MediumKind

GPU = Device(number=0, kind=DeviceKind.GPU, model="A", memory_bytes=80)
HARDWARE = Hardware(
    cpu_milli=4000,
    memory=(MemoryMedium(kind=MediumKind.DRAM, capacity_bytes=1000),),
    devices=(GPU, Device(number=1, kind=DeviceKind.GPU, model="B", memory_bytes=40)),
)
NEED = DeviceNeed(kind=DeviceKind.GPU, thousandths=600, memory_bytes=30)


def node(name: str, **spec: object) -> Node:
    return Node(metadata=Metadata(name=name, revision=7), spec=NodeSpec(hardware=HARDWARE, **spec))  # type: ignore[arg-type]


def pod(name: str, request: Request | None = None, group: str | None = None) -> Pod:
    containers = (Container(name="main", image="busybox"),)
    spec = PodSpec(containers=containers, request=request or Request(cpu_milli=1000), group=group)
    return Pod(metadata=Metadata(name=name, uid=f"uid-{name}", revision=3), spec=spec)


def state(*pods: Pod, nodes: tuple[Node, ...] = (node("h1"), node("h2")), groups: tuple[PodGroup, ...] = ()) -> State:
    return State(
        {pod.metadata.name: pod for pod in pods},
        {node.metadata.name: node for node in nodes},
        {group.metadata.name: group for group in groups},
    )


def request(*bindings: Binding) -> BindingRequest:
    return BindingRequest(bindings=bindings)


def after(before: State, made: State) -> State:
    return State(before.pods | made.pods, before.nodes | made.nodes, before.groups | made.groups)


def test_a_binding_writes_pod_and_share() -> None:
    share = DeviceShare(number=1, thousandths=600, memory_bytes=30)
    made = bind(
        state(pod("a", Request(cpu_milli=1500, memory_bytes=100, devices=(NEED,)))),
        request(Binding(pod="a", node="h2", devices=(share,))),
        now_ns=5,
    )
    bound, held = made.pods["a"], made.nodes["h2"].shares
    assert bound is not None
    assert (bound.status.phase, bound.status.node, bound.status.devices) == (Phase.BOUND, "h2", (share,))
    assert (bound.status.epoch, bound.status.bound_ns) == (1, 5)
    assert made.nodes["h2"].shares_version == 1
    assert [
        (share.pod, share.uid, share.epoch, share.cpu_milli, share.memory_bytes, share.devices) for share in held
    ] == [("a", "uid-a", 1, 1500, 100, (share,))]
    assert set(made.nodes) == {"h2"}


def test_binding_places_operators_on_the_pods_devices() -> None:
    made = pod("a", Request(devices=(NEED,)))
    made = replace(made, spec=replace(made.spec, operators=(OperatorCount(name="product", operator="gemm"),)))
    share = DeviceShare(number=1, thousandths=600, memory_bytes=30)

    def bound(operator: str, device: DeviceKind) -> Pod:
        chosen = (OperatorDevice(operator=operator, device=device),)
        binding = Binding(pod="a", node="h2", devices=(share,), operator_devices=chosen)
        pod = bind(state(made), request(binding), now_ns=5).pods["a"]
        assert pod is not None
        return pod

    told = bound("product", DeviceKind.GPU)
    assert told.status.operator_devices == (OperatorDevice(operator="product", device=DeviceKind.GPU),)
    for operator, device, problem in (
        ("sum", DeviceKind.GPU, "Pod a: operator 'sum' does not exist"),
        ("product", DeviceKind.NPU, "Pod a: operator 'product' should run on a npu, but there is none"),
    ):
        with pytest.raises(InvalidError, match=problem):
            bound(operator, device)
    left = release(state(told), ReleaseRequest(releases=(Release(pod="a"),)), now_ns=6).pods["a"]
    assert left is not None
    assert left.status.operator_devices == ()


def test_several_pods_on_one_node_must_fit_together() -> None:
    pods = [pod(name, Request(cpu_milli=1500)) for name in "abc"]
    two = bind(state(*pods), request(*(Binding(pod=name, node="h1") for name in "ab")), now_ns=1)
    assert len(two.nodes["h1"].shares) == 2
    with pytest.raises(StaleError, match=r"h1: c does not fit: h1: 4500 thousandths of cores exceed 4000"):
        bind(state(*pods), request(*(Binding(pod=name, node="h1") for name in "abc")), now_ns=1)


WHOLE_NEED = Request(devices=(DeviceNeed(kind=DeviceKind.GPU, models=("B",)),))


@pytest.mark.parametrize(
    ("wanted", "binding", "error", "problem"),
    [
        (None, Binding(pod="x", node="h1"), NotFoundError, "there is no Pod x"),
        (None, Binding(pod="a", node="x"), NotFoundError, "there is no Node x"),
        (None, Binding(pod="a", node="full"), StaleError, "full does not accept pods: mended"),
        (None, Binding(pod="a", node="bare"), StaleError, "bare has not reported its devices"),
        (None, Binding(pod="a", node="h1", pod_revision=2), StaleError, "Pod a is at revision 3, no longer at 2"),
        (None, Binding(pod="a", node="h1", node_revision=6), StaleError, "Node h1 is at revision 7, no longer at 6"),
        (None, Binding(pod="a", node="h1", shares_version=1), StaleError, "shares of Node h1 are at version 0, not 1"),
        (None, Binding(pod="a", node="h1", devices=(DeviceShare(number=0),)), StaleError, "does not request device 0"),
        (WHOLE_NEED, Binding(pod="a", node="h1"), StaleError, r"requests 1 gpu B, which its binding lacks"),
        (WHOLE_NEED, Binding(pod="a", node="h1", devices=(DeviceShare(number=0),)), StaleError, "lacks"),
        (WHOLE_NEED, Binding(pod="a", node="h1", devices=(DeviceShare(number=9),)), StaleError, "no device 9"),
        (
            Request(memory_bytes=1001),
            Binding(pod="a", node="h1"),
            StaleError,
            "1001 bytes of memory exceed 1000",
        ),
    ],
)
def test_impossible_binding_is_refused_in_one_line(
    wanted: Request | None, binding: Binding, error: type[ApiError], problem: str
) -> None:
    nodes = (node("h1"), node("full", unschedulable=True, reason="mended"), Node(metadata=Metadata(name="bare")))
    with pytest.raises(error, match=problem):
        bind(state(pod("a", wanted), nodes=nodes), request(binding), now_ns=1)


def test_a_pod_is_bound_once() -> None:
    before = state(pod("a"))
    binding = Binding(pod="a", node="h1")
    with pytest.raises(InvalidError, match="Pod a is given twice"):
        bind(before, request(binding, binding), now_ns=1)
    made = after(before, bind(before, request(binding), now_ns=1))
    with pytest.raises(StaleError, match="Pod a is already on node h1"):
        bind(made, request(Binding(pod="a", node="h2")), now_ns=1)


def test_a_device_holds_a_thousand_thousandths() -> None:
    pods = [pod(name, Request(devices=(NEED,))) for name in "ab"]
    share = DeviceShare(number=0, thousandths=600, memory_bytes=30)
    with pytest.raises(StaleError, match="1200 thousandths"):
        bind(state(*pods), request(*(Binding(pod=name, node="h1", devices=(share,)) for name in "ab")), now_ns=1)


def test_a_group_is_placed_whole() -> None:
    group = PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=2))
    pods = [pod(name, group="g") for name in "ab"]
    with pytest.raises(StaleError, match="PodGroup g is placed as a whole: the request has 1 of 2"):
        bind(state(*pods, groups=(group,)), request(Binding(pod="a", node="h1")), now_ns=1)
    with pytest.raises(NotFoundError, match="no PodGroup g"):
        bind(state(*pods), request(Binding(pod="a", node="h1"), Binding(pod="b", node="h1")), now_ns=1)
    made = bind(
        state(*pods, groups=(group,)), request(Binding(pod="a", node="h1"), Binding(pod="b", node="h2")), now_ns=1
    )
    assert (made.groups["g"].status.bound, made.groups["g"].status.phase) == (2, GroupPhase.BOUND)


def test_lost_pods_of_a_group_are_rebound_until_the_group_ends() -> None:
    group = PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=3))
    before = state(*(pod(name, group="g") for name in "abc"), groups=(group,))
    bound = after(before, bind(before, request(*(Binding(pod=name, node="h1") for name in "abc")), now_ns=1))
    lost = ReleaseRequest(releases=(Release(pod="a", epoch=1), Release(pod="b", epoch=1)))
    left = after(bound, release(bound, lost, now_ns=2))
    assert (left.groups["g"].status.bound, left.groups["g"].needed) == (1, 1)
    again = bind(left, request(Binding(pod="b", node="h2")), now_ns=3)
    assert again.groups["g"].status.bound == 2
    for phase in (GroupPhase.FAILED, GroupPhase.FINISHED):
        ended = replace(left.groups["g"], status=replace(left.groups["g"].status, phase=phase))
        assert ended.needed == 0
        left.groups["g"] = ended
        with pytest.raises(StaleError, match=f"PodGroup g has {phase.value}"):
            bind(left, request(Binding(pod="a", node="h2")), now_ns=4)


def test_a_node_that_has_reported_since_keeps_its_pods() -> None:
    before = state(pod("a"))
    bound = after(before, bind(before, request(Binding(pod="a", node="h1")), now_ns=1))
    reported = replace(bound.nodes["h1"], status=NodeStatus(heartbeat_ns=7))
    silent = ReleaseRequest(releases=(Release(pod="a", epoch=1, heartbeat_ns=0),))
    with pytest.raises(StaleError, match="Node h1 has reported since: Pod a is kept"):
        release(State(bound.pods, {"h1": reported}), silent, now_ns=2)
    for nodes in (bound.nodes, {}):  # no report; the node is gone
        assert release(State(bound.pods, nodes), silent, now_ns=2).pods["a"] is not None


def test_release_returns_a_bindings_shares() -> None:
    before = state(pod("a"))
    bound = after(before, bind(before, request(Binding(pod="a", node="h1")), now_ns=1))
    with pytest.raises(StaleError, match="Pod a is in epoch 1, no longer in 2"):
        release(bound, ReleaseRequest(releases=(Release(pod="a", epoch=2),)), now_ns=2)
    made = release(bound, ReleaseRequest(releases=(Release(pod="a", epoch=1, phase=Phase.SUCCEEDED),)), now_ns=2)
    ended = made.pods["a"]
    assert ended is not None
    assert (ended.status.phase, ended.status.node, ended.status.finished_ns) == (Phase.SUCCEEDED, None, 2)
    assert (made.nodes["h1"].shares, made.nodes["h1"].shares_version) == ((), 2)
    with pytest.raises(StaleError, match="Pod a has succeeded"):
        bind(after(bound, made), request(Binding(pod="a", node="h1")), now_ns=3)
    with pytest.raises(StaleError, match="Pod a holds nothing"):
        release(after(bound, made), ReleaseRequest(releases=(Release(pod="a"),)), now_ns=3)


def test_shares_of_a_lost_pod_are_released_by_node() -> None:
    before = state(pod("a"))
    bound = after(before, bind(before, request(Binding(pod="a", node="h1")), now_ns=1))
    bound.pods["a"] = None
    made = release(bound, ReleaseRequest(releases=(Release(pod="a", node="h1"),)), now_ns=2)
    assert made.nodes["h1"].shares == ()


def test_release_on_a_wrong_node_drops_only_its_shares() -> None:
    before = state(pod("a"))
    bound = after(before, bind(before, request(Binding(pod="a", node="h1")), now_ns=1))
    bound.nodes["h2"] = replace(bound.nodes["h2"], shares=bound.nodes["h1"].shares)
    made = release(bound, ReleaseRequest(releases=(Release(pod="a", node="h2"),)), now_ns=2)
    assert (made.pods, made.nodes["h2"].shares) == ({}, ())
    with pytest.raises(StaleError, match="Pod a is on node h1: it keeps its shares"):
        release(bound, ReleaseRequest(releases=(Release(pod="a", node="h1"),)), now_ns=2)
