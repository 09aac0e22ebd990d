"""A network as a policy of pods: in shadow, then live, with the other scores where it cannot decide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from collectors.values import Snapshot as NetworkSnapshot
from controller.apiserver.resources.task import OperatorCount
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Cluster, Request, Shares
from controller.common.errors import SchedulerError
from controller.learning.agent.agents import new_checkpoint
from controller.learning.agent.deciding import Decider
from controller.learning.agent.inference.making import inference_of
from controller.learning.agent.records import Checkpoint, save_checkpoint
from controller.learning.agent.settings import AgentSettings, DecisionSettings, Form, NetworkSettings
from controller.learning.errors import LearningError
from controller.learning.policy.observing import observe
from controller.learning.policy.pods import Learned
from controller.learning.policy.ranking import usual_of
from controller.learning.values import Observation
from controller.scheduling.framework.plugins import PODS, make_policy
from controller.scheduling.framework.policies import MOST_POINTS
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import Peer, PendingPod
from dataplane.topology.families import from_text
from dataplane.topology.values import NumberFormat
from tests.controller.scheduling.pods.clusters import GIB, node

POD = PendingPod("p", Request(1000, GIB), peers=(Peer("n1", 3 << 20), Peer("n2", 1 << 20)))
ALL = np.arange(3)


@pytest.fixture
def snapshot() -> Snapshot:
    cluster = Cluster.of(node(f"n{number}") for number in range(3))
    return Snapshot.of(cluster.take("n0", Shares(6000, 8 * GIB)))


def _checkpoint(snapshot: Snapshot, form: Form = "tokens", version: int = 7) -> Checkpoint:
    network = NetworkSettings(form=form, hidden=8, heads=2, layers=1, feed_forward=8, deviation=0.5)
    settings = AgentSettings(network=network, decisions=DecisionSettings(precision="float32"))
    fresh = new_checkpoint(settings, observe(POD, snapshot, ALL, has_network=True), "pods")
    return msgspec.structs.replace(fresh, version=version)


def _learned(path: Path, checkpoint: Checkpoint, *, shadow: bool, deadline_ns: int = 10**12) -> Learned:
    save_checkpoint(path / "agent.ckpt", checkpoint)
    return Learned(Learned.Settings(checkpoint=str(path / "agent.ckpt"), shadow=shadow, deadline_ns=deadline_ns))


def test_six_features_of_a_pod(snapshot: Snapshot) -> None:
    seen = observe(POD, snapshot, np.array([0, 2]), has_network=False)
    assert seen.utilisation == pytest.approx(6 / 24)
    assert seen.size == pytest.approx(np.log2(1 + 1024) / 64)
    assert seen.free.tolist() == [0.75, 1, 1]
    assert seen.similarity.tolist() == [0, 0.75, 0.25]
    assert seen.candidates.tolist() == [True, False, True]
    assert (seen.operations, seen.is_write, seen.has_network) == (0, 0, False)


def test_six_figures_of_a_nodes_load(snapshot: Snapshot) -> None:
    loaded = replace(snapshot, pods=np.array([8, 0, 0]), starting=np.array([0, 8, 0]))
    seen = observe(POD, loaded, np.array([0, 1]), has_network=True, has_load=True)
    queued, wait, compute, arriving, leaving, fetching = seen.load.tolist()
    assert queued == pytest.approx([1 / 8, 0, 0])
    assert wait == pytest.approx([0, 1 / 8, 1])
    assert (compute, arriving, leaving) == ([0, 0, 1], [0, 0, 0], [0, 0, 0])
    # 4 MiB are missing on n0 and 1 MiB on n1, at 1 Gbit/s where nothing is known of the network.
    want = [np.log2(1 + 8 * nbytes / 1024) / 36 for nbytes in (4 << 20, 1 << 20)]
    assert fetching == pytest.approx([*want, 1], rel=1e-5)


def test_pod_features_have_images_and_stated_operators(snapshot: Snapshot) -> None:
    shown = replace(snapshot, images={"web": {1: 1 << 20}})
    multiply = OperatorCount(
        name="m", operator="gemm", count=3, sizes={"m": 2, "k": 2, "n": 2}, number_format=NumberFormat.FP32
    )
    pod = PendingPod("p", Request(1000, GIB), images=("web", "other"), operators=(multiply,))
    seen = observe(pod, shown, ALL, has_network=False)
    assert seen.similarity.tolist() == [0, 1, 0]
    assert seen.size == pytest.approx(np.log2(1 + 256) / 64)
    assert seen.operations == pytest.approx(np.log2(1 + 3 * 16) / 64)
    unknown = replace(pod, operators=(OperatorCount(name="x", operator="nobody-knows"),))
    assert observe(unknown, shown, ALL, has_network=False).operations == 0


def test_a_network_made_for_a_pools_nodes_is_refused(snapshot: Snapshot, tmp_path: Path) -> None:
    checkpoint = _checkpoint(snapshot)
    other = msgspec.structs.replace(checkpoint, made_for=msgspec.structs.replace(checkpoint.made_for, kind="nodes"))
    with pytest.raises(LearningError, match=r"agent\.ckpt: it was made for nodes of a pool, not for pods$"):
        _learned(tmp_path, other, shadow=True)


def test_in_shadow_it_decides_and_is_compared_but_does_not_act(snapshot: Snapshot, tmp_path: Path) -> None:
    learned = _learned(tmp_path, _checkpoint(snapshot), shadow=True)
    points = learned.points(POD, snapshot, ALL)
    assert points.tolist() == [MOST_POINTS] * 3
    reasons = learned.reasons(POD, snapshot, ALL, points)
    assert sorted(reason.rpartition(", ")[2] for reason in reasons) == [f"rank {rank} of 3" for rank in (1, 2, 3)]
    assert all(reason.startswith("in shadow, version 7 gives it ") for reason in reasons)
    assert learned.reason(POD, snapshot, 1) == reasons[1]


@pytest.mark.parametrize("form", ["flat", "tokens", "dense"])
def test_live_the_highest_value_gets_most_points(snapshot: Snapshot, tmp_path: Path, form: Form) -> None:
    checkpoint = _checkpoint(snapshot, form)
    points = _learned(tmp_path, checkpoint, shadow=False).points(POD, snapshot, ALL)
    inference = inference_of(checkpoint.weights(), checkpoint.settings.decisions)
    values = inference.values(observe(POD, snapshot, ALL, has_network=True))
    assert values is not None
    assert np.argsort(points).tolist() == np.argsort(values).tolist()
    assert (points.max(), points.min()) == (MOST_POINTS, 0)


def _beside_most_used(checkpoint: Checkpoint, decisions: DecisionSettings, file: Path) -> Learned:
    """Return the live policy of a checkpoint's network with other settings, combined with most-used."""
    settings = msgspec.structs.replace(checkpoint.settings, decisions=decisions)
    save_checkpoint(file, msgspec.structs.replace(checkpoint, settings=settings))
    return Learned(Learned.Settings(checkpoint=str(file), shadow=False, deadline_ns=10**12, fallback="most-used"))


