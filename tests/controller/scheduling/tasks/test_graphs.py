"""Item 13: the walk of task graphs, upward ranks, and plans that reach beyond what is ready."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace as replaced

import numpy as np
import pytest
from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Task
from controller.apiserver.resources.predecessors import (
    DataInput,
    DataOutput,
    OnFailure,
    PredecessorEnd,
    cycle_in,
    cycle_text,
    cycle_through,
)
from controller.apiserver.resources.task import Program, ProgramKind, TaskPhase, TaskSpec, TaskStatus
from controller.cluster.estimates import Basis, Estimate
from controller.learning.agent.purpose import MadeFor
from controller.learning.policy.centres import Centres, observe
from controller.learning.policy.tasks import example
from controller.scheduling.tasks.estimating import Evidence, KnownType, options_of
from controller.scheduling.tasks.graphs.ranking import edges_of, ranked
from controller.scheduling.tasks.graphs.walking import standing_of, walk
from controller.scheduling.tasks.planning import Plan, order_of
from controller.scheduling.tasks.profiles import HEFT, TaskProfile
from controller.scheduling.tasks.slots import Slots
from controller.scheduling.tasks.values import CentreState, CentresView, Offer, Option, Options, PendingTask, Read
from dataplane.topology.values import DeviceKind

# The example of Topcuoglu, Hariri and Wu (2002): times on three processors, and the cost of each edge.
TIMES = {
    1: (14, 16, 9),
    2: (13, 19, 18),
    3: (11, 13, 19),
    4: (13, 8, 17),
    5: (12, 13, 10),
    6: (13, 16, 9),
    7: (7, 15, 11),
    8: (5, 11, 14),
    9: (18, 12, 20),
    10: (21, 7, 16),
}
EDGES = {
    1: {2: 18, 3: 12, 4: 9, 5: 11, 6: 14},
    2: {8: 19, 9: 16},
    3: {7: 23},
    4: {8: 27, 9: 23},
    5: {9: 13},
    6: {8: 15},
    7: {10: 17},
    8: {10: 11},
    9: {10: 13},
}
RANKS = {1: 108, 2: 77, 3: 80, 4: 80, 5: 69, 6: 63.333, 7: 42.667, 8: 35.667, 9: 44.333, 10: 14.667}
NAMES = ("p1", "p2", "p3")


def task(name: str, phase: TaskPhase = TaskPhase.PENDING, **spec: object) -> Task:
    made = TaskSpec(program=Program(kind=ProgramKind.SCRIPT, text="true"), **spec)  # type: ignore[arg-type]
    centre = "c1" if phase is not TaskPhase.PENDING else None
    return Task(metadata=Metadata(name=name, uid=name), spec=made, status=TaskStatus(phase=phase, centre=centre))


def tasks(*made: Task) -> dict[str, Task]:
    return {each.metadata.name: each for each in made}


def test_cycles_are_found_and_named_along_predecessors() -> None:
    edges = {"a": ("b", "x"), "b": ("c",), "c": ("a",), "x": (), "y": ("a",)}
    assert cycle_in(edges) == ("a", "b", "c", "a")
    assert cycle_in({"a": ("b", "gone"), "b": ()}) == ()
    assert cycle_in({"a": ("a",)}) == ("a", "a")
    assert cycle_through("c", ("a",), lambda name: edges.get(name, ())) == ("c", "a", "b", "c")
    assert cycle_through("y", ("x",), lambda name: edges.get(name, ())) == ()
    assert cycle_text([str(number) for number in range(40)]).endswith("9 -> 10 -> 28 more -> 39")


@pytest.mark.parametrize("seed", range(6))
def test_cycle_is_found_exactly_if_there_is_one(seed: int) -> None:
    rng = random.Random(seed)
    names = [str(number) for number in range(8)]
    edges = {name: tuple(rng.sample(names, rng.randrange(3))) for name in names}
    reached = {name: set(before) for name, before in edges.items()}
    for middle, name in itertools.product(names, names):
        if middle in reached[name]:
            reached[name] |= reached[middle]
    cycle = cycle_in(edges)
    assert bool(cycle) == any(name in reached[name] for name in names)
    assert all(before in edges[name] for name, before in itertools.pairwise(cycle))
    assert all(
        bool(cycle_through(name, before, lambda other: edges[other])) == (name in reached[name])
        for name, before in edges.items()
    )


@pytest.mark.parametrize(
    ("phase", "on_failure", "reason", "cancelled"),
    [
        (TaskPhase.RUNNING, "cancel", "runs after a", ""),
        (TaskPhase.SUCCEEDED, "cancel", "", ""),
        (TaskPhase.FAILED, "cancel", "", "cancelled, as its predecessor a has failed"),
        (TaskPhase.FAILED, "run", "", ""),
        (TaskPhase.FAILED, "wait", "its predecessor a has failed: it waits until a task of that name", ""),
        (None, "cancel", "", "cancelled, as its predecessor a was deleted"),
        (None, "run", "", ""),
        (None, "wait", "its predecessor a was deleted: it waits until a task of that name has", ""),
    ],
)
def test_predecessor_decides_by_its_end(phase: TaskPhase | None, on_failure: str, reason: str, cancelled: str) -> None:
    follower = task("b", after=("a",), on_failure=OnFailure(on_failure))
    standing = standing_of(follower, tasks(follower, *([] if phase is None else [task("a", phase)])))
    assert (standing.reason.startswith(reason), bool(standing.reason)) == (True, bool(reason))
    assert standing.cancelled == cancelled
    assert standing.is_ready == (not reason and not cancelled)


def test_success_on_record_outlives_the_predecessor() -> None:
    follower = task("b", after=("a",))
    end = PredecessorEnd(task="a", succeeded=True, centre="c1")
    follower = replace(follower, status=replace(follower.status, predecessors=(end,)))
    assert standing_of(follower, tasks(follower)).is_ready
    # Another task of that name has not to succeed, too.
    assert standing_of(follower, tasks(follower, task("a", TaskPhase.FAILED))).is_ready
    failed = replace(follower, status=replace(follower.status, predecessors=(replace(end, succeeded=False),)))
    assert standing_of(failed, tasks(failed, task("a", TaskPhase.SUCCEEDED))).is_ready
    assert standing_of(failed, tasks(failed, task("a"))).awaited == ("a",)


def test_tasks_of_a_cycle_wait_with_its_name() -> None:
    made = tasks(task("a", after=("b",)), task("b", after=("a",)), task("c", after=("b",)))
    standings = walk(made.values(), made)
    assert standings["a"].reason == standings["b"].reason == "its predecessors run after it: a -> b -> a"
    assert standings["c"].reason == "runs after b"


def test_edges_carry_what_is_stated_or_the_output() -> None:
    outputs = (DataOutput(name="rows", nbytes=100),)
    inputs = (DataInput(task="a", output="rows"), DataInput(task="a", nbytes=7), DataInput(task="d", nbytes=5))
    done = task("d", TaskPhase.SUCCEEDED)
    made = tasks(task("a", outputs=outputs), task("b", inputs=inputs), done, task("c", after=("b",)))
    standings = walk(made.values(), made)
    assert edges_of(made, standings, made) == {"a": {"b": 107}, "b": {"c": 0}}
    assert standings["b"].reads == (Read("", 5, "c1"),)


def example_ranks(s_per_byte: float) -> dict[int, float]:
    edges = {str(name): {str(after): cost for after, cost in followers.items()} for name, followers in EDGES.items()}
    run_s = {str(name): sum(times) / 3 for name, times in TIMES.items()}
    made = ranked(edges, run_s, s_per_byte, {str(name): name for name in TIMES})
    assert set(made.since_ns.values()) == {1}
    return {int(name): rank for name, rank in made.rank_s.items()}


def test_ranks_are_those_of_the_published_example() -> None:
    assert example_ranks(1.0) == pytest.approx(RANKS, abs=1e-3)


def test_ranks_count_tasks_where_no_run_time_is_known() -> None:
    run_s = dict.fromkeys("abc", float("nan"))
    assert ranked({"a": {"b": 0}, "b": {"c": 0}}, run_s, 1.0, dict.fromkeys("abcd", 5)).rank_s["a"] == 3.0
    apart = ranked({"a": {"b": 0}, "c": {"d": 0}}, {}, 0.0, {"a": 4, "b": 9, "c": 2, "d": 1})
    assert apart.since_ns == {"a": 4, "b": 4, "c": 1, "d": 1}


def seen(s_per_byte: float = 1.0) -> CentresView:
    """Return a view of three centres of a unit each."""
    offers = tuple(Offer(name, "cpu", 1) for name in NAMES)
    centres = {name: CentreState(name, is_probed=True) for name in NAMES}
    slots = tuple(Slots(1) for _ in NAMES)
    return CentresView(0, offers, centres, slots, between=lambda *_: (s_per_byte, True))


def options(view: CentresView, times: tuple[float, ...]) -> Options:
    items = (
        Option((name, "cpu"), 1, Estimate.exactly(time_s, Basis.MEASURED))
        for name, time_s in zip(NAMES, times, strict=True)
    )
    return Options.of(tuple(items), view.place)


def planned_end_s(ranks: dict[int, float], s_per_byte: float) -> float:
    """Return the end of a plan of the whole example, made at once, in the order of some ranks."""
    view, profile = seen(s_per_byte), TaskProfile.of(HEFT)
    plan, ends = Plan(view), dict[int, tuple[str, float]]()
    held: dict[str, list[tuple[float, float]]] = {name: [] for name in NAMES}
    pending = [PendingTask(f"t{name}", f"t{name}", rank_s=ranks[name], graph_since_ns=0) for name in TIMES]
    for each in order_of(pending):
        number = int(each.name[1:])
        before = {name: followers[number] for name, followers in EDGES.items() if number in followers}
        reads = tuple(Read("", cost, ends[name][0]) for name, cost in before.items())
        ready_s = max((ends[name][1] for name in before), default=0.0)
        at_last = replaced(each, reads=reads, ready_s=ready_s)
        verdict = plan.decide(profile, at_last, options(view, TIMES[number]))
        assert verdict.option is not None
        assert verdict.start_s >= ready_s
        centre = verdict.option.offer[0]
        assert all(verdict.finish_s <= begin or verdict.start_s >= end for begin, end in held[centre])
        held[centre].append((verdict.start_s, verdict.finish_s))
        ends[number] = (centre, verdict.finish_s)
    return ends[10][1]


@pytest.mark.parametrize(("s_per_byte", "by_rank_s", "by_arrival_s"), [(0.0, 48.0, 56.0), (0.3, 73.5, 82.8)])
def test_plan_by_rank_ends_before_one_by_arrival(s_per_byte: float, by_rank_s: float, by_arrival_s: float) -> None:
    """Computed once. HEFT's own schedule has tasks wait for data without a processor; here they hold their units."""
    by_arrival = {name: 100.0 - name for name in TIMES}
    assert planned_end_s(example_ranks(s_per_byte), s_per_byte) == pytest.approx(by_rank_s)
    assert planned_end_s(by_arrival, s_per_byte) == pytest.approx(by_arrival_s)


