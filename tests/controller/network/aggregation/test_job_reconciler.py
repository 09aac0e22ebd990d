"""Calls for jobs: complete when the call returns, or not done at all with a one-line reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from finsy import P4MulticastGroupEntry
from finsy.p4entity import P4Replica

from collectors.errors import FeedError
from collectors.values import Snapshot
from controller.common.errors import ControllerError
from controller.network.intents import Worker
from controller.network.reconcile import diff
from controller.network.tables.entities import Kind, Update, key_of
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import LinkKey
from tests.controller.network.aggregation.states import nominal
from tests.controller.network.aggregation.writable_switches import Lab, Running, running

TOPOLOGY = leaf_spine(1, 2, 3)
ALL = {"spine1", "leaf1", "leaf2"}


def workers(*places: int) -> list[Worker]:
    return [Worker(f"h{number}", 20_000 + number) for number in places]


def play(scene: Callable[[Running], Awaitable[None]], lab: Lab | None = None) -> None:
    """Run a scene with a daemon whose switches are reconciled."""

    async def whole() -> None:
        async with running(lab or Lab(TOPOLOGY)) as run:
            await scene(run)

    asyncio.run(whole())


def test_job_is_in_all_its_switches_until_it_ends() -> None:
    async def scene(run: Running) -> None:
        job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=6))
        assert run.about(job.number).keys() == ALL
        assert all(run.is_right(name) for name in ALL)
        assert run.jobs.running == (job,)
        assert str(run.jobs.aggregator(job.number, "h4")) == "10.0.3.254"
        await run.of(run.jobs.end(job.number))
        assert run.about(job.number) == {}
        assert not run.jobs.running

    play(scene)


def test_cells_are_cleared_before_a_switch_knows_the_job() -> None:
    async def scene(run: Running) -> None:
        for _ in range(2):
            job = await run.of(run.jobs.create(workers(1, 2), window=4, capacity=2))
            log = run.lab.switches["leaf1"].log
            cells = [index for index, update in enumerate(log) if update.key.kind is Kind.REGISTER]
            job_writes = [index for index, update in enumerate(log) if update.key.table == "aggregation_jobs"]
            assert len(cells) == 8
            assert cells[-1] < job_writes[0]
            await run.of(run.jobs.end(job.number))
            log.clear()

    play(scene)


def test_members_leave_and_join_when_all_switches_know() -> None:
    async def scene(run: Running) -> None:
        job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=6))
        job = await run.of(run.jobs.leave(job.number, "h2"))
        assert (job.members.epoch, len(job.members.workers)) == (2, 3)
        assert all(run.is_right(name) for name in ALL)
        job = await run.of(run.jobs.join(job.number, Worker("h6", 26_000)))
        assert (job.members.epoch, "h6" in job.members.workers) == (3, True)
        assert all(run.is_right(name) for name in ALL)

    play(scene)


@pytest.mark.parametrize("can_clear", [True, False])
def test_leaves_of_a_root_that_restarts_are_cleared(can_clear: bool) -> None:
    """They hold results that the root cannot reproduce; bmv2, which clears nothing, keeps its jobs nevertheless."""

    async def scene(run: Running) -> None:
        job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))
        for switch in run.lab.switches.values():
            switch.cleared.clear()
            switch.can_clear = can_clear
        run.lab.stop("spine1")
        run.lab.switches["spine1"].has_program = False
        await run.until(lambda: "spine1" not in run.daemon.coordinator.live)
        run.lab.down.clear()
        await run.right()
        block = job.placed.blocks["leaf1"]
        for leaf in ("leaf1", "leaf2"):
            assert run.lab.switches[leaf].cleared == [*range(block.first, block.end)] * can_clear
        assert run.jobs.running == (job,)
        assert run.about(job.number).keys() == ALL

    play(scene)


def test_a_switch_that_restarts_has_its_jobs_again() -> None:
    async def scene(run: Running) -> None:
        job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))
        before = dict(run.lab.switches["leaf1"].tables)
        run.lab.stop("leaf1")
        await run.until(lambda: "leaf1" not in run.daemon.coordinator.live)
        run.lab.down.clear()
        await run.right()
        assert run.lab.switches["leaf1"].tables.keys() == before.keys()
        assert run.jobs.running == (job,)
        assert run.lab.failures == []

    play(scene)


def test_a_job_that_a_switch_has_no_room_for_is_nowhere() -> None:
    async def scene(run: Running) -> None:
        def refuse(update: Update) -> bool:
            return update.key.table == "aggregation_jobs"

        run.lab.switches["leaf2"].refuse = refuse
        with pytest.raises(
            ControllerError, match="switch leaf2: write: RESOURCE_EXHAUSTED: insert entry aggregation_jobs"
        ):
            await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))
        assert run.jobs.running == ()
        await run.right()
        assert run.about(1) == {}
        assert run.lab.failures == []
        run.lab.switches["leaf2"].refuse = lambda _: False
        job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4096, capacity=4))
        assert job.number == 2

    play(scene)


def test_job_is_given_up_if_a_switch_misses_the_deadline() -> None:
    async def scene(run: Running) -> None:
        run.lab.switches["leaf2"].is_stuck = True
        with pytest.raises(
            ControllerError, match=r"job 1: not in switch leaf2 \(entry aggregation_jobs.*within 0\.1 s"
        ):
            await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))
        run.lab.switches["leaf2"].is_stuck = False
        await run.right()
        assert run.about(1) == {}

    play(scene)


def test_a_job_ends_when_one_of_its_switches_is_away_too_long() -> None:
    async def scene(run: Running) -> None:
        job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))
        other = await run.of(run.jobs.create(workers(4, 5), window=4, capacity=4))
        run.lab.stop("leaf1")
        await run.until(lambda: bool(run.lab.failures))
        number, reason = run.lab.failures[0]
        assert number == job.number
        assert reason.startswith("switch leaf1 has been unreachable for 0.5 s: switch leaf1: connect: UNAVAILABLE")
        assert run.jobs.running == (other,)
        await run.until(lambda: not run.about(job.number))
        assert (await run.of(run.jobs.create(workers(1, 2), window=1, capacity=2))).placed.tree.root == "spine1"

    play(scene)


@pytest.mark.parametrize("is_new", [True, False])
def test_switch_without_clear_cells_takes_jobs_only_if_empty(is_new: bool) -> None:
    async def scene(run: Running) -> None:
        if is_new:
            job = await run.of(run.jobs.create(workers(1, 2), window=4, capacity=2))
            assert run.about(job.number).keys() == {"leaf1"}
            run.jobs.tables.jobs._registry.given = 0xFFFF
        with pytest.raises(
            ControllerError, match="switch leaf1: clear cells: UNIMPLEMENTED: it cannot clear cells and"
        ):
            await run.of(run.jobs.create(workers(1, 2), window=4, capacity=2))
        assert len(run.jobs.running) == is_new
        await run.right()

    lab = Lab(TOPOLOGY)
    lab.switches["leaf1"].can_clear = False
    lab.switches["leaf1"].has_program = not is_new
    play(scene, lab)


def test_multicast_follows_when_a_link_dies_and_when_it_is_back() -> None:
    async def scene(run: Running) -> None:
        job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))
        root, leaf = job.placed.tree.root, "leaf2"
        block = job.placed.blocks[root]

        def ports() -> set[int]:
            group = run.lab.switches[root].tables[key_of(P4MulticastGroupEntry(block.group))]
            assert isinstance(group, P4MulticastGroupEntry)
            return {replica.port for replica in group.replicas if isinstance(replica, P4Replica)}

        before, link = ports(), LinkKey(root, leaf)
        run.link_changed(link, up=False)
        await run.right()
        neighbours = run.lab.topology.neighbours[root]
        assert {neighbours[port].node for port in ports()} == {"leaf1"}
        run.link_changed(link, up=True)
        await run.right()
        assert ports() == before

    play(scene, Lab(leaf_spine(2, 2, 3)))


def test_a_job_is_asked_to_move_and_moves_under_a_new_number() -> None:
    async def scene(run: Running) -> None:
        topology = run.lab.topology
        job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=6))
        await run.of(run.jobs.leave(job.number, "h2"))
        assert (await run.of(run.moved(job.number))).number == job.number
        busy = nominal(topology, **{job.placed.tree.root: 0.9})
        for _ in range(3):
            assert run.lab.proposals == []
            run.jobs.observe(busy)
        assert [number for number, _ in run.lab.proposals] == [job.number]
        new = await run.of(run.moved(job.number))
        assert new.placed.tree.root not in {job.placed.tree.root, "leaf1"}
        assert new.members.workers == {"h1", "h4", "h5"}
        assert new.placed.job.capacity == 6
        assert run.jobs.running == (new,)
        assert run.about(job.number) == {}
        assert new.placed.tree.root in run.about(new.number)

    play(scene, Lab(leaf_spine(2, 2, 3)))


def test_leftover_job_is_removed_and_its_number_not_reused() -> None:
    async def scene(run: Running) -> None:
        await run.of(run.jobs.create(workers(1, 2), window=4, capacity=2))

    async def later(run: Running) -> None:
        assert run.about(1) == {}
        assert (await run.of(run.jobs.create(workers(1, 2), window=4, capacity=2))).number == 2

    lab = Lab(TOPOLOGY)
    play(scene, lab)
    assert any(dict(key.match).get("job") == 1 for key in lab.switches["leaf1"].tables)
    play(later, lab)


def test_jobs_follow_network_events_of_the_daemon(caplog: pytest.LogCaptureFixture) -> None:
    topology, heard = leaf_spine(2, 2, 3), asyncio.Event()
    link = LinkKey("spine1", "leaf2")
    busy = nominal(topology, spine1=0.9)

    async def states() -> AsyncIterator[Snapshot]:
        yield nominal(topology)
        await heard.wait()
        for number in range(1, 5):
            dead = replace(busy.links[link], loss=1.0, lost_packets=100 * number, samples=10)
            yield replace(busy, taken_ns=number, links={**busy.links, link: dead})
        raise FeedError("the collector speaks version 9")

    async def scene() -> None:
        async with running(Lab(topology), states=states()) as run:
            job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))
            assert job.placed.tree.root == "spine1"
            heard.set()
            await run.until(lambda: bool(run.lab.proposals))
            assert run.jobs.tables.dead == {link}
            await run.until(lambda: "network state feed ended: the collector speaks version 9" in caplog.text)
            await run.right()
            assert (await run.of(run.moved(job.number))).placed.tree.root == "spine2"

    asyncio.run(scene())


def test_moved_job_runs_while_a_switch_keeps_the_old_one() -> None:
    async def scene(run: Running) -> None:
        topology, left = run.lab.topology, run.lab.switches
        job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=6))
        run.jobs.observe(nominal(topology, **{job.placed.tree.root: 0.9}))
        moving = asyncio.ensure_future(run.moved(job.number))
        await run.until(lambda: len(run.jobs.running) == 2 and run.about(2).keys() == {"leaf1", "leaf2", "spine2"})
        left[job.placed.tree.root].is_stuck = True
        new = await run.of(moving)
        assert run.jobs.running == (new,)
        assert run.about(job.number).keys() == {job.placed.tree.root}
        left[job.placed.tree.root].is_stuck = False
        await run.right()
        assert run.about(job.number) == {}

    play(scene, Lab(leaf_spine(2, 2, 3)))


def test_entries_stay_when_all_links_are_reported_down() -> None:
    async def scene(run: Running) -> None:
        job = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))
        before = {name: dict(switch.tables) for name, switch in run.lab.switches.items()}
        for link in run.lab.topology.directed_links:
            if link.src in before and link.dst in before:
                run.link_changed(link, up=False)
        await run.right()
        assert all(diff(before[name], switch.tables) == [] for name, switch in run.lab.switches.items())
        assert run.jobs.running == (job,)

    play(scene)


def test_a_state_of_another_topology_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(run: Running) -> None:
        for _ in range(2):
            run.jobs.observe(nominal(leaf_spine(1, 1, 3), spine1=0.9))
        assert caplog.text.count("of a topology other than") == 1
        assert "ignoring network state of a topology other than leaf-spine-1-2-3: unknown " in caplog.text
        assert (await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))).placed.tree.root == "spine1"

    play(scene)


def test_a_job_is_not_placed_by_a_state_that_is_old() -> None:
    topology = leaf_spine(2, 2, 3)

    async def scene(run: Running) -> None:
        run.jobs.observe(nominal(topology, spine1=0.9))
        fresh = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))
        assert fresh.placed.tree.root == "spine2"
        run.lab.clock.advance_to(run.lab.clock.now_ns() + 3 * 10**9 + 1)
        old = await run.of(run.jobs.create(workers(1, 2, 4, 5), window=4, capacity=4))
        assert old.placed.tree.root == "spine1"

    play(scene, Lab(topology))
