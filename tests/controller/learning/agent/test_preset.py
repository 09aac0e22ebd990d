"""The preset `specification`: sentence by sentence, beside the departures that are the defaults."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch

from controller.learning.agent.agents import new_checkpoint
from controller.learning.agent.batches import batch_of
from controller.learning.agent.inference.making import inference_of
from controller.learning.agent.network import NoisyLayer, network
from controller.learning.agent.records import checkpoint_from_bytes
from controller.learning.agent.resuming import learner_of
from controller.learning.agent.settings import (
    Add,
    AgentSettings,
    DecisionSettings,
    Form,
    NetworkSettings,
    Output,
    TrainingSettings,
)
from controller.learning.agent.weights import Shape, WeightSet, gaussian_start
from controller.learning.errors import LearningError
from controller.learning.values import Experience, Observation

Observe = Callable[..., Observation]
Live = Callable[..., Experience]
Doubles = npt.NDArray[np.float64]
QUIET = NetworkSettings(hidden=16, heads=2, feed_forward=16, dropout=0.0, deviation=0.3, noise=0.0)
EXACT = DecisionSettings(precision="float32")


def _preset(network: NetworkSettings = QUIET, **training: Any) -> AgentSettings:
    training_settings = TrainingSettings(**training)
    return AgentSettings(preset="specification", network=network, training=training_settings, decisions=EXACT)


def _weights(observation: Observation, form: Form, output: Output, add: Add) -> WeightSet:
    settings = msgspec.structs.replace(QUIET, form=form, output=output, add=add)
    start = gaussian_start(Shape.of(settings, observation), 0.3, np.random.default_rng(5))
    generator = np.random.default_rng(6)
    moved = {
        name: array + np.float32(0.1) * generator.standard_normal(array.shape).astype(np.float32)
        for name, array in start.arrays.items()
    }
    return WeightSet(start.shape, moved, 1)


def test_preset_has_the_specification_s_figures() -> None:
    settings = AgentSettings(preset="specification")
    settings.check()
    network_settings, training, decisions = settings.network, settings.training, settings.decisions
    assert (network_settings.output, network_settings.add, training.loss) == (
        "distribution",
        "noise",
        "criticality-through",
    )
    sizes = (network_settings.form, network_settings.layers, network_settings.hidden, network_settings.heads)
    assert sizes == ("flat", 2, 512, 4)
    assert (network_settings.dropout, network_settings.quantiles) == (0.25, 1)
    assert (training.discount, training.buffer, training.batch, training.batches) == (0.9, 1024, 128, 8)
    assert (training.optimiser, training.publish_every, training.start) == ("sgd", 1024, 0)
    assert (training.drop_duplicates, training.remove_sampled) == (True, True)
    assert (decisions.exploration, decisions.margin, decisions.tolerance) == (0.05, 0.0, 0.0)


def test_a_figure_that_contradicts_the_preset_is_refused() -> None:
    expected = r"^training\.loss: the preset specification has criticality-through, not criticality$"
    with pytest.raises(LearningError, match=expected):
        _preset(loss="criticality")
    with pytest.raises(LearningError, match=r"^network\.add: the preset specification has noise, not residual$"):
        _preset(NetworkSettings(add="residual"))
    assert _preset(NetworkSettings(add="noise"), loss="criticality-through").network.add == "noise"
    unknown: Any = "letter"
    with pytest.raises(LearningError, match=r"^preset is 'letter', not one of specification$"):
        AgentSettings(preset=unknown)
    with pytest.raises(LearningError, match=r"^network\.quantiles: 4, but a distribution"):
        _preset(NetworkSettings(quantiles=4)).check()


def _probabilities(weights: WeightSet, observation: Observation) -> Doubles:
    """Return what a network's outputs become as a distribution, by the exponentials themselves."""
    plain = WeightSet(replace(weights.shape, output="values"), weights.arrays, 1)
    outputs = inference_of(plain, EXACT).values(observation)
    assert outputs is not None
    exponentials: Doubles = np.exp(outputs.astype(np.float64))
    exponentials /= exponentials.sum()
    return exponentials


@pytest.mark.parametrize("form", ["flat", "tokens"])
def test_loss_and_step_of_the_preset_are_those_by_hand(observe: Observe, live: Live, form: Form) -> None:
    """|p - h| log(1 + exp(-|p - h|)), p of a distribution, h the reward and 0.9 of the next best; SGD on all of it."""
    generator = np.random.default_rng(8)
    lived = [live(generator) for _ in range(6)]
    lived[-1] = replace(lived[-1], following=None)
    settings = _preset(msgspec.structs.replace(QUIET, form=form), learning_rate=0.5)
    learner = learner_of(new_checkpoint(settings, observe(generator), "nodes"))
    start = learner.weights(0)
    loss, _ = learner._fit(batch_of(lived, learner.shape, 0.9, 0, "cpu"), (1.0,) * 6)
    losses, slopes = [], np.zeros(4)
    for experience in lived:
        p = _probabilities(start, experience.observation)
        h = experience.reward
        if experience.following is not None:
            h += 0.9 * _probabilities(start, experience.following).max()
        size = abs(p[experience.action] - h)
        losses.append(size * math.log(1 + math.exp(-size)))
        # d(size * c) / d(size), c being a part of the formula: c + size * dc / d(size).
        slope = math.log(1 + math.exp(-size)) - size / (1 + math.exp(size))
        slope *= math.copysign(1, p[experience.action] - h)
        slopes += slope * p[experience.action] * ((np.arange(4) == experience.action) - p) / 6
    assert loss == pytest.approx(np.mean(losses), abs=1e-6)
    if form == "flat":
        moved = start.arrays["output.bias"] - learner.weights(1).arrays["output.bias"]
        assert moved == pytest.approx(0.5 * slopes, abs=1e-6)
        assert np.abs(slopes).max() > 1e-3