def test_mean_run_time_takes_the_shortest_at_each_offer() -> None:
    view = seen()
    made = options(view, (4.0, 8.0, 12.0))
    more = Options.of((*made.items, Option(("p1", "cpu"), 2, Estimate.exactly(1.0, Basis.MEASURED))), view.place)
    assert (made.mean_s, more.mean_s) == (8.0, 7.0)
    unknown = Option(("p1", "cpu"), 1, Estimate.unknown("never run"))
    assert np.isnan(Options.of((unknown,), view.place).mean_s)


def test_expected_run_time_counts_until_one_is_measured() -> None:
    with_gpu = Offer("a", "gpu", 2, devices=frozenset({DeviceKind.GPU}))
    stated = KnownType("x", expected_s=((DeviceKind.CPU, 6.0), (DeviceKind.GPU, 2.0)))
    for offer, time_s in ((with_gpu, 2.0), (Offer("a", "cpu", 2), 6.0)):
        (option, *_) = options_of(stated, offer, Evidence(), 0, 60.0)
        assert (option.estimate.seconds, option.estimate.basis) == (time_s, Basis.MODELLED)
    (option,) = options_of(stated, with_gpu, Evidence(runs_s={1: [3.0]}), 0, 60.0)[:1]
    assert (option.estimate.seconds, option.estimate.basis) == (3.0, Basis.MEASURED)
    only_gpu = KnownType("x", expected_s=((DeviceKind.GPU, 2.0),))
    assert not options_of(only_gpu, Offer("a", "cpu", 1), Evidence(), 0, 60.0)[0].estimate.is_known


def test_network_sees_the_data_of_predecessors() -> None:
    assert example(MadeFor("tasks", network=True, load=True)).actions == 1
    view = seen()
    pending = PendingTask("t", "t", reads=(Read("", 3 << 20, "p2"), Read("", 1 << 20, "p3")))
    timed = Plan(view).timed(pending, options(view, (1.0, 1.0, 1.0)))
    rows = np.arange(3)
    plain = observe(pending, timed, rows, Centres.of(view), has_network=True)
    assert plain.similarity.tolist() == [0.0, 0.75, 0.25]
    assert plain.size > 0
