"""Effects of a decision, with figures worked out by hand; both twins."""

from __future__ import annotations

import numpy as np
import pytest

from controller.learning.environment.settings import Gain, Placing, PoolSettings
from controller.learning.environment.values import (
    Change,
    Engine,
    EngineKind,
    System,
    Task,
    Workload,
)
from controller.learning.environment.view import Refusal
from controller.learning.errors import LearningError
from tests.controller.learning.environment.pools import (
    ACCESS_NS,
    ARRIVING,
    FETCH_NS,
    GBPS,
    PLAIN,
    Maker,
    closed,
    cpu,
    load_of,
    node,
    reads,
    system,
    two_and_pool,
)


def test_missing_data_is_fetched_before_the_task_computes(make: Maker) -> None:
    pool = make(two_and_pool(), reads(0), PLAIN)
    pool.start(0)
    step = pool.step(0)
    assert (step.wait_ns, step.latency_ns, step.response_ns) == (0, FETCH_NS + ACCESS_NS, FETCH_NS + ACCESS_NS + 500)
    assert step.observation is None


def test_data_that_is_local_is_not_fetched_again(make: Maker) -> None:
    tasks = [Task(0, reads=(0,)), Task(20_000, reads=(0,))]
    pool = make(two_and_pool(), Workload.of(tasks, [1000]), PLAIN)
    pool.start(0)
    seen = pool.step(0).observation
    assert seen is not None
    assert seen.similarity.tolist() == [1.0, 0.0]
    assert seen.free.tolist() == [0.5, 1.0]
    assert pool.step(0).latency_ns == ACCESS_NS


def test_a_write_needs_no_fetch(make: Maker) -> None:
    pool = make(two_and_pool(), Workload.of([Task(0, writes=(0,))], [1000]), PLAIN)
    assert pool.start(0).is_write == 1.0
    assert pool.step(1).latency_ns == 20 + 1000


def test_data_moves_from_the_fast_memory_of_another_node(make: Maker) -> None:
    tasks = [Task(0, reads=(0,)), Task(20_000, reads=(0,)), Task(40_000, reads=(0,))]
    pool = make(two_and_pool(), Workload.of(tasks, [1000]), PLAIN)
    pool.start(0)
    pool.step(0)
    step = pool.step(1)
    assert step.latency_ns == 8000 + 1000 + 10 + ACCESS_NS
    assert step.observation is not None
    assert step.observation.similarity.tolist() == [0.0, 1.0]
    assert step.observation.free.tolist() == [1.0, 0.5]


def test_task_waits_for_data_under_way_with_arrivals_on(make: Maker) -> None:
    tasks = [Task(0, reads=(0,)), Task(100, reads=(0,)), Task(FETCH_NS + 1, reads=(0,))]
    base = system(node("a", cpu(3)), node("pool", slow_bytes=10_000))
    pool = make(base, Workload.of(tasks, [1000]), ARRIVING)
    pool.start(0)
    assert [pool.step(0).latency_ns for _ in tasks] == [FETCH_NS + ACCESS_NS, FETCH_NS - 100 + ACCESS_NS, ACCESS_NS]
    # Without the setting it is available from the decision on.
    pool = make(base, Workload.of(tasks, [1000]), PLAIN)
    pool.start(0)
    assert [pool.step(0).latency_ns for _ in tasks] == [FETCH_NS + ACCESS_NS, ACCESS_NS, ACCESS_NS]


