"""State that the path servers of a pair share: written by the active one, followed by the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from controller.common.errors import StorageError
from controller.common.standby.lease import Lease
from controller.network.intents import FlowSpec, WeightedRoute
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.records.codec import freeze, thaw
from controller.network.paths.records.store import PathStore
from controller.network.paths.records.values import Assigned, Drain, HistoryQuery
from dataplane.database import Database

SHARED_DECISIONS: Final = 64
"""Newest decisions in the shared state, for the history of the one that stands by."""
_KEY: Final = "routes"
_AGAIN_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class PairState:
    """Routes in force, pins, drains and the newest decisions; paths are flow and path."""

    version: int
    routes: tuple[tuple[FlowSpec, Assigned], ...]
    pins: tuple[tuple[FlowSpec, Assigned], ...]
    drains: tuple[Drain, ...]
    weighted: tuple[WeightedRoute, ...]
    decisions: tuple[Decision, ...]
    rebalances: tuple[Rebalance, ...]


class PairStore(PathStore):
    """A `PathStore` whose routes, pins and drains are those of the pair; the database keeps a copy, and the history.

    `save` writes the shared state in a transaction on the condition that this process holds the lease.
    """

    def __init__(self, database: Database, lease: Lease, *, max_decisions: int) -> None:
        super().__init__(database, max_decisions=max_decisions)
        self._lease = lease
        self._state: PairState | None = None
        self._revision = 0

    def refresh(self) -> bool:
        """Read the shared state; return whether it has changed. Raise StorageError, PathError for an invalid one."""
        entry = self._lease.load(_KEY, after=self._revision)
        if entry is None:
            return False
        before, self._state = self._state, thaw(entry.value, PairState)
        self._revision = entry.revision
        self._copy(self._state, before)
        return True

    def load(self) -> tuple[int, dict[FlowSpec, Assigned], tuple[WeightedRoute, ...]]:
        """Return version, explicit paths and weighted routes of the pair; those of the database before there are any.

        A pair begins with what its first active one has.
        """
        state = self._state
        return super().load() if state is None else (state.version, dict(state.routes), state.weighted)

    def pins(self) -> dict[FlowSpec, Assigned]:
        """Return the paths of pinned flows."""
        return super().pins() if self._state is None else dict(self._state.pins)

    def drains(self) -> list[Drain]:
        """Return the drained elements."""
        return super().drains() if self._state is None else list(self._state.drains)

    def save(
        self,
        version: int,
        assigned: Mapping[FlowSpec, Assigned],
        decisions: Sequence[Decision],
        weighted: Sequence[WeightedRoute] = (),
        changes: Sequence[Rebalance] = (),
        *,
        pins: Mapping[FlowSpec, Assigned] = MappingProxyType({}),
        drains: Mapping[str, Drain] = MappingProxyType({}),
    ) -> None:
        """Write the shared state, then the copy; raise LostLeaseError, with nothing written, without the lease."""
        before = self._state
        self._state = PairState(
            version,
            tuple(assigned.items()),
            tuple(pins.items()),
            tuple(drains.values()),
            tuple(weighted),
            ((() if before is None else before.decisions) + tuple(decisions))[-SHARED_DECISIONS:],
            ((() if before is None else before.rebalances) + tuple(changes))[-SHARED_DECISIONS:],
        )
        self._revision = self._saved(freeze(self._state))
        super().save(version, assigned, decisions, weighted, changes, pins=pins, drains=drains)

    def _saved(self, state: bytes) -> int:
        """Write the shared state, again for as long as the lease is held: the storage may be away for a moment."""
        while True:
            try:
                return self._lease.save({_KEY: state})
            except StorageError:
                self._lease.check()
                time.sleep(_AGAIN_S)

    def _copy(self, state: PairState, before: PairState | None) -> None:
        """Write a state that another path server has saved to the database, with the decisions that are new in it."""
        newest = HistoryQuery(limit=SHARED_DECISIONS)
        known = self.decisions(newest) if before is None else before.decisions
        changed = self.rebalances(newest) if before is None else before.rebalances
        super().save(
            state.version,
            dict(state.routes),
            [decision for decision in state.decisions if decision not in known],
            state.weighted,
            [change for change in state.rebalances if change not in changed],
            pins=dict(state.pins),
            drains={drain.element: drain for drain in state.drains},
        )
