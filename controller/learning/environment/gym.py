"""Environments with Gymnasium's interface, for other learners; needs the extra `gym`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from controller.learning.errors import LearningError
from controller.learning.values import Environment, Floats, Observation, Step

try:
    from gymnasium import Env
    from gymnasium.spaces import Box, Discrete
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Gymnasium is not installed: pip install 'millrace-net[gym]'", name="gymnasium"
    ) from error

_TOLD: Final = tuple(field.name for field in fields(Step) if field.name not in {"observation", "reward"})


class GymEnvironment(Env[Floats, np.int64]):
    """An environment of ours with Gymnasium's interface.

    Observations are `Observation.row`; `info["action_mask"]` (int8) has the candidates, as `Discrete.sample` takes
    them, and after a step `info` has its results (`wait_ns`, `latency_ns`, ...). An episode ends by termination; its
    last observation is all zeros, as there is nothing left to decide. An action that is not a candidate is an error.
    """

    def __init__(self, environment: Environment[Any]) -> None:
        self.environment = environment
        self.action_space = Discrete(environment.actions)
        self.observation_space = Box(0.0, 1.0, environment.start(0).row.shape, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Restart; the seed draws the placement of data, and without one Gymnasium's generator draws the seed."""
        super().reset(seed=seed)
        if options:
            raise LearningError(f"unknown options {sorted(options)}")
        drawn = int(self.np_random.integers(1 << 31)) if seed is None else seed
        return _seen(self.environment.start(drawn), self)

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Act; raise LearningError for an action that is not a candidate."""
        step = self.environment.step(int(action))
        row, info = _seen(step.observation, self)
        info.update((name, getattr(step, name)) for name in _TOLD)
        return row, step.reward, step.observation is None, False, info


def _seen(observation: Observation | None, env: GymEnvironment) -> tuple[Floats, dict[str, Any]]:
    mask: npt.NDArray[np.int8] = np.zeros(env.environment.actions, np.int8)
    if observation is None:
        assert env.observation_space.shape is not None
        return np.zeros(env.observation_space.shape, np.float32), {"action_mask": mask}
    return observation.row, {"action_mask": observation.candidates.astype(np.int8)}
