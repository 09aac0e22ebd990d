"""The pool in machine code and its plain twin see, gain and refuse the same, bit for bit."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.learning.environment.pool import Pool
from controller.learning.environment.view import Refusal
from controller.learning.errors import LearningError
from controller.learning.values import Observation, Step
from tests.controller.learning.environment.pools import drawn_settings, drawn_system, drawn_workload
from tests.reference.pool import PlainPool


def _told(step: Step) -> tuple[object, ...]:
    return (
        step.reward,
        step.task,
        step.submitted_ns,
        step.wait_ns,
        step.latency_ns,
        step.response_ns,
        step.evicted_bytes,
        step.eviction_ns,
        step.elapsed_ns,
    )


def _same(native: Observation | None, plain: Observation | None) -> None:
    assert (native is None) == (plain is None)
    if native is not None and plain is not None:
        assert native.row.tobytes() == plain.row.tobytes()
        assert native.candidates.tolist() == plain.candidates.tolist()
        assert ((native.row >= 0) & (native.row <= 1)).all()


def _run(seed: int) -> Counter[str]:
    """Run both twins on seeded input; return the number of events of each kind."""
    rng = np.random.default_rng(seed)
    system, workload, rules = drawn_system(rng), drawn_workload(rng), drawn_settings(rng)
    native, plain = Pool(system, workload, rules), PlainPool(system, workload, rules)
    try:
        seen: Observation | None = plain.start(seed)
    except LearningError as error:
        with pytest.raises(LearningError, match=re.escape(str(error))):
            native.start(seed)
        assert native.refusals == plain.refusals
        return Counter(["nothing runs"])
    _same(native.start(seed), seen)
    counts: Counter[str] = Counter()
    while seen is not None:
        action = int(rng.choice(np.flatnonzero(seen.candidates)))
        assert native.predict(action) == plain.predict(action)
        for node in range(native.actions):
            assert (native.local_bytes(node), native.queued(node)) == (plain.local_bytes(node), plain.queued(node))
        assert (native.task, native.now_ns, native.candidates) == (plain.task, plain.now_ns, plain.candidates)
        ours, theirs = native.step(action), plain.step(action)
        assert _told(ours) == _told(theirs)
        _same(ours.observation, theirs.observation)
        counts.update(evictions=ours.evicted_bytes > 0, waits=ours.wait_ns > 0, steps=1)
        counts.update(loads=int(bool(seen.load.any())), blocked=int(bool((seen.load == 1).any())))
        counts.update(choices=int(seen.candidates.sum() > 1), gaps=not seen.candidates.all())
        seen = ours.observation
    assert native.refusals == plain.refusals
    counts.update(reason.name for reason in plain.refusals.values())
    return counts


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_fast_path_and_readable_reference_are_twins(seed: int) -> None:
    _run(seed)


def test_twin_inputs_cover_every_case() -> None:
    counts: Counter[str] = sum((_run(seed) for seed in range(40)), Counter())
    assert (
        min(
            counts[name] for name in ("evictions", "waits", "loads", "blocked", "choices", "gaps", *Refusal.__members__)
        )
        > 5
    )
    assert counts["steps"] > 700


def test_a_moment_that_was_saved_can_be_gone_back_to() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        system, workload, rules = drawn_system(rng), drawn_workload(rng), drawn_settings(rng)
        for pool in (Pool(system, workload, rules), PlainPool(system, workload, rules)):
            try:
                begun = pool.start(seed)
            except LearningError:
                continue
            saved = pool.save()
            first = _episode(pool, begun)
            again = pool.restore(saved)  # type: ignore[arg-type]
            assert again is not None
            assert _episode(pool, again) == first


def _episode(pool: Pool | PlainPool, seen: Observation | None) -> list[tuple[object, ...]]:
    """Take the first candidate each time; return the results."""
    steps = []
    while seen is not None:
        step = pool.step(int(np.argmax(seen.candidates)))
        steps.append((*_told(step), None if step.observation is None else step.observation.row.tobytes()))
        seen = step.observation
    return steps
