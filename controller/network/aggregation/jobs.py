"""Current jobs: the entries that every switch should hold for them, and the cells to clear first.

Pure bookkeeping: the writer of switches clears the cells in `to_clear`, reports it, asks for `entities`, writes the
differences, and reports by `held` what a switch then holds. A worker that leaves keeps its place in the tree until
another one needs it. Each change is recorded before a switch can get it, so a switch never holds a newer epoch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from finsy import P4TableAction, P4TableEntry

from collectors.values import Snapshot
from controller.common.errors import ControllerError
from controller.network.aggregation.cells import cells_for
from controller.network.aggregation.placement import place
from controller.network.aggregation.registry import NUMBERS, Registry
from controller.network.base_paths import NextHops
from controller.network.intents import AggregationJob, AggregationTree, Leaf, Members, Worker
from controller.network.tables.aggregation import Block, PlacedJob, job_entities, leaves_of, parent_of, switches_of
from controller.network.tables.entities import Entities, Entity, EntityKey
from controller.network.tables.routing import port_towards
from dataplane.topology.values import LinkKey, Topology

_EPOCHS = 1 << 16
_NONCE_BITS = 64


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job in the switches, and its members."""

    placed: PlacedJob
    members: Members

    @property
    def number(self) -> int:
        """The job's number."""
        return self.placed.job.number


class Records(Protocol):
    """Keeps jobs across restarts of the controller."""

    def keep(self, job: RunningJob, newest: int) -> None:
        """Keep a job as it is now to be, and the newest number given out; raise LostLeaseError."""
        ...

    def drop(self, number: int) -> None:
        """Forget a job; raise LostLeaseError."""
        ...


