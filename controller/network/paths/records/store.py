"""Persistent state of the path server: the explicit paths and weights in force, their version, and its decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Final

from controller.common.errors import PathError
from controller.network.intents import FlowSpec, WeightedRoute
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.deciding.graph import Path
from controller.network.paths.records.codec import freeze, thaw
from controller.network.paths.records.values import Assigned, Drain, HistoryQuery
from dataplane.database import Database

_NO_END: Final = (1 << 63) - 1


class PathStore:
    """Routes and decisions in the path server's database."""

    def __init__(self, database: Database, *, max_decisions: int) -> None:
        self._database, self._max_decisions = database, max_decisions

    def load(self) -> tuple[int, dict[FlowSpec, Assigned], tuple[WeightedRoute, ...]]:
        """Return the version, explicit paths and weighted routes that were saved last, 0 and none in a new file."""
        versions = self._database.query("SELECT version FROM versions")
        assigned = self._paths_in("routes")
        weights = self._database.query("SELECT routes FROM weighted")
        weighted = thaw(weights[0][0], tuple[WeightedRoute, ...]) if weights else ()
        return (versions[0][0] if versions else 0), assigned, weighted

    def pins(self) -> dict[FlowSpec, Assigned]:
        """Return the paths of pinned flows, as last saved."""
        return self._paths_in("pins")

    def drains(self) -> list[Drain]:
        """Return the drained elements, as last saved."""
        return [thaw(row[0], Drain) for row in self._database.query("SELECT drain FROM drains ORDER BY element")]

    def _paths_in(self, table: str) -> dict[FlowSpec, Assigned]:
        rows = self._database.query(f"SELECT flow, switches, since_ns FROM {table} ORDER BY flow")  # noqa: S608 - ours
        return {thaw(flow, FlowSpec): Assigned(thaw(path, Path), since) for flow, path, since in rows}

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
        """Replace the saved paths, pins, drains and weights, and add the decisions, all or nothing.

        The oldest decisions are deleted.
        """
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO weighted VALUES (0, ?)", (freeze(weighted),))
            connection.execute("INSERT OR REPLACE INTO versions VALUES (0, ?)", (version,))
            for table, entries in (("routes", assigned), ("pins", pins)):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - a constant
                connection.executemany(
                    f"INSERT INTO {table} VALUES (?, ?, ?)",  # noqa: S608 - a constant
                    [(freeze(flow), freeze(entry.path), entry.since_ns) for flow, entry in entries.items()],
                )
            connection.execute("DELETE FROM drains")
            rows = [(element, freeze(drain)) for element, drain in drains.items()]
            connection.executemany("INSERT INTO drains VALUES (?, ?)", rows)
            connection.executemany(
                "INSERT INTO decisions (time_ns, flow, decision) VALUES (?, ?, ?)",
                [(decision.time_ns, freeze(decision.flow), freeze(decision)) for decision in decisions],
            )
            connection.execute(
                "DELETE FROM decisions WHERE id <= (SELECT max(id) FROM decisions) - ?", (self._max_decisions,)
            )
            connection.executemany(
                "INSERT INTO rebalances (time_ns, destination, change) VALUES (?, ?, ?)",
                [(change.time_ns, change.destination, freeze(change)) for change in changes],
            )
            connection.execute(
                "DELETE FROM rebalances WHERE id <= (SELECT max(id) FROM rebalances) - ?", (self._max_decisions,)
            )

    def decisions(self, query: HistoryQuery) -> list[Decision]:
        """Return the newest decisions that a query selects, newest first; raise PathError for no span of time."""
        start_ns, end_ns = _span(query)
        rows = self._database.query(
            "SELECT decision FROM decisions WHERE time_ns >= ? AND time_ns < ? ORDER BY id DESC", (start_ns, end_ns)
        )
        # Hosts are inside the stored value; the number of rows is bounded.
        stored = (thaw(row[0], Decision) for row in rows)
        return list(islice((decision for decision in stored if _selects(query, decision.flow)), max(0, query.limit)))

    def rebalances(self, query: HistoryQuery, destination: str | None = None) -> list[Rebalance]:
        """Return the newest changes of weights in a query's span of time, of all or of one destination switch."""
        start_ns, end_ns = _span(query)
        rows = self._database.query(
            "SELECT change FROM rebalances WHERE time_ns >= ? AND time_ns < ? AND (? IS NULL OR destination = ?)"
            " ORDER BY id DESC LIMIT ?",
            (start_ns, end_ns, destination, destination, max(0, query.limit)),
        )
        return [thaw(row[0], Rebalance) for row in rows]


def _span(query: HistoryQuery) -> tuple[int, int]:
    """Return the bounds of a query's time span; raise PathError for an invalid one."""
    start_ns = 0 if query.start_ns is None else query.start_ns
    end_ns = _NO_END if query.end_ns is None else query.end_ns
    if not 0 <= start_ns <= end_ns <= _NO_END:
        raise PathError(f"{start_ns} to {end_ns} ns is not a valid time span")
    return start_ns, end_ns


def _selects(query: HistoryQuery, flow: FlowSpec) -> bool:
    return query.src in (None, flow.src_host) and query.dst in (None, flow.dst_host)
