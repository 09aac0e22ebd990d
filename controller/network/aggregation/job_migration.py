"""Migration of jobs: when the state of the network calls for another tree, and which links have fallen silent.

Pure, and slow to change its mind: another tree must be better by a share, in several consecutive rounds, and a job that
was asked to move is not asked again for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from collectors.values import Snapshot
from controller.common.errors import ControllerError
from controller.network.aggregation.jobs import RunningJob
from controller.network.aggregation.placement import cost_of, place
from controller.network.aggregation.settings import MoveSettings
from controller.network.base_paths import NextHops, next_hops
from controller.network.intents import AggregationTree, Leaf, Members
from controller.network.tables.aggregation import Block
from dataplane.topology.values import LinkKey, Topology

MOST_JUDGED = 16
"""Jobs judged in one round, which bounds the round."""


@dataclass(frozen=True, slots=True)
class BetterTree:
    """A better tree for a job, with the cost of both; `cost` is None if the present one is broken."""

    tree: AggregationTree
    cost: float | None
    cost_there: float

    def __str__(self) -> str:
        if self.cost is None:
            return f"its current tree is broken; a tree rooted at {self.tree.root} works"
        return f"a tree rooted at {self.tree.root} costs {self.cost_there / self.cost:.0%} of the current one"


def better_tree(
    topology: Topology,
    hops: NextHops,
    snapshot: Snapshot,
    job: RunningJob,
    *,
    taken: Mapping[str, Collection[Block]],
    banned: Collection[str] = (),
) -> BetterTree | None:
    """Return the best tree for a job's members if it costs less than the present one, else None.

    `taken` includes the job's own blocks: the new tree must fit next to the present one.
    """
    hosts = [worker.host for worker in job.placed.job.workers if worker.host in job.members.workers]
    cells = next(iter(job.placed.blocks.values())).cells
    try:
        tree = place(topology, hops, snapshot, hosts, cells=cells, taken=taken, banned=banned)
    except ControllerError:
        return None
    present = _without_absent(job.placed.tree, job.members)
    if tree == present:
        return None
    others = {
        switch: [block for block in blocks if block != job.placed.blocks.get(switch)]
        for switch, blocks in taken.items()
    }
    cost, there = (cost_of(topology, hops, snapshot, candidate, others) for candidate in (present, tree))
    if there is None or (cost is not None and there >= cost):
        return None
    return BetterTree(tree, cost, there)


def dead_links(topology: Topology, snapshot: Snapshot, settings: MoveSettings) -> frozenset[LinkKey]:
    """Return the links between switches that nothing crosses any more, according to telemetry, by direction."""
    dead = set()
    for key, link in snapshot.links.items():
        is_silent = settings.dead_link_after_ns is not None and (link.age_ns or 0) > settings.dead_link_after_ns
        is_lossy = link.loss is not None and link.loss >= settings.dead_loss
        if (is_silent or is_lossy) and key.src in topology.switch and key.dst in topology.switch:
            dead.add(key)
    return frozenset(dead)


def hops_without(topology: Topology, dead: Collection[LinkKey]) -> NextHops:
    """Return the shortest ways that avoid links with a dead direction."""
    return next_hops(topology, {*dead, *(LinkKey(key.dst, key.src) for key in dead)})


class MigrationPolicy:
    """Counts the rounds in which each job would have been better off elsewhere."""

    def __init__(self, settings: MoveSettings) -> None:
        self.settings = settings
        self._rounds: dict[int, int] = {}
        self._asked_ns: dict[int, int] = {}
        self._next = 0

    def judged(self, running: Sequence[RunningJob]) -> list[RunningJob]:
        """Return the jobs to judge in this round: some at a time, all of them in turn."""
        numbers = {job.number for job in running}
        self._rounds = {number: rounds for number, rounds in self._rounds.items() if number in numbers}
        self._asked_ns = {number: asked_ns for number, asked_ns in self._asked_ns.items() if number in numbers}
        first = self._next % len(running) if running else 0
        chosen = [*running[first:], *running[:first]][:MOST_JUDGED]
        self._next = first + len(chosen)
        return chosen

    def moved(self, number: int, new: int, now_ns: int) -> None:
        """Note that a job has moved and has a new number."""
        self._rounds.pop(number, None)
        self._asked_ns.pop(number, None)
        self._asked_ns[new] = now_ns

    def step(self, better_trees: Mapping[int, BetterTree | None], now_ns: int) -> list[tuple[int, BetterTree]]:
        """Take one round's judgement of jobs and return those that should move now."""
        for number, better in better_trees.items():
            self._rounds[number] = self._rounds.get(number, 0) + 1 if self._is_worth(better) else 0
        moves = [
            (number, better)
            for number, better in better_trees.items()
            if better is not None
            and self._rounds[number] >= self.settings.confirm_rounds
            # A job that was never asked to move need not be held down.
            and now_ns - self._asked_ns.get(number, -self.settings.hold_down_ns) >= self.settings.hold_down_ns
        ]
        self._asked_ns.update((number, now_ns) for number, _ in moves)
        return moves

    def _is_worth(self, better: BetterTree | None) -> bool:
        return better is not None and (
            better.cost is None or better.cost_there <= (1 - self.settings.gain) * better.cost
        )


def _without_absent(tree: AggregationTree, members: Members) -> AggregationTree:
    """Return a tree without the places of workers that have left."""
    children: list[str | Leaf] = []
    for child in tree.children:
        if isinstance(child, Leaf):
            workers = tuple(host for host in child.workers if host in members.workers)
            if workers:
                children.append(replace(child, workers=workers))
        elif child in members.workers:
            children.append(child)
    return AggregationTree(tree.root, tuple(children))