class Jobs:
    """All jobs of a fabric; every change is checked before anything else changes, and refused by ControllerError."""

    def __init__(
        self, topology: Topology, hops: NextHops, newest: int = 0, draw_nonce: Callable[[], int] | None = None
    ) -> None:
        """Begin without jobs, with the number after `newest`; `draw_nonce` is for tests that need reproducible ones."""
        self._draw_nonce = draw_nonce or partial(secrets.randbits, _NONCE_BITS)
        self._topology, self._hops, self._ways = topology, hops, hops
        self._registry = Registry(newest)
        self._running: dict[int, RunningJob] = {}
        self._entities: dict[int, dict[str, Entities]] = {}
        self._leaving: dict[tuple[int, str], str] = {}
        """Switch that may still count a worker that has left, by job and host."""
        self._again: set[tuple[int, str]] = set()
        """Cells to be cleared once more, by job and switch; a switch that cannot may keep what is in them."""
        self.records: Records | None = None

    @property
    def running(self) -> tuple[RunningJob, ...]:
        """Jobs that have not ended."""
        return tuple(self._running.values())

    @property
    def has_repeated_numbers(self) -> bool:
        """Return whether numbers of ended jobs have been reused."""
        return self._registry.given >= NUMBERS

    def job(self, number: int) -> RunningJob:
        """Return a job; raise ControllerError if there is none."""
        if number not in self._running:
            raise ControllerError(f"aggregation job {number}: no such job")
        return self._running[number]

    def create(
        self,
        workers: Sequence[Worker],
        snapshot: Snapshot,
        *,
        window: int,
        capacity: int,
        server: Worker | None = None,
        banned: Collection[str] = (),
    ) -> RunningJob:
        """Place a job on switches that are not banned, all workers members of its epoch 1."""
        hosts = [worker.host for worker in workers]
        tree = place(
            self._topology, self._hops, snapshot, hosts, cells=cells_for(window), taken=self.taken(), banned=banned
        )
        held = self._registry.reserve(switches_of(tree), window)
        job = AggregationJob(held.number, tuple(workers), capacity, window, server, self._draw_nonce())
        running = RunningJob(PlacedJob(job, tree, held.blocks), Members(1, frozenset(hosts)))
        try:
            return self._keep(running)
        except ControllerError:
            self._registry.withdraw(held.number)
            raise

    def adopt(self, job: RunningJob) -> None:
        """Continue a job of an earlier controller, whose cells are in use; raise ControllerError if it does not fit."""
        number, tree = job.number, job.placed.tree
        entities = job_entities(self._topology, self._ways, job.placed, job.members)
        self._registry.adopt(number, switches_of(tree), job.placed.blocks, job.placed.job.window)
        self._entities[number], self._running[number] = entities, job
        # Switches may have missed the last change: a place is not free before they are known to have it.
        for worker in job.placed.job.workers:
            if worker.host not in job.members.workers:
                self._leaving[number, worker.host] = parent_of(tree, worker.host)

    def given_out(self, newest: int) -> None:
        """Give out the numbers after `newest` from now on."""
        self._registry.given_out(newest)

    def leave(self, number: int, host: str) -> RunningJob:
        """Remove a member from the next epoch on; the last one cannot leave, but the job can end."""
        job = self.job(number)
        if host not in job.members.workers:
            raise ControllerError(f"aggregation job {number}: {host} is not a member")
        kept = self._keep(replace(job, members=_next(job.members, job.members.workers - {host})))
        self._leaving[number, host] = parent_of(job.placed.tree, host)
        return kept

    def join(self, number: int, worker: Worker) -> RunningJob:
        """Add a member from the next epoch on: one that has left, or a new one if there is a place.

        Another worker's place is free once the switch is known to have stopped counting it, as it may still be sending.
        """
        job = self.job(number)
        if worker.host in job.members.workers:
            raise ControllerError(f"aggregation job {number}: {worker.host} is already a member")
        leaving = {host for other, host in self._leaving if other == number}
        placed = _with_free_leaf(self._topology, job, worker, leaving)
        kept = self._keep(RunningJob(placed, _next(job.members, job.members.workers | {worker.host})))
        self._leaving.pop((number, worker.host), None)
        return kept

    def end(self, number: int) -> None:
        """Drop a job; its number and cells are free once all switches are known to hold nothing of it."""
        self.job(number)
        if self.records is not None:
            self.records.drop(number)
        del self._running[number], self._entities[number]
        self._leaving = {key: switch for key, switch in self._leaving.items() if key[0] != number}
        self._again = {key for key in self._again if key[0] != number}
        self._registry.end(number)

    def entities(self, switch: str) -> Entities:
        """Return a switch's desired entries of all jobs whose cells are clear there."""
        dirty = self.to_clear(switch)
        return {
            key: entity
            for number, entities in self._entities.items()
            if number not in dirty
            for key, entity in entities.get(switch, {}).items()
        }

    def entities_of(self, number: int) -> Mapping[str, Entities]:
        """Return each switch's desired entries of a job; switches that have no part are absent."""
        self.job(number)
        return self._entities[number]

    def links(self, number: int) -> tuple[LinkKey, ...]:
        """Return the links between switches by which the members' contributions reach the root."""
        job, found = self.job(number), dict[LinkKey, None]()
        tree, members = job.placed.tree, job.members.workers
        ends = [(self._topology.attachment[host].node, parent_of(tree, host)) for host in sorted(members)]
        ends += [(leaf.switch, tree.root) for leaf in leaves_of(tree) if members.intersection(leaf.workers)]
        for begin, end in ends:
            here = begin
            while (port := port_towards(self._topology, self._ways, here, end)) is not None:
                peer = self._topology.neighbours[here][port].node
                found[LinkKey(here, peer)] = None
                here = peer
        return tuple(found)

    def reroute(self, hops: NextHops, ways: NextHops) -> None:
        """Use other next hops from now on, for placing jobs and for the routes between all switches."""
        self._hops, self._ways = hops, ways
        for number, job in self._running.items():
            self._entities[number] = job_entities(self._topology, ways, job.placed, job.members)

    def taken(self) -> dict[str, list[Block]]:
        """Return each switch's cells in use."""
        return {node.name: self._registry.taken(node.name) for node in self._topology.switches}

    def to_clear(self, switch: str) -> dict[int, Block]:
        """Return the cells to be cleared in a switch before it may hold their jobs, by job."""
        dirty = (held for held in self._registry.reservations if not held.ended and switch in held.dirty)
        return {held.number: held.blocks[switch] for held in dirty}

    def cleared(self, number: int, switch: str) -> None:
        """Note that a job's cells in a switch are empty."""
        self._registry.cleared(number, switch)
        self._again.discard((number, switch))

    def is_clearing_again(self, number: int, switch: str) -> bool:
        """Return whether a job's cells in a switch were clear already."""
        return (number, switch) in self._again

    def forgotten(self, switch: str, held: Entities) -> tuple[str, ...]:
        """Have leaves cleared again if this switch, their root, has lost a job's sums; return these leaves.

        A result that some racks have and others lack can only be added up anew, and leaves that have it would answer
        with it instead of contributing. Their workers repeat what others lack, as after a restart of all switches.
        """
        known = {number_of(key) for key in held if key.table == "aggregation_jobs"}
        leaves = dict[str, None]()
        dirty = {each.number: each.dirty for each in self._registry.reservations}
        for number, job in self._running.items():
            tree = job.placed.tree
            if tree.root != switch or number in known or switch in dirty[number]:
                continue
            for leaf in leaves_of(tree):
                self._registry.soiled(number, leaf.switch)
                self._again.add((number, leaf.switch))
                leaves[leaf.switch] = None
        return tuple(leaves)

    def met(self, held: Iterable[EntityKey]) -> None:
        """Note the entries found in a switch: numbers of jobs that are not ours stay theirs."""
        ours = {held.number for held in self._registry.reservations}
        self._registry.avoid({number for key in held if (number := number_of(key)) is not None} - ours)

    def contradictions(self, switch: str, held: Entities) -> Iterator[tuple[int, str]]:
        """Yield the jobs that a switch knows better than we do, with the reason: our record of them is outdated."""
        for key, entity in held.items():
            job = self._running.get(number_of(key) or 0) if key.table == "aggregation_jobs" else None
            if job is None or switch not in job.placed.blocks:
                continue
            problem = _contradiction(job, entity)
            if problem is not None:
                yield job.number, f"switch {switch} {problem}: the controller's record of it is outdated"

    def held(self, switch: str, held: Entities) -> None:
        """Note the known entries of a switch: absent jobs and workers free their cells and places."""
        counted = {(number_of(key), dict(key.match)["src_addr"]) for key in held if key.table == "aggregation_peers"}
        for (number, host), parent in tuple(self._leaving.items()):
            if parent == switch and (number, int(self._topology.host[host].ipv4)) not in counted:
                del self._leaving[number, host]
        ended = [
            reservation.number
            for reservation in self._registry.reservations
            if reservation.ended and switch in reservation.blocks
        ]
        if ended:
            numbers = {number_of(key) for key in held}
            for number in ended:
                if number not in numbers:
                    self._registry.released(number, switch)

    def _keep(self, job: RunningJob) -> RunningJob:
        entities = job_entities(self._topology, self._ways, job.placed, job.members)
        if self.records is not None:
            self.records.keep(job, self._registry.newest)
        self._entities[job.number], self._running[job.number] = entities, job
        return job


