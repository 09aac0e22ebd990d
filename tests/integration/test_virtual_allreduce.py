"""All-reduces over real frames in virtual time: one switch, two levels, losses, deaths, and concurrent jobs."""

from __future__ import annotations

import numpy as np
import pytest

from controller.network.aggregation.registry import Registry
from dataplane.allreduce import formats
from dataplane.allreduce.formats import BLOCK, Floats
from dataplane.topology.addressing import switch_ipv4
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import LinkKey
from dataplane.wire import aggregation
from dataplane.wire.aggregation import Aggregation, Kind
from tests.integration.virtual_allreduce import MS, Rank, World, ranks


@pytest.fixture(scope="module")
def racks() -> World:
    """Return four racks of two hosts, the same for all tests: jobs come and go."""
    return World(leaf_spine(2, 4, 2))


@pytest.fixture(scope="module")
def rack() -> World:
    """Return one rack of four hosts."""
    return World(leaf_spine(1, 1, 4))


def hosts(*places: int) -> list[str]:
    return [f"h{number}" for number in places]


def numbers(hosts: int, size: int, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).normal(size=(hosts, size)).astype(np.float32)


def begin(working: dict[str, Rank], values: Floats, first_item: int = 0, *, mean: bool = False) -> None:
    for rank, mine in zip(working.values(), values, strict=True):
        rank.reduce(mine, first_item, mean=mean)


def results(working: dict[str, Rank]) -> list[Floats]:
    sums = []
    for rank in working.values():
        if rank.alive:
            assert rank.worker is not None
            assert rank.worker.is_done, rank.host
            sums.append(rank.worker.result)
    return sums


def assert_sums(working: dict[str, Rank], values: Floats, capacity: int | None = None) -> None:
    """All have the same, and that is numpy's sum within the format's bound."""
    exact = values.astype(np.float64).sum(axis=0)
    sums = results(working)
    greatest = int(np.frexp(float(np.abs(values).max()))[1]) + formats.BIAS
    bound = formats.error_bound(greatest, len(values), capacity or len(values))
    for result in sums:
        assert np.array_equal(result, sums[0])
    assert np.abs(sums[0] - exact).max() <= bound + float(np.abs(exact).max()) * 2.0**-24


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_one_switch_adds_up_for_its_hosts(rack: World, loss: float) -> None:
    job = rack.start(hosts(1, 2, 3, 4))
    assert rack.tree(job).root == "leaf1"
    working = ranks(rack, job, loss=loss)
    values = numbers(4, 12 * BLOCK + 7)
    begin(working, values, first_item=2**32 - 5)
    rack.run(30 * MS)
    assert_sums(working, values)
    rack.stop(job)


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_two_levels_add_up_for_four_racks(racks: World, loss: float) -> None:
    job = racks.start(hosts(*range(1, 9)))
    assert racks.tree(job).root.startswith("spine")
    working = ranks(racks, job, loss=loss)
    values = numbers(8, 12 * BLOCK)
    begin(working, values)
    racks.run(30 * MS)
    assert_sums(working, values)
    if loss == 0:
        assert {rank.sent for rank in working.values()} == {13}
    racks.stop(job)


def test_worker_alone_in_its_rack_contributes_to_the_root(racks: World) -> None:
    job = racks.start(hosts(1, 2, 3, 5, 6))
    assert [child for child in racks.tree(job).children if isinstance(child, str)] == ["h3"]
    working = ranks(racks, job)
    values = numbers(5, 3 * BLOCK)
    begin(working, values, mean=True)
    racks.run(10 * MS)
    assert results(working)[2] == pytest.approx(values.mean(axis=0), abs=1e-6)
    racks.stop(job)


