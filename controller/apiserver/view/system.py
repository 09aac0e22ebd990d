"""The condition of switches and daemons as the page shows it: sessions, ports, tables, clocks, the audit log."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from controller.apiserver.view.state import NetworkView
from controller.common.errors import ForbiddenError, NotFoundError, SessionError, UnavailableError
from controller.network.p4runtime.browsing import SwitchBrowser
from controller.network.p4runtime.entries import Row, entries_of
from dataplane.rpc.access import Principal, Role
from dataplane.rpc.access.settings import TlsSettings

T = TypeVar("T")

_NONCE: Final = re.compile(r"\bnonce=\w+")
"""A secret: it lets its holder contribute to a job."""

_MOST_ENTRIES: Final = 1000
_FOR_ADMINISTRATORS: Final = "the audit log is shown to administrators"
_NO_AUDIT: Final = "no audit log: `audit: {file: ...}` of the API server's settings"
_AUDIT_BYTES: Final = 256 << 10
"""Length of the log's end that is read; a line has a few hundred bytes."""


def system_value(view: NetworkView) -> dict[str, Any]:
    """Return the controller's status, what came of each switch's reports, and switches' clocks."""
    snapshot, names = view.snapshot, {node.node_id: node.name for node in view.topology.switches}
    reporters = () if snapshot is None else snapshot.reporters.values()
    clocks = () if snapshot is None else snapshot.clocks.values()
    return {
        "controller": None if view.controller is None else msgspec.to_builtins(view.controller),
        "reporters": [
            {"switch": names.get(state.node_id, str(state.node_id)), **msgspec.to_builtins(state)}
            for state in reporters
        ],
        "clocks": [
            {
                **msgspec.to_builtins(clock),
                "switch": names.get(clock.node_id, str(clock.node_id)),
                "group": names.get(clock.group, str(clock.group)),
            }
            for clock in clocks
        ],
    }


def ports_value(view: NetworkView, switch: str) -> list[dict[str, Any]]:
    """Return a switch's ports with what is at the other end; raise NotFoundError."""
    topology, snapshot = view.topology, view.snapshot
    if switch not in topology.switch:
        raise NotFoundError(f"topology {topology.name} has no switch {switch[:80]}")
    statuses = {} if snapshot is None else snapshot.statuses
    links = {} if snapshot is None else snapshot.links
    values = []
    for key, link in topology.directed_links.items():
        if key.src != switch:
            continue
        status, state = statuses.get(key), links.get(key)
        values.append(
            {
                "port": link.tail.port,
                "peer": link.head.node,
                "peer_port": link.head.port,
                "rate_bps": link.rate_bps,
                "condition": None if status is None else status.condition.value,
                "cause": None if status is None else status.cause,
                "utilisation": None if state is None or state.age_ns is None else state.utilisation,
                "loss": None if state is None else state.loss,
            }
        )
    return sorted(values, key=lambda value: value["port"])


async def tables_value(address: str, device_id: int, tls: TlsSettings | None) -> list[dict[str, Any]]:
    """Return the tables of a switch's program with numbers of entries and counted packets; raise UnavailableError."""
    return await _asked(address, device_id, tls, _tables)


async def entries_value(address: str, device_id: int, tls: TlsSettings | None, table: str) -> dict[str, Any]:
    """Return the entries of a table, a thousand at most; raise NotFoundError, UnavailableError."""

    async def question(browser: SwitchBrowser) -> dict[str, Any]:
        if table not in {known.alias for known in browser.schema.tables}:
            raise NotFoundError(f"the program of {browser.switch} has no table {table[:80]}")
        rows = await entries_of(browser, table)
        return {"entries": [_entry(row) for row in rows[:_MOST_ENTRIES]], "of": len(rows)}

    return await _asked(address, device_id, tls, question)


async def _asked(
    address: str, device_id: int, tls: TlsSettings | None, question: Callable[[SwitchBrowser], Awaitable[T]]
) -> T:
    """Return a switch's answer over a session that only reads; raise UnavailableError."""
    browser = SwitchBrowser(address, device_id, tls=tls)
    try:
        await browser.open()
        return await question(browser)
    except SessionError as error:
        raise UnavailableError(str(error)) from None
    finally:
        await browser.close()


async def _tables(browser: SwitchBrowser) -> list[dict[str, Any]]:
    values = []
    for table in browser.schema.tables:
        rows = await entries_of(browser, table.alias)
        packets = [row[3] for row in rows if row[3] is not None]
        values.append(
            {
                "table": table.alias,
                "keys": [field.alias for field in table.match_fields],
                "entries": sum(row[0] != "default" for row in rows),
                "size": table.size,
                "packets": sum(packets) if packets else None,
            }
        )
    return values


def _entry(row: Row) -> dict[str, Any]:
    match, priority, action, packets, octets = row
    text = match if isinstance(match, str) else ", ".join(f"{key} {value}" for key, value in match.items())
    shown = None if action is None else _NONCE.sub("nonce=hidden", action)
    return {"match": text, "priority": priority, "action": shown, "packets": packets, "bytes": octets}


def why_no_audit(file: Path | None, principal: Principal) -> str | None:
    """Return why a caller is shown no audit log, None for one who is."""
    if principal.role is not Role.ADMIN:
        return _FOR_ADMINISTRATORS
    return None if file is not None else _NO_AUDIT


def audit_value(file: Path | None, principal: Principal, limit: int) -> list[dict[str, Any]]:
    """Return the newest records of the audit log, for administrators; raise ForbiddenError, NotFoundError."""
    if principal.role is not Role.ADMIN:
        raise ForbiddenError(_FOR_ADMINISTRATORS)
    if file is None:
        raise NotFoundError(_NO_AUDIT)
    try:
        with file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _AUDIT_BYTES))
            data = log.read()
    except OSError as error:
        raise UnavailableError(f"audit log {file}: {error.strerror}") from None
    lines = data.splitlines()
    if size > _AUDIT_BYTES:
        del lines[0]  # cut
    return [msgspec.json.decode(line) for line in reversed(lines[-limit:])]