def test_data_under_way_is_read_from_its_source_if_sooner(make: Maker) -> None:
    tasks = [Task(0, reads=(0,)), Task(100, reads=(0,)), Task(200, reads=(0,))]
    pool = make(two_and_pool(), Workload.of(tasks, [1000]), ARRIVING)
    pool.start(0)
    pool.step(0)
    # The pool sends it again from 8000 ns on. The first node has it from 9100 ns on, and would need 9010 more.
    assert pool.step(1).latency_ns == 8000 + FETCH_NS - 100 + ACCESS_NS
    # By now the pool is busy until 16,000 ns, and the first node no longer has it: sent a third time.
    assert pool.predict(0).served_ns == 16_000 + FETCH_NS + ACCESS_NS
    wide = system(node("a", cpu()), node("b", cpu()), node("pool", slow_bytes=100_000), delay_ns=1)
    tasks = [Task(0, reads=(0, 1, 2)), Task(100, reads=(0,))]
    pool = make(wide, Workload.of(tasks, [100, 1000, 900]), ARRIVING)
    pool.start(0)
    pool.step(0)
    # The first of three objects is at the first node after 901 ns; the pool sends the two others until 16,000 ns.
    assert pool.predict(1).served_ns == 800 + 101 + 800 + 1 + 10 + 10 + 100


def test_written_data_is_available_after_the_write(make: Maker) -> None:
    tasks = [Task(0, writes=(0,)), Task(100, reads=(0,)), Task(200, reads=(1,))]
    pool = make(two_and_pool(), Workload.of(tasks, [1000, 1000]), ARRIVING)
    pool.start(0)
    written_ns = pool.step(0).latency_ns
    assert written_ns == 20 + 1000
    assert pool.step(1).latency_ns == written_ns + 8000 + 1000 + 10 - 100 + ACCESS_NS
    # A transfer whose data has not arrived lets others pass: the node's port is busy from 100 to 8100 ns.
    assert pool.predict(1).served_ns >= 8100 + FETCH_NS + ACCESS_NS


def test_evicted_data_is_read_at_its_old_node_until_it_is_home(make: Maker) -> None:
    tasks = [Task(0, reads=(0,)), Task(50_000, reads=(1,)), Task(100_000, reads=(2,)), Task(100_001, reads=(0,))]
    pool = make(two_and_pool(), Workload.of(tasks, [1000] * 3), ARRIVING)
    pool.start(0)
    assert [pool.step(0).evicted_bytes for _ in tasks[:3]] == [0, 0, 1000]
    # The pool sends requested objects until 108,000 ns, the node its evicted one as long; it reaches the pool at
    # 109,010 ns.
    assert pool.predict(1).served_ns == 108_000 + 8000 + 1000 + 10 + ACCESS_NS


def test_transfer_survives_its_source_and_is_passed_on(make: Maker) -> None:
    # The node may return earlier: its memory's content may be gone.
    for back in ((), (Change(150, "pool", is_there=True),)):
        base, changes = two_and_pool(), (Change(100, "pool", is_there=False), *back)
        tasks = [Task(0, reads=(0,)), Task(200, reads=(0,))]
        pool = make(System(base.nodes, base.network, changes), Workload.of(tasks, [1000]), ARRIVING)
        pool.start(0)
        pool.step(0)
        assert pool.step(1).latency_ns == FETCH_NS + 8000 + 1000 + 10 - 200 + ACCESS_NS


def test_write_on_a_vanished_node_is_lost_but_not_the_home_copy(make: Maker) -> None:
    base, changes = two_and_pool(), (Change(100, "a", is_there=False),)
    tasks = [Task(0, writes=(0,)), Task(200, reads=(0,))]
    pool = make(System(base.nodes, base.network, changes), Workload.of(tasks, [1000]), ARRIVING)
    pool.start(0)
    pool.step(0)
    assert pool.step(1).latency_ns == FETCH_NS + ACCESS_NS


def test_least_recently_used_data_is_evicted_when_memory_is_full(make: Maker) -> None:
    tasks = [Task(ns * 100_000, reads=(number,)) for ns, number in enumerate([0, 1, 0, 2, 0, 1])]
    pool = make(two_and_pool(), Workload.of(tasks, [1000] * 3), PLAIN)
    pool.start(0)
    steps = [pool.step(0) for _ in tasks]
    assert [step.evicted_bytes for step in steps] == [0, 0, 0, 1000, 0, 1000]
    assert [step.eviction_ns for step in steps] == [0, 0, 0, 8000, 0, 8000]
    assert [step.latency_ns == ACCESS_NS for step in steps] == [False, False, True, False, True, False]


