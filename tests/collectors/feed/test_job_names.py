"""Job names reach a collector, also after its restart; an absent one does not stop the reports."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from collectors.collector import Collector
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.job_names import report_jobs
from collectors.feed.server import FeedServer, FeedSettings
from collectors.values import JobNote
from dataplane.clock import VirtualClock
from dataplane.wire.completion import Completion
from tests.collectors.reports import Reporter, build_topology
from tests.waiting import finish_within, until


def names(collector: Collector) -> list[str | None]:
    return [state.name for state in collector.snapshot().jobs.values()]


def test_names_reach_a_collector_that_comes_back() -> None:
    async def scenario(address: str) -> None:
        turn, problems = asyncio.Semaphore(0), list[str]()
        notes = {3: JobNote("resnet")}

        async def sleep(_: float) -> None:
            rests.release()
            await turn.acquire()

        async def has_name(collector: Collector, name: str) -> bool:
            if names(collector) == [name]:
                return True
            await rests.acquire()
            turn.release()
            return False

        rests = asyncio.Semaphore(0)
        settings = FeedClientSettings(address=address, longest_wait_ns=1_000_000)
        async with FeedClient(settings) as client:
            reporting = asyncio.create_task(report_jobs(client, lambda: notes, problems.append, sleep))
            for _ in range(2):
                await rests.acquire()
                turn.release()
            for name in ("resnet", "vgg"):
                notes[3] = JobNote(name)
                collector = Collector(build_topology(), VirtualClock())
                collector.receive(Reporter().item(12, Completion(3, 0, 0, 10, 0, 0)))
                server = FeedServer(collector, FeedSettings(address=address))
                await server.start()
                await until(partial(has_name, collector, name))
                await server.stop()
            reporting.cancel()
        assert problems
        assert all(
            problem.startswith(f"the collector at {address} did not receive the job names") for problem in problems
        )
        assert all(problem != other for problem, other in pairwise(problems)), "once as long as it lasts"

    with TemporaryDirectory(prefix="feed") as folder:
        asyncio.run(finish_within(scenario(f"unix:{Path(folder) / 'socket'}"), 20))
