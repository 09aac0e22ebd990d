"""Products with weights in bfloat16, checked against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from controller.learning.agent.inference.folding import Affine
from controller.learning.agent.inference.on_numpy import HalvedAffine
from controller.learning.agent.inference.packing import BLOCK, in_pairs
from controller.learning.values import Floats


def _widened(weight: Floats) -> Floats:
    """Return weights rounded to bfloat16 and widened again."""
    words = in_pairs(weight)
    both = np.stack([words << 16, words & np.uint32(0xFFFF0000)], axis=2).view(np.float32)
    outputs, inputs = weight.shape
    return both.transpose(0, 3, 1, 2).reshape(len(words) * words.shape[2], -1)[:outputs, :inputs]


@pytest.mark.parametrize("outputs", [1, BLOCK - 1, BLOCK, BLOCK + 1, 512])
@pytest.mark.parametrize("inputs", [1, 6, 513])
def test_a_product_is_that_of_the_rounded_weights(outputs: int, inputs: int) -> None:
    chance = np.random.default_rng(outputs * 1000 + inputs)
    weight, figures = (chance.standard_normal(shape).astype(np.float32) for shape in ((outputs, inputs), (inputs,)))
    bias = chance.standard_normal(outputs).astype(np.float32)
    product = HalvedAffine(Affine(weight, bias))(figures)
    assert product.shape == (outputs,)
    exact = _widened(weight).astype(np.float64) @ figures.astype(np.float64) + bias
    assert product == pytest.approx(exact, abs=1e-6 * inputs)


def test_weights_are_rounded_to_the_nearest_and_ties_to_even() -> None:
    unit = np.float32(2.0**-7)  # of the last place between 1 and 2
    given = np.array([1, 1 + 0.49 * unit, 1 + 0.5 * unit, 1 + 1.5 * unit, -1 - 0.51 * unit, 0.0], np.float32)
    assert _widened(given[None])[0].tolist() == [1, 1, 1, 1 + 2 * unit, -1 - unit, 0]


def test_figures_of_another_number_are_refused() -> None:
    product = HalvedAffine(Affine(np.ones((2, 3), np.float32), np.zeros(2, np.float32)))
    with pytest.raises(ValueError, match="not"):
        product(np.ones(4, np.float32))
