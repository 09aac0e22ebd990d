"""Inference compared with the modules that train: the same values for the same weights."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch

from controller.learning.agent.inference.base import Inference
from controller.learning.agent.inference.kernels.processor import HAS_WIDE_REGISTERS, MULTIPLIES_PAIRS
from controller.learning.agent.inference.on_kernels import FlatOnKernels, TokensOnKernels
from controller.learning.agent.inference.on_numpy import DenseInference, FlatInference, TokensInference
from controller.learning.agent.network import network
from controller.learning.agent.settings import Form, NetworkSettings
from controller.learning.agent.weights import Shape, WeightSet, gaussian_start
from controller.learning.errors import LearningError
from controller.learning.values import Floats, Observation

Observe = Callable[..., Observation]
Make = Callable[[WeightSet], Inference]


def _flat_fast(weights: WeightSet) -> Inference:
    return FlatOnKernels(weights, halved=False)


def _flat_halved(weights: WeightSet) -> Inference:
    return FlatOnKernels(weights, halved=True)


def _tokens_fast(weights: WeightSet) -> Inference:
    return TokensOnKernels(weights, halved=False)


def _tokens_halved(weights: WeightSet) -> Inference:
    return TokensOnKernels(weights, halved=True)


def _dense_halved(weights: WeightSet) -> Inference:
    return DenseInference(weights, halved=True)


WIDE = pytest.mark.skipif(not HAS_WIDE_REGISTERS, reason="needs a processor with AVX-512")
PAIRS = pytest.mark.skipif(not MULTIPLIES_PAIRS, reason="needs a processor that multiplies bfloat16 by AVX-512")
CASES = [
    ("flat", FlatInference, 1e-5),
    ("dense", DenseInference, 1e-5),
    ("flat", _flat_fast, 1e-5),
    ("flat", _flat_halved, 2e-2),  # weights only
    ("dense", _dense_halved, 2e-2),
    ("tokens", TokensInference, 1e-5),
    pytest.param("tokens", _tokens_fast, 1e-5, marks=WIDE),
    pytest.param("tokens", _tokens_halved, 2e-2, marks=PAIRS),  # the same, but accumulated in float32
]


def _weights(form: Form, observation: Observation, **fields: Any) -> WeightSet:
    settings = NetworkSettings(form=form, hidden=64, feed_forward=48, deviation=0.15, **fields)
    start = gaussian_start(Shape.of(settings, observation), settings.deviation, np.random.default_rng(5))
    # Biases and gains as after training.
    generator = np.random.default_rng(6)
    moved = {
        name: array + np.float32(0.1) * generator.standard_normal(array.shape).astype(np.float32) * (array.ndim == 1)
        for name, array in start.arrays.items()
    }
    return WeightSet(start.shape, moved, 1)


def _reference(weights: WeightSet, observation: Observation) -> Floats:
    tokens = observation.tokens() if weights.shape.form == "tokens" else observation.flat()[None]
    with torch.no_grad():
        output = network(weights, dropout=0.25).eval()(torch.from_numpy(tokens.copy())[None])
    values: Floats = output[0].mean(dim=1).numpy()
    return values


@pytest.mark.parametrize("fields", [{}, {"quantiles": 5}, {"layers": 3}, {"layers": 1}], ids=str)
@pytest.mark.parametrize(("form", "make", "tolerance"), CASES)
def test_inference_gives_the_values_of_the_readable_reference(
    observe: Observe, form: Form, make: Make, tolerance: float, fields: dict[str, int]
) -> None:
    generator = np.random.default_rng(1)
    weights = _weights(form, observe(generator, 6), **fields)
    inference = make(weights)
    for _ in range(3):
        observation = observe(generator, 6)
        values = inference.values(observation)
        assert values is not None
        assert values == pytest.approx(_reference(weights, observation), abs=tolerance, rel=tolerance)


@pytest.mark.parametrize(("form", "make", "tolerance"), CASES)
@pytest.mark.parametrize("network", [False, True])
def test_features_of_the_load_are_taken_as_others(
    observe: Observe, form: Form, make: Make, tolerance: float, network: bool
) -> None:
    observation = observe(np.random.default_rng(9), 6, network=network, load=True)
    weights = _weights(form, observation)
    values = make(weights).values(observation)
    assert values is not None
    assert values == pytest.approx(_reference(weights, observation), abs=tolerance, rel=tolerance)


@pytest.mark.parametrize(
    ("make", "tolerance"),
    [
        (TokensInference, 1e-5),
        pytest.param(_tokens_fast, 1e-5, marks=WIDE),
        pytest.param(_tokens_halved, 2e-2, marks=PAIRS),
    ],
)
def test_the_same_weights_of_tokens_serve_any_number_of_nodes(observe: Observe, make: Make, tolerance: float) -> None:
    generator = np.random.default_rng(2)
    weights = _weights("tokens", observe(generator, 4))
    inference = make(weights)
    for actions in (40, 1, 3, 300, 16):
        observation = observe(generator, actions)
        assert inference.values(observation) == pytest.approx(_reference(weights, observation), abs=tolerance)


def test_tokens_do_not_care_for_the_order_of_nodes(observe: Observe) -> None:
    observation = observe(np.random.default_rng(3), 5)
    inference = TokensInference(_weights("tokens", observation))
    turned = Observation(
        np.concatenate([observation.row[:4], observation.row[4:].reshape(4, 5)[:, ::-1].ravel()]),
        observation.candidates,
    )
    first, second = inference.values(observation), inference.values(turned)
    assert first is not None
    assert second is not None
    assert second[::-1] == pytest.approx(first, abs=1e-5)


def test_attention_of_tokens_sums_to_one(observe: Observe) -> None:
    observation = observe(np.random.default_rng(4), 7)
    attention = TokensInference(_weights("tokens", observation)).attention(observation)
    assert attention.shape == (2, 4, 7, 7)
    assert attention.sum(axis=-1) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("form", "make", "tolerance"), CASES)
def test_late_answer_is_dropped(observe: Observe, form: Form, make: Make, tolerance: float) -> None:
    observation = observe(np.random.default_rng(5))
    assert make(_weights(form, observation)).values(observation, lambda: True) is None


@pytest.mark.parametrize(("form", "make", "tolerance"), CASES)
def test_an_observation_that_does_not_fit_is_refused(
    observe: Observe, form: Form, make: Make, tolerance: float
) -> None:
    generator = np.random.default_rng(6)
    inference = make(_weights(form, observe(generator)))
    with pytest.raises(LearningError, match="does not fit a network"):
        inference.values(observe(generator, 4 if form == "tokens" else 5, network=False))


def test_dense_form_has_as_many_weights_as_flat(observe: Observe) -> None:
    observation = observe(np.random.default_rng(7), 16)
    counts = [
        sum(
            array.size
            for array in gaussian_start(
                Shape.of(NetworkSettings(form=form), observation), 0.02, np.random.default_rng(1)
            ).arrays.values()
        )
        for form in ("flat", "dense")
    ]
    assert counts[1] == pytest.approx(counts[0], rel=0.005)


def test_weights_start_gaussian(observe: Observe) -> None:
    shape = Shape.of(NetworkSettings(), observe(np.random.default_rng(8), 16))
    arrays = gaussian_start(shape, 0.02, np.random.default_rng(1)).arrays
    matrix = arrays["encoder.layers.1.linear1.weight"]
    assert float(matrix.std()) == pytest.approx(0.02, rel=0.02)
    # Of a Gaussian 4.6 % lie beyond two deviations.
    assert float((np.abs(matrix) > 0.04).mean()) == pytest.approx(0.0455, rel=0.1)
    assert not arrays["embed.bias"].any()
    assert (arrays["encoder.layers.0.norm1.weight"] == 1).all()
