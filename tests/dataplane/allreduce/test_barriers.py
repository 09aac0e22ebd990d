"""Workers held between two all-reduces while another joins, or the job moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dataplane.allreduce.client import AllReducer
from dataplane.allreduce.engine import EngineSettings
from dataplane.allreduce.errors import NoResultError
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.reference.aggregator import Job
from dataplane.allreduce.submission_queue import MOST_SUBMISSIONS, SubmissionQueue
from dataplane.allreduce.turns import Turns
from dataplane.errors import AllReduceError
from dataplane.wire.aggregation import Aggregation
from tests.dataplane.allreduce.serving import JOB, Server, Weather
from tests.waiting import wait_until

_STORM = Weather(loss=0.02, late=0.02, repeated=0.02)


@contextmanager
def _workers(server: Server, count: int, **more: int | float) -> Iterator[list[AllReducer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(AllReducer(_settings(server, **more))) for _ in range(count)]


def _settings(server: Server, **more: int | float) -> EngineSettings:
    wanted = {"epoch": 1, "patience_s": 9, "longest_timeout_s": 0.02} | more
    return EngineSettings("127.0.0.1", JOB, 16, 3, port=server.port, **wanted)  # type: ignore[arg-type]


def _ones(size: int = 5) -> NDArray[np.float32]:
    return np.ones(size, np.float32)


def test_worker_joins_between_two_all_reduces() -> None:
    sizes = [0, 1000, 2000, 3000, 4000, 4000, 5, 5, 5, 5]
    with Server(2, 16, _STORM) as server, _workers(server, 2) as workers:
        futures = [[worker.all_reduce(_ones(size)) for size in sizes[:4]] for worker in workers]
        futures[0] += [workers[0].all_reduce(_ones(size)) for size in sizes[4:]]  # the other is not that far
        futures[0][3].result(9)
        begun = max(worker.hold() for worker in workers)
        assert begun in (4, 5)
        futures[1] += [workers[1].all_reduce(_ones(size)) for size in sizes[4:]]
        (first,) = {future.result(9) for future in [worker.run_until(begun) for worker in workers]}
        assert [future.done() for future in futures[0]] == [number < begun for number in range(10)]
        server.switch.jobs[JOB] = Job(epoch=2, children=7, cells=32)
        with AllReducer(_settings(server, epoch=2, first_item=first, first_all_reduce=begun)) as joiner:
            for worker in workers:
                worker.release(2)
            assert all(np.all(joiner.all_reduce(_ones(size)).result(9) == 3) for size in sizes[begun:])
            for mine in futures:
                assert all(np.all(mine[at].result(9) == (2 if at < begun else 3)) for at in range(10))
            assert [worker.hold() for worker in [*workers, joiner]] == [10] * 3


def test_hold_suspends_the_timeout_and_restarts_it_on_release() -> None:
    with Server(2, 16) as server, _workers(server, 2, patience_s=0.15) as workers:
        waiting = workers[0].all_reduce(_ones())
        workers[0].hold()
        time.sleep(0.3)
        assert not waiting.done()
        workers[0].release()
        assert np.all(workers[1].all_reduce(_ones()).result(9) == 2)
        assert np.all(waiting.result(9) == 2)
        alone = workers[0].all_reduce(_ones())
        with pytest.raises(NoResultError):
            alone.result(9)


def test_a_hold_that_nobody_ends_fails_what_runs_and_what_waits() -> None:
    with Server(2, 16) as server, _workers(server, 2) as workers:
        running = [workers[0].all_reduce(_ones()) for _ in range(2)]
        wait_until(lambda: workers[0].begun > 0)
        assert workers[0].hold(0.1) == 1
        futures: list[Future[Any]] = [workers[0].run_until(1), *running]
        for future in futures:
            with pytest.raises(AllReduceError, match="did not release them in time; item 0"):
                future.result(9)
        with pytest.raises(AllReduceError, match="did not release them in time"):
            workers[0].hold()
        assert workers[1].hold(0.05) == 0
        with pytest.raises(AllReduceError, match=r"job 7: the service held all-reduces, of which 0 of 2 are done"):
            workers[1].run_until(2).result(9)
        with pytest.raises(AllReduceError, match=r"did not release them for 0.05 s"):
            workers[1].all_reduce(_ones()).result(9)


def test_who_has_a_reason_to_end_it_all_says_so() -> None:
    with Server(2, 16) as server, _workers(server, 2) as workers:
        running = [workers[0].all_reduce(_ones()) for _ in range(2)]
        workers[0].hold()
        waiting = workers[0].run_until(2)
        workers[0].fail(AllReduceError("job 7: its owner has ended it"))
        futures: list[Future[Any]] = [waiting, *running, workers[0].all_reduce(_ones())]
        for future in futures:
            with pytest.raises(AllReduceError, match="its owner has ended it"):
                future.result(9)


def test_who_is_told_of_epochs_does_not_take_them_from_refusals() -> None:
    with Server(2, 16) as server, _workers(server, 2, hears_refusals=False) as workers:
        server.switch.jobs[JOB] = Job(epoch=2, children=3, cells=32)
        waiting = [worker.all_reduce(_ones()) for worker in workers]
        wait_until(lambda: server.switch.counts.get("epoch", 0) >= 4)
        assert [worker.epoch for worker in workers] == [1, 1]
        assert not any(future.done() for future in waiting)
        for worker in workers:
            worker.set_epoch(2)
        assert all(np.all(future.result(9) == 2) for future in waiting)


def test_nothing_can_be_held_at_a_count_that_is_not_held_at_all() -> None:
    with Server(1, 16) as server, _workers(server, 1) as workers:
        with pytest.raises(AllReduceError, match="not held"):
            workers[0].run_until(3)
        with pytest.raises(AllReduceError, match="can only be moved while"):
            workers[0].release(3, job=9)
        assert np.all(workers[0].all_reduce(_ones()).result(9) == 1)


def test_announced_epoch_is_adopted_during_an_all_reduce() -> None:
    with Server(2, 16) as server, _workers(server, 2) as workers:
        waiting = workers[0].all_reduce(_ones())
        contributed = threading.Event()
        old: list[Aggregation] = []

        def count(packet: Aggregation) -> None:
            old.append(packet)
            contributed.set()

        server.before = count
        assert contributed.wait(9)
        server.switch.jobs[JOB] = Job(epoch=2, children=1, cells=32)
        workers[0].set_epoch(2)
        workers[0].set_epoch(1)  # old news
        assert np.all(waiting.result(9) == 1)
        assert workers[0].epoch == 2
        server.switch.jobs[JOB] = Job(epoch=3, children=1, cells=32)
        workers[0].set_epoch(3)
        assert workers[0].epoch == 3
        refused = server.switch.counts.get("epoch", 0)
        assert np.all(workers[0].all_reduce(_ones()).result(9) == 1)
        assert server.switch.counts.get("epoch", 0) == refused


def test_a_job_goes_on_at_another_switch_under_another_number() -> None:
    with (
        Server(2, 16, _STORM) as first,
        Server(2, 16, _STORM, at=("127.0.0.2", first.port)) as other,
        _workers(first, 2) as workers,
    ):
        other.switch.jobs[JOB + 1] = Job(epoch=1, children=3, cells=32)
        assert all(np.all(f.result(9) == 2) for f in [worker.all_reduce(_ones(3000)) for worker in workers])
        counts = [worker.hold() for worker in workers]
        later = [worker.all_reduce(_ones(3000)) for worker in workers]
        assert len({worker.run_until(max(counts)).result(9) for worker in workers}) == 1
        for worker in workers:
            worker.release(1, aggregator="127.0.0.2", job=JOB + 1)
        assert all(np.all(future.result(9) == 2) for future in later)
        assert other.switch.counts["complete"] > 12


def test_turns_come_in_order_up_to_where_they_are_held() -> None:
    turns = Turns("job 1")
    turns.begin()
    assert turns.hold(9) == 1
    turns.finish()
    assert turns.is_drained
    told: list[AllReduceError | None] = []
    turns.run_until(1, told.append)
    assert told == [None]
    turns.run_until(2, told.append)
    turns.begin()
    assert len(told) == 1
    turns.finish()
    assert told == [None, None]
    assert turns.is_drained
    turns.fail(AllReduceError("enough"))
    with pytest.raises(AllReduceError, match="enough"):
        turns.begin()


def test_waiting_for_a_turn_polls_and_the_poll_may_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dataplane.allreduce.turns.POLL_S", 0.001)
    turns = Turns("job 1")
    turns.hold(9)
    looks: list[int] = []

    def poll() -> None:
        looks.append(turns.begun)
        if len(looks) == 3:
            raise AllReduceError("another has left")

    with pytest.raises(AllReduceError, match="another has left"):
        turns.begin(poll)
    assert looks == [0, 0, 0]
    turns.release()
    turns.begin(poll)
    assert turns.begun == 1


def test_polling_worker_blocks_nobody_and_stops_after_a_failure() -> None:
    turns = Turns("job 1")
    turns.begin()

    def poll() -> None:
        turns.fail(AllReduceError("enough"))
        turns.wait_until_idle()

    with pytest.raises(AllReduceError, match="enough"):
        turns.pause(poll)


def test_an_all_reduce_that_takes_long_looks_at_other_things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataplane.allreduce.engine.POLL_S", 0.001)
    looks: list[int] = []

    def poll() -> None:
        looks.append(worker.begun)
        if len(looks) == 3:
            raise AllReduceError("another has left")

    with Server(2, 16) as server, JobEngine(_settings(server)) as worker:
        for _ in range(2):
            with pytest.raises(AllReduceError, match="another has left"):
                worker.reduce(_ones(), _ones(), poll=poll)
    assert looks == [1, 1, 1]


def test_submissions_are_ordered_until_settled_and_bounded() -> None:
    queue: SubmissionQueue[str] = SubmissionQueue("job 1")
    assert queue.first(0) is None
    words = ["one", "two", "three"]
    assert [queue.put(word) for word in words] == [None] * 3
    assert queue.first() == "one"
    assert queue.ahead(2) == words[:2]
    assert not queue.settle("two")
    assert queue.settle("one")
    queue.close(AllReduceError("enough"))
    assert str(queue.put("four")) == "enough"
    assert not queue.is_over()
    assert queue.drain(AllReduceError("more than that")) == words[1:]
    assert (queue.is_over(), queue.first(), queue.settle("two")) == (True, None, False)
    assert str(queue.put("four")) == "enough"
    full: SubmissionQueue[int] = SubmissionQueue("job 1")
    assert not any(full.put(number) for number in range(MOST_SUBMISSIONS))
    assert str(full.put(0)) == "job 1: 65536 all-reduces are already waiting"
