"""Reward terms beyond the specification's, and the predicted cost of a decision; both twins."""

from __future__ import annotations

import numpy as np
import pytest

from controller.learning.environment.settings import Gain, Placing, PoolSettings
from controller.learning.errors import LearningError
from controller.learning.values import Observation
from tests.controller.learning.environment.pools import (
    ACCESS_NS,
    FETCH_NS,
    Maker,
    closed,
    load_of,
    reads,
    two_and_pool,
)


def test_a_gain_of_the_response_departs(make: Maker) -> None:
    for gain, expected in ((Gain.RESPONSE, -4.0), (Gain.LOG_RESPONSE, -np.log2(1 + 4.0))):
        unit_ns = (FETCH_NS + ACCESS_NS + 500) // 4
        settings = PoolSettings(placing=Placing.STRIPED, gain=gain, latency_unit_ns=unit_ns)
        pool = make(two_and_pool(), reads(0), settings)
        pool.start(0)
        assert pool.step(0).reward == pytest.approx(expected, rel=1e-3)


def test_reward_counts_the_waits_behind_a_transfer(make: Maker) -> None:
    settings = PoolSettings(placing=Placing.STRIPED, gain=Gain.RESPONSE, latency_unit_ns=1, port_hz=1_000_000.0)
    pool = make(two_and_pool(), reads(0, 0), settings)
    pool.start(0)
    first, second = pool.step(0), pool.step(0)
    # The pool sends for 8000 ns, then for 16,000, and the node receives as long: 7 and 15 units of 1024 ns.
    assert -first.reward == pytest.approx(first.response_ns + 0.001 * (2 * 7**2) * 1024**2 / 2)
    assert -second.reward == pytest.approx(second.response_ns + 0.001 * 2 * (15**2 - 7**2) * 1024**2 / 2)
    with pytest.raises(LearningError, match=r"^port_hz cannot be -1\.0$"):
        PoolSettings(port_hz=-1.0)


def test_reward_counts_the_waits_behind_a_held_slot(make: Maker) -> None:
    settings = PoolSettings(placing=Placing.STRIPED, gain=Gain.RESPONSE, latency_unit_ns=1, slot_hz=1_000_000.0)
    pool = make(two_and_pool(), reads(0, 0), settings)
    pool.start(0)
    # The node's one slot is held until the first task ends, then until the second ends.
    first, second = pool.step(0), pool.step(0)
    held = first.response_ns // 1024
    assert -first.reward == pytest.approx(first.response_ns + 0.001 * held**2 * 1024**2 / 2)
    more = (second.response_ns // 1024) ** 2 - held**2
    assert -second.reward == pytest.approx(second.response_ns + 0.001 * more * 1024**2 / 2)
    with pytest.raises(LearningError, match=r"^slot_hz cannot be inf$"):
        PoolSettings(slot_hz=float("inf"))


def test_foretold_cost_of_a_node_equals_the_reward(make: Maker) -> None:
    settings = PoolSettings(
        placing=Placing.STRIPED,
        load_features=True,
        foretold=True,
        gain=Gain.RESPONSE,
        latency_unit_ns=1,
        port_hz=200_000.0,
        slot_hz=100_000.0,
    )
    pool = make(two_and_pool(), reads(0, 0, 0, 1000, size=500), settings)
    seen: Observation | None = pool.start(0)
    for action in (0, 0, 1, 0):
        assert seen is not None
        foretold, step = seen.load[7], pool.step(action)
        assert foretold[action] == pytest.approx(load_of(round(-step.reward)), abs=1e-4)
        seen = step.observation
    with pytest.raises(LearningError, match=r"^foretold needs load_features and network_features$"):
        PoolSettings(foretold=True)


def test_foretold_cost_of_an_incapable_node_is_the_most(make: Maker) -> None:
    settings = PoolSettings(placing=Placing.STRIPED, load_features=True, foretold=True)
    pool = make(closed(two_and_pool(), 2, 0, from_ns=1), reads(1), settings)
    seen = pool.start(0)
    assert seen.load[7].tolist() == [1, pytest.approx(load_of(FETCH_NS + ACCESS_NS + 500), abs=1e-4)]
    assert (seen.has_load, seen.has_network, seen.figures) == (True, True, 12)