def test_reward_sums_utilisation_latency_and_bounded_penalty(make: Maker) -> None:
    settings = PoolSettings(
        placing=Placing.STRIPED, utilisation_weight=2.0, eviction_bound=-0.5, latency_unit_ns=10_000
    )
    tasks = [Task(ns * 100_000, reads=(number,)) for ns, number in enumerate([0, 1, 2])]
    pool = make(two_and_pool(), Workload.of(tasks, [1000] * 3), settings)
    pool.start(0)
    rewards = [pool.step(0).reward for _ in tasks]
    inverse = 10_000 / (FETCH_NS + ACCESS_NS)
    # One of two cores works.
    assert rewards[:2] == [2.0 * 0.5 + inverse] * 2
    assert rewards[2] == 2.0 * 0.5 + inverse - 0.8
    mild = PoolSettings(placing=Placing.STRIPED, eviction_bound=0, latency_unit_ns=1000)
    pool = make(two_and_pool(), Workload.of(tasks, [1000] * 3), mild)
    pool.start(0)
    assert [pool.step(0).reward for _ in tasks][2] == 0.5 + 0.0


def test_tasks_wait_for_a_slot_while_their_data_moves(make: Maker) -> None:
    pool = make(two_and_pool(), reads(0, 0, 0), PLAIN)
    pool.start(0)
    first, second, third = pool.step(0), pool.step(0), pool.step(1)
    # The pool sends one transfer after another; the third waits for two others.
    assert second.wait_ns == first.response_ns
    assert second.latency_ns == 16_000 + 1100 + ACCESS_NS
    assert third.wait_ns == 0
    assert third.latency_ns == 24_000 + 1100 + ACCESS_NS


def test_parallel_tasks_of_a_core_share_it(make: Maker) -> None:
    tasks = [Task(0, float_operations=1000) for _ in range(3)]
    pool = make(system(node("a", cpu(1, 2)), node("p", slow_bytes=10)), Workload.of(tasks, []), PLAIN)
    pool.start(0)
    steps = [pool.step(0) for _ in tasks]
    assert [(step.wait_ns, step.response_ns) for step in steps] == [(0, 1000), (0, 2000), (1000, 3000)]


def test_utilisation_is_of_the_whole_system(make: Maker) -> None:
    pool = make(
        system(node("a", cpu(2)), node("b", cpu(2)), node("p", slow_bytes=10_000)), reads(0, 0, 1, 90_000), PLAIN
    )
    seen = pool.start(0)
    shares = [seen.utilisation]
    for _ in range(3):
        following = pool.step(0).observation
        assert following is not None
        shares.append(following.utilisation)
    # A third task waits for one of the node's two cores; all have ended long before the last one arrives.
    assert shares == [0.0, 0.25, 0.5, 0.0]


def test_an_engine_of_the_node_that_ends_first_runs_the_task(make: Maker) -> None:
    gpu = Engine(EngineKind.GPU, 1, 10 * GBPS, 10 * GBPS)
    base = system(node("a", cpu(), gpu), node("b", cpu()), node("p", slow_bytes=10))
    tasks = [Task(0, float_operations=10_000), Task(0, int_operations=100, kinds=EngineKind.CPU.bit)]
    tasks.append(Task(0, float_operations=10_000, kinds=EngineKind.GPU.bit))
    pool = make(base, Workload.of(tasks, []), PLAIN)
    pool.start(0)
    assert pool.step(0).response_ns == 1000
    step = pool.step(0)
    assert step.response_ns == 200
    assert step.observation is not None
    assert step.observation.candidates.tolist() == [True, False]
    assert pool.step(0).response_ns == 2000


