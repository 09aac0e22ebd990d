"""Jobs from beginning to end: places of workers, and no traces of refused jobs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from finsy import P4TableAction, P4TableEntry

from controller.common.errors import ControllerError
from controller.network.aggregation.jobs import Jobs
from controller.network.base_paths import next_hops
from controller.network.intents import AggregationTree, Leaf, Members, Worker
from controller.network.tables.aggregation import Block
from dataplane.topology.families import leaf_spine
from tests.controller.network.aggregation.states import nominal

TOPOLOGY = leaf_spine(1, 3, 4)
HOPS = next_hops(TOPOLOGY)
STATE = nominal(TOPOLOGY)


def workers(*places: int) -> list[Worker]:
    return [Worker(f"h{number}", 20_000) for number in places]


@pytest.fixture
def jobs() -> Jobs:
    return Jobs(TOPOLOGY, HOPS)


def test_a_job_is_placed_and_its_workers_are_members(jobs: Jobs) -> None:
    job = jobs.create(workers(1, 2, 5, 6, 9), STATE, window=8, capacity=8)
    assert job.placed.tree == AggregationTree(
        "spine1", (Leaf("leaf1", ("h1", "h2")), Leaf("leaf2", ("h5", "h6")), "h9")
    )
    assert job.placed.blocks == dict.fromkeys(("spine1", "leaf1", "leaf2"), Block(0, 16))
    assert (job.number, job.members.epoch, len(job.members.workers)) == (1, 1, 5)
    assert jobs.entities_of(1).keys() == {"spine1", "leaf1", "leaf2"}


def test_links_lead_from_members_to_the_root(jobs: Jobs) -> None:
    number = jobs.create(workers(1, 2, 5, 6, 9), STATE, window=8, capacity=8).number
    # h9 has no rack of its own: it contributes to the root through its switch.
    assert {str(key) for key in jobs.links(number)} == {"leaf1->spine1", "leaf2->spine1", "leaf3->spine1"}
    jobs.leave(number, "h9")
    assert {str(key) for key in jobs.links(number)} == {"leaf1->spine1", "leaf2->spine1"}


def test_each_job_has_a_nonce_of_its_own_which_no_log_shows(jobs: Jobs) -> None:
    nonces = []
    for _ in range(8):
        job = jobs.create(workers(1, 2, 5, 6), STATE, window=8, capacity=8)
        nonces.append(job.placed.job.nonce)
        assert str(nonces[-1]) not in repr(job)
        for entities in jobs.entities_of(job.number).values():
            (entry,) = [entity for key, entity in entities.items() if key.table == "aggregation_jobs"]
            assert isinstance(entry, P4TableEntry)
            assert isinstance(entry.action, P4TableAction)
            assert entry.action.args["nonce"] == nonces[-1]
    assert len({*nonces}) == 8
    assert 2**48 < max(nonces) < 2**64


def test_a_switch_is_to_hold_a_job_when_its_cells_are_clear(jobs: Jobs) -> None:
    number = jobs.create(workers(1, 2, 5, 6), STATE, window=8, capacity=8).number
    assert jobs.to_clear("leaf1") == {number: Block(0, 16)}
    assert jobs.entities("leaf1") == {}
    jobs.cleared(number, "leaf1")
    assert jobs.to_clear("leaf1") == {}
    assert jobs.entities("leaf1") == jobs.entities_of(number)["leaf1"]
    assert jobs.to_clear("leaf2")


def test_rejoining_worker_keeps_its_place_and_gets_its_new_port(jobs: Jobs) -> None:
    number = jobs.create(workers(1, 2, 5, 6), STATE, window=1, capacity=4).number
    before = jobs.job(number).placed.tree
    assert jobs.leave(number, "h1").members.workers == {"h2", "h5", "h6"}
    job = jobs.join(number, Worker("h1", 21_000))
    assert job.placed.tree == before
    assert {worker.udp_port for worker in job.placed.job.workers if worker.host == "h1"} == {21_000}
    assert job.members.epoch == 3


def test_new_worker_has_a_place_at_its_switch_or_the_root(jobs: Jobs) -> None:
    number = jobs.create(workers(1, 2, 5, 6), STATE, window=1, capacity=8).number
    for index in (3, 9, 10):
        jobs.join(number, Worker(f"h{index}", 1))
    leaves = Leaf("leaf1", ("h1", "h2", "h3")), Leaf("leaf2", ("h5", "h6"))
    assert jobs.job(number).placed.tree.children == (*leaves, "h9", "h10")
    jobs.leave(number, "h9")
    jobs.leave(number, "h1")
    for switch in ("spine1", "leaf1"):
        jobs.held(switch, jobs.entities_of(number)[switch])
    jobs.join(number, Worker("h11", 1))
    jobs.join(number, Worker("h4", 1))
    leaves = Leaf("leaf1", ("h4", "h2", "h3")), Leaf("leaf2", ("h5", "h6"))
    assert jobs.job(number).placed.tree.children == (*leaves, "h11", "h10")


def test_place_is_reused_once_its_switch_no_longer_counts_it(jobs: Jobs) -> None:
    number = jobs.create(workers(1, 2, 5, 6), STATE, window=1, capacity=8).number
    before = jobs.entities_of(number)["leaf1"]
    jobs.leave(number, "h1")
    jobs.held("leaf1", before)
    jobs.held("leaf2", {})
    jobs.join(number, Worker("h3", 1))
    assert jobs.job(number).placed.tree.children[0] == Leaf("leaf1", ("h1", "h2", "h3"))
    jobs.held("leaf1", jobs.entities_of(number)["leaf1"])
    jobs.join(number, Worker("h4", 1))
    assert jobs.job(number).placed.tree.children[0] == Leaf("leaf1", ("h4", "h2", "h3"))
    jobs.leave(number, "h4")
    jobs.join(number, Worker("h4", 2))
    jobs.leave(number, "h2")
    assert jobs._leaving == {(number, "h2"): "leaf1"}
    jobs.end(number)
    assert jobs._leaving == {}


@pytest.mark.parametrize("seed", range(3))
def test_entries_match_the_members_after_random_changes(jobs: Jobs, seed: int) -> None:
    chance = random.Random(seed)
    number = jobs.create(workers(1, 2, 5, 6), STATE, window=1, capacity=12).number
    for _ in range(60):
        members = jobs.job(number).members.workers
        host = f"h{chance.randrange(1, 13)}"
        if host not in members:
            job = jobs.join(number, Worker(host, chance.randrange(1, 65536)))
            assert job.members.workers == members | {host}
        elif len(members) > 1:
            jobs.leave(number, host)
        peers = [key for held in jobs.entities_of(number).values() for key in held if key.table == "aggregation_peers"]
        addresses = {dict(key.match)["src_addr"] for key in peers}
        hosts = jobs.job(number).members.workers
        assert addresses.intersection(int(host.ipv4) for host in TOPOLOGY.hosts) == {
            int(TOPOLOGY.host[host].ipv4) for host in hosts
        }


def test_refused_change_leaves_the_job_unchanged(jobs: Jobs) -> None:
    with pytest.raises(ControllerError, match="3 members exceed its capacity of 2"):
        jobs.create(workers(1, 2, 3), STATE, window=4096, capacity=2)
    number = jobs.create(workers(1, 2, 3), STATE, window=4096, capacity=3).number
    with pytest.raises(ControllerError, match="4 members exceed its capacity of 3"):
        jobs.join(number, Worker("h4", 1))
    with pytest.raises(ControllerError, match="h3 is already a member"):
        jobs.join(number, Worker("h3", 1))
    with pytest.raises(ControllerError, match="h4 is not a member"):
        jobs.leave(number, "h4")
    with pytest.raises(ControllerError, match="there is no host 'h99'"):
        jobs.join(number, Worker("h99", 1))
    assert jobs.job(number).members.epoch == 1
    jobs.leave(number, "h1")
    jobs.leave(number, "h2")
    with pytest.raises(ControllerError, match="members must be among its workers"):
        jobs.leave(number, "h3")
    assert jobs.job(number).members.workers == {"h3"}
    with pytest.raises(ControllerError, match="aggregation job 9: no such job"):
        jobs.end(9)


def test_cells_of_an_ended_job_are_free_once_no_switch_holds_it(jobs: Jobs) -> None:
    number = jobs.create(workers(1, 2), STATE, window=4096, capacity=2).number
    jobs.cleared(number, "leaf1")
    held = jobs.entities("leaf1")
    jobs.end(number)
    assert jobs.running == ()
    assert jobs.entities("leaf1") == {}
    jobs.held("leaf1", held)
    tree = jobs.create(workers(1, 2), STATE, window=4096, capacity=2).placed.tree
    assert tree.root != "leaf1"
    jobs.held("leaf1", {})
    again = jobs.create(workers(3, 4), STATE, window=4096, capacity=2)
    assert (again.placed.tree.root, again.number) == ("leaf1", number + 2)
    assert jobs.to_clear("leaf1") == {again.number: Block(0, 8192)}


def test_epochs_go_round(jobs: Jobs) -> None:
    number = jobs.create(workers(1, 2), STATE, window=1, capacity=2).number
    job = jobs.job(number)
    jobs._running[number] = replace(job, members=Members(0xFFFF, job.members.workers))
    assert jobs.leave(number, "h1").members.epoch == 0
