"""A controller that is killed after any of its writes to storage, switches and workers, and the next one.

A job is created, loses a member, gains one, moves, and one leaves. Everything that the controller writes is logged; for
each place in the log the next controller starts with the storage and the switches of that moment, and all workers that
still have a job return to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from controller.network.aggregation.service.job_state import Notify
from controller.network.aggregation.service.server import JobService
from controller.network.aggregation.service.settings import JobSettings
from controller.network.daemon import Daemon
from controller.network.tables.entities import Batch, Entity, EntityKey
from dataplane.allreduce.jobs.messages import Admitted, Arrived, Completed, Downward, Finished, Hello, Leave
from dataplane.allreduce.membership_state import (
    Begin,
    Command,
    EnterBarrier,
    Fail,
    MembershipState,
    ReportWhenComplete,
    Resume,
    RunUntil,
)
from dataplane.topology.families import leaf_spine
from tests.controller.network.aggregation.service.random_workers import DictStorage
from tests.controller.network.aggregation.writable_switches import FakeSwitch, Lab, Running, running

TOPOLOGY = leaf_spine(2, 2, 4)
S = 1_000_000_000
SETTINGS = JobSettings(
    listen="127.0.0.1:0", lease_ns=3600 * S, reconnect_ns=3600 * S, return_ns=3600 * S, hold_ns=3600 * S, window=8
)
ITEM = 10
COMERS = ("h6", "h7")
"""Workers that join the running job at one barrier."""


@dataclass
class LoggedSwitch(FakeSwitch):
    after: Callable[[], None] = field(default=lambda: None)

    def write(self, name: str, batch: Batch) -> None:
        super().write(name, batch)
        self.after()


@dataclass
class Player:
    """A worker that follows all orders at once, and is between two all-reduces."""

    hello: Hello
    following: MembershipState = field(default_factory=MembershipState)
    inbox: deque[Downward] = field(default_factory=deque)
    over: Fail | None = None
    has_left: bool = False
    newcomers: tuple[str, ...] = ()
    """Workers that it knows to have joined, with which it would synchronise its state."""

    def answers(self) -> list[Arrived | Finished | Completed]:
        """Take the messages received, and return what they call for."""
        found: list[Arrived | Finished | Completed] = []
        while self.inbox:
            for command in self.following.take(self.inbox.popleft()):
                found += self._answer(command)
        return found

    def _answer(self, command: Command) -> list[Arrived | Finished | Completed]:
        match command:
            case Fail():
                self.over = command
            case Begin():
                self.newcomers = command.admitted.newcomers
            case Resume():
                self.newcomers += command.newcomers
            case EnterBarrier():
                return [Arrived(command.barrier, 0)]
            case RunUntil():
                return [Finished(command.barrier, command.count, ITEM)]
            case ReportWhenComplete():
                return [Completed(command.item)]
            case _:
                pass
        return []


@dataclass(frozen=True)
class Moment:
    """All that outlives the controller, and the messages that its workers have received."""

    entries: Mapping[str, bytes]
    tables: Mapping[str, dict[EntityKey, Entity]]
    received: Mapping[str, int]
    what: str


@dataclass
class Scene:
    """A controller's service over fake switches, and its workers."""

    run: Running
    service: JobService
    players: dict[str, Player]
    messages: dict[str, list[Downward]]

    def connect(self, player: Player) -> None:
        self.players[player.hello.token] = player
        admitted = player.following.admitted
        hello = replace(player.hello, number=None if admitted is None else admitted.number)
        self.service._do(self.service._rendezvous.connect(hello, self.run.lab.clock.now_ns()))
        if player.has_left:
            self.say(player, Leave(ITEM))

    def say(self, player: Player, message: Arrived | Finished | Completed | Leave) -> None:
        now_ns = self.run.lab.clock.now_ns()
        self.service._do(self.service._rendezvous.receive(player.hello.token, message, now_ns))

    def follow(self) -> None:
        for player in tuple(self.players.values()):
            for answer in player.answers():
                self.say(player, answer)

    async def until(self, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            self.follow()
            return condition()

        await self.run.until(holds)

    def agreed(self, *hosts: str) -> bool:
        """Return whether exactly these workers have a job, which is in the switches as they know it."""
        there = [player for player in self.players.values() if player.following.admitted and player.over is None]
        jobs = self.run.jobs.running
        if sorted(player.hello.host for player in there) != sorted(hosts) or len(jobs) != 1:
            return False
        number, epoch, nonce = jobs[0].number, jobs[0].members.epoch, jobs[0].placed.job.nonce
        known = {(view.number, view.epoch, view.nonce) for player in there if (view := player.following.admitted)}
        members = {player.following.members for player in there}
        is_right = all(self.run.is_right(name) for name in self.run.lab.switches)
        return (
            known == {(number, epoch, nonce)}
            and members == {tuple(sorted(hosts))}
            and jobs[0].members.workers == set(hosts)
            and self.run.about(number).keys() == set(jobs[0].placed.blocks)
            and is_right
        )


@asynccontextmanager
async def scene(lab: Lab, storage: DictStorage) -> AsyncIterator[Scene]:
    """Run a controller that adopts what the storage says."""
    services: list[JobService] = []

    def adopt(daemon: Daemon) -> None:
        assert daemon.jobs is not None
        service = JobService(SETTINGS, TOPOLOGY, daemon.jobs, lab.clock, change_ns=S, storage=storage)
        service.adopt()
        services.append(service)

    async with running(lab, before=adopt) as run:
        (service,) = services
        here = Scene(run, service, {}, {})

        def told(notify: Notify) -> None:
            player = here.players.get(notify.token)
            if player is not None:
                player.inbox.append(notify.message)
                here.messages.setdefault(notify.token, []).append(notify.message)
                storage.after()

        service._notify = told  # type: ignore[method-assign]
        yield here
        for task in service._changes:
            task.cancel()
        await asyncio.gather(*service._changes, return_exceptions=True)
        await service._server.stop()


def hello(host: str, token: str = "") -> Hello:
    return Hello("job", host, token or f"token-{host}", 4, 20_000, 3600 * S, capacity=6)


async def played() -> tuple[list[Moment], dict[str, list[Downward]]]:
    """Return every moment of a job's life, and all messages to its workers."""
    lab, storage, moments = Lab(TOPOLOGY), DictStorage(), list[Moment]()
    lab.switches = {name: LoggedSwitch() for name in lab.switches}
    step = "create"
    async with scene(lab, storage) as here:

        def log() -> None:
            tables = {name: switch.tables for name, switch in lab.switches.items()}
            received = {token: len(messages) for token, messages in here.messages.items()}
            moments.append(Moment(storage.entries, tables, received, step))

        storage.after = log
        for switch in lab.switches.values():
            assert isinstance(switch, LoggedSwitch)
            switch.after = log
        for host in ("h1", "h2", "h3", "h5"):
            here.connect(Player(hello(host)))
        await here.until(lambda: here.agreed("h1", "h2", "h3", "h5"))
        step = "remove"
        removal = here.service._rendezvous.remove("job", "h2", "its card is broken", lab.clock.now_ns())
        here.service._do(removal or [])
        await here.until(lambda: here.agreed("h1", "h3", "h5"))
        step = "join"
        for host in COMERS:
            here.connect(Player(hello(host)))
        await here.until(lambda: here.agreed("h1", "h3", "h5", *COMERS))
        step = "move"
        (job,) = here.run.jobs.running
        here.run.jobs._better = lambda _: "better"  # type: ignore[assignment,method-assign,return-value]
        here.service.should_move(job.number, "it is better there")
        await here.until(
            lambda: here.agreed("h1", "h3", "h5", *COMERS) and here.run.jobs.running[0].number != job.number
        )
        step = "leave"
        here.players["token-h3"].has_left = True
        here.say(here.players["token-h3"], Leave(ITEM))
        await here.until(lambda: here.agreed("h1", "h5", *COMERS))
        storage.after = lambda: None
        return moments, here.messages


async def revived(moment: Moment, messages: dict[str, list[Downward]]) -> None:
    """Let the next controller start at a moment, and all workers return."""
    lab = Lab(TOPOLOGY)
    for name, tables in moment.tables.items():
        lab.switches[name].tables = dict(tables)
    here: Scene
    storage = DictStorage(moment.entries)
    async with scene(lab, storage) as here:
        comers = [host for host in COMERS if f"token-{host}" in moment.received]
        arrived = ["h1", "h2", "h3", "h5", *comers]
        before = dict[str, Admitted]()
        for host in arrived:
            player = Player(hello(host))
            for message in messages[player.hello.token][: moment.received.get(player.hello.token, 0)]:
                player.inbox.append(message)
                player.answers()
            if player.following.admitted is not None:
                before[host] = player.following.admitted
            if player.over is None:
                player.has_left = host == "h3" and moment.what == "leave"
                here.connect(player)
        goes = {"h2"} if moment.what != "create" else set[str]()
        goes |= {"h3"} if moment.what == "leave" else set()
        stays = [host for host in arrived if host not in goes]

        def is_calm() -> bool:
            alive = [player.hello.host for player in here.players.values() if player.over is None]
            return here.agreed(*alive) or here.agreed(*stays)

        await here.until(is_calm)
        for host in stays:
            player = here.players[f"token-{host}"]
            assert player.over is None, (moment.what, player.over)
            admitted = player.following.admitted
            assert admitted is not None
            assert sorted(player.newcomers) == comers, (moment.what, host)
            if host in before and before[host].number == admitted.number:
                assert admitted.nonce == before[host].nonce
                assert admitted.epoch >= before[host].epoch
        (job,) = here.run.jobs.running
        assert storage.entries.keys() == {f"placed/{job.number}", f"seats/{job.number}", "newest", "generation"}
        for host in goes:
            over = here.players[f"token-{host}"].over if f"token-{host}" in here.players else None
            assert over is None or over.removed, over


def test_every_crash_point_leaves_a_job_that_continues() -> None:
    async def play() -> None:
        moments, messages = await played()
        assert {moment.what for moment in moments} == {"create", "remove", "join", "move", "leave"}
        assert len(moments) > 40
        for moment in moments:
            await revived(moment, messages)

    asyncio.run(play())