def test_graph_task_is_decided_on_after_its_predecessors(make: Maker) -> None:
    tasks = [
        Task(0, writes=(0,), float_operations=100),
        Task(0, writes=(1,), float_operations=5000),
        Task(0, reads=(0, 1), after=(0, 1)),
    ]
    pool = make(two_and_pool(), Workload.of(tasks, [1000, 1000], created=[0, 1]), PLAIN)
    pool.start(0)
    first, second = pool.step(0), pool.step(1)
    third = pool.step(1)
    assert second.observation is not None
    assert third.task == 2
    assert third.submitted_ns == max(first.response_ns, second.response_ns) == 20 + 1000 + 5000
    # One of its inputs is local, the other is fetched from where it was made.
    assert second.observation.similarity.tolist() == [0.5, 0.5]
    assert third.latency_ns == 8000 + 1000 + 10 + 2 * ACCESS_NS


def test_delay_and_bandwidth_are_those_of_the_data(make: Maker) -> None:
    base = two_and_pool()
    base.network.delay_ns[0, 2, 1] = 1_000_000
    base.network.rate_bps[0, 2, 1] = GBPS // 4
    pool = make(base, reads(0, 50_000), PLAIN)
    seen = pool.start(0)
    np.testing.assert_allclose(seen.delay, [np.log2(1001) / 64, np.log2(1_000_001) / 64], rtol=1e-6)
    assert seen.bandwidth.tolist() == [1.0, 0.25]
    off = make(base, reads(0), PoolSettings(network_features=False)).start(0)
    assert not off.has_network
    assert (off.flat() == seen.without_network().flat()).all()


def test_load_matches_slots_and_ports(make: Maker) -> None:
    base = two_and_pool()
    pool = make(base, reads(0, 0), PoolSettings(placing=Placing.STRIPED, load_features=True))
    first = pool.start(0)
    queued, wait, compute, arriving, leaving, fetching, evicting = first.load.tolist()
    assert queued == wait == arriving == leaving == evicting == [0, 0]
    assert compute == [load_of(500), load_of(500)]
    assert fetching == [load_of(FETCH_NS)] * 2
    step = pool.step(0)
    assert step.observation is not None
    queued, wait, compute, arriving, leaving, fetching, _ = step.observation.load.tolist()
    # One task for one slot: log2(1 + 1) of 8 bits. Data takes 8000 ns from the pool to the first node.
    assert queued == [1 / 8, 0]
    assert wait == [load_of(step.response_ns), 0]
    assert arriving == [load_of(8000), 0]
    assert leaving == [0, 0]
    assert fetching == [load_of(FETCH_NS + 8000)] * 2
    # The first node has 1000 bytes left, of 2000.
    pool = make(base, reads(0, 0, size=1500), PoolSettings(placing=Placing.STRIPED, load_features=True))
    pool.start(0)
    later = pool.step(0).observation
    assert later is not None
    assert later.load[6].tolist() == [load_of(1000), 0]
    off = make(base, reads(0, 0), PLAIN).start(0)
    assert (first.has_load, off.has_load, first.has_network) == (True, False, True)
    assert first.row[: len(off.row)].tolist() == off.row.tolist()
    assert not off.load.any()


def test_load_of_a_node_that_cannot_run_the_task_is_the_longest(make: Maker) -> None:
    settings = PoolSettings(placing=Placing.STRIPED, load_features=True, network_features=False)
    pool = make(closed(two_and_pool(), 2, 0, from_ns=1), reads(1), settings)
    seen = pool.start(0)
    assert seen.load[:, 0].tolist() == [0, 1, 1, 0, 0, 1, 1]
    assert (seen.load[:, 1] < 1).all()
    assert (seen.has_load, seen.has_network, seen.tokens().shape) == (True, False, (2, 13))


