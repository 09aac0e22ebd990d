"""From layout 2 of the path server's database, with times of a monotonic clock, to layout 3, with UTC."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from controller.network.paths.deciding.decide import Decision
from controller.network.paths.records.codec import freeze, thaw


def to_utc(connection: sqlite3.Connection, written_ns: int) -> None:
    """Convert times of the machine's monotonic clock to UTC; call it inside a transaction.

    The newest row is assumed to be from when the file was written last, `written_ns`, and all others keep their
    distance before it. The times of rows from before a restart of the machine are unknown: none gets a later time than
    that.
    """
    shift_ns = written_ns - _newest_ns(connection)
    connection.execute("UPDATE records SET received_ns = min(received_ns + ?, ?)", (shift_ns, written_ns))
    connection.execute("UPDATE routes SET since_ns = min(since_ns + ?, ?)", (shift_ns, written_ns))
    for key, time_ns, stored in connection.execute("SELECT id, time_ns, decision FROM decisions").fetchall():
        then_ns = min(time_ns + shift_ns, written_ns)
        decision = freeze(replace(thaw(stored, Decision), time_ns=then_ns))
        connection.execute("UPDATE decisions SET time_ns = ?, decision = ? WHERE id = ?", (then_ns, decision, key))


def _newest_ns(connection: sqlite3.Connection) -> int:
    """Return the monotonic clock's time of what was written last."""
    newest = (
        connection.execute(f"SELECT {column} FROM {table} ORDER BY id DESC LIMIT 1").fetchone()  # noqa: S608 - constants
        for table, column in (("records", "received_ns"), ("decisions", "time_ns"))
    )
    return max((row[0] for row in newest if row is not None), default=0)
