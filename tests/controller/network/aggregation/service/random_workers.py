"""Simulated workers, streams and switches around the rendezvous; random events."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.network.aggregation.service.job_state import (
    Action,
    Change,
    Create,
    End,
    InstalledJob,
    Join,
    Move,
    Notify,
    Remove,
)
from controller.network.aggregation.service.rendezvous import Rendezvous
from controller.network.aggregation.service.seats import JobSeats, SeatRecords
from controller.network.aggregation.service.settings import JobSettings
from controller.network.aggregation.storage import JobStorage
from dataplane.allreduce.jobs.messages import Arrived, Completed, Downward, Finished, Heartbeat, Hello, Leave
from dataplane.allreduce.membership_state import (
    Begin,
    Command,
    EnterBarrier,
    Fail,
    MembershipState,
    ReportWhenComplete,
    Resume,
    RunUntil,
    SetEpoch,
)

S = 1_000_000_000
ITEMS = 10
"""Items of each all-reduce."""
SETTINGS = JobSettings(lease_ns=4 * S, reconnect_ns=1 * S, hold_ns=20 * S)
DEADLINE_S = 60
CHANGE_S = 5
"""Seconds until a requested change of the switches completes or fails."""
HOSTS = ("h1", "h2", "h3", "h4", "h5")


class DictStorage(JobStorage):
    """Entries in memory; `after` is called after each change."""

    name = "jobs.db"

    def __init__(self, entries: Mapping[str, bytes] | None = None) -> None:
        self.entries = dict(entries or {})
        self.after: Callable[[], None] = lambda: None

    def load(self) -> dict[str, bytes]:
        return dict(self.entries)

    def save(self, changes: Mapping[str, bytes | None]) -> None:
        merged = {**self.entries, **changes}
        self.entries = {key: value for key, value in merged.items() if value is not None}
        self.after()


@dataclass(slots=True)
class Switches:
    """Switches that sum: a job's members and their progress; an all-reduce completes once all members have begun it."""

    epoch: int
    members: set[str]
    begun: dict[str, int]
    complete: int = 0
    is_running: bool = True
    sums: dict[int, frozenset[str]] = field(default_factory=dict)
    """Members whose values are in the result of each all-reduce."""

    def change_epoch(self) -> None:
        """Start a new epoch, in which incomplete items must be sent again."""
        self.epoch += 1
        self.begun = {host: min(count, self.complete) for host, count in self.begun.items()}

    def contribute(self, host: str, epoch: int, count: int) -> None:
        """Accept a worker's data if it is a member in the same epoch."""
        if self.is_running and host in self.members and epoch == self.epoch:
            self.begun[host] = max(self.begun[host], count)
            self.add_up()

    def add_up(self) -> None:
        while all(self.begun[host] > self.complete for host in self.members):
            self.complete += 1
            self.sums[self.complete] = frozenset(self.members)

    def start_anew(self, finished: int) -> None:
        """Forget results that not all members have; the slowest has finished this many."""
        self.complete = finished
        self.begun = dict.fromkeys(self.begun, finished)


@dataclass(slots=True)
class Player:
    """A worker with the real view of the job; its all-reduces are numbers."""

    hello: Hello
    following: MembershipState = field(default_factory=MembershipState)
    inbox: deque[Downward] = field(default_factory=deque)
    is_connected: bool = True
    is_dead: bool = False
    is_paused: bool = False
    has_left: bool = False
    begun: int = 0
    finished: int = 0
    limit: int | None = None
    promised: RunUntil | None = None
    asked: set[int] = field(default_factory=set)
    """Items whose completion it must report."""
    sums: dict[int, frozenset[str]] = field(default_factory=dict)
    """Members whose values its results contain."""
    over: Fail | None = None
    overdue_ns: int | None = None
    number: int = 0
    """The job number under which it sends."""
    is_away: bool = False
    """Its connection ended with the controller."""
    last_heartbeat_ns: int = 0

    @property
    def is_working(self) -> bool:
        has_job = self.following.admitted is not None and self.over is None
        return has_job and not (self.is_dead or self.is_paused or self.has_left)


