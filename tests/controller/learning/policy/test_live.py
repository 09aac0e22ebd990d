"""A network in the live scheduler: accepted checkpoints, the fallback where it cannot decide, and counters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from controller.common.errors import SchedulerError
from controller.learning.agent.agents import NoTraining, new_checkpoint
from controller.learning.agent.inference.making import inference_of
from controller.learning.agent.purpose import MadeFor
from controller.learning.agent.records import Checkpoint, load_checkpoint, save_checkpoint
from controller.learning.agent.settings import AgentSettings, DecisionSettings, NetworkSettings
from controller.learning.agent.training.base import Published
from controller.learning.agent.weights import HIGH, LOW, WeightSet
from controller.learning.environment.settings import Gain
from controller.learning.errors import LearningError
from controller.learning.policy.files import Claim
from controller.learning.policy.live import LiveNetwork
from controller.learning.policy.settings import LearnSettings, LiveSettings
from controller.learning.values import Bools, Experience, Floats, Observation
from controller.scheduling.framework.lessons import Outcome
from controller.scheduling.framework.plugins import PODS, TASKS, make_policy
from dataplane.config import document_of

AGENT = AgentSettings(
    network=NetworkSettings(form="tokens", hidden=8, heads=2, layers=1, feed_forward=8, deviation=0.5),
    decisions=DecisionSettings(precision="float32", exploration=0.25),
)
LEARN = LearnSettings(agent=AGENT)


def seen(*free: float, candidates: tuple[bool, ...] | None = None) -> Observation:
    return Observation.of(
        utilisation=0.5,
        operations=0,
        size=0.25,
        is_write=0,
        free=free,
        similarity=[0.0] * len(free),
        candidates=candidates or [True] * len(free),
        delay=[0.0] * len(free),
        bandwidth=[1.0] * len(free),
    )


def _example(_: MadeFor) -> Observation:
    return seen(1.0)


def _trained(path: Path, change: Callable[[Checkpoint], Checkpoint] = lambda checkpoint: checkpoint) -> Path:
    """Write a checkpoint whose weights count as trained."""
    file = path / "pods.ckpt"
    save_checkpoint(file, change(msgspec.structs.replace(new_checkpoint(AGENT, seen(1.0), "pods"), version=3)))
    return file


def network_of(file: Path, clock_ns: Callable[[], int] = lambda: 0, **more: Any) -> LiveNetwork:
    return LiveNetwork(LiveSettings(checkpoint=str(file), **more), "pods", _example, clock_ns)


def test_a_checkpoint_that_others_can_change_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    file = _trained(folder)
    folder.chmod(0o777)
    with pytest.raises(LearningError, match=r"pods\.ckpt: others can write to \S+/open, and could change decisions"):
        network_of(file)
    folder.chmod(0o755)
    file.chmod(0o666)
    with pytest.raises(LearningError, match=r"pods\.ckpt: others can write to \S+/pods\.ckpt, and"):
        network_of(file)
    file.chmod(0o600)
    assert network_of(file).standing.version == 3
    with pytest.raises(LearningError, match=r"nowhere/a: cannot be read: No such file"):
        network_of(tmp_path / "nowhere" / "a")


def test_link_from_a_safe_into_an_unsafe_folder_is_followed(tmp_path: Path) -> None:
    unsafe, safe = tmp_path / "unsafe", tmp_path / "safe"
    for folder in (unsafe, safe):
        folder.mkdir(mode=0o755)
    (safe / "link.ckpt").symlink_to(_trained(unsafe))
    unsafe.chmod(0o777)
    with pytest.raises(LearningError, match=r"link\.ckpt: others can write to \S+/unsafe, and"):
        network_of(safe / "link.ckpt")


def test_missing_checkpoint_starts_a_new_one_if_learning(tmp_path: Path) -> None:
    file = tmp_path / "new.ckpt"
    with pytest.raises(LearningError, match=r"new\.ckpt: cannot be read: No such file"):
        network_of(file)
    assert network_of(file, learn=LEARN).standing.version == 0
    flat = msgspec.structs.replace(AGENT, network=NetworkSettings())
    with pytest.raises(LearningError, match=r"new\.ckpt: does not exist, and a network flat serves one number of"):
        network_of(file, learn=LearnSettings(agent=flat))
    with pytest.raises(LearningError, match=r"learn\.save_every_s: 0 is not above 0"):
        network_of(file, learn=LearnSettings(agent=AGENT, save_every_s=0))


def test_preset_of_a_new_agent_observes_the_six_features(tmp_path: Path) -> None:
    agent = AgentSettings(preset="specification", network=AGENT.network, decisions=AGENT.decisions)
    learn = LearnSettings(agent=agent)
    network = LiveNetwork(
        LiveSettings(checkpoint=str(tmp_path / "new.ckpt"), learn=learn),
        "pods",
        lambda made_for: seen(1.0).without_network() if not made_for.network else seen(1.0),
        lambda: 0,
    )
    assert (network.made_for.network, network.made_for.load) == (False, False)
    assert LEARN.has_network
    for more, key in (({"network_features": True}, "network_features"), ({"load_features": True}, "load_features")):
        with pytest.raises(LearningError, match=rf"^learn\.{key}: the preset specification has no {key}$"):
            msgspec.structs.replace(learn, **more).check()
    with pytest.raises(LearningError, match=r"^learn\.gain: the preset specification has specification, not response$"):
        LearnSettings(agent=agent, gain=Gain.RESPONSE).check()


def test_preset_is_named_in_settings_of_the_scheduler(tmp_path: Path) -> None:
    sizes = {"form": "tokens", "hidden": 8, "heads": 2, "feed_forward": 8}
    agent: dict[str, Any] = {"preset": "specification", "network": sizes}
    settings = {"checkpoint": str(tmp_path / "pods.ckpt"), "learn": {"agent": agent}}
    policy = make_policy(PODS, "learned", settings, ("points", "reason"))
    assert (policy.network.made_for.network, policy.settings.learn.agent.network.add) == (False, "noise")
    agent["training"] = {"loss": "huber"}
    with pytest.raises(
        SchedulerError, match=r"training\.loss: the preset specification has criticality-through, not h"
    ):
        make_policy(PODS, "learned", settings, ("points", "reason"))


def test_guarded_network_leaves_unfamiliar_pods_to_others(tmp_path: Path) -> None:
    """Free memory was 0.25 to 0.5 in training: beyond, and for two decisions after, there are no values."""
    guarded = msgspec.structs.replace(
        AGENT,
        network=msgspec.structs.replace(AGENT.network, guard=0.0),
        decisions=msgspec.structs.replace(AGENT.decisions, guard_hold=2),
    )

    def trained(_: Checkpoint) -> Checkpoint:
        made = new_checkpoint(guarded, seen(1.0), "pods")
        arrays = dict(made.weights().arrays)
        rows = np.concatenate([seen(0.25, 0.5).tokens(), seen(0.5, 0.25).tokens()])
        arrays |= {LOW: rows.min(axis=0), HIGH: rows.max(axis=0)}
        weights = WeightSet(made.shape, arrays, 3)
        return msgspec.structs.replace(made, version=3, published=weights.to_bytes())

    network = network_of(_trained(tmp_path, trained), learn=None)

    def problems(*observations: Observation) -> list[str]:
        listed = list[str]()
        for number, observation in enumerate(observations):
            answers = [network.answer(observation, "pod"), network.answer(observation, "pod")]
            assert answers[0].problem == answers[1].problem
            network.decided(str(number), answers[1], 0)
            listed.append(answers[1].problem)
        return listed

    usual, odd = seen(0.5, 0.25), seen(0.5, 0.75)
    assert problems(usual, odd, usual, usual, usual) == ["", "unfamiliar", "unfamiliar", "unfamiliar", ""]
    assert network.standing.unanswered == {"unfamiliar": 3}
    answer = network.answer(odd, "pod")
    assert network.why_not(answer) == "figures are outside the range seen in training"


def test_checkpoint_for_pods_is_refused_for_tasks(tmp_path: Path) -> None:
    settings = {"checkpoint": str(_trained(tmp_path))}
    problem = r"policy learned: cannot be built: LearningError: \S+/pods\.ckpt: it was made for pods, not for tasks"
    with pytest.raises(SchedulerError, match=problem):
        make_policy(TASKS, "learned", settings, ("points", "reason"))
    assert make_policy(PODS, "learned", settings, ("points", "reason")).standing.version == 3


def test_only_one_learns_into_a_checkpoint(tmp_path: Path) -> None:
    file = _trained(tmp_path)
    network, claim = network_of(file, learn=LEARN), Claim(file)
    try:
        with pytest.raises(LearningError, match="another scheduler or profile learns into it"):
            network.open()
    finally:
        claim.release()


def test_missing_values_are_counted_and_decisions_compared(tmp_path: Path) -> None:
    file = _trained(tmp_path)
    network = network_of(file, shadow=False)
    good = network.answer(seen(0.1, 0.9), "a")
    assert good.values is not None
    best = int(np.argmax(good.values))
    network.decided("a", good, best)
    network.decided("b", good, 1 - best)
    network.decided("c", network.answer(seen(0.5), "c"), 0)
    network.decided("d", network.answer(seen(np.nan, 1.0), "d"), 1)
    late = network_of(file, shadow=False, deadline_ns=0)
    late.decided("e", late.answer(seen(0.1, 0.9), "e"), 0)
    standing = network.standing
    assert standing.decisions == {"network": 2, "others": 1, "fallback": 1}
    assert standing.unanswered == {"not finite": 1}
    assert (standing.compared, standing.agreed) == (2, 1)
    assert standing.regret == pytest.approx(float(good.values[best] - good.values[1 - best]))
    assert (late.standing.unanswered, late.standing.decisions) == ({"late": 1}, {"fallback": 1})


def test_close_fallback_choice_becomes_the_first_choice(tmp_path: Path) -> None:
    def with_margin(checkpoint: Checkpoint) -> Checkpoint:
        decisions = msgspec.structs.replace(AGENT.decisions, margin=100.0)
        return msgspec.structs.replace(
            checkpoint, settings=msgspec.structs.replace(checkpoint.settings, decisions=decisions)
        )

    file = _trained(tmp_path, with_margin)
    with pytest.raises(LearningError, match=r"pods\.ckpt: its agent's decisions\.margin is 100, but fallback names no"):
        network_of(file)
    network = network_of(file, shadow=False, fallback="least-used")
    values = network.answer(seen(0.1, 0.9), "a").values
    assert values is not None
    best = int(np.argmax(values))
    for usual in (best, 1 - best):
        answer = network.answer(seen(0.1, 0.9), "a", lambda *_, usual=usual: usual)
        network.decided("a", answer, usual)
    network.decided("b", answer, best)
    standing = network.standing
    assert standing.decisions == {"network": 1, "fallback": 1, "others": 1}
    assert (standing.unanswered, standing.compared, standing.agreed) == ({"close": 2}, 3, 2)


def test_fallback_choice_within_tolerance_counts_as_the_networks(tmp_path: Path) -> None:
    def with_tolerance(checkpoint: Checkpoint) -> Checkpoint:
        decisions = msgspec.structs.replace(AGENT.decisions, tolerance=100.0)
        return msgspec.structs.replace(
            checkpoint, settings=msgspec.structs.replace(checkpoint.settings, decisions=decisions)
        )

    file = _trained(tmp_path, with_tolerance)
    with pytest.raises(LearningError, match=r"decisions\.tolerance is 100, but fallback names no"):
        network_of(file)
    network = network_of(file, shadow=False, fallback="least-used")
    assert network.asks_fallback
    values = network.answer(seen(0.1, 0.9), "a").values
    assert values is not None
    worst = int(np.argmin(values))
    asked = list[list[bool]]()

    def usual(_: Floats, among: Bools) -> int:
        asked.append(among.tolist())
        return worst

    answer = network.answer(seen(0.1, 0.9), "a", usual)
    assert (answer.first, answer.is_first(worst), answer.is_first(1 - worst)) == (worst, True, False)
    assert asked == [[True, True]]
    network.decided("a", answer, worst)
    network.decided("b", answer, 1 - worst)
    assert network.standing.decisions == {"network": 1, "others": 1}
    assert (network.standing.unanswered, network.standing.agreed) == ({}, 1)


def test_a_network_that_is_late_is_asked_less_and_less(tmp_path: Path) -> None:
    asked, now_ns = list[int](), 0

    class Slow:
        version = 3

        def values(self, observation: Observation, late: Callable[[], bool]) -> None:
            nonlocal now_ns
            asked.append(number)
            now_ns += 4_000_000
            assert late()

    network = network_of(_trained(tmp_path), clock_ns=lambda: now_ns)
    network._inference = Slow()  # type: ignore[assignment]
    for number in range(40):
        assert network.answer(seen(0.1 + number / 100, 0.9), "p").problem == "late"
    assert asked == [0, 1, 3, 7, 15, 31]


def test_non_finite_values_are_no_answer(tmp_path: Path) -> None:
    def huge(checkpoint: Checkpoint) -> Checkpoint:
        arrays = {name: np.array(array) for name, array in checkpoint.weights().arrays.items()}
        arrays["output.weight"][:] = 3e38
        weights = WeightSet(checkpoint.shape, arrays, checkpoint.version)
        return msgspec.structs.replace(checkpoint, published=weights.to_bytes())

    with np.errstate(all="ignore"):
        answer = network_of(_trained(tmp_path, huge)).answer(seen(0.1, 0.9), "a")
    assert (answer.values, answer.problem) == (None, "not finite")


def test_exploration_is_repeatable_and_only_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _trained(tmp_path)
    weights = load_checkpoint(file).weights()
    still = NoTraining(Published(weights, inference_of(weights, AGENT.decisions)))
    live, shadow, unopened = (network_of(file, shadow=is_shadow, learn=LEARN) for is_shadow in (False, True, False))
    for network in (live, shadow):
        monkeypatch.setattr(network, "_training", still)
    tried = [live.answer(seen(0.1, 0.9), f"p{number}") for number in range(400)]
    assert 60 < sum(decision.explored is not None for decision in tried) < 140
    assert live.answer(seen(0.1, 0.9), "p7").explored == tried[7].explored
    assert all(
        decision.explored != int(np.argmax(decision.values)) for decision in tried if decision.values is not None
    )
    for other in (shadow, unopened):
        assert all(other.answer(seen(0.1, 0.9), f"p{number}").explored is None for number in range(100))


def test_set_of_actions_is_an_experience_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Item 14: a decision may name several nodes, which share its reward and what follows."""
    file, taken = _trained(tmp_path), list[Experience]()
    weights = load_checkpoint(file).weights()

    class Noting(NoTraining):
        def give(self, experience: Experience) -> None:
            taken.append(experience)

    network = network_of(file, learn=LEARN)
    monkeypatch.setattr(network, "_training", Noting(Published(weights, inference_of(weights, AGENT.decisions))))
    first, second = (network.answer(seen(*free), "p") for free in ((0.1, 0.9, 0.5), (0.2, 0.9, 0.5)))
    network.decided("a", first, 2, 0)
    network.came("a", Outcome(2 * 10**9, 0.25))
    assert not taken
    network.decided("b", second, 1)
    assert [(each.action, each.reward) for each in taken] == [(2, 0.75), (0, 0.75)]
    assert all(each.following is second.observation for each in taken)
    assert network.standing.experiences == {"started": 1}


@pytest.mark.parametrize(
    ("outcome", "gain", "reward"),
    [
        (Outcome(2 * 10**9, 0.25), "specification", 0.75),
        (Outcome(None, 0.25), "specification", 0.25),
        (Outcome(10**9, 0.25, 3 * 10**9), "response", -3.0),
        (Outcome(10**9, 0.25, 3 * 10**9), "log-response", -2.0),
        (Outcome(None, 0.25), "response", -600.0),
    ],
)
def test_reward_of_an_outcome_follows_the_gain(outcome: Outcome, gain: str, reward: float) -> None:
    learn = msgspec.convert({"gain": gain}, LearnSettings)
    assert learn.reward(outcome) == pytest.approx(reward)


def test_a_fallback_is_a_score_by_name(tmp_path: Path) -> None:
    settings = {"checkpoint": str(tmp_path / "new"), "learn": document_of(LEARN), "fallback": "nobody"}
    with pytest.raises(Exception, match=r"policy learned: cannot be built: SchedulerError: unknown policy 'nobod"):
        make_policy(PODS, "learned", settings, ("points", "reason"))
