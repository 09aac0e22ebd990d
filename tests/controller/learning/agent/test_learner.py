"""Learning, by the specification's sentences and formula."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch

from controller.learning.agent.agents import agent_of, new_checkpoint
from controller.learning.agent.batches import batch_of
from controller.learning.agent.inference.making import inference_of
from controller.learning.agent.learner import Learner, Optimiser, cost, has_fast_bfloat16, quantile_cost
from controller.learning.agent.resuming import learner_of
from controller.learning.agent.settings import (
    AgentSettings,
    DecisionSettings,
    Form,
    NetworkSettings,
    TrainingSettings,
)
from controller.learning.values import Experience, Observation

Observe = Callable[..., Observation]
Live = Callable[..., Experience]
SMALL = NetworkSettings(hidden=16, heads=4, feed_forward=16, dropout=0.25, deviation=0.1)


def _settings(form: Form = "flat", network: dict[str, object] | None = None, **training: object) -> AgentSettings:
    return AgentSettings(
        network=msgspec.structs.replace(SMALL, form=form, **(network or {})),
        training=msgspec.structs.replace(TrainingSettings(buffer=32, batch=8, batches=4, publish_every=32), **training),
    )


def _learner(settings: AgentSettings, observation: Observation) -> Learner:
    return learner_of(new_checkpoint(settings, observation, "nodes"))


def test_the_loss_is_the_formula() -> None:
    errors = torch.tensor([0.0, 0.5, -0.5, 3.0], dtype=torch.float64)
    expected = [abs(error) * math.log(1 + math.exp(-abs(error))) for error in (0.0, 0.5, -0.5, 3.0)]
    for loss in ("criticality", "criticality-through"):
        assert cost(loss, errors).tolist() == pytest.approx(expected)


def test_criticality_weighs_large_errors_less_without_reversal() -> None:
    error = torch.tensor([0.1, 1.0, 3.0], requires_grad=True)
    cost("criticality", error).sum().backward()
    slopes = error.grad.tolist()
    assert slopes[0] > slopes[1] > slopes[2] > 0
    assert slopes[2] == pytest.approx(math.log(1 + math.exp(-3)))
    through = torch.tensor([1.1, 1.2], requires_grad=True)
    cost("criticality-through", through).sum().backward()
    assert through.grad[0] > 0 > through.grad[1]


def test_quantiles_converge_to_those_of_the_data() -> None:
    measured = torch.linspace(0, 100, 101)[None]
    predicted = torch.full((1, 4), 30.0, requires_grad=True)
    optimiser = Optimiser(TrainingSettings(optimiser="adam", learning_rate=1.0), [predicted])
    for _ in range(300):
        # By the Huber loss, which is absolute for errors above 1.
        quantile_cost("huber", predicted, measured).sum().backward()
        optimiser.step()
    assert predicted.detach()[0].tolist() == pytest.approx([12.5, 37.5, 62.5, 87.5], abs=2)


def test_sgd_and_adam_take_the_steps_of_their_formulas() -> None:
    def ours(settings: TrainingSettings) -> list[float]:
        parameter = torch.tensor([1.0, -2.0], requires_grad=True)
        optimiser = Optimiser(settings, [parameter])
        for _ in range(3):
            (parameter**2 / 2).sum().backward()  # the gradient is the parameter
            optimiser.step()
        values: list[float] = parameter.tolist()
        return values

    assert ours(TrainingSettings(learning_rate=0.1)) == pytest.approx([0.9**3, -2 * 0.9**3])
    # v = 0.5 v + x, x -= 0.1 v: 1, 0.9, 0.76, 0.614
    assert ours(TrainingSettings(learning_rate=0.1, momentum=0.5)) == pytest.approx([0.614, -1.228])
    x, mean, square = 1.0, 0.0, 0.0
    for step in (1, 2, 3):
        mean, square = 0.9 * mean + 0.1 * x, 0.999 * square + 0.001 * x * x
        x -= 0.1 * (mean / (1 - 0.9**step)) / (math.sqrt(square / (1 - 0.999**step)) + 1e-8)
    assert ours(TrainingSettings(learning_rate=0.1, optimiser="adam"))[0] == pytest.approx(x)


def test_target_is_reward_plus_discounted_best_possible_value(observe: Observe) -> None:
    generator = np.random.default_rng(1)
    seen, following = observe(generator), observe(generator)
    following = Observation(following.row, np.array([True, False, True, False]))
    learner = _learner(_settings(), seen)
    values = inference_of(learner.published, DecisionSettings()).values(following)
    assert values is not None
    lived = [Experience(seen, 1, 0.25, following, 500), Experience(seen, 1, 0.25, None, 500)]
    targets = learner.measured(batch_of(lived, learner.shape, 0.9, 0, "cpu"))[:, 0].tolist()
    assert targets == pytest.approx([0.25 + 0.9 * max(values[0], values[2]), 0.25], abs=1e-5)
    by_time = learner.measured(batch_of(lived, learner.shape, 0.9, 1000, "cpu"))[0, 0].item()
    assert by_time == pytest.approx(0.25 + 0.9**0.5 * max(values[0], values[2]), abs=1e-5)


def test_double_values_the_trained_choice_by_published_weights(observe: Observe) -> None:
    generator = np.random.default_rng(2)
    seen, following = observe(generator), observe(generator)
    learner = _learner(_settings(double=True), seen)
    published = inference_of(learner.published, DecisionSettings()).values(following)
    assert published is not None
    with torch.no_grad():
        learner._trained.output.bias[int(np.argmin(published))] += 100
    lived = [Experience(seen, 0, 0.0, following)]
    target = learner.measured(batch_of(lived, learner.shape, 0.9, 0, "cpu"))[0, 0].item()
    assert target == pytest.approx(0.9 * published.min(), abs=1e-5)


@pytest.mark.parametrize("form", ["flat", "tokens", "dense"])
@pytest.mark.parametrize("quantiles", [1, 3])
def test_forward_of_a_chosen_action_equals_the_whole_network(
    observe: Observe, live: Live, form: Form, quantiles: int
) -> None:
    """Values and gradients; for tokens, with different numbers of actions."""
    generator = np.random.default_rng(12)
    settings = _settings(form, {"dropout": 0.0, "quantiles": quantiles})
    learner = _learner(settings, observe(generator))
    lived = [live(generator, 7 if form == "tokens" and number % 2 else 4) for number in range(6)]
    batch = batch_of(lived, learner.shape, 0.9, 0, "cpu")
    network = learner._trained
    whole = network(batch.seen.tokens, batch.seen.absent)[torch.arange(6), batch.actions]
    whole.square().sum().backward()
    expected = [parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad()
    chosen = network.forward_chosen(batch.seen.tokens, batch.seen.absent, batch.actions)
    assert torch.allclose(chosen, whole, atol=1e-6)
    chosen.square().sum().backward()
    for gradient, other in zip((parameter.grad for parameter in network.parameters()), expected, strict=True):
        assert torch.allclose(gradient, other, atol=1e-6)


def test_dropout_of_one_token_drops_whole_heads_as_often(observe: Observe) -> None:
    """Means over many draws equal those of PyTorch's own layer, whose attention drops one weight per head."""
    learner = _learner(_settings("flat", {"dropout": 0.5}), observe(np.random.default_rng(13)))
    network = learner._trained
    tokens = torch.from_numpy(observe(np.random.default_rng(14)).flat()).expand(20_000, 1, -1)
    actions = torch.zeros(20_000, dtype=torch.int64)
    torch.manual_seed(1)
    with torch.no_grad():
        chosen, whole = network.forward_chosen(tokens, None, actions)[:, 0], network(tokens)[:, 0, 0]
    assert chosen.mean().item() == pytest.approx(whole.mean().item(), abs=4 * whole.std().item() / 20_000**0.5)
    assert chosen.std().item() == pytest.approx(whole.std().item(), rel=0.05)