def number_of(key: EntityKey) -> int | None:
    """Return the number of the job that an entry belongs to, None for anything else."""
    number = dict(key.match).get("job")
    return number if isinstance(number, int) else None


def _contradiction(job: RunningJob, entity: Entity) -> str | None:
    """Return what a switch's entry of a job says that cannot be if all changes were recorded; None if it can."""
    action = entity.action if isinstance(entity, P4TableEntry) else None
    if not isinstance(action, P4TableAction):
        return None
    if action.args.get("nonce") != job.placed.job.nonce:
        return "holds another job of its number"
    epoch = action.args.get("epoch")
    ahead = (epoch - job.members.epoch) % _EPOCHS if isinstance(epoch, int) else 0
    return f"holds its epoch {epoch}, not {job.members.epoch}" if 0 < ahead < _EPOCHS // 2 else None


def _next(members: Members, workers: frozenset[str]) -> Members:
    return Members((members.epoch + 1) % _EPOCHS, workers)


def _with_free_leaf(topology: Topology, job: RunningJob, worker: Worker, leaving: Collection[str]) -> PlacedJob:
    """Return the job with a place for a worker: its own, that of a worker that has left for good, or one more."""
    if worker.host not in topology.host:
        raise ControllerError(f"aggregation job {job.number}: there is no host {worker.host!r}")
    placed = job.placed
    workers = {each.host: each for each in placed.job.workers}
    tree, gone = placed.tree, None
    if worker.host not in workers:
        vacant = workers.keys() - job.members.workers - set(leaving)
        edge = topology.attachment[worker.host].node
        tree, gone = _seated(tree, worker.host, edge, sorted(vacant))
    workers[worker.host] = worker
    if gone is not None:
        del workers[gone]
    return replace(placed, job=replace(placed.job, workers=tuple(workers.values())), tree=tree)


def _seated(tree: AggregationTree, host: str, edge: str, vacant: Sequence[str]) -> tuple[AggregationTree, str | None]:
    """Return a tree that includes a host, at its own switch if that is a leaf, and the previous holder of its place."""
    parent = edge if edge in switches_of(tree) else tree.root
    gone = next((name for name in vacant if parent_of(tree, name) == parent), None)

    def seat(places: Sequence[str]) -> tuple[str, ...]:
        return (*places, host) if gone is None else tuple(host if name == gone else name for name in places)

    children: list[str | Leaf] = []
    for child in tree.children:
        if isinstance(child, Leaf):
            children.append(replace(child, workers=seat(child.workers)) if child.switch == parent else child)
        else:
            children.append(host if child == gone else child)
    if parent == tree.root and gone is None:
        children.append(host)
    return replace(tree, children=tuple(children)), gone
