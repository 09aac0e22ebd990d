"""Workers on the ring go back to the switch at the same all-reduce, however far each has come, or not at all."""

from __future__ import annotations

import importlib.util
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch
import torch.distributed as dist

from dataplane.allreduce.membership import Membership
from dataplane.allreduce.torch import MillraceState, all_reduce
from dataplane.allreduce.torch.agreement import Agreement, Voters
from dataplane.allreduce.torch.job_membership import JobMember
from dataplane.allreduce.torch.returning import LEAD, Rejoin, Returning
from dataplane.errors import AllReduceError
from tests.dataplane.allreduce.torch.reducers import Doubling, failing
from tests.waiting import wait_until

WORKERS, ALL_REDUCES = 4, 400


@dataclass
class Job:
    """A membership that has a reducer, and may end."""

    identity: str
    engine: Any = None
    members: tuple[str, ...] = tuple(f"h{rank}" for rank in range(WORKERS))
    failure: AllReduceError | None = None
    closed: int = 0
    job: str = "line"

    def close(self) -> None:
        self.closed += 1


@dataclass
class Progress:
    """All-reduces of a ring: each has a result once all have started it; nobody starts more than LEAD at a time."""

    started: list[int] = field(default_factory=lambda: [0] * WORKERS)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def start(self, rank: int, number: int) -> None:
        with self.changed:
            self.started[rank] = number + 1
            self.changed.notify_all()

    def finish(self, number: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: min(self.started) > number, 30)


def nobody(name: str, member: JobMember) -> Agreement:
    return Agreement(dist.HashStore(), name, 0, lambda: Voters((0,), 1), deadline_s=1.0)


def work(rank: int, progress: Progress, returning: Returning, chance: random.Random) -> int | None:
    """Run all-reduces by the ring until the return is due; return its number."""
    settled = started = 0
    while settled < ALL_REDUCES:
        while started < min(settled + LEAD, ALL_REDUCES):
            first = returning.at(started)
            if first is not None and started >= first:
                break
            progress.start(rank, started)
            started += 1
        if started == settled:
            return started
        if chance.random() < 0.1:
            threading.Event().wait(0.01 * chance.random())
        progress.finish(settled)
        settled += 1
    return None


@pytest.mark.parametrize("seed", range(4))
def test_all_go_back_at_the_same_all_reduce(seed: int) -> None:
    store, progress, jobs = dist.HashStore(), Progress(), [Job("7-abc") for _ in range(WORKERS)]
    workers = []
    for rank, job in enumerate(jobs):
        chance = random.Random(f"{seed}/{rank}")
        rejoin = Rejoin(lambda _, job=job: cast(Membership, job), f"h{rank}", 0.2 * chance.random())  # type: ignore[misc]
        workers.append((rank, progress, Returning(rejoin, nobody, store, "return", rank), chance))
    for _, _, returning, _ in workers:
        returning.begin(tuple(range(WORKERS)))
    with ThreadPoolExecutor(WORKERS) as pool:
        numbers = set(pool.map(lambda worker: work(*worker), workers))
    assert len(numbers) == 1
    assert None not in numbers
    assert progress.started == [*numbers] * WORKERS
    for _, _, returning, _ in workers:
        returning.take()
        returning.stop()
    assert [job.closed for job in jobs] == [0] * WORKERS


def test_nobody_goes_back_if_a_membership_ends_first() -> None:
    store, jobs = dist.HashStore(), [Job("7-abc") for _ in range(2)]
    for job in jobs:
        job.members = ("h0", "h1")
    joined = threading.Event()

    def join(rank: int) -> Callable[[int], Membership]:
        def joins(count: int) -> Membership:
            assert count == 2
            if rank == 0 and jobs[0].closed:
                joined.set()
                raise AllReduceError("no switch is left")
            return cast(Membership, jobs[rank])

        return joins

    returning = [Returning(Rejoin(join(rank), f"h{rank}", 0.01), nobody, store, "return", rank) for rank in (0, 1)]
    jobs[1].failure = AllReduceError("job line has ended: switch s1 has been unreachable for 2 s")
    returning[1].begin((0, 1))
    wait_until(lambda: bool(jobs[1].closed), "the ended job is not given up")
    returning[0].begin((0, 1))
    assert joined.wait(30)
    assert [each.at(3) for each in returning] == [None, None]
    for each in returning:
        each.stop()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A group of one worker."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_state_goes_to_the_ring_and_back_again(caplog: pytest.LogCaptureFixture) -> None:
    """A doubling switch shows by which way an all-reduce went; it fails twice."""
    engines = [Doubling(), Doubling()]
    jobs = [Job(f"{number}-abc", engine, ("h0",)) for number, engine in enumerate(engines)]
    left = iter(jobs)
    rejoin = Rejoin(lambda _: cast(Membership, next(left)), "h0", 0.01)
    with MillraceState(failing(0), rejoin=rejoin) as state:

        def value() -> float:
            return float(all_reduce(torch.ones(2), state).wait()[0])

        assert value() == 1
        wait_until(lambda: value() == 2, "it does not return")
        assert not state.is_by_ring
        asked = len(engines[0].asked)
        engines[0].end(asked, AllReduceError("switch s1 is dead again"))
        assert value() == 1
        assert jobs[0].closed == 1
        wait_until(lambda: value() == 2, "it does not return a second time")
    assert jobs[1].closed >= 1
    texts = [record.getMessage() for record in caplog.records if "is used" in record.getMessage()]
    assert [text.partition(" on ")[2].partition(":")[0] for text in texts] == [
        "gloo's ring of workers 0 is used, not the switch",
        "the switch is used again, in job line",
        "gloo's ring of workers 0 is used, not the switch",
        "the switch is used again, in job line",
    ]
