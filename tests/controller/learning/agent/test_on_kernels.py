"""Networks in machine code, checked against their plain twins in numpy."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.learning.agent.inference import folding
from controller.learning.agent.inference.base import Inference
from controller.learning.agent.inference.kernels import stages
from controller.learning.agent.inference.kernels.compiled import compiled
from controller.learning.agent.inference.kernels.processor import HAS_WIDE_REGISTERS, MULTIPLIES_PAIRS
from controller.learning.agent.inference.making import inference_of
from controller.learning.agent.inference.on_kernels import FlatOnKernels, TokensOnKernels
from controller.learning.agent.inference.on_numpy import (
    FlatInference,
    TokensInference,
    first_attention,
    mixed,
    with_one,
)
from controller.learning.agent.inference.packed import Packed, Room
from controller.learning.agent.settings import DecisionSettings, Form, NetworkSettings
from controller.learning.agent.weights import Shape, WeightSet, gaussian_start
from controller.learning.values import Floats, Observation

Observe = Callable[..., Observation]
Make = Callable[[WeightSet], Inference]
WIDE = pytest.mark.skipif(not HAS_WIDE_REGISTERS, reason="needs a processor with AVX-512")
PAIRS = pytest.mark.skipif(not MULTIPLIES_PAIRS, reason="needs a processor that multiplies bfloat16 by AVX-512")
TWINS = [
    pytest.param("flat", FlatInference, partial(FlatOnKernels, halved=False), 1e-5, id="flat"),
    pytest.param("flat", FlatInference, partial(FlatOnKernels, halved=True), 3e-2, id="flat, halved"),
    pytest.param("tokens", TokensInference, partial(TokensOnKernels, halved=False), 1e-5, id="tokens", marks=WIDE),
    pytest.param(
        "tokens", TokensInference, partial(TokensOnKernels, halved=True), 3e-2, id="tokens, halved", marks=PAIRS
    ),
]
"""Form, plain twin, fast twin, and the tolerance of its values, which are about 1."""


def _weights(form: Form, observation: Observation, *, spread: float = 1.0, **fields: Any) -> WeightSet:
    """Return weights whose products are about as large as the inputs, times a spread."""
    shape = Shape.of(NetworkSettings(form=form, **fields), observation)
    chance = np.random.default_rng(7)
    arrays = {
        name: array * np.float32(spread / array.shape[-1] ** 0.5)
        if array.ndim == 2
        else array + np.float32(0.1) * chance.standard_normal(array.shape).astype(np.float32)
        for name, array in gaussian_start(shape, 1.0, chance).arrays.items()
    }
    return WeightSet(shape, arrays, 1)


def _values(inference: Inference, observation: Observation) -> Floats:
    values = inference.values(observation)
    assert values is not None
    return values


@pytest.mark.parametrize(("form", "plain", "fast", "tolerance"), TWINS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    actions=st.sampled_from([1, 2, 4, 5, 12, 13, 16, 17, 31, 70, 300]),
    heads=st.integers(1, 5),
    size=st.integers(1, 40),
    feed_forward=st.integers(1, 150),
    layers=st.integers(1, 3),
    quantiles=st.integers(1, 3),
    load=st.booleans(),
    seed=st.integers(0, 9),
)
def test_networks_of_any_size_give_the_values_of_the_plain_twin(
    observe: Observe,
    form: Form,
    plain: Make,
    fast: Make,
    tolerance: float,
    actions: int,
    heads: int,
    size: int,
    feed_forward: int,
    layers: int,
    quantiles: int,
    load: bool,
    seed: int,
) -> None:
    observation = observe(np.random.default_rng(seed), actions, load=load)
    weights = _weights(
        form,
        observation,
        hidden=heads * size,
        heads=heads,
        feed_forward=feed_forward,
        layers=layers,
        quantiles=quantiles,
    )
    expected = _values(plain(weights), observation)
    # A norm over a few hidden values amplifies rounding errors.
    assert _values(fast(weights), observation) == pytest.approx(expected, abs=4 * tolerance, rel=tolerance)


@pytest.mark.parametrize(("form", "plain", "fast", "tolerance"), TWINS)
def test_kernels_choose_as_the_plain_twin_except_near_ties(
    observe: Observe, form: Form, plain: Make, fast: Make, tolerance: float
) -> None:
    chance = np.random.default_rng(11)
    weights = _weights(form, observe(chance, 16))
    exact, near = plain(weights), fast(weights)
    errors, same, ties = [], 0, 0
    for _ in range(20):
        observation = observe(chance, 16)
        expected, halved = _values(exact, observation), _values(near, observation)
        errors.append(np.abs(halved - expected).max())
        best, chosen = int(expected.argmax()), int(halved.argmax())
        same += chosen == best
        ties += chosen != best and expected[best] - expected[chosen] < tolerance
    assert max(errors) < tolerance
    assert same + ties == 20
    assert same >= 17


@WIDE
@pytest.mark.parametrize("actions", [1, 3, 16, 50])
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_first_layer_attention_matches_float32_when_one_hot(observe: Observe, actions: int, spread: float) -> None:
    observation = observe(np.random.default_rng(3), actions, load=True)
    weights = _weights("tokens", observation, spread=spread, hidden=48, heads=3, feed_forward=8)
    first, features = folding.first(weights), with_one(observation.tokens())
    expected = mixed(features, first_attention(first, features)) @ first.mixing
    packed = Packed(weights, halved=False)
    room = Room(packed.sizes, outputs=1, tokens=actions)
    room.work.tokens = actions
    room.mixed[:actions, : features.shape[1]] = features
    compiled(stages.first_of_tokens)(packed.told.address, packed.first.address, room.address)
    attention = room.array("added")[:actions, :48]
    assert attention == pytest.approx(expected, rel=2e-5, abs=2e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize(("form", "plain", "fast", "tolerance"), TWINS)
def test_nan_input_gives_nan_output_and_leaves_no_trace(
    observe: Observe, form: Form, plain: Make, fast: Make, tolerance: float
) -> None:
    chance = np.random.default_rng(4)
    observation = observe(chance, 20)
    inference = fast(_weights(form, observation, hidden=32, feed_forward=32))
    before = _values(inference, observation)
    broken = Observation(np.full_like(observation.row, np.nan), observation.candidates)
    assert np.isnan(_values(inference, broken)).all()
    assert (_values(inference, observation) == before).all()


@WIDE
def test_few_tokens_after_many_are_as_few_alone(observe: Observe) -> None:
    chance = np.random.default_rng(5)
    many, few = observe(chance, 90), observe(chance, 3)
    weights = _weights("tokens", few, hidden=32, feed_forward=32)
    inference = TokensOnKernels(weights, halved=MULTIPLIES_PAIRS)
    alone = _values(inference, few)
    broken = Observation(np.full_like(many.row, np.nan), many.candidates)
    assert np.isnan(_values(inference, broken)).all()
    assert (_values(inference, few) == alone).all()


@pytest.mark.parametrize(("form", "plain", "fast", "tolerance"), TWINS)
def test_threads_that_decide_at_once_do_not_disturb_one_another(
    observe: Observe, form: Form, plain: Make, fast: Make, tolerance: float
) -> None:
    chance = np.random.default_rng(6)
    seen = [observe(chance, 12) for _ in range(8)]
    inference = fast(_weights(form, seen[0], hidden=64, feed_forward=64))
    alone = [_values(inference, observation) for observation in seen]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda observation: _values(inference, observation), seen * 25))
    assert all((values == alone[number % 8]).all() for number, values in enumerate(together))


@pytest.mark.parametrize("form", ["flat", "tokens"])
def test_only_large_networks_are_halved_if_precision_allows(observe: Observe, form: Form) -> None:
    observation = observe(np.random.default_rng(8))
    halved, exact = DecisionSettings(), DecisionSettings(precision="float32")
    plain: Make = FlatInference if form == "flat" else TokensInference
    for hidden, chosen, tolerance in ((128, halved, 1e-5), (132, exact, 1e-5), (132, halved, 3e-2)):
        weights = _weights(form, observation, hidden=hidden, feed_forward=16)
        values, expected = _values(inference_of(weights, chosen), observation), _values(plain(weights), observation)
        assert values == pytest.approx(expected, abs=tolerance, rel=tolerance)
        is_exact = bool(np.abs(values - expected).max() < 1e-5)
        can_halve = form == "flat" or MULTIPLIES_PAIRS
        if hidden == 128 or chosen is exact or can_halve:
            assert is_exact == (tolerance < 1e-3)
