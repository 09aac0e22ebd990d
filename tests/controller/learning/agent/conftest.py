"""Seeded observations and experience for agents' tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from controller.learning.values import Experience, Observation

Observe = Callable[..., Observation]
Live = Callable[..., Experience]


def _observe(
    generator: np.random.Generator, actions: int = 4, *, network: bool = True, load: bool = False
) -> Observation:
    draw = generator.random
    return Observation.of(
        utilisation=draw(),
        operations=draw(),
        size=draw(),
        is_write=float(generator.integers(2)),
        free=draw(actions),
        similarity=draw(actions),
        delay=draw(actions) if network else None,
        bandwidth=draw(actions) if network else None,
        load=list(draw((7, actions))) if load else (),
        candidates=np.ones(actions, np.bool_),
    )


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Such small networks are slower in two threads than in one, above all on a busy machine."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    import torch  # noqa: PLC0415 - tests of what needs no PyTorch run without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def observe() -> Observe:
    return _observe


@pytest.fixture
def live() -> Live:
    def make(generator: np.random.Generator, actions: int = 4) -> Experience:
        seen, following = _observe(generator, actions), _observe(generator, actions)
        action = int(generator.integers(actions))
        return Experience(seen, action, float(seen.free[action]), following, 1000)

    return make