@pytest.mark.parametrize(
    ("racked", "loss", "gap_ns", "root_first"),
    [(False, 0.0, 0, True), (True, 0.05, 0, True), (True, 0.05, 150_000, True), (True, 0.05, 150_000, False)],
)
def test_survivors_finish_without_a_worker_that_dies(
    rack: World, racks: World, racked: bool, loss: float, gap_ns: int, root_first: bool
) -> None:
    """Completed items include the dead worker's values, others do not; the survivors agree on which are which."""
    world = racks if racked else rack
    job = world.start(hosts(*range(1, 9 if racked else 5)), window=2)
    working = ranks(world, job, loss=loss)
    values = numbers(len(working), 16 * BLOCK)
    begin(working, values)
    dead = working["h2"]
    while dead.worker is None or len(dead.worker._received) < 6:
        world.run(5_000)
    dead.alive = False
    world.run(3 * MS)
    assert not any(rank.worker is not None and rank.worker.is_done for rank in working.values())
    world.leave(job, "h2", gap_ns=gap_ns, root_first=root_first)
    world.run(40 * MS)
    totals = results(working)
    assert len(totals) == len(working) - 1
    for result in totals:
        assert np.array_equal(result, totals[0])
    rows = totals[0].reshape(-1, BLOCK)
    everybody = values.astype(np.float64).sum(axis=0).reshape(-1, BLOCK)
    survivors = everybody - values[1].reshape(-1, BLOCK)
    with_dead, without = (np.abs(rows - sums).max(axis=1) < 1e-5 for sums in (everybody, survivors))
    assert (with_dead != without).all()
    assert with_dead[0]
    assert without[-1]
    world.stop(job)


def test_a_rack_whose_workers_all_die_is_done_without(racks: World) -> None:
    job = racks.start(hosts(*range(1, 9)))
    working = ranks(racks, job)
    for host in ("h3", "h4"):
        working[host].alive = False
        racks.leave(job, host)
    values = numbers(8, 2 * BLOCK)
    values[2:4] = 0
    begin(working, values)
    racks.run(10 * MS)
    assert_sums(working, values)
    assert racks.jobs.job(job).members.epoch == 3
    racks.stop(job)


def test_jobs_do_not_touch_each_other(racks: World) -> None:
    """They share root, leaves and hosts, and the numbers of their items."""
    first, second = racks.start(hosts(1, 2, 3, 4), window=4), racks.start(hosts(4, 3, 2, 1), window=8)
    workers, other = ranks(racks, first, loss=0.05), ranks(racks, second, loss=0.05, seed=2)
    values, others = numbers(4, 5 * BLOCK), numbers(4, 5 * BLOCK, seed=9) * 1000
    begin(workers, values)
    begin(other, others)
    racks.run(30 * MS)
    assert_sums(workers, values)
    assert_sums(other, others)
    racks.stop(first)
    again, more = ranks(racks, second, loss=0.05, seed=3), numbers(4, 2 * BLOCK, seed=4)
    following = next(iter(other.values())).worker
    assert following is not None
    begin(again, more, following.next_item)
    racks.run(20 * MS)
    assert_sums(again, more)
    racks.stop(second)


def test_cells_that_another_job_had_are_as_new(rack: World) -> None:
    for seed in (1, 2):
        rack.jobs._registry = Registry()
        job = rack.start(hosts(1, 2, 3, 4))
        assert job == 1  # the same again, and the same items
        values = numbers(4, 2 * BLOCK, seed)
        working = ranks(rack, job)
        begin(working, values)
        rack.run(5 * MS)
        assert_sums(working, values)
        rack.stop(job)


def test_the_main_server_gets_what_is_final_and_can_ask_again(racks: World) -> None:
    job = racks.start(hosts(1, 2, 3, 4), server="h8")
    got: list[Aggregation] = []
    racks.fabric.host("h8").on_frame(lambda frame, _: got.append(aggregation.decode(frame, 42)))
    working = ranks(racks, job)
    begin(working, numbers(4, BLOCK))
    racks.run(5 * MS)
    assert got == []
    for rank in working.values():
        rank.final = True
    values = numbers(4, BLOCK, seed=2)
    begin(working, values, first_item=2)
    racks.run(5 * MS)
    assert_sums(working, values)
    assert [(packet.kind, packet.item, packet.workers) for packet in got] == [
        (Kind.RESULT, 2, 4),
        (Kind.RESULT, 3, 4),
    ]
    root = switch_ipv4(racks.topology.switch[racks.tree(job).root].node_id)
    pull = Aggregation(Kind.PULL, job, 3, 0, values=bytes(4 * BLOCK), nonce=racks.jobs.job(job).placed.job.nonce)
    racks.send("h8", 30_000, root, pull)
    racks.run(5 * MS)
    assert (got[2].kind, got[2].values) == (Kind.AGAIN, got[1].values)
    racks.stop(job)


