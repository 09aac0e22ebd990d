"""The pool in machine code and its plain twin see, gain and refuse the same, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.schedulers.learning.environment.plain import PlainPool
from controller.schedulers.learning.environment.pool import Pool
from controller.schedulers.learning.environment.settings import Placing, PoolSettings
from controller.schedulers.learning.environment.values import (
    ANY_ENGINE,
    Change,
    Engine,
    EngineKind,
    Medium,
    Memory,
    Network,
    Node,
    System,
    Task,
    Workload,
)
from controller.schedulers.learning.errors import LearningError
from controller.schedulers.learning.values import Observation, Step
from tests.controller.schedulers.learning.environment.pools import GBPS

_RATES = (1, 999_999_937, 8 * GBPS, 100 * GBPS)
_KINDS = (*(kind.bit for kind in EngineKind), ANY_ENGINE, ANY_ENGINE, ANY_ENGINE)


@st.composite
def _memories(draw: st.DrawFn, *, slow: bool) -> Memory:
    wait_ns = st.sampled_from([0, 3, 100, 20_000])
    rate = st.sampled_from([GBPS // 3, 8 * GBPS])
    capacity = 10_000_000 if slow else draw(st.integers(500, 6000))
    return Memory(Medium.NVM if slow else Medium.DRAM, capacity, draw(wait_ns), draw(wait_ns), draw(rate), draw(rate))


@st.composite
def _engines(draw: st.DrawFn) -> Engine:
    rates = st.sampled_from([GBPS // 7, GBPS, 50 * GBPS])
    kind = draw(st.sampled_from(list(EngineKind)))
    return Engine(kind, draw(st.integers(1, 3)), draw(rates), draw(rates), draw(st.integers(1, 3)))


@st.composite
def _systems(draw: st.DrawFn) -> System:
    with_engines, without = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    nodes = [
        Node(
            f"n{number}",
            tuple(draw(st.lists(_engines(), min_size=1, max_size=2))),
            tuple(draw(_memories(slow=place > 0)) for place in range(draw(st.integers(1, 2)))),
        )
        for number in range(with_engines)
    ]
    nodes += [Node(f"p{number}", (), (draw(_memories(slow=True)),)) for number in range(without)]
    drawn = np.random.default_rng(draw(st.integers(0, 1000)))
    shape = (draw(st.integers(1, 3)), len(nodes), len(nodes))
    times = np.arange(shape[0], dtype=np.int64) * draw(st.integers(1, 60_000))
    delay_ns = drawn.choice([-1, 0, 500, 30_000, 500_000], shape, p=[0.05, 0.15, 0.4, 0.3, 0.1]).astype(np.int64)
    rate_bps = drawn.choice([0, *_RATES], shape, p=[0.02, 0.03, 0.25, 0.3, 0.4]).astype(np.int64)
    change = st.tuples(st.integers(0, 100_000), st.sampled_from([node.name for node in nodes]), st.booleans())
    changes = sorted(draw(st.lists(change, max_size=4)), key=lambda one: one[0])
    return System(tuple(nodes), Network(times, delay_ns, rate_bps), tuple(Change(*one) for one in changes))


@st.composite
def _workloads(draw: st.DrawFn) -> Workload:
    sizes = draw(st.lists(st.integers(1, 3000), min_size=1, max_size=8))
    numbers = st.lists(st.integers(0, len(sizes) - 1), max_size=4, unique=True)
    tasks: list[Task] = []
    time_ns = 0
    for number in range(draw(st.integers(1, 25))):
        time_ns += draw(st.sampled_from([0, 0, 100, 5000, 40_000]))
        used = draw(numbers)
        cut = draw(st.integers(0, len(used)))
        before = st.lists(st.integers(0, number - 1), max_size=2, unique=True) if number else st.just([])
        tasks.append(
            Task(
                time_ns,
                tuple(used[:cut]),
                tuple(used[cut:]),
                draw(st.integers(0, 20_000)),
                draw(st.integers(0, 3000)),
                draw(st.sampled_from(_KINDS)),
                tuple(draw(before)),
            )
        )
    return Workload.of(tasks, sizes, [0] if draw(st.booleans()) else [])


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


def _started(pool: Pool | PlainPool, seed: int) -> Observation | str:
    try:
        return pool.start(seed)
    except LearningError as error:
        return str(error)


@settings(max_examples=120, deadline=None)
@given(_systems(), _workloads(), st.booleans(), st.sampled_from(list(Placing)), st.integers(0, 9))
def test_fast_path_and_readable_reference_are_twins(
    system: System, workload: Workload, network: bool, placing: Placing, seed: int
) -> None:
    rules = PoolSettings(placing=placing, network_features=network)
    native, plain = Pool(system, workload, rules), PlainPool(system, workload, rules)
    first, second = _started(native, seed), _started(plain, seed)
    if isinstance(first, str) or isinstance(second, str):
        assert first == second
        assert native.refusals == plain.refusals
        return
    drawn = np.random.default_rng(seed)
    seen: Observation | None = first
    _same(first, second)
    while seen is not None:
        action = int(drawn.choice(np.flatnonzero(seen.candidates)))
        assert native.foretell(action) == plain.foretell(action)
        for node in range(native.actions):
            assert (native.local_bytes(node), native.queued(node)) == (plain.local_bytes(node), plain.queued(node))
        assert (native.task, native.now_ns, native.candidates) == (plain.task, plain.now_ns, plain.candidates)
        ours, theirs = native.step(action), plain.step(action)
        assert _told(ours) == _told(theirs)
        _same(ours.observation, theirs.observation)
        assert native.refusals == plain.refusals
        seen = ours.observation