def test_half_precision_learns_nearly_the_same(live: Live, observe: Observe) -> None:
    if not has_fast_bfloat16():
        pytest.skip("this processor does not multiply bfloat16")
    runs = []
    for precision in ("float32", "bfloat16"):
        generator = np.random.default_rng(15)
        learner = _learner(_settings("tokens", {"dropout": 0.0}, precision=precision), observe(generator))
        for _ in range(32):
            learner.take(live(generator))
        assert learner.progress is not None
        runs.append((learner.progress, learner.weights(1).arrays["output.weight"]))
    assert runs[0][0].loss == pytest.approx(runs[1][0].loss, rel=0.02)
    assert runs[0][0].loss != runs[1][0].loss
    assert np.abs(runs[0][1] - runs[1][1]).max() < 1e-3


def bandit_errors(observe: Observe, form: Form, network: dict[str, object], training: dict[str, object]) -> list[float]:
    """Return the errors of a bandit's 1,200 decisions: the reward is 1 for the action whose memory is free, else 0."""
    fields: dict[str, object] = {"discount": 0.0, "optimiser": "adam", "learning_rate": 0.003, **training}
    if fields["optimiser"] == "sgd":
        fields["learning_rate"] = 0.1
    settings = _settings(form, {"dropout": 0.0, **network}, **fields)
    generator = np.random.default_rng(3)
    learner = _learner(settings, observe(generator))

    def lived() -> Experience:
        state, action = int(generator.integers(4)), int(generator.integers(4))
        free = np.zeros(4)
        free[state] = 1
        zeros = np.zeros(4)
        seen = Observation.of(
            utilisation=float(generator.random()),
            operations=0,
            size=0,
            is_write=0,
            free=free,
            similarity=zeros,
            delay=zeros,
            bandwidth=zeros,
            candidates=np.ones(4, np.bool_),
        )
        return Experience(seen, action, float(action == state), None)

    errors = []
    for _ in range(1200):
        learner.take(lived())
        errors.append(learner.progress.error if learner.progress else 1.0)
    return errors