def test_a_plain_string_is_the_choice_that_it_names_or_refused() -> None:
    assert PoolSettings(placing="packed", gain="response") == PoolSettings(  # type: ignore[arg-type]
        placing=Placing.PACKED, gain=Gain.RESPONSE
    )
    assert PoolSettings(placing="packed").placing is Placing.PACKED  # type: ignore[arg-type]
    with pytest.raises(LearningError, match=r"^placing is 'pakced', not one of striped, scattered, packed$"):
        PoolSettings(placing="pakced")  # type: ignore[arg-type]
    with pytest.raises(LearningError, match=r"^gain is 'reward', not one of specification, response, log-response$"):
        PoolSettings(gain="reward")  # type: ignore[arg-type]


def test_infinite_latency_to_its_data_makes_a_node_no_candidate(make: Maker) -> None:
    pool = make(closed(two_and_pool(), 2, 0, from_ns=1000), reads(0, 50_000), PLAIN)
    assert pool.start(0).candidates.tolist() == [True, True]
    seen = pool.step(0).observation
    assert seen is not None
    assert seen.candidates.tolist() == [False, True]
    assert (seen.delay[0], seen.bandwidth[0]) == (1.0, 0.0)
    with pytest.raises(LearningError, match="node 0 is not a candidate for task 1"):
        pool.step(0)
    assert pool.step(1).task == 1


def test_a_rate_that_is_as_good_as_none_is_no_way(make: Maker) -> None:
    pool = make(two_and_pool(rate_bps=1), Workload.of([Task(0, reads=(0,)), Task(0)], [100_000]), PLAIN)
    pool.start(0)
    assert pool.refusals == {0: Refusal.NO_DATA}


def test_request_for_absent_data_is_refused_with_its_successors(make: Maker) -> None:
    tasks = [Task(0), Task(0, reads=(0,)), Task(0, after=(1,)), Task(0, after=(2, 0)), Task(5)]
    pool = make(two_and_pool(), Workload.of(tasks, [1000], created=[0]), PLAIN)
    pool.start(0)
    assert pool.step(0).observation is not None
    assert pool.step(0).task == 4
    assert pool.refusals == {1: Refusal.NO_DATA, 2: Refusal.AFTER_REFUSED, 3: Refusal.AFTER_REFUSED}


def test_data_that_fits_into_no_fast_memory_is_refused(make: Maker) -> None:
    pool = make(two_and_pool(), Workload.of([Task(0, reads=(0, 1)), Task(0)], [1000, 1001]), PLAIN)
    pool.start(0)
    assert pool.refusals == {0: Refusal.NO_ROOM}
    with pytest.raises(LearningError, match=r"no task can run on any node: no room for 1$"):
        make(two_and_pool(), Workload.of([Task(0, reads=(0,))], [2001]), PLAIN).start(0)


def test_room_that_cannot_be_made_is_no_room(make: Maker) -> None:
    # From 1 us on nothing can be returned from a: its data stays.
    pool = make(closed(two_and_pool(), 0, 2, from_ns=1000), reads(0, 50_000, size=1500), PLAIN)
    pool.start(0)
    seen = pool.step(0).observation
    assert seen is not None
    assert seen.candidates.tolist() == [False, True]


def test_nodes_vanish_and_join_between_decisions(make: Maker) -> None:
    changes = [
        Change(10, "a", is_there=False),
        Change(60_000, "a", is_there=True),
        Change(80_000, "pool", is_there=False),
    ]
    base = two_and_pool()
    tasks = [Task(ns, reads=(0,)) for ns in (0, 50_000, 70_000, 90_000)] + [Task(95_000, reads=(1,)), Task(99_000)]
    pool = make(System(base.nodes, base.network, tuple(changes)), Workload.of(tasks, [1000, 1000]), PLAIN)
    assert pool.start(0).candidates.tolist() == [True, True]
    seen = pool.step(0).observation
    assert seen is not None
    # The data that a kept is at its home again.
    assert seen.candidates.tolist() == [False, True]
    assert seen.similarity.tolist() == [0.0, 0.0]
    assert pool.step(1).latency_ns == FETCH_NS + ACCESS_NS
    assert pool.step(0).latency_ns == 8000 + 1000 + 10 + ACCESS_NS
    # The pool is gone: its object on a can be read, the one at home cannot.
    assert pool.step(0).latency_ns == ACCESS_NS
    assert pool.refusals == {4: Refusal.NO_DATA}
    assert pool.step(1).task == 5