@pytest.mark.parametrize("part", [0.9, 1.1])
def test_a_tolerance_counts_live_as_it_does_in_training(snapshot: Snapshot, tmp_path: Path, part: float) -> None:
    checkpoint = _checkpoint(snapshot)
    seen = observe(POD, snapshot, ALL, has_network=True)
    inference = inference_of(checkpoint.weights(), checkpoint.settings.decisions)
    values = inference.values(seen)
    assert values is not None
    # most-used takes the used node if the network values it nearly as much as the best.
    used, best = 0, int(np.argmax(values))
    decisions = DecisionSettings(
        precision="float32", exploration=0.0, tolerance=part * float(values[best] - values[used])
    )
    learned = _beside_most_used(checkpoint, decisions, tmp_path / "agent.ckpt")
    points = learned.points(POD, snapshot, ALL)

    class MostUsed:
        def choose(self, observation: Observation, view: object) -> int:
            return used if observation.candidates[used] else best

    decider = Decider(decisions, MostUsed(), np.random.default_rng(0), lambda: 0)
    decision = decider.decide(inference, seen, None)
    assert decision.action == (used if part > 1 else best) == int(np.argmax(points))
    assert (decision.source, decision.asked) == ("network", False)
    reasons = learned.reasons(POD, snapshot, ALL, points)
    are_nearly_as_good = [
        reason.endswith(", and is the choice of most-used among those nearly as good") for reason in reasons
    ]
    assert are_nearly_as_good == [number == decision.action for number in range(3)]