@pytest.mark.parametrize("form", ["flat", "tokens", "dense"])
def test_every_form_learns_which_action_pays(observe: Observe, form: Form) -> None:
    """The error at least halves; tests/soak checks this for departures from the specification."""
    errors = bandit_errors(observe, form, {}, {})
    assert errors[-1] < errors[40] / 2


def test_weights_are_published_periodically_and_are_immutable(live: Live, observe: Observe) -> None:
    generator = np.random.default_rng(4)
    learner = _learner(_settings(), observe(generator))
    results = [learner.take(live(generator)) for _ in range(96)]
    published = [weights for weights in results if weights is not None]
    assert [index + 1 for index, weights in enumerate(results) if weights is not None] == [32, 64, 96]
    assert [weights.version for weights in published] == [1, 2, 3]
    assert not np.array_equal(published[0].arrays["output.weight"], published[1].arrays["output.weight"])
    with pytest.raises(ValueError, match="read-only"):
        published[0].arrays["output.weight"][0, 0] = 1


def test_training_starts_early_and_its_rate_halves(live: Live, observe: Observe) -> None:
    generator = np.random.default_rng(9)
    settings = _settings(start=16, train_every=8, remove_sampled=False, half_steps=2, learning_rate=0.5)
    learner = _learner(settings, observe(generator))
    rates = []
    for _ in range(32):
        learner.take(live(generator))
        rates.append((learner.steps, learner.optimiser.learning_rate))
    assert [steps for steps, _ in rates] == [0] * 15 + [1] * 8 + [2] * 8 + [3]
    assert [rates[index][1] for index in (15, 23, 31)] == pytest.approx([0.5, 0.5 * 0.5**0.5, 0.25])