def test_forecasts_come_true(make: Maker) -> None:
    pool = make(two_and_pool(), reads(0, 100, 200, 300), PLAIN)
    pool.start(0)
    for action in (0, 1, 0, 0):
        told = [pool.predict(node) for node in (0, 1)]
        assert told == [pool.predict(node) for node in (0, 1)]
        step = pool.step(action)
        end_ns, start_ns = step.submitted_ns + step.response_ns, step.submitted_ns + step.wait_ns
        assert (told[action].start_ns, told[action].end_ns) == (start_ns, end_ns)
        assert told[action].served_ns == step.submitted_ns + step.latency_ns


def test_the_end_is_the_end_until_a_new_start(make: Maker) -> None:
    pool = make(two_and_pool(), reads(0), PLAIN)
    first = pool.start(0)
    pool.step(0)
    with pytest.raises(LearningError, match="all tasks are decided on: start again"):
        pool.step(0)
    assert (pool.start(0).flat() == first.flat()).all()
    assert pool.step(0).response_ns == FETCH_NS + ACCESS_NS + 500


def test_own_slow_memory_needs_no_network(make: Maker) -> None:
    base = system(node("a", cpu(), slow_bytes=10_000), node("b", cpu()))
    pool = make(base, reads(0), PLAIN)
    seen = pool.start(0)
    assert seen.similarity.tolist() == [1.0, 0.0]
    assert (seen.delay[0], seen.bandwidth[0]) == (0.0, 1.0)
    assert pool.step(0).latency_ns == 100 + 2000 + ACCESS_NS


def test_a_network_and_a_change_hold_from_their_very_time_on(make: Maker) -> None:
    base = closed(two_and_pool(), 2, 0, from_ns=50_000)
    pool = make(
        System(base.nodes, base.network, (Change(60_000, "b", is_there=False),)), reads(0, 50_000, 59_999), PLAIN
    )
    pool.start(0)
    seen = pool.step(0).observation
    assert seen is not None
    assert seen.candidates.tolist() == [False, True]
    changed = System(base.nodes, two_and_pool().network, (Change(60_000, "b", is_there=False),))
    pool = make(changed, reads(0, 59_999, 60_000), PLAIN)
    pool.start(0)
    masks = [
        step.observation.candidates.tolist() for step in (pool.step(0), pool.step(0)) if step.observation is not None
    ]
    assert masks == [[True, True], [True, False]]


def test_created_data_is_lost_with_its_node(make: Maker) -> None:
    base = two_and_pool()
    changes = (Change(50_000, "a", is_there=False), Change(60_000, "a", is_there=True))
    tasks = [
        Task(0, writes=(0,)),
        Task(0, writes=(1,)),
        Task(70_000, reads=(1,)),
        Task(70_000, reads=(0,)),
        Task(70_000),
    ]
    pool = make(System(base.nodes, base.network, changes), Workload.of(tasks, [1000, 1000], created=[0]), PLAIN)
    pool.start(0)
    assert [pool.step(0).task for _ in range(4)] == [0, 1, 2, 4]
    assert pool.refusals == {3: Refusal.NO_DATA}


def test_actions_that_are_no_nodes_are_refused(make: Maker) -> None:
    pool = make(two_and_pool(), reads(0), PLAIN)
    pool.start(0)
    for action in (-1, 2, 99):
        with pytest.raises(LearningError, match=f"node {action} is not a candidate for task 0"):
            pool.step(action)
        with pytest.raises(LearningError, match=f"node {action} is not a candidate for task 0"):
            pool.predict(action)
    assert pool.step(1).task == 0