@pytest.mark.parametrize("part", [0.9, 1.1])
def test_a_margin_counts_live_as_it_does_in_training(snapshot: Snapshot, tmp_path: Path, part: float) -> None:
    checkpoint = _checkpoint(snapshot)
    seen = observe(POD, snapshot, ALL, has_network=True)
    inference = inference_of(checkpoint.weights(), checkpoint.settings.decisions)
    values = inference.values(seen)
    assert values is not None
    # Packed onto the used node, which the network values less than another.
    usual, best = 0, int(np.argmax(values))
    decisions = DecisionSettings(
        precision="float32", exploration=0.0, margin=part * float(values[best] - values[usual])
    )
    learned = _beside_most_used(checkpoint, decisions, tmp_path / "agent.ckpt")
    points = learned.points(POD, snapshot, ALL)

    class Usual:
        def choose(self, observation: Observation, view: object) -> int:
            return usual

    decider = Decider(decisions, Usual(), np.random.default_rng(0), lambda: 0)
    decision = decider.decide(inference, seen, None)
    assert decision.action == (best if part < 1 else usual) == int(np.argmax(points)) != (usual if part < 1 else best)
    reasons = learned.reasons(POD, snapshot, ALL, points)
    assert [reason.endswith(", and stands as the choice of most-used") for reason in reasons] == [
        part > 1,
        False,
        False,
    ]


def test_tied_fallback_points_are_decided_by_the_highest_value() -> None:
    usual = usual_of(np.array([5, 9, 9]), np.array([0, 2, 3]))
    all_, few = np.ones(4, np.bool_), np.array([True, True, True, False])
    assert [usual(np.array(values, np.float32), all_) for values in ([9, 8, 1, 3], [9, 8, 3, 1])] == [3, 2]
    assert usual(np.array([9, 8, 1, 3], np.float32), few) == 2


def test_tokens_serve_nodes_that_join(snapshot: Snapshot, tmp_path: Path) -> None:
    learned = _learned(tmp_path, _checkpoint(snapshot), shadow=False)
    more = Snapshot.of(Cluster.of(node(f"n{number}") for number in range(5)))
    assert learned.points(POD, more, np.arange(5)).max() == MOST_POINTS
    assert "rank" in learned.reason(POD, more, 4)


def test_other_scores_decide_if_the_network_gives_no_answer(snapshot: Snapshot, tmp_path: Path) -> None:
    more = Snapshot.of(Cluster.of(node(f"n{number}") for number in range(5)))
    untrained = _learned(tmp_path, _checkpoint(snapshot, version=0), shadow=False)
    late = _learned(tmp_path, _checkpoint(snapshot), shadow=False, deadline_ns=0)
    flat = _learned(tmp_path, _checkpoint(snapshot, "flat"), shadow=False)
    for learned, shown, why in (
        (untrained, snapshot, "untrained"),
        (late, snapshot, "more than 0 ns"),
        (flat, more, "there are 5"),
    ):
        nodes = np.arange(len(shown.columns.nodes))
        assert learned.points(POD, shown, nodes).tolist() == [MOST_POINTS] * len(nodes)
        assert why in learned.reason(POD, shown, 0)


def test_invalid_checkpoint_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("no")
    with pytest.raises(SchedulerError, match=r"policy learned: cannot be built: LearningError: .*not a checkpoint"):
        make_policy(PODS, "learned", {"checkpoint": str(tmp_path / "a")}, ("points", "reason"))


def test_pod_without_peers_has_the_size_of_its_memory(snapshot: Snapshot) -> None:
    seen = observe(replace(POD, peers=()), snapshot, ALL, has_network=True)
    assert seen.size == pytest.approx(np.log2(1 + GIB / 4096) / 64)
    assert (seen.delay.tolist(), seen.bandwidth.tolist()) == ([0, 0, 0], [1, 1, 1])


def test_network_features_come_from_the_cost_map() -> None:
    costs = CostMap.of(from_text("fat-tree:k=4"), NetworkSnapshot(0, {}, {}, {}))
    near, far = costs.cost("h1", "h2"), costs.cost("h1", "h16")
    assert near.delay_ns < far.delay_ns
    shown = Snapshot.of(Cluster.of([node("h1"), node("h2"), node("h16"), node("elsewhere")]), costs)
    seen = observe(PendingPod("p", peers=(Peer("h1", 100),)), shown, np.arange(4), has_network=True)
    want = [0, np.log2(1 + near.delay_ns) / 64, np.log2(1 + far.delay_ns) / 64, 1]
    assert seen.delay.tolist() == pytest.approx(want)
    fastest = max(
        costs.cost(host, other).available_bps
        for host in ("h1", "h2", "h16")
        for other in ("h2", "h16")
        if host != other
    )
    want = [1, near.available_bps / fastest, far.available_bps / fastest, 0]
    assert seen.bandwidth.tolist() == pytest.approx(want)
