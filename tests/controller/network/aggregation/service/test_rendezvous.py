"""Workers join, die, return and leave in any order: none waits forever, and membership is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from controller.common.errors import ControllerError
from controller.network.aggregation.service.job_state import Create, Notify, Phase, Remove
from controller.network.aggregation.service.rendezvous import Rendezvous
from controller.network.aggregation.service.settings import JobSettings
from dataplane.allreduce.jobs.messages import Barrier, Hello, Refused, View
from dataplane.allreduce.membership_state import EnterBarrier, Resume, RunUntil
from tests.controller.network.aggregation.service.random_workers import SETTINGS, Crowd, Player, S, began, members_of

RUNS = 300
EVENTS = 250


def phase_of(crowd: Crowd) -> Phase:
    (job,) = crowd.machine.jobs
    return job.phase


@pytest.mark.parametrize("start", range(0, RUNS, 50))
def test_all_workers_work_or_know_why_not(start: int) -> None:
    for seed in range(start, start + 50):
        crowd = Crowd(seed, workers=2 + seed % 3)
        for host in ("h1", "h2", "h3", "h4")[: 2 + seed % 3]:
            crowd.come(host)
        for _ in range(EVENTS):
            crowd.step()
        check_calm(crowd, seed)


def check_calm(crowd: Crowd, seed: int) -> None:
    crowd.calm_down()
    before = {id(player): player.finished for player in crowd.players}
    crowd.settle()
    assert not crowd.pending, f"seed {seed}"
    running = {number: job.members for number, job in crowd.switches.items() if job.is_running}
    shown = {job.installed.number: set(job.members) for job in crowd.machine.jobs if job.installed is not None}
    assert running == shown, f"seed {seed}"
    for player in crowd.players:
        if player.is_dead or player.has_left or player.over is not None:
            continue
        assert player.is_working, f"seed {seed}: {player.hello.token} waits"
        assert player.finished > before[id(player)], f"seed {seed}: {player.hello.token} does not get on"
        assert player.following.barrier is None, f"seed {seed}"


def test_the_first_so_many_make_the_job() -> None:
    crowd = Crowd(0, 3, troubles=False)
    crowd.come("h2")
    second = crowd.come("h1")
    assert not crowd.pending
    crowd.settle()
    assert second.following.present == ("h1", "h2")
    crowd.come("h3")
    (change,) = crowd.pending
    assert isinstance(change, Create)
    assert [worker.host for worker in change.workers] == ["h1", "h2", "h3"]
    crowd.settle()
    assert all(player.following.members == ("h1", "h2", "h3") for player in crowd.players)
    assert all(player.finished > 1 for player in crowd.players)


def asked(machine: Rendezvous, token: str, **change: Any) -> str:
    """Return the refusal of a joining worker, empty if accepted."""
    hello = replace(Hello("job", "h1", token, 2, 1000, 60 * S), **change)
    messages = [
        event.message for event in machine.connect(hello, 0) if isinstance(event, Notify) and event.token == token
    ]
    return "".join(message.reason for message in messages if isinstance(message, Refused))


def test_job_beyond_a_limit_is_refused_and_others_go_on() -> None:
    limits = structs.replace(SETTINGS, window=16, most_jobs=2, most_workers=3, most_cells=64)
    machine = Rendezvous(limits, ("h1", "h2"), S)
    cells = "job job: a window of 64 items takes 128 cells, more than the 64 of a job"
    assert asked(machine, "a", window=64) == cells
    assert asked(machine, "b", workers=4) == "job job: 4 workers exceed the limit of 3 per job"
    assert asked(machine, "c", capacity=4) == "job job: 4 workers exceed the limit of 3 per job"
    assert asked(machine, "d", window=32, capacity=3) == ""
    assert asked(machine, "e", job="other") == ""
    for number in range(100):
        assert (
            asked(machine, f"f{number}", job=f"{number}") == f"job {number}: the limit of 2 concurrent jobs is reached"
        )
    assert len(machine.jobs) == 2
    assert asked(machine, "g", job="other", host="h2") == ""  # a second worker of a host that has one
    assert machine.end("other", "enough", 0) is not None
    assert asked(machine, "h", job="third") == ""


def test_default_window_beyond_the_cell_limit_is_refused() -> None:
    JobSettings(window=1024).check()
    with pytest.raises(ControllerError, match=r"^jobs\.window: 2048 takes 4096 cells, most_cells is 2048$"):
        JobSettings(window=2048).check()


def test_all_hear_the_same_reason_when_there_is_no_place() -> None:
    crowd = Crowd(0, 2, troubles=False)
    players = [crowd.come("h1"), crowd.come("h2")]
    crowd.keep(*crowd.pending, works=False)
    crowd.settle()
    assert [player.over.reason for player in players if player.over] == ["job job: no cells are left"] * 2
    assert crowd.machine.jobs == ()


def test_worker_of_a_short_job_gets_the_list_of_joined() -> None:
    crowd = Crowd(0, 3, troubles=False)
    players = [crowd.come("h1"), crowd.come("h2")]
    crowd.calm_down(70)
    reasons = {player.over.reason for player in players if player.over}
    assert reasons == {"job job: only 2 of 3 workers (h1 h2) joined in time"}


def test_dead_worker_is_removed_after_the_reconnect_time() -> None:
    crowd, (_, dead, *_) = began("h1", "h2", "h3", "h4")
    dead.is_dead = True
    crowd.disconnect(dead)
    crowd.pass_time(SETTINGS.reconnect_ns - 1)
    assert not crowd.pending
    crowd.pass_time(1)
    assert [change for change in crowd.pending if isinstance(change, Remove)]
    crowd.settle()
    assert members_of(crowd) == {"h1", "h3", "h4"}
    assert crowd.players[0].following.members == ("h1", "h3", "h4")


def test_silent_worker_is_removed_and_notified_later() -> None:
    crowd, (paused, *_) = began("h1", "h2", "h3")
    paused.is_paused = True
    for _ in range(9):
        crowd.pass_time(S // 2)
        crowd.settle()
    assert members_of(crowd) == {"h2", "h3"}
    paused.is_paused = False
    crowd.settle()
    assert paused.over is not None
    assert paused.over.removed
    assert paused.over.reason == "h1 was removed from job job: it has been silent for 4.0 s"


def test_removed_worker_gets_the_reason_after_reconnecting() -> None:
    crowd, (paused, *_) = began("h1", "h2", "h3")
    paused.is_paused = True
    for _ in range(9):
        crowd.pass_time(S // 2)
        crowd.settle()
    crowd.disconnect(paused)  # the last message was in flight
    paused.is_paused = False
    crowd.reconnect(paused)
    crowd.settle()
    assert paused.over is not None
    assert paused.over.removed
    assert paused.over.reason == "h1 was removed from job job: it has been silent for 4.0 s"


def test_a_connection_that_breaks_and_comes_back_changes_nothing() -> None:
    crowd, (cut, *_) = began("h1", "h2")
    crowd.disconnect(cut)
    crowd.pass_time(SETTINGS.reconnect_ns // 2)
    crowd.reconnect(cut)
    crowd.calm_down(20)
    assert members_of(crowd) == {"h1", "h2"}
    assert cut.over is None


def test_job_below_half_ends_and_all_are_notified() -> None:
    crowd, players = began("h1", "h2", "h3", "h4")
    for player in players[1:]:
        player.is_dead = True
        crowd.disconnect(player)
    crowd.calm_down(10)
    assert players[0].over is not None
    assert players[0].over.reason == "job job has ended: 1 of 4 workers are left"
    assert not players[0].over.removed
    assert crowd.machine.jobs == ()
    assert crowd.machine.ended[-1].reason == "1 of 4 workers are left"


def test_half_of_the_workers_go_on() -> None:
    crowd, players = began("h1", "h2", "h3", "h4")
    for player in players[2:]:
        player.is_dead = True
        crowd.disconnect(player)
    crowd.calm_down(10)
    assert members_of(crowd) == {"h1", "h2"}


def test_half_counts_later_members() -> None:
    crowd, players = began("h1", "h2", capacity=4)
    players += [crowd.come(host, capacity=4) for host in ("h3", "h4")]
    crowd.calm_down(1)
    assert members_of(crowd) == {"h1", "h2", "h3", "h4"}
    for player in players[1:]:
        player.is_dead = True
        crowd.disconnect(player)
    crowd.calm_down(10)
    assert crowd.machine.ended[-1].reason == "1 of 4 workers are left"


def test_returning_worker_continues_with_the_others() -> None:
    crowd, (_, dead, *_) = began("h1", "h2", "h3")
    dead.is_dead = True
    crowd.disconnect(dead)
    crowd.pass_time(2 * S)
    crowd.settle()
    assert members_of(crowd) == {"h1", "h3"}
    back = crowd.come("h2")
    crowd.settle()
    assert members_of(crowd) == {"h1", "h2", "h3"}
    admitted = back.following.admitted
    assert admitted is not None
    assert admitted.first_count > 0
    assert back.finished > admitted.first_count


def test_restarted_worker_takes_its_place_at_once() -> None:
    crowd, (_, dead, _) = began("h1", "h2", "h3")
    dead.is_dead = True
    crowd.disconnect(dead)
    back = crowd.come("h2")
    crowd.settle()
    assert members_of(crowd) == {"h1", "h2", "h3"}
    assert back.is_working


def test_a_host_has_one_worker() -> None:
    crowd, _ = began("h1", "h2")
    second = crowd.come("h1")
    crowd.settle()
    assert second.over is not None
    assert second.over.reason == "job job: h1 already has a worker in it"


def test_hold_is_abandoned_if_a_worker_does_not_reach_it() -> None:
    crowd, (stuck, other) = began("h1", "h2", capacity=3)
    joiner = crowd.come("h3", capacity=3)
    stuck.inbox.clear()
    while other.inbox:
        crowd.deliver(other)
    assert phase_of(crowd) is Phase.HELD
    for _ in range(22):
        crowd.pass_time(S)
        stuck.inbox.clear()
    crowd.settle()
    assert joiner.over is not None
    assert joiner.over.reason == "job job: h1 did not report what it had started within 20 s"
    assert phase_of(crowd) is Phase.RUNNING
    assert other.limit is None


def test_a_job_moves_between_two_all_reduces() -> None:
    crowd, players = began("h1", "h2", "h3")
    (number,) = crowd.switches
    crowd.carry_out(crowd.machine.should_move(number, "s1 is busy", crowd.now_ns))
    crowd.settle()
    crowd.settle()
    assert [job.is_running for job in crowd.switches.values()] == [False, True]
    assert all(player.following.admitted and player.following.admitted.number == 2 for player in players)
    assert all(player.finished == players[0].finished > 6 for player in players)


def test_a_switch_that_fails_ends_the_job_for_all() -> None:
    crowd, players = began("h1", "h2")
    (number,) = crowd.switches
    crowd.switches[number].is_running = False
    crowd.carry_out(crowd.machine.job_failed(number, "switch s1 is dead", crowd.now_ns))
    assert not crowd.pending
    crowd.settle()
    assert [player.over and player.over.reason for player in players] == ["job job has ended: switch s1 is dead"] * 2


def held_for(host: str, capacity: int = 3) -> tuple[Crowd, list[Player], Player]:
    """Return a job of two whose switches are adding a third."""
    crowd, players = began("h1", "h2", capacity=capacity)
    joiner = crowd.come(host, capacity=capacity)
    while not crowd.pending:
        for player in players:
            while player.inbox:
                crowd.deliver(player)
            crowd.work(player)
    return crowd, players, joiner


def test_members_have_the_switches_epoch_after_a_refused_join() -> None:
    crowd, players, joiner = held_for("h3")
    crowd.keep(*crowd.pending, works=False)
    crowd.settle()
    assert joiner.over is not None
    assert joiner.over.reason == "job job: no cells are left"
    assert {player.following.admitted and player.following.admitted.epoch for player in players} == {3}


def test_a_change_that_has_begun_is_not_given_up_however_late() -> None:
    crowd, players, joiner = held_for("h3")
    ((change, _),) = crowd.pending.items()
    count = players[0].finished
    for _ in range(24):
        crowd.pending[change] = crowd.now_ns
        crowd.pass_time(S)
        for player in players:
            crowd.work(player)
    assert [player.finished for player in players] == [count] * 2
    crowd.settle()
    assert joiner.is_working
    assert members_of(crowd) == {"h1", "h2", "h3"}


def test_a_worker_that_dies_while_it_is_taken_in_may_come_again() -> None:
    crowd, _, joiner = held_for("h3")
    joiner.is_dead = True
    crowd.disconnect(joiner)
    again = crowd.come("h3", capacity=3)
    crowd.calm_down(5)
    assert again.is_working
    assert members_of(crowd) == {"h1", "h2", "h3"}


@pytest.mark.parametrize("troubles", [True, False])
def test_job_ended_during_a_change_is_removed_from_switches(*, troubles: bool) -> None:
    crowd = Crowd(0, 2, troubles=False)
    players = [crowd.come("h1"), crowd.come("h2")]
    if troubles:
        crowd.settle()
        crowd.carry_out(crowd.machine.remove("job", "h1", "requested by an operator", crowd.now_ns) or [])
    assert len(crowd.pending) == 1
    crowd.carry_out(crowd.machine.end("job", "requested by an operator", crowd.now_ns) or [])
    crowd.settle()
    assert all(player.over for player in players)
    assert not any(job.is_running for job in crowd.switches.values())


def test_a_move_that_cannot_be_is_not_tried_at_once_again() -> None:
    crowd, (stuck, other) = began("h1", "h2")
    crowd.carry_out(crowd.machine.should_move(1, "s1 is busy", crowd.now_ns))
    for _ in range(22):
        stuck.inbox.clear()
        crowd.pass_time(S)
    assert phase_of(crowd) is Phase.RUNNING
    crowd.settle()
    assert other.number == 1


def test_news_may_come_twice() -> None:
    _, (worker, _) = began("h1", "h2")
    admitted = worker.following.admitted
    assert admitted is not None
    assert worker.following.take(admitted) == []
    held = View(1, admitted.aggregator, admitted.root, 1, ("h1", "h2"), Barrier(7, None, S), contributors=2)
    assert worker.following.take(held) == worker.following.take(held) == [EnterBarrier(7, S)]
    assert worker.following.overdue() == [Resume(1, 2)]
    assert worker.following.overdue() == []


def test_a_move_that_was_missed_is_made_before_the_next_hold() -> None:
    _, (worker, _) = began("h1", "h2")
    follow = worker.following
    assert follow.take(View(1, "10.0.1.254", "10.0.1.254", 1, ("h1", "h2"), Barrier(7, 3, S))) == [
        EnterBarrier(7, S),
        RunUntil(7, 3),
    ]
    moved = View(2, "10.0.2.254", "10.0.2.254", 1, ("h1", "h2"), Barrier(8, None, S), nonce=77, contributors=2)
    orders = follow.take(moved)
    assert orders == [Resume(1, 2, "10.0.2.254", 2, 77), EnterBarrier(8, S)]


def test_newcomers_start_with_all_others_after_reconnecting() -> None:
    crowd, players, first = held_for("h3", 4)
    second = crowd.come("h4", capacity=4)
    crowd.keep(*crowd.pending)
    assert len(crowd.pending) == 1
    crowd.disconnect(first)
    crowd.reconnect(first)
    assert not first.inbox
    crowd.settle()
    for joiner in (first, second):
        assert joiner.following.admitted is not None
        assert joiner.following.admitted.newcomers == ("h3", "h4")
    assert all(player.is_working for player in (*players, first, second))


def test_worker_of_an_earlier_controller_is_refused() -> None:
    crowd, (first, _) = began("h1", "h2")
    crowd.machine = Crowd(0, 2).machine
    crowd.reconnect(first)
    crowd.settle()
    assert first.over is not None
    assert first.over.reason == "job job has ended: the controller does not know its number 1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"host": "h9"}, "the topology has no host 'h9'"),
        ({"job": ""}, "a job name must have 1 to 200 printable characters"),
        ({"workers": 3}, "h3 asks for workers 3, the others for 2"),
        ({"window": 8}, "h3 asks for window 8, the others for 256"),
        ({"window": 9}, "a window of 9 items is not a power of two"),
        ({"capacity": 1}, "2 workers do not fit a capacity of 1"),
        ({"capacity": 65_536}, "2 workers do not fit a capacity of 65536"),
        ({"udp_port": 0}, "UDP port 0 or 0 is invalid"),
        ({"server": ("h9", 1)}, "the topology has no host 'h9'"),
        ({"server": ("h5", 1)}, "h3 asks for main server ('h5', 1), the others for None"),
        ({"boundaries": True}, "h3 asks for boundaries True, the others for False"),
        ({}, "it already has all 2 workers"),
    ],
)
def test_misfitting_worker_gets_the_reason(change: dict[str, object], reason: str) -> None:
    crowd, _ = began("h1", "h2")
    misfit = crowd.come("h3", **change)
    crowd.settle()
    assert misfit.over is not None
    assert misfit.over.reason.endswith(f": {reason}")


def test_people_can_end_a_job_and_remove_a_worker() -> None:
    crowd, players = began("h1", "h2", "h3", "h4")
    crowd.carry_out(crowd.machine.remove("job", "h2", "requested by an operator", crowd.now_ns) or [])
    crowd.settle()
    assert members_of(crowd) == {"h1", "h3", "h4"}
    assert crowd.machine.remove("job", "h2", "again", crowd.now_ns) is None
    crowd.carry_out(crowd.machine.end("job", "requested by an operator", crowd.now_ns) or [])
    crowd.settle()
    assert players[0].over is not None
    assert players[0].over.reason == "job job has ended: requested by an operator"
    assert crowd.machine.end("job", "again", crowd.now_ns) is None
