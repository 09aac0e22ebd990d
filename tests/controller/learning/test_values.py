"""Observations: their features in two forms."""

from __future__ import annotations

import numpy as np
import pytest

from controller.learning.errors import LearningError
from controller.learning.values import Observation


def _observation(network: bool = True) -> Observation:
    return Observation.of(
        utilisation=0.5,
        operations=0.25,
        size=0.125,
        is_write=1,
        free=[0.1, 0.2],
        similarity=[0.3, 0.4],
        candidates=[True, False],
        delay=[0.5, 0.6] if network else None,
        bandwidth=[0.7, 0.8] if network else None,
    )


def test_flat_form_has_common_features_then_each_vector() -> None:
    flat = _observation().flat()
    np.testing.assert_allclose(flat, [0.5, 0.25, 0.125, 1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], rtol=1e-6)
    assert flat.dtype == np.float32


def test_a_token_an_action_has_the_common_features_and_its_own() -> None:
    tokens = _observation().tokens()
    np.testing.assert_allclose(tokens[0], [0.5, 0.25, 0.125, 1, 0.1, 0.3, 0.5, 0.7], rtol=1e-6)
    np.testing.assert_allclose(tokens[1], [0.5, 0.25, 0.125, 1, 0.2, 0.4, 0.6, 0.8], rtol=1e-6)


def test_features_of_the_network_can_be_switched_off() -> None:
    off = _observation().without_network()
    assert not off.has_network
    assert (off.flat() == _observation(network=False).flat()).all()
    assert off.tokens().shape == (2, 6)
    assert (off.delay == 0).all()
    assert (off.bandwidth == 0).all()


def test_load_features_come_last_and_outlive_the_network_ones() -> None:
    load = np.arange(14).reshape(7, 2) / 16
    base = _observation()
    seen = Observation.of(
        utilisation=0.5,
        operations=0.25,
        size=0.125,
        is_write=1,
        free=base.free,
        similarity=base.similarity,
        candidates=base.candidates,
        delay=base.delay,
        bandwidth=base.bandwidth,
        load=list(load),
    )
    assert (seen.load == load).all()
    assert (seen.has_network, seen.has_load, seen.figures, base.has_load) == (True, True, 11, False)
    assert (seen.tokens()[1, -7:] == load[:, 1]).all()
    off = seen.without_network()
    assert (off.has_network, off.has_load) == (False, True)
    assert (off.load == load).all()
    assert (off.similarity == base.similarity).all()
    with pytest.raises(LearningError, match="not an observation"):
        Observation.of(
            utilisation=0, operations=0, size=0, is_write=0, free=[0], similarity=[0], load=[[0]], candidates=[True]
        )


def test_features_have_names() -> None:
    seen = _observation()
    assert (seen.utilisation, seen.operations, seen.size, seen.is_write) == (0.5, 0.25, 0.125, 1.0)
    np.testing.assert_allclose(seen.free, [0.1, 0.2], rtol=1e-6)
    np.testing.assert_allclose(seen.bandwidth, [0.7, 0.8], rtol=1e-6)


def test_features_of_unequal_lengths_are_no_observation() -> None:
    with pytest.raises(LearningError, match="not an observation"):
        Observation.of(utilisation=0, operations=0, size=0, is_write=0, free=[0], similarity=[0, 0], candidates=[True])
