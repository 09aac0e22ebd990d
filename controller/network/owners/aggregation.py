"""Jobs that switches add up, and their needs in a fabric (`controller/network/aggregation/tables.py`).

A job's cells in a switch are cleared before the switch gets the job. Some targets cannot clear (bmv2's
simple_switch_grpc refuses writes of registers): their contents are harmless unless an earlier job had the same number,
which is excluded if this controller installed the program and has not reused a number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence, Set
from typing import Final, Protocol

from controller.network.aggregation.tables import AggregationTables
from controller.network.owners.base import ObservedState, Owner, Refusal, Verdict, own_batches
from controller.network.reconcile import chunks
from controller.network.tables.aggregation import Block, clearing, unwatched_entities
from controller.network.tables.entities import Batch, Entities, Entity, EntityKey, Kind, Update
from dataplane.topology.values import LinkKey

LOGGER: Final = logging.getLogger("millrace.controller")

UNIMPLEMENTED: Final = "UNIMPLEMENTED"


class JobListener(Protocol):
    """The reconciler of jobs, which alone can undo what a switch refuses."""

    def refuse(self, switch: str, updates: Iterable[Update], problem: str) -> bool:
        """Note that a switch refused updates; return whether all were about jobs, which it is now spared."""
        ...

    def confirmed(self, switch: str) -> None:
        """Note that a switch holds the desired entries, as far as known."""
        ...

    def lost(self, switch: str) -> None:
        """Note that a switch is gone, or that its contents are unknown."""
        ...

    def forgotten(self, switches: Iterable[str]) -> None:
        """Note that cells of these switches are to be cleared again."""
        ...

    def contradicted(self, number: int, reason: str) -> None:
        """Note that a switch holds a newer state of a job than we know."""
        ...


class AggregationOwner(Owner):
    """Owns jobs, their multicast groups, routes to switches, and the rules that keep telemetry out of sums."""

    name = "aggregation"

    def __init__(self, tables: AggregationTables) -> None:
        self.tables = tables
        self.listener: JobListener | None = None
        self._empty: set[str] = set()
        """Switches that have held nothing before this controller."""
        self._next_cell: dict[tuple[str, int], int] = {}
        """Cell up to which cells are clear, by switch and job."""

    @staticmethod
    def rules() -> tuple[Entity, ...]:
        """Return its entries in tables of telemetry, which are those of every switch with a watchlist."""
        return tuple(unwatched_entities())

    def owns(self, key: EntityKey) -> bool:
        """Return whether an entity belongs only to jobs, or their needs."""
        return self.tables.owns(key)

    def wanted(self, switch: str) -> Entities:
        """Return a switch's desired entities, of jobs as far as their cells are clear."""
        return self.tables.wanted(switch)

    def samples(self, switch: str) -> Iterable[Entity]:
        """Return a switch's desired entities, and an entity of a job."""
        return self.tables.everything()

    def installed(self, switch: str) -> None:
        """Note that a switch's cells are empty."""
        self._empty.add(switch)

    def found(self, switch: str, actual: Entities) -> None:
        """Reserve the numbers of jobs that are not ours, and give up those of ours that are outdated.

        The leaves of a root that has restarted are cleared again.
        """
        if self.listener is not None:
            for number, reason in tuple(self.tables.jobs.contradictions(switch, actual)):
                self.listener.contradicted(number, reason)
        self.tables.jobs.met(actual)
        leaves = self.tables.jobs.forgotten(switch, actual)
        if leaves:
            LOGGER.info("switch %s has lost its sums: clearing those of its leaves %s", switch, " ".join(leaves))
        if leaves and self.listener is not None:
            self.listener.forgotten(leaves)

    def next_batches(self, switch: str, known: ObservedState) -> list[Batch]:
        """Return the updates that clear cells for new jobs; after that, the differences from the desired state."""
        blocks = self.tables.jobs.to_clear(switch)
        clears = [batch for number, block in blocks.items() for batch in self._clearing(switch, number, block)]
        return clears or own_batches(self, self.wanted(switch), known.held.get(switch, {}))

    def acknowledged(self, switch: str, updates: Sequence[Update]) -> None:
        """Note which cells are clear; a job whose cells are all clear may enter the switch."""
        if not updates or updates[0].key.kind is not Kind.REGISTER:
            return
        last = updates[-1].key.number
        for number, block in self.tables.jobs.to_clear(switch).items():
            if block.first <= last < block.end:
                self._next_cell[switch, number] = last + 1
                if last + 1 == block.end:
                    del self._next_cell[switch, number]
                    self.tables.jobs.cleared(number, switch)

    def confirmed(self, switch: str, held: Entities) -> None:
        """Note that cells of jobs that have ended are free there."""
        self._begin_anew(switch)
        self.tables.jobs.held(switch, held)
        if self.listener is not None:
            self.listener.confirmed(switch)

    def refused(self, refusal: Refusal) -> Verdict:
        """End the jobs that a switch has no room for; without their other needs a switch cannot be used."""
        problem = refusal.problem
        if refusal.code == UNIMPLEMENTED and refusal.updates[0].key.kind is Kind.REGISTER:
            if self._is_clearing_again(refusal):
                self.acknowledged(refusal.switch, refusal.updates)
                return Verdict.DONE
            if refusal.switch in self._empty and not self.tables.jobs.has_repeated_numbers:
                self.acknowledged(refusal.switch, refusal.updates)
                return Verdict.DONE
            cause = "it cannot clear cells and may hold sums of earlier jobs; restart it"
            problem = f"switch {refusal.switch}: clear cells: {refusal.code}: {cause}"
        if self.listener is None or not self.listener.refuse(refusal.switch, refusal.updates, problem):
            return Verdict.INSISTS
        LOGGER.warning("%s", problem)
        return Verdict.SPARED

    def _is_clearing_again(self, refusal: Refusal) -> bool:
        cell, jobs = refusal.updates[-1].key.number, self.tables.jobs
        blocks = jobs.to_clear(refusal.switch).items()
        number = next((number for number, block in blocks if block.first <= cell < block.end), 0)
        return jobs.is_clearing_again(number, refusal.switch)

    def lost(self, switch: str) -> None:
        """Start clearing again: a switch may have restarted."""
        self._begin_anew(switch)
        if self.listener is not None:
            self.listener.lost(switch)

    def avoid(self, down: Set[LinkKey]) -> None:
        """Send packets of jobs around dead links, if there is another path."""
        self.tables.avoid(down=down)

    def _begin_anew(self, switch: str) -> None:
        self._next_cell = {key: cell for key, cell in self._next_cell.items() if key[0] != switch}

    def _clearing(self, switch: str, number: int, block: Block) -> list[Batch]:
        first = self._next_cell.get((switch, number), block.first)
        return chunks([update for update in clearing(block) if update.key.number >= first])