class Crowd:
    """Everything together; `step` lets one event happen."""

    def __init__(self, seed: int, workers: int, *, troubles: bool = True) -> None:
        self.chance = random.Random(seed)
        self.now_ns = 0
        self.machine = Rendezvous(SETTINGS, HOSTS, CHANGE_S * S)
        self.storage = DictStorage()
        self.players: list[Player] = []
        self.switches: dict[int, Switches] = {}
        self.pending: dict[Change, int] = {}
        self.numbers = 0
        self.workers = workers
        self.troubles = troubles
        self.seats = SeatRecords(self.storage)
        self.generation = 0
        self.entries: dict[str, int] = {}
        """Progress of the job when a worker was admitted, by token."""

    # Events

    def come(self, host: str, /, **change: Any) -> Player:
        token = f"{host}-{len(self.players)}"
        hello = Hello("job", host, token, self.workers, 1000 + len(self.players), DEADLINE_S * S)
        hello = replace(hello, **change)
        player = Player(hello, last_heartbeat_ns=self.now_ns)
        self.players.append(player)
        self.carry_out(self.machine.connect(hello, self.now_ns))
        return player

    def pass_time(self, ns: int) -> None:
        self.now_ns += ns
        for change, since_ns in tuple(self.pending.items()):
            if since_ns + (CHANGE_S - 1) * S <= self.now_ns:
                self.keep(change)
        due = self.machine.due_ns()
        for player in self.players:
            speaks = player.is_connected and not (player.is_dead or player.is_paused or player.has_left or player.over)
            if speaks and self.now_ns - player.last_heartbeat_ns >= S:
                player.last_heartbeat_ns = self.now_ns
                self.carry_out(self.machine.receive(player.hello.token, Heartbeat(), self.now_ns))
            if player.overdue_ns is not None and player.overdue_ns <= self.now_ns and not player.is_dead:
                player.overdue_ns = None
                self.obey(player, player.following.overdue())
        if due is not None and due <= self.now_ns:
            self.carry_out(self.machine.tick(self.now_ns))

    def deliver(self, player: Player) -> None:
        self.obey(player, player.following.take(player.inbox.popleft()))

    def work(self, player: Player) -> None:
        """Begin the next all-reduce if possible, and take results."""
        admitted = player.following.admitted
        assert admitted is not None
        switches = self.switches[player.number]
        if player.begun == player.finished and (player.limit is None or player.begun < player.limit):
            player.begun += 1
        switches.contribute(player.hello.host, admitted.epoch, player.begun)
        while player.finished < min(player.begun, switches.complete):
            player.finished += 1
            player.sums[player.finished] = switches.sums[player.finished]
        self.report(player)

    def help(self, player: Player) -> None:
        """Let a worker waiting to leave resend its data if its epoch is still that of its results."""
        admitted = player.following.admitted
        assert admitted is not None
        self.switches[player.number].contribute(player.hello.host, admitted.epoch, player.finished)

    def report(self, player: Player) -> None:
        for item in sorted(player.asked):
            if player.finished * ITEMS >= item and player.is_connected:
                player.asked.remove(item)
                self.carry_out(self.machine.receive(player.hello.token, Completed(item), self.now_ns))
        wanted = player.promised
        if wanted is not None and player.finished >= wanted.count and player.is_connected:
            player.promised, player.following.finished = None, wanted.barrier
            message = Finished(wanted.barrier, wanted.count, player.finished * ITEMS)
            self.carry_out(self.machine.receive(player.hello.token, message, self.now_ns))

    def leave(self, player: Player) -> None:
        player.has_left = True
        message = Leave(player.finished * ITEMS)
        self.carry_out(self.machine.receive(player.hello.token, message, self.now_ns))

    def disconnect(self, player: Player) -> None:
        player.is_connected = False
        player.inbox.clear()
        self.carry_out(self.machine.disconnect(player.hello.token, self.now_ns))

    def reconnect(self, player: Player) -> None:
        player.is_connected, player.is_away = True, False
        player.last_heartbeat_ns = self.now_ns
        admitted = player.following.admitted
        hello = replace(player.hello, number=None if admitted is None else admitted.number)
        self.carry_out(self.machine.connect(hello, self.now_ns))

    # Consequences

    def carry_out(self, actions: list[Action]) -> None:
        self.seats.keep(self.machine.jobs)
        for action in actions:
            if not isinstance(action, Notify):
                self.pending[action] = self.now_ns
                continue
            for player in self.players:
                if player.hello.token == action.token and player.is_connected and not player.is_dead:
                    player.inbox.append(action.message)

    def obey(self, player: Player, orders: list[Command]) -> None:
        for order in orders:
            match order:
                case Fail():
                    player.over = order
                case _ if player.has_left:
                    pass
                case Begin():
                    player.begun = player.finished = order.admitted.first_count
                    player.number = order.admitted.number
                    entry = self.entries[player.hello.token] if order.admitted.newcomers else 0
                    assert order.admitted.first_count == entry
                    assert player.hello.host in order.admitted.newcomers or not order.admitted.first_count
                    assert order.admitted.first_item == order.admitted.first_count * ITEMS
                case EnterBarrier():
                    player.limit, player.promised = player.begun, None
                    player.overdue_ns = self.now_ns + order.limit_ns + S
                    if player.is_connected:
                        held = Arrived(order.barrier, player.begun)
                        self.carry_out(self.machine.receive(player.hello.token, held, self.now_ns))
                case RunUntil():
                    assert player.limit is not None
                    player.limit, player.promised = max(player.limit, order.count), order
                    self.report(player)
                case Resume():
                    player.limit, player.promised, player.overdue_ns = None, None, None
                    player.number = order.number or player.number
                case ReportWhenComplete():
                    player.asked.add(order.item)
                    self.report(player)
                case SetEpoch():
                    pass

    def keep(self, change: Change, *, works: bool = True) -> None:
        """Make a requested change of the switches, or let it fail."""
        del self.pending[change]
        fails = not works and isinstance(change, Create | Join | Move)
        result = "no cells are left" if fails else self._made(change)
        taken_back = None
        if fails and isinstance(change, Join) and self.switches[change.number].is_running:
            for _ in range(2):  # add the newcomer and remove it again
                self.switches[change.number].change_epoch()
            taken_back = self._installed_job(change.number)
        self.carry_out(self.machine.change_done(change, result, self.now_ns, taken_back=taken_back))
        if isinstance(change, Move) and isinstance(result, InstalledJob):
            self.switches[change.number].is_running = False

    def restart(self) -> None:
        """Kill the controller, of whose changes some are made, and let the next one take over."""
        for change in self.pending:
            if self.chance.random() < 0.5:
                self._made(change)
        self.pending.clear()
        for player in self.players:
            if player.is_connected:
                player.is_connected, player.is_away = False, True
                player.inbox.clear()
        self.generation += 1
        self.machine, self.seats = Rendezvous(SETTINGS, HOSTS, CHANGE_S * S), SeatRecords(self.storage)
        adopted, lost = list[tuple[JobSeats, InstalledJob]](), list[tuple[JobSeats, str]]()
        for number, seats in self.seats.read(self.storage.load()).jobs.items():
            if self.switches[number].is_running:
                adopted.append((seats, self._installed_job(number)))
            else:
                lost.append((seats, "it was ending"))
        numbers = {seats.number for seats, _ in adopted}
        for number, job in self.switches.items():
            job.is_running = job.is_running and number in numbers
        actions = self.machine.adopt(self.generation, adopted, lost, self.now_ns)
        self.seats.begin(self.generation, self.machine.jobs, [seats.number for seats, _ in lost])
        self.carry_out(actions)

    def _made(self, change: Change) -> InstalledJob | str:
        if isinstance(change, Create):
            self.numbers += 1
            hosts = {worker.host for worker in change.workers}
            self.switches[self.numbers] = Switches(1, hosts, dict.fromkeys(hosts, 0))
            return self._installed_job(self.numbers)
        job = self.switches[change.number]
        if not job.is_running:
            return "there is none"
        match change:
            case Remove():
                assert change.host in job.members
                assert len(job.members) > 1, "the last member cannot be removed"
                job.members.remove(change.host)
            case Join():
                assert change.worker.host not in job.members
                assert all(job.begun[host] == job.complete for host in job.members if self._lives(host, change.number))
                job.members.add(change.worker.host)
                job.begun[change.worker.host] = self.entries[change.token] = job.complete
            case Move():
                self.numbers += 1
                self.switches[self.numbers] = replace(job, members=set(job.members), begun=dict(job.begun))
                return self._installed_job(self.numbers)
            case End():
                job.is_running = False
                return self._installed_job(change.number)
        job.change_epoch()
        return self._installed_job(change.number)

    def _lives(self, host: str, number: int) -> bool:
        return any(
            player.is_working and player.limit is not None
            for player in self.players
            if player.hello.host == host
            and player.following.admitted is not None
            and player.following.admitted.number == number
        )

    def _installed_job(self, number: int) -> InstalledJob:
        job = self.switches[number]
        root = f"10.0.{number}.254"
        return InstalledJob(number, job.epoch, 4, self.workers, dict.fromkeys(job.members, root), root)

    # Random choices

    def step(self) -> None:
        draw = self.chance.random()
        away = [player for player in self.players if player.is_away and not (player.is_dead or player.over)]
        if away and draw < 0.5:
            player = self.chance.choice(away)
            if not player.has_left:
                self.reconnect(player)
            player.is_away = False
        elif self.pending and draw < 0.25:
            works = not self.troubles or self.chance.random() < 0.9
            self.keep(self.chance.choice(list(self.pending)), works=works)
        elif draw < 0.75 and self._someone_acts():
            pass
        elif draw < 0.9 or not self.troubles:
            self.pass_time(self.chance.randrange(S))
        else:
            self._trouble()

    def _someone_acts(self) -> bool:
        ready = [
            player
            for player in self.players
            if player.is_working or (player.inbox and not player.is_dead and not player.is_paused)
        ]
        if not ready:
            return False
        player = self.chance.choice(ready)
        if player.inbox and self.chance.random() < 0.6:
            self.deliver(player)
        elif player.is_working:
            self.work(player)
        return True

    def _trouble(self) -> None:
        alive = [player for player in self.players if not (player.is_dead or player.over or player.has_left)]
        kind = self.chance.choice(
            ("die", "pause", "wake", "disconnect", "connect", "come", "come", "leave", "move", "end", "restart")
        )
        if kind == "restart":
            self.restart()
        elif kind == "come":
            self.come(self.chance.choice(HOSTS))
        elif kind == "move" and self.switches:
            self.carry_out(self.machine.should_move(self.chance.choice(list(self.switches)), "busy", self.now_ns))
        elif kind == "end" and self.chance.random() < 0.2 and self.switches:
            number = self.chance.choice(list(self.switches))
            if self.switches[number].is_running:
                self.switches[number].is_running = False
                self.carry_out(self.machine.job_failed(number, "switch s1 is dead", self.now_ns))
        elif alive:
            self._trouble_of(self.chance.choice(alive), kind)

    def _trouble_of(self, player: Player, kind: str) -> None:
        if kind == "die":
            player.is_dead = True
            self.disconnect(player)
        elif kind == "pause":
            player.is_paused = True
        elif kind == "wake":
            player.is_paused = False
        elif kind == "disconnect" and player.is_connected:
            self.disconnect(player)
        elif kind == "connect" and not player.is_connected:
            self.reconnect(player)
        elif kind == "leave" and player.is_working and player.is_connected and player.begun == player.finished:
            self.leave(player)

    def calm_down(self, seconds: int = 120) -> None:
        """End all troubles: resume paused workers, reconnect the others, and let time pass."""
        self.troubles = False
        for player in self.players:
            if not (player.is_dead or player.over or player.has_left):
                player.is_paused = False
                if not player.is_connected:
                    self.reconnect(player)
        for _ in range(seconds * 2):
            self.settle()
            self.pass_time(S // 2)
        self.settle()

    def settle(self) -> None:
        """Let everyone do all possible work now, a few all-reduces each."""
        for _ in range(6):
            for change in tuple(self.pending):
                self.keep(change)
            for player in self.players:
                while player.inbox and not player.is_dead:
                    self.deliver(player)
                if player.is_working:
                    self.work(player)


def members_of(crowd: Crowd) -> set[str]:
    """Return the members of the only running job in the switches."""
    (job,) = (job for job in crowd.switches.values() if job.is_running)
    return job.members


def began(*hosts: str, **asked: object) -> tuple[Crowd, list[Player]]:
    """Return a running job of these hosts, without losses or deaths, and its workers."""
    crowd = Crowd(0, len(hosts), troubles=False)
    players = [crowd.come(host, **asked) for host in hosts]
    crowd.settle()
    return crowd, players