def test_first_publication_waits_for_its_decision_count(live: Live, observe: Observe) -> None:
    generator = np.random.default_rng(10)
    settings = _settings(start=16, train_every=16, remove_sampled=False, publish_every=16, first_publish=40)
    learner = _learner(settings, observe(generator))
    published = [learner.take(live(generator)) for _ in range(64)]
    assert [index for index, weights in enumerate(published, start=1) if weights] == [48, 64]


def test_the_inference_network_is_never_trained(live: Live, observe: Observe) -> None:
    generator = np.random.default_rng(5)
    learner = _learner(_settings(publish_every=1000), observe(generator))
    before = learner.published.to_bytes()
    fixed = {name: value.clone() for name, value in learner._fixed.state_dict().items()}
    for _ in range(64):
        learner.take(live(generator))
    assert learner.steps == 2
    assert learner.published.to_bytes() == before
    assert all(torch.equal(fixed[name], value) for name, value in learner._fixed.state_dict().items())
    assert learner.weights(1).to_bytes() != before


@pytest.mark.parametrize("form", ["flat", "tokens"])
def test_the_same_seed_gives_the_same_weights(live: Live, observe: Observe, form: Form) -> None:
    def run(seed: int) -> bytes:
        generator = np.random.default_rng(6)
        learner = _learner(msgspec.structs.replace(_settings(form), seed=seed), observe(generator))
        for _ in range(70):
            learner.take(live(generator))
        return learner.weights(1).to_bytes()

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_learning_leaves_the_processs_random_numbers_alone(live: Live, observe: Observe) -> None:
    generator = np.random.default_rng(7)
    learner = _learner(_settings(), observe(generator))
    before = torch.get_rng_state()
    for _ in range(32):
        learner.take(live(generator))
    assert learner.steps == 1
    assert torch.equal(torch.get_rng_state(), before)


def test_malformed_experience_is_counted_and_not_learned_from(live: Live, observe: Observe) -> None:
    generator = np.random.default_rng(8)
    learner = _learner(_settings(), observe(generator))
    good = live(generator)
    row = good.observation.row.copy()
    row[0] = np.inf
    for bad in (
        replace(good, reward=math.nan),
        replace(good, reward=math.inf),
        replace(good, observation=Observation(row, good.observation.candidates)),
        replace(good, following=observe(generator, 5)),
        replace(good, action=4),
        replace(good, action=-1),
    ):
        learner.take(bad)
    assert (learner.refused, len(learner.buffer), learner.decisions) == (6, 0, 6)


def test_tokens_learn_while_nodes_join_and_vanish(live: Live, observe: Observe) -> None:
    generator = np.random.default_rng(9)
    learner = _learner(_settings("tokens"), observe(generator))
    for actions in (2, 3, 4, 7) * 8:
        learner.take(live(generator, actions))
    assert (learner.refused, learner.steps, learner.published.version) == (0, 1, 1)
    assert learner.published.is_finite


def test_weights_that_are_not_finite_are_never_published(live: Live, observe: Observe) -> None:
    generator = np.random.default_rng(10)
    learner = _learner(_settings(learning_rate=10.0, loss="squared"), observe(generator))
    with torch.no_grad():
        learner._trained.output.weight.fill_(torch.nan)
    published = [learner.take(live(generator)) for _ in range(32)]
    assert published[-1] is None
    assert learner.published.version == 0
    assert learner.weights(1).is_finite


def test_agent_learns_inline_and_decides_by_it(observe: Observe, live: Live) -> None:
    class First:
        def choose(self, observation: Observation, view: None) -> int:
            return 0

    generator = np.random.default_rng(11)
    agent = agent_of(new_checkpoint(_settings(), observe(generator), "nodes"), First())
    for _ in range(40):
        agent.decide(observe(generator), None)
        agent.learn(live(generator))
    assert agent.published.weights.version == 1
    assert agent.decider.counts["fallback"] + agent.decider.counts["exploration"] >= 32
    assert agent.decide(observe(generator), None).version == 1