def _layer_inputs(noise: float, tokens: Any, *, training: bool) -> dict[str, Any]:
    """Return what each part of an encoder layer of the preset gives, and what each normalisation takes."""
    torch.manual_seed(3)
    layer = NoisyLayer(64, 4, 32, 0.0, batch_first=True)
    layer.noise = noise
    layer.train(training)
    seen: dict[str, Any] = {"input": tokens}
    for name in ("norm1", "norm2"):
        getattr(layer, name).register_forward_pre_hook(lambda _, given, name=name: seen.update({name: given[0]}))
    layer.self_attn.register_forward_hook(lambda _, __, given: seen.update(attended=given[0]))
    layer.linear2.register_forward_hook(lambda _, __, given: seen.update(inside=given))
    with torch.no_grad():
        layer(tokens)
    return seen


def test_noise_takes_the_place_of_residuals_before_norms() -> None:
    tokens = torch.randn(500, 3, 64, generator=torch.Generator().manual_seed(1))
    seen = _layer_inputs(0.5, tokens, training=True)
    for norm, part in (("norm1", "attended"), ("norm2", "inside")):
        noise = seen[norm] - seen[part]
        scale = seen[part].std(dim=-1, keepdim=True, unbiased=False)
        drawn = (noise / scale).flatten()
        assert drawn.mean().item() == pytest.approx(0, abs=0.01)
        assert drawn.std().item() == pytest.approx(0.5, rel=0.01)
        # Each training sample has noise of its own, and none of the layer's input is in it.
        first, second = noise[0].flatten(), noise[1].flatten()
        assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1].item()) < 0.3
        assert abs(torch.corrcoef(torch.stack([drawn, tokens.flatten()]))[0, 1].item()) < 0.02


def test_noise_is_of_training_alone() -> None:
    tokens = torch.randn(4, 3, 64, generator=torch.Generator().manual_seed(1))
    deciding = _layer_inputs(0.5, tokens, training=False)
    assert torch.equal(deciding["norm1"], deciding["attended"])
    assert torch.equal(deciding["norm2"], deciding["inside"])
    without = _layer_inputs(0.0, tokens, training=True)
    assert torch.equal(without["norm1"], without["attended"])


@pytest.mark.parametrize("form", ["flat", "tokens", "dense"])
@pytest.mark.parametrize(("output", "add"), [("distribution", "noise"), ("distribution", None), ("values", "noise")])
def test_decisions_of_the_preset_are_those_of_its_module(
    observe: Observe, form: Form, output: Output, add: Add | None
) -> None:
    observation = observe(np.random.default_rng(4), 6)
    weights = _weights(observation, form, output, add or "residual")
    values = inference_of(weights, EXACT).values(observation)
    assert values is not None
    tokens = observation.tokens() if form == "tokens" else observation.flat()[None]
    with torch.no_grad():
        expected = network(weights, 0.25, noise=0.5).eval()(torch.from_numpy(tokens.copy())[None])[0, :, 0].numpy()
    assert values == pytest.approx(expected, abs=1e-5)
    if output == "distribution":
        assert values.sum() == pytest.approx(1, abs=1e-5)
        assert values == pytest.approx(_probabilities(weights, observation), abs=1e-5)
    others = inference_of(_weights(observation, form, "values", "residual"), EXACT).values(observation)
    assert others is not None
    is_other = form != "dense" or output == "distribution"
    assert (np.abs(values - others).max() > 0.01) == is_other


def test_distribution_is_over_the_actions_that_there_are(observe: Observe, live: Live) -> None:
    """Observations of four and of seven nodes in one batch: absent ones have no part of it."""
    generator = np.random.default_rng(12)
    weights = _weights(observe(generator), "tokens", "distribution", "noise")
    module = network(weights, 0.0).eval()
    lived = [live(generator, 7 if number % 2 else 4) for number in range(4)]
    batch = batch_of(lived, weights.shape, 0.9, 0, "cpu")
    with torch.no_grad():
        shares = module(batch.seen.tokens, batch.seen.absent)[:, :, 0]
        chosen = module.forward_chosen(batch.seen.tokens, batch.seen.absent, batch.actions)[:, 0]
    assert shares.sum(dim=1).tolist() == pytest.approx([1.0] * 4)
    assert shares[0, 4:].tolist() == [0.0] * 3
    assert torch.allclose(chosen, shares[torch.arange(4), batch.actions])


def test_checkpoints_of_before_the_preset_are_read(observe: Observe) -> None:
    fresh = new_checkpoint(AgentSettings(network=QUIET), observe(np.random.default_rng(1)), "nodes")
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(fresh))
    for part, keys in (
        (plain["shape"], ("output", "add")),
        (plain["settings"], ("preset",)),
        (plain["settings"]["network"], ("output", "add", "noise")),
    ):
        for key in keys:
            del part[key]
    plain["settings"]["training"]["loss"] = "criticality"
    content = msgspec.msgpack.encode(plain)
    data = b"millrace agent checkpoint 2\n" + hashlib.sha256(content).digest() + content
    read = checkpoint_from_bytes(data, "before.ckpt")
    assert read.shape == fresh.shape
    assert read.weights().to_bytes() == fresh.weights().to_bytes()
