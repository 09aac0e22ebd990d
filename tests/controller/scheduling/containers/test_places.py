"""Stated devices, thresholds of load, images, device fit, reduction trees, and the plain rules of packing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.values import Snapshot as NetworkSnapshot
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import WHOLE, Cluster, DeviceRequest, Request
from controller.scheduling.framework.deciding import is_neutral
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.pods import (
    PendingPod,
    PodProfile,
    PodProfileSettings,
    Snapshot,
    decide,
    explain,
    place_group,
)
from dataplane.topology.families import from_text
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.pods.clusters import GIB, clusters, node, requests

DEFAULT = PodProfile.of(PodProfileSettings())
HALF = Request(1000, 0, (DeviceRequest(DeviceKind.GPU, 1, 500),))


def scoring(name: str, **settings: object) -> PodProfile:
    return PodProfile.of(PodProfileSettings(scores=(PolicySettings(policy=name, settings=settings),)))


def test_a_stated_device_is_the_one_that_is_given() -> None:
    snapshot = Snapshot.of(Cluster.of([node("a", gpus=["T4", "T4", "A100"])]))
    pod = PendingPod("p", HALF, device=1)
    assert DEFAULT.shares(pod, snapshot, decide(DEFAULT, pod, snapshot).candidate).devices[0].number == 1


@pytest.mark.parametrize(
    ("request_", "device", "kind", "reason"),
    [
        (Request(1), 0, None, "device 0 is stated, but the pod requests no device"),
        (HALF, 5, None, "it has 2 devices, no device 5"),
        (HALF, 0, DeviceKind.NPU, "it has no npu"),
        (Request(devices=(DeviceRequest(DeviceKind.GPU, 2),)), 0, None, "stated, but the pod requests 2 devices"),
        (
            Request(devices=(DeviceRequest(DeviceKind.GPU, models=frozenset({"A100"})),)),
            0,
            None,
            "device 0 is a gpu T4, not a gpu A100",
        ),
    ],
)
def test_impossible_stated_device_is_refused_with_the_reason(
    request_: Request, device: int, kind: DeviceKind | None, reason: str
) -> None:
    snapshot = Snapshot.of(Cluster.of([node("a", gpus=["T4", "A100"])]))
    why = explain(DEFAULT, PendingPod("p", request_, device=device, device_kind=kind), snapshot)
    assert why.choice is None
    assert reason in why.refused[0].reason


def test_full_stated_device_is_refused_with_its_free_share() -> None:
    cluster = Cluster.of([node("a", gpus=["T4", "T4"])])
    cluster = cluster.take("a", cluster.choose("a", Request(devices=(DeviceRequest(DeviceKind.GPU, 1, 600),))))
    why = explain(DEFAULT, PendingPod("p", HALF, device=0), Snapshot.of(cluster))
    assert (why.refused[0].policy, why.refused[0].reason) == (
        "fits",
        "gpu: 500 thousandths of one device wanted, 400 free",
    )


def test_device_load_is_the_measured_or_else_the_held_share() -> None:
    cluster = Cluster.of([node("a", gpus=["T4", "T4"]), node("b", gpus=["T4"])])
    snapshot = replace(Snapshot.of(cluster), device_busy=np.array([0.99, np.nan, 0.97]))
    pod = PendingPod("p", HALF)
    choice = decide(DEFAULT, pod, snapshot)
    assert snapshot.columns.names[choice.candidate] == "a"
    assert DEFAULT.shares(pod, snapshot, choice.candidate).devices[0].number == 1, (
        "the other one is busy, though not held"
    )
    why = explain(DEFAULT, pod, snapshot)
    assert [(refusal.name, refusal.policy, refusal.reason) for refusal in why.refused] == [
        ("b", "device-threshold", "too few devices below 95% load: device 0 97% (measured)")
    ]
    held = cluster.take("a", cluster.choose("a", Request(devices=(DeviceRequest(DeviceKind.GPU, 1, 960),))))
    full = explain(DEFAULT, pod, replace(Snapshot.of(held), device_busy=np.array([0.99, np.nan, 0.97])))
    assert full.choice == "a"
    stated = replace(pod, device=0)
    assert decide(DEFAULT, stated, snapshot).is_placed, "a stated device is used however busy it is"


@given(cluster=clusters(), request_=requests, data=st.data())
def test_a_device_above_the_threshold_is_never_given(cluster: Cluster, request_: Request, data: st.DataObject) -> None:
    snapshot = Snapshot.of(cluster)
    devices = len(snapshot.columns.device_node)
    loads = data.draw(st.lists(st.sampled_from((0.2, 0.96, float("nan"))), min_size=devices, max_size=devices))
    snapshot = replace(snapshot, device_busy=np.array(loads))
    pod = PendingPod("p", request_)
    choice = decide(DEFAULT, pod, snapshot)
    if not choice.is_placed:
        return
    first = int(snapshot.columns.device_start[choice.candidate])
    held = cluster.held_of(snapshot.columns.names[choice.candidate])
    for share in DEFAULT.shares(pod, snapshot, choice.candidate).devices:
        load = loads[first + share.number]
        used = held.of(share.number).thousandths / WHOLE if np.isnan(load) else load
        assert used < 0.95


def test_images_that_are_there() -> None:
    snapshot = replace(
        Snapshot.of(Cluster.of([node("a"), node("b")])), images={"x": {1: 3_000_000}, "y": {0: 1_000_000}}
    )
    why = explain(scoring("image-locality"), PendingPod("p", images=("x", "y", "nowhere")), snapshot)
    assert [(candidate.name, candidate.points, candidate.scores[0].reason) for candidate in why.candidates] == [
        ("b", 750, "3.0 of 4.0 MB of its images are present"),
        ("a", 250, "1.0 of 4.0 MB of its images are present"),
    ]


def test_device_fit_picks_the_least_memory_and_spares_devices() -> None:
    snapshot = Snapshot.of(Cluster.of([node("gpu", gpus=["T4"]), node("bare")]))
    assert explain(scoring("device-fit"), PendingPod("p", Request(1000)), snapshot).choice == "bare"
    wanted = Request(devices=(DeviceRequest(DeviceKind.GPU, 1, 500, memory_bytes=8 * GIB),))
    why = explain(scoring("device-fit"), PendingPod("p", wanted), snapshot)
    assert why.candidates[0].points == 500
    assert why.candidates[0].scores[0].reason == "gpu T4 of 16 GiB for 8.0 GiB"


@pytest.mark.parametrize("name", ["best-fit", "dot-product", "random"])
@given(cluster=clusters(), request_=requests)
def test_plain_rules_give_points_to_all_that_fit(name: str, cluster: Cluster, request_: Request) -> None:
    why = explain(scoring(name), PendingPod("p", request_), Snapshot.of(cluster), most=99)
    assert all(0 <= candidate.points <= 1000 and candidate.scores[0].reason for candidate in why.candidates)
    assert decide(scoring(name), PendingPod("p", request_), Snapshot.of(cluster)).points == (
        why.candidates[0].points if why.candidates else 0
    )


def test_best_fit_by_hand() -> None:
    cluster = Cluster.of([node("a", cores=8, gpus=["T4"] * 2), node("b", cores=4, gpus=["T4"])])
    why = explain(scoring("best-fit"), PendingPod("p", HALF), Snapshot.of(cluster))
    # Left on a: 7 of 8 cores and 1.5 of 2 GPUs; on b: 3 of 8 and 0.5 of 2, relative to the largest node.
    assert {candidate.name: candidate.points for candidate in why.candidates} == {"a": 188, "b": 688}


def workers(count: int) -> list[PendingPod]:
    return [PendingPod(f"w{number}", Request(1000), group="g", is_reduced=True) for number in range(count)]


def test_reduction_workers_are_one_a_host_and_near_each_other() -> None:
    topology = from_text("leaf-spine:leaves=3,spines=2,hosts=3")
    hosts = [host.name for host in topology.hosts if host.name != "collector"]
    costs = CostMap.of(topology, NetworkSnapshot(0, {}, {}, {}))
    snapshot = Snapshot.of(Cluster.of([node(name) for name in hosts]), costs)
    leaf = {name: costs.model.host_switch[number] for name, number in costs.model.host_number.items()}
    profile = scoring("tree-cost")
    placement = place_group(profile, workers(3), snapshot)
    names = [hosts[choice.candidate] for choice in placement.choices]
    assert len(set(names)) == 3
    assert len({leaf[name] for name in names}) == 1, "all below one leaf"
    assert not place_group(profile, workers(10), snapshot).is_placed
    there = snapshot.taking(0, DEFAULT.shares(workers(1)[0], snapshot, 0), "g")
    why = explain(profile, workers(1)[0], there)
    assert why.refused[0].reason == "its host already has a worker of group g: in-network reduction takes one per host"
    assert why.candidates[0].scores[0].reason.startswith(f"joins at {hosts[0]}: ")
    assert "(nominal)" in why.candidates[0].scores[0].reason


@given(cluster=clusters(), request_=requests, grouped=st.booleans(), there=st.booleans())
def test_neutral_scores_give_all_nodes_the_most_points(
    cluster: Cluster, request_: Request, grouped: bool, there: bool
) -> None:
    snapshot = Snapshot.of(cluster)
    if there:
        snapshot = replace(snapshot, groups={"g": {0: 2}}, images={"i": {0: 5}})
    pod = PendingPod("p", request_, group="g" if grouped else "", images=("i",), is_reduced=grouped)
    rows = np.arange(len(cluster.nodes))
    neutral = [score for score in DEFAULT.scores if is_neutral(score, pod, snapshot)]
    for score in neutral:
        assert (score.policy.points(pod, snapshot, rows) == 1000).all()
    assert {score.name for score in neutral} >= {"network-cost", "tree-cost"}
    assert ("spread" in {score.name for score in neutral}) == (not (grouped and there))