def cut_off(world: World) -> tuple[int, dict[str, Rank], Floats]:
    """Return a job of eight that cannot end, because the cable between leaf2 and the root is broken."""
    job = world.start(hosts(*range(1, 9)))
    working = ranks(world, job)
    values = numbers(8, 20 * BLOCK)
    begin(working, values)
    world.run(15_000)
    world.fabric.set_link("leaf2", world.tree(job).root, up=False)
    world.run(3 * MS)
    assert not any(rank.worker is not None and rank.worker.is_done for rank in working.values())
    return job, working, values


def test_frames_that_are_lost_on_a_broken_cable_are_sent_again(racks: World) -> None:
    job, working, values = cut_off(racks)
    racks.fabric.set_link("leaf2", racks.tree(job).root, up=True)
    racks.run(20 * MS)
    assert_sums(working, values)
    racks.stop(job)


def test_sums_go_around_a_dead_link(racks: World) -> None:
    job, working, values = cut_off(racks)
    root = racks.tree(job).root
    racks.controller.link_changed(LinkKey("leaf2", root), up=False)
    racks.run(20 * MS)
    assert_sums(working, values)
    racks.fabric.set_link("leaf2", root, up=True)
    racks.controller.link_changed(LinkKey("leaf2", root), up=True)
    racks.stop(job)


def test_a_switch_that_has_restarted_adds_up_again(racks: World) -> None:
    job = racks.start(hosts(*range(1, 9)))
    working = ranks(racks, job)
    values = numbers(8, 3 * BLOCK)
    begin(working, values)
    racks.run(5 * MS)
    assert_sums(working, values)
    first = working["h1"].worker
    assert first is not None
    racks.restart("leaf2")
    begin(working, values, first.next_item)
    racks.run(5 * MS)
    assert_sums(working, values)
    racks.stop(job)


def test_root_restarting_between_racks_results_adds_up_again(racks: World) -> None:
    """Leaves with the result would answer their workers with it, and contribute no more to those that lack it."""
    job = racks.start(hosts(*range(1, 9)))
    working = ranks(racks, job)
    values = numbers(8, 3 * BLOCK)
    root = racks.tree(job).root
    assert root.startswith("spine")
    begin(working, values)
    racks.run(5 * MS)
    first = working["h1"].worker
    assert first is not None
    racks.fabric.lose(root, "leaf4", lost=True)
    begin(working, values, first.next_item)
    racks.run(5 * MS)
    received = {rank.host: len(rank.worker._received) for rank in working.values() if rank.worker is not None}
    assert [host for host, count in received.items() if not count] == ["h7", "h8"]
    racks.restart(root)
    racks.controller.sync_jobs()
    racks.fabric.lose(root, "leaf4", lost=False)
    for _ in range(20):
        for rank in working.values():
            repeat(rank)
        racks.run(1 * MS)
    assert_sums(working, values)
    racks.stop(job)


def repeat(rank: Rank) -> None:
    """Send what others may lack, as the engine does where nothing arrives (dataplane/allreduce/kernels/replay.py)."""
    worker = rank.worker
    assert worker is not None
    for number in sorted(worker._received):
        rank._send(worker._contribution(number, worker._schedule.parts[number]))


def test_a_worker_joins_between_two_reductions(racks: World) -> None:
    """A worker that learns of another epoch in transit adopts it: no other action is needed."""
    job = racks.start(hosts(1, 2, 3, 4, 5, 6), capacity=8)
    working = ranks(racks, job)
    values = numbers(6, 2 * BLOCK)
    begin(working, values)
    racks.run(5 * MS)
    assert_sums(working, values, capacity=8)
    first = working["h1"].worker
    assert first is not None
    racks.leave(job, "h2")
    racks.join(job, "h7")
    racks.join(job, "h2")
    working = ranks(racks, job)
    assert sorted(working) == hosts(1, 2, 3, 4, 5, 6, 7)
    values = numbers(7, 3 * BLOCK, seed=2)
    begin(working, values, first.next_item)
    racks.run(5 * MS)
    assert_sums(working, values, capacity=8)
    racks.stop(job)


def test_a_switch_adds_up_for_64_workers() -> None:
    world = World(leaf_spine(1, 1, 64))
    job = world.start(hosts(*range(1, 65)))
    working = ranks(world, job, loss=0.01)
    values = numbers(64, 2 * BLOCK)
    begin(working, values)
    world.run(20 * MS)
    assert_sums(working, values)
    world.leave(job, "h64")
    last = working.pop("h64")
    assert last.worker is not None
    begin(working, values[:63], last.worker.next_item)
    world.run(20 * MS)
    assert_sums(working, values[:63], capacity=64)
