"""Migration of trees: only if worthwhile, lasting and with room; and away from dead links."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectors.values import Snapshot
from controller.network.aggregation.job_migration import (
    MOST_JUDGED,
    BetterTree,
    MigrationPolicy,
    better_tree,
    dead_links,
    hops_without,
)
from controller.network.aggregation.jobs import Jobs, RunningJob
from controller.network.aggregation.settings import MoveSettings
from controller.network.base_paths import next_hops
from controller.network.intents import AggregationTree, Worker
from controller.network.tables.aggregation import Block
from controller.network.tables.routing import port_towards
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import LinkKey
from tests.controller.network.aggregation.states import nominal

TOPOLOGY = leaf_spine(2, 3, 2)
HOPS = next_hops(TOPOLOGY)
QUIET = nominal(TOPOLOGY)
S = 1_000_000_000


def made(jobs: Jobs, *places: int, window: int = 8) -> RunningJob:
    workers = [Worker(f"h{number}", 20_000) for number in places]
    return jobs.create(workers, QUIET, window=window, capacity=8)


def better(jobs: Jobs, job: RunningJob, state: Snapshot, *banned: str) -> BetterTree | None:
    return better_tree(TOPOLOGY, HOPS, state, job, taken=jobs.taken(), banned=banned)


@pytest.fixture
def jobs() -> Jobs:
    return Jobs(TOPOLOGY, HOPS)


def test_tree_moves_to_free_links(jobs: Jobs) -> None:
    job = made(jobs, 1, 2, 3, 4, 5, 6)
    assert job.placed.tree.root == "spine1"
    assert better(jobs, job, QUIET) is None
    moved = better(jobs, job, nominal(TOPOLOGY, spine1=0.9))
    assert moved is not None
    assert moved.tree.root == "spine2"
    assert str(moved) == "a tree rooted at spine2 costs 25% of the current one"


def test_former_member_does_not_count_for_migration(jobs: Jobs) -> None:
    job = made(jobs, 1, 2, 3, 4, 5)
    assert job.placed.tree.root == "spine1"
    busy = nominal(TOPOLOGY, leaf3=0.99, spine1=0.2)
    assert better(jobs, job, busy) is not None
    jobs.leave(job.number, "h5")
    assert better(jobs, jobs.job(job.number), nominal(TOPOLOGY, leaf3=0.99)) is None


def test_migration_needs_room_in_addition(jobs: Jobs) -> None:
    job = made(jobs, 1, 2, 3, 4, 5, 6)
    busy, full = nominal(TOPOLOGY, spine1=0.9), [Block(0, 8192)]
    assert better_tree(TOPOLOGY, HOPS, busy, job, taken={**jobs.taken(), "spine2": full}) is not None
    assert better_tree(TOPOLOGY, HOPS, busy, job, taken=dict.fromkeys(TOPOLOGY.switch, full)) is None


def test_a_tree_without_a_way_is_left_at_any_price(jobs: Jobs) -> None:
    job = made(jobs, 1, 2, 3, 4, 5, 6)
    cut = frozenset(LinkKey("spine1", f"leaf{number}") for number in (1, 2, 3))
    moved = better_tree(TOPOLOGY, hops_without(TOPOLOGY, cut), QUIET, job, taken=jobs.taken())
    assert moved is not None
    assert (moved.cost, moved.tree.root) == (None, "spine2")
    assert str(moved) == "its current tree is broken; a tree rooted at spine2 works"


def test_job_migrates_after_confirmed_gain_then_is_held_down() -> None:
    mover = MigrationPolicy(MoveSettings(gain=0.25, confirm_rounds=3, hold_down_ns=10 * S))
    tree = AggregationTree("spine2", ("h1",))
    worth, little = BetterTree(tree, 100.0, 75.0), BetterTree(tree, 100.0, 76.0)
    rounds = [worth, worth, little, worth, worth, worth, worth, None, worth, worth, worth, worth, worth, worth, worth]
    asked = [second for second, offer in enumerate(rounds) if mover.step({7: offer}, second * S)]
    assert asked == [5]
    assert [number for number, _ in mover.step({7: BetterTree(tree, None, 1.0)}, 15 * S)] == [7]
    mover.moved(7, 8, 20 * S)
    assert [second for second in range(21, 35) if mover.step({8: worth}, second * S)] == [30]


def test_many_jobs_are_judged_in_turn(jobs: Jobs) -> None:
    mover = MigrationPolicy(MoveSettings())
    running = [made(jobs, 1, 2, window=1) for _ in range(MOST_JUDGED + 5)]
    first, second = mover.judged(running), mover.judged(running)
    assert len(first) == len(second) == MOST_JUDGED
    assert {job.number for job in (*first, *second)} == {job.number for job in running}
    assert mover.judged([]) == []


def test_link_is_dead_at_near_total_loss_or_long_silence() -> None:
    lossy, silent, access = LinkKey("leaf1", "spine1"), LinkKey("spine2", "leaf2"), LinkKey("h1", "leaf1")
    links = dict(QUIET.links)
    links[lossy] = replace(links[lossy], loss=0.95)
    links[access] = replace(links[access], loss=1.0)
    links[silent] = replace(links[silent], age_ns=3 * S)
    state = replace(QUIET, links=links)
    assert dead_links(TOPOLOGY, state, MoveSettings()) == {lossy}
    assert dead_links(TOPOLOGY, state, MoveSettings(dead_link_after_ns=2 * S)) == {lossy, silent}


def test_ways_avoid_both_directions_of_a_dead_link() -> None:
    hops = hops_without(TOPOLOGY, {LinkKey("leaf1", "spine1")})
    port = port_towards(TOPOLOGY, hops, "spine1", "leaf1")
    assert port is not None
    assert TOPOLOGY.neighbours["spine1"][port].node in {"leaf2", "leaf3"}
    assert hops_without(TOPOLOGY, frozenset()) == HOPS
