"""Workers leave voluntarily: no worker lacks a result that another has, and none waits for one that has left."""

from __future__ import annotations

from tests.controller.network.aggregation.service.random_workers import SETTINGS, Crowd, Player, S, began, members_of


def test_workers_that_leave_by_will_are_no_loss() -> None:
    crowd, players = began("h1", "h2", "h3", "h4")
    for player in players:
        crowd.leave(player)
        crowd.settle()
    assert crowd.machine.ended[-1].reason == "all workers have left"
    assert not any(job.is_running for job in crowd.switches.values())


def one_ahead() -> tuple[Crowd, Player, Player]:
    """Return two workers; the first has one more result, and leaves."""
    crowd, (behind, ahead) = began("h1", "h2")
    crowd.work(behind)
    crowd.work(ahead)
    assert ahead.finished == behind.begun == behind.finished + 1
    crowd.leave(ahead)
    return crowd, ahead, behind


def test_leaving_worker_counts_until_others_have_its_results() -> None:
    crowd, ahead, behind = one_ahead()
    (job,) = crowd.switches.values()
    job.start_anew(behind.finished)
    while behind.inbox:
        crowd.deliver(behind)
    crowd.work(behind)
    assert behind.finished < ahead.finished, "a sum without the leaver"
    crowd.pass_time(10 * S)
    assert not crowd.pending
    crowd.help(ahead)
    crowd.work(behind)
    assert behind.sums[ahead.finished] == ahead.sums[ahead.finished] == {"h1", "h2"}
    crowd.settle()
    assert members_of(crowd) == {"h1"}
    assert ahead.over is not None
    assert ahead.over.reason == "h2 has left job job"
    assert behind.finished > ahead.finished


def test_leaving_worker_counts_as_long_when_disconnected() -> None:
    crowd, ahead, behind = one_ahead()
    crowd.disconnect(ahead)
    for _ in range(10):
        crowd.pass_time(S)
    assert members_of(crowd) == {"h1", "h2"}
    crowd.settle()
    assert members_of(crowd) == {"h1"}
    assert behind.sums[ahead.finished] == {"h1", "h2"}


def test_leaving_does_not_wait_for_dead_or_leaving_workers() -> None:
    crowd, ahead, behind = one_ahead()
    behind.is_dead = True
    crowd.disconnect(behind)
    crowd.pass_time(SETTINGS.reconnect_ns)
    crowd.settle()
    assert ahead.over is not None
    crowd, ahead, behind = one_ahead()
    crowd.leave(behind)
    crowd.settle()
    assert ahead.over is not None
    assert behind.over is not None
    assert crowd.machine.ended[-1].reason == "all workers have left"


def test_worker_joins_while_another_waits_to_leave() -> None:
    crowd, ahead, behind = one_ahead()
    joiner = crowd.come("h3", capacity=2)
    assert joiner.over is None
    crowd.settle()
    crowd.settle()
    assert members_of(crowd) == {"h1", "h3"}
    assert behind.sums[ahead.finished] == {"h1", "h2"}
    assert joiner.is_working
