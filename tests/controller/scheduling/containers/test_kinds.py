"""Pods that accept several kinds of devices (item 8), and those whose location brings one (item 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controller.apiserver.manifests import read_text
from controller.apiserver.registry.placements import Binding, BindingRequest, State, bind
from controller.apiserver.resources import Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.hardware import DeviceNeed, DeviceShare, Hardware, Load, device_shares
from controller.apiserver.resources.hardware import Request as Need
from controller.apiserver.resources.kind import Usage
from controller.apiserver.resources.node import DeviceLoad, NodeStatus
from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.apiserver.resources.pod import POD, Location
from controller.apiserver.resources.pod_group import POD_GROUP, PodGroupSpec
from controller.cluster.hardware import ACCELERATORS, Cluster, Device, DeviceRequest, Request, choose, fits
from controller.cluster.hardware import Node as NodeValue
from controller.cluster.hardware.values import NOTHING
from controller.common.errors import InvalidError, SchedulerError, StaleError
from controller.scheduling.containers.thresholds import LowLoad
from controller.scheduling.framework.policies import Ids, Longs, NoSettings
from controller.scheduling.framework.profiles import PolicySettings, WeightedScore
from controller.scheduling.pods import PendingPod, PodProfile, PodProfileSettings, Snapshot, decide, explain
from controller.scheduling.pods.profiles import STANDARD
from controller.scheduling.serving.view import ClusterView
from dataplane.topology.values import DeviceKind
from tests.controller.acceleration.policies.test_tasks import GEMM, counts
from tests.controller.scheduling.pods.clusters import GIB, node

GPU, NPU, DPU = DeviceKind.GPU, DeviceKind.NPU, DeviceKind.DPU
DEFAULT = PodProfile.of(STANDARD)
EITHER = frozenset({GPU, NPU})
HARDWARE = """\
millrace: 1
accelerators:
- {kind: gpu, parallelism: 100}
- {kind: npu, parallelism: 1000}
"""
COMPUTES = (
    "operators: [{name: product, operator: gemm, sizes: {m: 64, n: 64, k: 64}, number_format: fp32, seconds: 2.5}]"
)


def machine(name: str, *kinds: DeviceKind, gib: int = 16) -> NodeValue:
    return replace(node(name), devices=tuple(Device(at, kind, "", gib * GIB) for at, kind in enumerate(kinds)))


def either(count: int = 1, memory_gib: int = 0) -> PendingPod:
    wanted = DeviceRequest(None, count, memory_bytes=memory_gib * GIB, any_of=EITHER)
    return PendingPod("p", Request(1000, 0, (wanted,)))


def chosen(profile: PodProfile, pod: PendingPod, snapshot: Snapshot) -> tuple[str, list[DeviceKind]]:
    """Return the node and the kinds of the devices that a pod gets."""
    choice = decide(profile, pod, snapshot)
    assert choice.is_placed
    there = snapshot.columns.nodes[choice.candidate]
    shares = profile.shares(pod, snapshot, choice.candidate)
    return there.name, [there.devices[share.number].kind for share in shares.devices]


def by_operators(tmp_path: Path) -> PodProfile:
    (tmp_path / "hardware.yaml").write_text(HARDWARE)
    settings = {"hardware": str(tmp_path / "hardware.yaml")}
    return PodProfile.of(PodProfileSettings(scores=(PolicySettings("operator-devices", settings=settings),)))


def busy(snapshot: Snapshot, *loads: float) -> Snapshot:
    return replace(snapshot, device_busy=np.array(loads))


def test_item_8_operators_choose_the_kind_of_device(tmp_path: Path) -> None:
    profile = by_operators(tmp_path)
    pod = replace(either(), operators=counts(GEMM))
    apart = Snapshot.of(Cluster.of([machine("bare"), machine("g", GPU), machine("n", NPU)]))
    assert chosen(profile, pod, apart) == ("n", [NPU])
    assert [refused.name for refused in explain(profile, pod, apart).refused] == ["bare"]
    together = Snapshot.of(Cluster.of([machine("both", GPU, NPU)]))
    assert chosen(profile, pod, together) == ("both", [NPU])
    assert "product on the npu" in explain(profile, pod, together).candidates[0].scores[0].reason
    shares = profile.shares(pod, together, 0)
    (told,) = profile.operator_devices(pod, together, 0, shares)
    assert told.device is NPU
    # Another pod holds the faster device.
    held = together.taking(0, shares)
    assert chosen(profile, pod, held) == ("both", [GPU])
    assert "product on the gpu" in explain(profile, pod, held).candidates[0].scores[0].reason


def test_item_8_load_below_the_threshold_chooses() -> None:
    snapshot = Snapshot.of(Cluster.of([machine("a", GPU, NPU), machine("b", GPU, NPU)]))
    assert chosen(DEFAULT, either(), busy(snapshot, 0.5, 0.4, 0.7, 0.1)) == ("b", [NPU])
    assert chosen(DEFAULT, either(), busy(snapshot, 0.96, 0.9, 0.97, 0.99)) == ("a", [NPU])
    why = explain(DEFAULT, either(), busy(snapshot, 0.96, 0.97, 0.98, 0.99))
    assert (why.choice, why.refused[0].policy) == (None, "device-threshold")
    reasons = [
        score.reason for score in explain(DEFAULT, either(), busy(snapshot, 0.5, 0.4, 1, 1)).candidates[0].scores
    ]
    assert "device 1 (npu) 40% used (measured)" in reasons
    fixed = PendingPod("p", Request(devices=(DeviceRequest(GPU),)))
    reasons = [score.reason for score in explain(DEFAULT, fixed, snapshot).candidates[0].scores]
    assert "applies only to pods that accept several kinds of devices" in reasons


def test_item_8_fit_chooses_the_kind_of_device() -> None:
    large, small = Device(0, GPU, "", 64 * GIB), Device(1, NPU, "", 16 * GIB)
    snapshot = Snapshot.of(Cluster.of([replace(node("a"), devices=(large, small))]))
    assert chosen(DEFAULT, either(memory_gib=12), snapshot)[1] == [NPU]
    assert chosen(DEFAULT, either(memory_gib=32), snapshot)[1] == [GPU]
    words = [score.reason for score in explain(DEFAULT, either(memory_gib=12), snapshot).candidates[0].scores]
    assert "npu of 16 GiB for 12.0 GiB" in words


def test_item_8_several_devices_are_of_one_kind() -> None:
    mixed, two = machine("mixed", GPU, NPU), machine("two", GPU, NPU, NPU)
    request = either(2).request
    refusal = fits(mixed, NOTHING, request)
    assert refusal is not None
    assert str(refusal) == "mixed: gpu|npu: 2 whole devices wanted, 1 free"
    assert [share.number for share in choose(two, NOTHING, request).devices] == [1, 2]
    assert chosen(DEFAULT, either(2), Snapshot.of(Cluster.of([mixed, two]))) == ("two", [NPU, NPU])
    why = explain(DEFAULT, either(2), Snapshot.of(Cluster.of([mixed])))
    assert [(each.policy, each.reason) for each in why.refused] == [("device-model", "it has 1 of 2 gpu|npu")]


@given(kinds=st.lists(st.lists(st.sampled_from((GPU, NPU, DPU)), max_size=4), min_size=1, max_size=3), data=st.data())
def test_item_8_open_kinds_are_placed_whenever_they_fit(kinds: list[list[DeviceKind]], data: st.DataObject) -> None:
    nodes = [machine(f"n{at}", *each) for at, each in enumerate(kinds)]
    loads = [data.draw(st.sampled_from((0.1, 0.5, 0.97))) for each in kinds for _ in each]
    snapshot, pod = busy(Snapshot.of(Cluster.of(nodes)), *loads), either(data.draw(st.integers(1, 3)))
    count, start = pod.request.devices[0].count, snapshot.columns.device_start.tolist()
    idle = [[kind for at, kind in enumerate(each) if loads[start[row] + at] < 0.95] for row, each in enumerate(kinds)]
    choice = decide(DEFAULT, pod, snapshot)
    assert choice.is_placed == any(max(each.count(kind) for kind in EITHER) >= count for each in idle)
    assert choice.is_placed == (explain(DEFAULT, pod, snapshot).choice is not None)
    if choice.is_placed:
        shares = DEFAULT.shares(pod, snapshot, choice.candidate).devices
        assert len({kinds[choice.candidate][share.number] for share in shares} & EITHER) == 1
        assert len(shares) == count
        assert all(loads[start[choice.candidate] + share.number] < 0.95 for share in shares)


def test_item_8_failing_plug_in_is_one_line() -> None:
    class Failing(LowLoad):
        def kind_points(self, pods: Sequence[PendingPod], snapshot: Snapshot, nodes: Ids) -> list[Longs]:
            raise LookupError("no\ncard")

    scores = (WeightedScore("mine", 1, Failing(NoSettings())),)
    snapshot = Snapshot.of(Cluster.of([machine("a", GPU, NPU)]))
    with pytest.raises(SchedulerError, match="policy mine: pod p: kind_points failed: LookupError: no card"):
        decide(replace(DEFAULT, scores=scores), either(), snapshot)


def test_item_8_parts_of_a_request_share_no_device() -> None:
    both = Request(devices=(DeviceRequest(None, any_of=EITHER), DeviceRequest(GPU)))
    assert chosen(DEFAULT, PendingPod("p", both), Snapshot.of(Cluster.of([machine("a", GPU, NPU)])))[1] == [GPU, NPU]
    assert not decide(DEFAULT, PendingPod("p", both), Snapshot.of(Cluster.of([machine("a", GPU)]))).is_placed


def pod_of(text: str) -> Pod:
    (made,) = read_text(f"pod:\n  name: p\n  image: x\n  {text}\n")
    assert isinstance(made.resource, Pod)
    return made.resource


def node_of(value: NodeValue, loads: Sequence[float] = ()) -> Node:
    devices = tuple(DeviceLoad(number=at, load=Load(busy=load)) for at, load in enumerate(loads))
    status = NodeStatus(ready=True, hardware=Hardware.of(value), devices=devices)
    return Node(metadata=Metadata(name=value.name, revision=1), status=status)


def placed(pod: Pod, *nodes: Node) -> tuple[str, tuple[DeviceShare, ...]]:
    """Return the node and devices of a pod by the view of a scheduler, bound as the API server does."""
    view = ClusterView()
    for each in nodes:
        view.take(each)
    snapshot = view.snapshot(None)
    choice = decide(DEFAULT, view.pending(pod), snapshot)
    assert choice.is_placed
    name = snapshot.columns.names[choice.candidate]
    shares = device_shares(DEFAULT.shares(choice.subject, snapshot, choice.candidate))
    bound = bound_to(pod, name, shares, *nodes)
    assert bound.status.devices == shares
    return name, shares


def bound_to(pod: Pod, name: str, shares: tuple[DeviceShare, ...], *nodes: Node, **binding: object) -> Pod:
    state = State({"p": pod}, {each.metadata.name: each for each in nodes})
    request = BindingRequest(bindings=(Binding(pod="p", node=name, devices=shares, **binding),))  # type: ignore[arg-type]
    bound = bind(state, request, 1).pods["p"]
    assert bound is not None
    return bound


BARE, ONE_GPU, MIXED = node_of(machine("bare")), node_of(machine("g", GPU)), node_of(machine("m", GPU, NPU))


def test_item_8_operators_bring_an_idle_accelerator() -> None:
    pod = pod_of(COMPUTES)
    assert pod.spec.requested.value.devices == (DeviceRequest(None, any_of=frozenset(ACCELERATORS)),)
    assert placed(pod, BARE, ONE_GPU) == ("g", (DeviceShare(number=0),))
    loads = node_of(machine("x", GPU, NPU), (0.99, 0.2))
    assert placed(pod, BARE, loads) == ("x", (DeviceShare(number=1),))
    view = ClusterView()
    for each in (BARE, node_of(machine("x", GPU), (0.99,))):
        view.take(each)
    why = explain(DEFAULT, view.pending(pod), view.snapshot(None))
    assert why.choice is None, "it waits for an idle device, instead of taking the node without accelerators"
    assert {each.name: each.policy for each in why.refused} == {"bare": "device-model", "x": "device-threshold"}


def test_item_8_without_accelerators_operators_run_on_cores() -> None:
    assert placed(pod_of(COMPUTES), BARE) == ("bare", ())
    on_cores = pod_of(f"location: {{device_kind: cpu}}\n  {COMPUTES}")
    assert (on_cores.spec.brought, on_cores.spec.requested) == ("", on_cores.spec.request)
    assert placed(on_cores, BARE, ONE_GPU)[1] == ()
    assert placed(pod_of(f"location: {{node: bare}}\n  {COMPUTES}"), BARE, ONE_GPU) == ("bare", ())


@pytest.mark.parametrize(
    ("text", "node", "number"),
    [
        ("location: {device_kind: npu}", "m", 1),
        ("location: {device: 1}", "m", 1),
        ("location: {node: m, device: 0}", "m", 0),
        ("location: {device_kind: gpu, node: m}", "m", 0),
        ("location: {device_kind: npu}\n  devices: [{any_of: [gpu, npu]}]", "m", 1),
        ("location: {device_kind: npu}\n  devices: [{kind: any, share: 500m}]", "m", 1),
        ("location: {device: 1}\n  devices: [{any_of: [gpu, npu]}]", "m", 1),
    ],
)
def test_item_9_location_brings_its_device(text: str, node: str, number: int) -> None:
    name, shares = placed(pod_of(text), BARE, ONE_GPU, MIXED)
    assert (name, [share.number for share in shares]) == (node, [number])


def test_item_9_device_comes_with_other_devices() -> None:
    pod = pod_of("location: {device_kind: npu}\n  devices: [{kind: gpu}]")
    assert [share.number for share in placed(pod, ONE_GPU, MIXED)[1]] == [0, 1]
    assert pod.spec.brought == "its location brings a device of kind npu"


def device_milli(usage: Usage | None) -> int:
    assert usage is not None
    return usage.device_thousandths


def test_item_9_brought_devices_count_for_quotas_and_shares() -> None:
    for text, pod_milli in (("location: {device_kind: npu}", 1000), (COMPUTES, 1000), ("location: {node: m}", 0)):
        pod = pod_of(text)
        assert device_milli(POD.strategy.usage(pod)) == pod_milli
        group = PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=3, template=pod.spec))
        assert device_milli(POD_GROUP.strategy.usage(group)) == 3 * pod_milli
    on_cores = bound_to(pod_of(COMPUTES), "bare", (), BARE)
    assert device_milli(POD.strategy.usage(on_cores)) == 0, "it was placed without an accelerator"


def test_item_9_location_that_no_node_matches_is_refused() -> None:
    refused = pod_of("cpu: 1").spec
    for location, request, problem in (
        (Location(device_kind=DeviceKind.CPU), Need(devices=(DeviceNeed(kind=GPU),)), "brings no device, but the pod"),
        (Location(device_kind=DeviceKind.CPU, device=1), Need(), "device 1 is no cpu"),
    ):
        spec = structs.replace(refused, location=location, request=request)
        with pytest.raises(InvalidError, match=f"Pod p: location: .*{problem}"):
            POD.strategy.validate(None, Pod(metadata=Metadata(name="p"), spec=spec))


def test_item_9_binding_without_the_device_is_refused() -> None:
    for text, shares, problem in (
        ("location: {device_kind: npu}", (), "requests 1 npu, which its binding lacks"),
        ("location: {device_kind: npu}", (DeviceShare(number=0),), "requests 1 npu, which its binding lacks"),
        ("location: {device: 1}", (DeviceShare(number=0),), "must get device 1, which its binding lacks"),
        ("devices: [{any_of: [tpu, npu]}]", (DeviceShare(number=0),), r"requests 1 tpu\|npu, which its binding lacks"),
        ("devices: [{any_of: [gpu, npu], count: 2}]", (DeviceShare(number=0), DeviceShare(number=1)), "requests 2"),
        (COMPUTES, (DeviceShare(number=0), DeviceShare(number=1)), "does not request device 1"),
    ):
        with pytest.raises(StaleError, match=problem):
            bound_to(pod_of(text), "m", shares, MIXED)
    told = (OperatorDevice(operator="product", device=NPU),)
    assert bound_to(pod_of(COMPUTES), "m", (DeviceShare(number=1),), MIXED, operator_devices=told).status.node == "m"
    with pytest.raises(InvalidError, match="should run on a npu, but there is none"):
        bound_to(pod_of(COMPUTES), "m", (DeviceShare(number=0),), MIXED, operator_devices=told)
