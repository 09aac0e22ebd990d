"""Decisions: filters, scores, ties, groups, each with its reason."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given

from collectors.values import Snapshot as NetworkSnapshot
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import WHOLE, Cluster, DeviceRequest, Request
from controller.common.errors import SchedulerError
from controller.scheduling.framework.deciding import filtered
from controller.scheduling.framework.policies import NoSettings
from controller.scheduling.framework.profiles import NamedFilter, PolicySettings, WeightedScore
from controller.scheduling.pods import (
    Peer,
    PendingPod,
    PodProfile,
    PodProfileSettings,
    Snapshot,
    decide,
    explain,
    place_group,
)
from controller.scheduling.pods.filters import FitsResources
from controller.scheduling.pods.profiles import Ties
from dataplane.topology.families import from_text
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.pods.clusters import GIB, clusters, node, requests

DEFAULT = PodProfile.of(PodProfileSettings())


def profile(
    *scores: str, filters: tuple[str, ...] = ("ready", "location", "device-model", "fits"), seed: int = 0
) -> PodProfile:
    return PodProfile.of(
        PodProfileSettings(
            filters=tuple(PolicySettings(policy=name) for name in filters),
            scores=tuple(PolicySettings(policy=name) for name in scores),
            seed=seed,
        )
    )


@given(cluster=clusters(), request=requests)
def test_fits_equals_the_hardwares_answer_per_node(cluster: Cluster, request: Request) -> None:
    snapshot, pod = Snapshot.of(cluster), PendingPod("p", request)
    mask = FitsResources(NoSettings()).passes(pod, snapshot)
    assert mask is not None
    assert mask.tolist() == [cluster.fits(name, request) is None for name in cluster.nodes]


@given(cluster=clusters(), request=requests)
def test_a_decision_and_its_explanation_say_the_same(cluster: Cluster, request: Request) -> None:
    snapshot, pod = Snapshot.of(cluster, not_ready=frozenset({"n1"})), PendingPod("p", request)
    choice, why = decide(DEFAULT, pod, snapshot), explain(DEFAULT, pod, snapshot)
    assert decide(DEFAULT, pod, snapshot).candidate == choice.candidate
    assert why.passed + len(why.refused) == len(cluster.nodes)
    assert sum(count for _, count in choice.refused) == len(why.refused)
    assert all(refusal.reason for refusal in why.refused)
    if not choice.is_placed:
        assert why.choice is None
        assert not why.candidates
        return
    first, *others = why.candidates
    assert (first.name, first.points) == (why.choice, choice.points)
    assert all(other.points <= first.points for other in others)
    assert all(score.reason and 0 <= score.points <= 1000 for score in first.scores)
    assert snapshot.shares(choice.candidate, request) == cluster.choose(first.name, request)


@given(cluster=clusters(), request=requests)
def test_taken_devices_are_no_longer_free(cluster: Cluster, request: Request) -> None:
    snapshot = Snapshot.of(cluster)
    choice = decide(DEFAULT, PendingPod("p", request), snapshot)
    if choice.is_placed:
        name = snapshot.columns.names[choice.candidate]
        shares = snapshot.shares(choice.candidate, request)
        after = snapshot.taking(choice.candidate, shares)
        assert after.free.held_of(after.columns, choice.candidate) == cluster.take(name, shares).held_of(name)
        assert snapshot.free.held_of(snapshot.columns, choice.candidate) == cluster.held_of(name)


def test_each_filter_has_its_reason() -> None:
    cluster = Cluster.of([node("away"), node("off"), node("plain"), node("t4", gpus=["T4"]), node("a", gpus=["A100"])])
    whole = Request(devices=(DeviceRequest(DeviceKind.GPU, models=frozenset({"A100"})),))
    cluster = cluster.take("a", cluster.choose("a", whole))
    pod = PendingPod("p", whole, locations=("off", "plain", "t4", "a"))
    why = explain(DEFAULT, pod, Snapshot.of(cluster, not_ready=frozenset({"off"})))
    assert [(refusal.name, refusal.policy, refusal.reason) for refusal in why.refused] == [
        ("away", "location", "the pod must run on off or plain or t4 or a"),
        ("off", "ready", "it is not ready"),
        ("plain", "device-model", "it has 0 of 1 gpu A100"),
        ("t4", "device-model", "it has 0 of 1 gpu A100"),
        ("a", "fits", "gpu A100: 1 whole devices wanted, 0 free"),
    ]
    assert why.summary == "none of 5 nodes: 1 by ready, 1 by location, 2 by device-model, 1 by fits"
    assert "1 by ready (it is not ready), 1 by location (the pod must run on off or" in why.reason
    assert why.reason.endswith(
        ", 2 by device-model (it has 0 of 1 gpu A100), 1 by fits (gpu A100: 1 whole devices wanted, 0 free)"
    )


def test_least_and_most_used() -> None:
    cluster = Cluster.of([node("empty"), node("half")])
    cluster = cluster.take("half", cluster.choose("half", Request(4 * WHOLE, 16 * GIB)))
    pod, snapshot = PendingPod("p", Request(WHOLE, 4 * GIB)), Snapshot.of(cluster)
    least, most = (explain(profile(name), pod, snapshot) for name in ("least-used", "most-used"))
    assert (least.choice, most.choice) == ("empty", "half")
    assert least.candidates[0].scores[0].reason == "87.5 % of it stays free"
    assert most.candidates[0].scores[0].reason == "62.5 % of it would be used"


def test_network_cost_prefers_near_nodes_with_reasons() -> None:
    topology = from_text("leaf-spine:leaves=2,spines=1,hosts=2")
    hosts = [host.name for host in topology.hosts if host.name != "collector"]
    costs = CostMap.of(topology, NetworkSnapshot(0, {}, {}, {}))
    snapshot = Snapshot.of(Cluster.of([node(name) for name in hosts]), costs)
    pod = PendingPod("p", peers=(Peer(hosts[0], 1 << 20),), locations=tuple(hosts[1:]))
    why = explain(profile("network-cost"), pod, snapshot)
    assert why.choice == hosts[1]
    near, far, _ = why.candidates
    assert near.points == 1000 > far.points
    assert "ms (nominal)" in near.scores[0].reason
    assert explain(profile("network-cost"), PendingPod("p", peers=pod.peers), snapshot).choice == hosts[0]


def test_nodes_without_a_network_to_the_peers_get_no_points() -> None:
    topology = from_text("leaf-spine:leaves=2,spines=1,hosts=1")
    names = [host.name for host in topology.hosts if host.name != "collector"]
    costs = CostMap.of(topology, NetworkSnapshot(0, {}, {}, {}))
    snapshot = Snapshot.of(Cluster.of([node("stranger"), node(names[1])]), costs)
    for peers in ((Peer(names[0], 5),), (Peer("nobody", 5),)):
        why = explain(profile("network-cost"), PendingPod("p", peers=peers), snapshot)
        assert all(candidate.scores[0].reason for candidate in why.candidates)
    alone = Snapshot.of(Cluster.of([node("stranger")]), costs)
    assert decide(profile("network-cost"), PendingPod("p", peers=(Peer(names[0], 5),)), alone).points == 0


def test_of_equal_nodes_pods_with_devices_get_the_first() -> None:
    """This keeps several devices free on one node; random ties would leave half of them on each."""
    snapshot = Snapshot.of(Cluster.of(node(f"n{number}", gpus=("T4",) * 8) for number in range(50)))
    gpu = Request(devices=(DeviceRequest(DeviceKind.GPU),))
    assert {decide(DEFAULT, PendingPod(f"p{n}", gpu), snapshot).candidate for n in range(50)} == {0}
    drawn = PodProfile.of(PodProfileSettings(ties=Ties.DRAWN))
    assert len({decide(drawn, PendingPod(f"p{n}", gpu), snapshot).candidate for n in range(50)}) > 20
    assert len({decide(DEFAULT, PendingPod(f"p{n}"), snapshot).candidate for n in range(50)}) > 20


def test_ties_are_drawn_by_the_seed_and_the_name() -> None:
    snapshot = Snapshot.of(Cluster.of([node(f"n{number}") for number in range(50)]))
    drawn = {
        seed: [decide(profile("spread", seed=seed), PendingPod(f"p{n}"), snapshot).candidate for n in range(50)]
        for seed in (1, 2)
    }
    assert drawn[1] == [decide(profile("spread", seed=1), PendingPod(f"p{n}"), snapshot).candidate for n in range(50)]
    assert drawn[1] != drawn[2]
    assert len(set(drawn[1])) > 20


def test_groups_are_placed_whole_or_not_at_all() -> None:
    snapshot = Snapshot.of(Cluster.of([node("a", cores=2), node("b", cores=1)]))
    pods = [PendingPod(f"p{n}", Request(WHOLE), group="g") for n in range(4)]
    three = place_group(profile("spread"), pods[:3], snapshot)
    assert three.is_placed
    assert sorted(choice.candidate for choice in three.choices) == [0, 0, 1]
    four = place_group(profile("spread"), pods, snapshot)
    assert not four.is_placed
    assert not four.choices
    stated = place_group(profile("spread"), [dataclasses.replace(pod, locations=("a",)) for pod in pods[:3]], snapshot)
    assert not stated.is_placed
    assert [choice.is_placed for choice in stated.choices] == [True, True, False]
    assert place_group(profile("spread"), pods, snapshot, least=3).is_placed
    assert snapshot.free.cpu_milli.tolist() == [2 * WHOLE, WHOLE]


def test_spread_over_nodes() -> None:
    snapshot = Snapshot.of(Cluster.of([node("a"), node("b")]))
    placed = place_group(profile("spread"), [PendingPod(f"p{n}", group="g") for n in range(4)], snapshot)
    assert sorted(choice.candidate for choice in placed.choices) == [0, 0, 1, 1]


class Wrong:
    """A policy with given answers."""

    is_local = True

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def passes(self, *_: object) -> object:
        return self.answer

    points = passes

    def reason(self, *_: object) -> str:
        return ""


@pytest.mark.parametrize("answer", [np.array([1]), np.array([True, False]), [True], True])
def test_a_filter_that_answers_wrongly(answer: object) -> None:
    broken = PodProfile("x", (NamedFilter("broken", Wrong(answer)),), ())  # type: ignore[arg-type]
    with pytest.raises(SchedulerError, match="policy broken: must return one boolean per node"):
        filtered(broken, PendingPod("p"), Snapshot.of(Cluster.of([node("a")])))


@pytest.mark.parametrize("answer", [np.array([0.5]), np.array([1, 2]), np.array([1001]), np.array([-1]), 7])
def test_a_score_that_answers_wrongly(answer: object) -> None:
    broken = PodProfile("x", (), (WeightedScore("broken", 1, Wrong(answer)),))  # type: ignore[arg-type]
    with pytest.raises(SchedulerError, match="policy broken: pod p: "):
        decide(broken, PendingPod("p"), Snapshot.of(Cluster.of([node("a")])))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            PodProfileSettings(filters=(PolicySettings(policy="nothing"),)),
            "profile default: unknown policy 'nothing'; known: best-fit,",
        ),
        (
            PodProfileSettings(filters=(PolicySettings(policy="spread"),)),
            "profile default: policy spread: has no passes",
        ),
        (PodProfileSettings(filters=(PolicySettings(policy="fits", weight=2),)), "policy fits: a filter has no weight"),
        (PodProfileSettings(scores=(PolicySettings(policy="fits"),)), "policy fits: has no points"),
        (PodProfileSettings(scores=(PolicySettings(policy="spread", weight=0),)), "a weight of 0 is not between 1 and"),
        (
            PodProfileSettings(scores=(PolicySettings(policy="network-cost", settings={"defaultbytes": 1}),)),
            "policy network-cost: settings: Object contains unknown field `defaultbytes`",
        ),
    ],
)
def test_profiles_that_cannot_be(settings: PodProfileSettings, words: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        PodProfile.by_name([settings])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_profiles_of_one_name() -> None:
    with pytest.raises(SchedulerError, match="duplicate profile default"):
        PodProfile.by_name([PodProfileSettings(), PodProfileSettings()])


def test_nodes_with_names_of_their_own_are_at_their_hosts() -> None:
    """Two nodes may be on one host of the topology, such as virtual machines."""
    topology = from_text("fat-tree:k=4")
    hosts = [host.name for host in topology.hosts[:3]]
    cluster = Cluster.of((node("vm-a"), node("vm-b"), node("vm-c")))
    costs = CostMap.of(topology, NetworkSnapshot(0, {}, {}, {}))
    snapshot = dataclasses.replace(Snapshot.of(cluster, costs), host_names=(hosts[0], hosts[0], hosts[2]))
    pod = PendingPod("p", peers=(Peer(hosts[0], min_bps=1_000_000),))
    why = explain(profile("network-cost", filters=("network-need",)), pod, snapshot)
    assert {candidate.name: candidate.points for candidate in why.candidates}.keys() == {"vm-a", "vm-b", "vm-c"}
    assert [candidate.name for candidate in why.candidates][-1] == "vm-c"
    assert "the same host" in why.candidates[0].scores[0].reason
    assert "nominal" in why.candidates[-1].scores[0].reason
    nowhere = dataclasses.replace(snapshot, host_names=(hosts[0], "unknown", hosts[2]))
    refused = explain(profile("network-cost", filters=("network-need",)), pod, nowhere).refused
    assert [(refusal.name, refusal.reason) for refusal in refused] == [
        ("vm-b", f"{hosts[0]}: the path there is unknown")
    ]
