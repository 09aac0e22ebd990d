"""The Gymnasium interface, against the real package."""

from __future__ import annotations

import builtins
import importlib
import sys
from typing import Any

import numpy as np
import pytest

from controller.learning.environment.pool import Pool
from controller.learning.environment.settings import Gain, PoolSettings
from controller.learning.errors import LearningError
from tests.controller.learning.environment.pools import PLAIN, closed, reads, two_and_pool

gymnasium = pytest.importorskip("gymnasium")
checker = importlib.import_module("gymnasium.utils.env_checker")


def _pool() -> Pool:
    return Pool(two_and_pool(), reads(*range(0, 100_000, 1000)), PLAIN)


def _environment(pool: Pool) -> Any:
    return importlib.import_module("controller.learning.environment.gym").GymEnvironment(pool)


def test_gymnasium_finds_nothing_wrong() -> None:
    checker.check_env(_environment(_pool()), skip_render_check=True)


def test_gymnasium_finds_nothing_wrong_with_load_features_either() -> None:
    pool = Pool(two_and_pool(), reads(0, 0, 50_000), PoolSettings(load_features=True, gain=Gain.RESPONSE))
    env = _environment(pool)
    assert env.observation_space.shape == (4 + 11 * 2,)
    checker.check_env(env, skip_render_check=True)


def test_episode_equals_the_pools() -> None:
    env, pool = _environment(_pool()), _pool()
    row, info = env.reset(seed=3)
    seen = pool.start(3)
    assert (row == seen.row).all()
    rewards, is_over = 0.0, False
    env.action_space.seed(0)
    while not is_over:
        action = env.action_space.sample(info["action_mask"])
        step = pool.step(int(action))
        row, reward, is_over, is_cut, info = env.step(action)
        assert (reward, info["response_ns"], is_cut) == (step.reward, step.response_ns, False)
        assert is_over == (step.observation is None)
        rewards += reward
    assert rewards > 0
    assert not row.any()
    assert not info["action_mask"].any()


def test_the_mask_has_the_candidates() -> None:
    pool = Pool(closed(two_and_pool(), 2, 0, from_ns=1000), reads(0, 50_000), PLAIN)
    env = _environment(pool)
    env.reset(seed=0)
    info = env.step(np.int64(0))[4]
    assert info["action_mask"].tolist() == [0, 1]
    with pytest.raises(LearningError, match="not a candidate"):
        env.step(np.int64(0))


def test_without_a_seed_the_generator_draws_one() -> None:
    env = _environment(_pool())
    env.reset(seed=1)
    first = [env.reset()[0] for _ in range(2)]
    env.reset(seed=1)
    assert all((again == former).all() for again, former in zip([env.reset()[0] for _ in range(2)], first, strict=True))
    with pytest.raises(LearningError, match=r"unknown options \['speed'\]"):
        env.reset(options={"speed": 1})


def test_missing_gymnasium_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "gymnasium":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "controller.learning.environment.gym", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'millrace-net\[gym\]'"):
        real("controller.learning.environment.gym")
