"""Random histories of switches and jobs: every call is answered, and switches hold exactly the running jobs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable

import pytest

from controller.common.errors import ControllerError
from controller.network.intents import Worker
from controller.network.tables.entities import Kind, Update, Verb
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import LinkKey
from tests.controller.network.aggregation.writable_switches import Lab, Running, running

TOPOLOGY = leaf_spine(2, 3, 3)
HOSTS = [f"h{number}" for number in range(1, 10)]
SWITCHES = sorted(TOPOLOGY.switch)
LINKS = sorted(key for key in TOPOLOGY.directed_links if key.src in TOPOLOGY.switch and key.dst in TOPOLOGY.switch)
CHANGES = 60


class History:
    """Random events from one seed."""

    def __init__(self, run: Running, seed: int) -> None:
        self.run, self.chance = run, random.Random(seed)
        self.calls: list[asyncio.Future[object]] = []
        self.down_links: set[LinkKey] = set()

    async def play(self) -> None:
        for _ in range(CHANGES):
            self.happen()
            for _ in range(self.chance.choice((0, 1, 5, 40))):
                await self.run.turn()

    def happen(self) -> None:
        happenings = [self.create, self.create, self.leave, self.join, self.end, self.stop, self.start]
        self.chance.choice([*happenings, self.cut, self.refuse, self.stick, self.move, self.doubt, self.start])()

    def call(self, call: Awaitable[object]) -> None:
        self.calls.append(asyncio.ensure_future(call))

    def create(self) -> None:
        workers = [Worker(host, 20_000) for host in self.chance.sample(HOSTS, self.chance.randrange(1, 8))]
        self.call(self.run.jobs.create(workers, window=self.chance.choice((1, 8, 1024)), capacity=9))

    def number(self) -> int:
        return self.chance.choice([99, *(job.number for job in self.run.jobs.running)])

    def leave(self) -> None:
        self.call(self.run.jobs.leave(self.number(), self.chance.choice(HOSTS)))

    def join(self) -> None:
        self.call(self.run.jobs.join(self.number(), Worker(self.chance.choice(HOSTS), 21_000)))

    def end(self) -> None:
        self.call(self.run.jobs.end(self.number()))

    def move(self) -> None:
        self.call(self.run.moved(self.number()))

    def stop(self) -> None:
        self.run.lab.stop(self.chance.choice(SWITCHES))

    def start(self) -> None:
        self.run.lab.down.clear()

    def cut(self) -> None:
        link = self.chance.choice(LINKS)
        self.down_links ^= {link}
        self.run.link_changed(link, up=link not in self.down_links)

    def refuse(self) -> None:
        table = self.chance.choice(("aggregation_jobs", "aggregation_peers", "aggregation_replicas", "", "none"))

        def refuses(update: Update) -> bool:
            is_about = update.key.kind is Kind.MULTICAST if table == "" else update.key.table == table
            return is_about and update.verb is not Verb.DELETE

        self.run.lab.switches[self.chance.choice(SWITCHES)].refuse = refuses

    def stick(self) -> None:
        switch = self.run.lab.switches[self.chance.choice(SWITCHES)]
        switch.is_stuck = not switch.is_stuck

    def doubt(self) -> None:
        self.run.daemon._driver._switches[self.chance.choice(SWITCHES)].doubt.set()

    async def calm(self) -> None:
        """Let all work without further events."""
        self.run.lab.down.clear()
        for switch in self.run.lab.switches.values():
            switch.is_stuck, switch.refuse = False, lambda _: False
        for link in self.down_links:
            self.run.link_changed(link, up=True)
        await self.run.until(lambda: all(call.done() for call in self.calls))
        await self.run.right()


@pytest.mark.parametrize("seed", [14, 18, 41, 85])
def test_switches_hold_exactly_the_running_jobs(seed: int) -> None:
    async def scene() -> None:
        lab = Lab(TOPOLOGY)
        async with running(lab) as run:
            history = History(run, seed)
            await history.play()
            await history.calm()
            for call in history.calls:
                error = call.exception()
                assert error is None or isinstance(error, ControllerError), error
            jobs = run.jobs.tables.jobs
            numbers = {job.number for job in run.jobs.running}
            for name, switch in lab.switches.items():
                held = {number for key in switch.tables if isinstance(number := dict(key.match).get("job"), int)}
                assert held <= numbers
                groups = [key.number for key in switch.tables if key.kind is Kind.MULTICAST]
                assert len(groups) == sum(name in jobs.entities_of(number) for number in numbers)
            for number in numbers:
                assert run.about(number).keys() == jobs.entities_of(number).keys()
            for number in numbers:
                await run.of(run.jobs.end(number))
            assert not jobs._registry.reservations

    asyncio.run(scene())
