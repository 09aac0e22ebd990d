"""Switches and the audit log in the page's System view."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from collectors.collector import Collector
from controller.apiserver.server.audit import AuditLog, AuditRecord
from controller.apiserver.view.state import NetworkView
from controller.apiserver.view.system import _entry, audit_value, ports_value, system_value, why_no_audit
from controller.common.errors import ForbiddenError, NotFoundError
from dataplane.clock import MonotonicClock
from dataplane.rpc.access import Principal, Role
from tests.collectors.reports import build_topology

ADMIN = Principal("ada", Role.ADMIN)


def record(number: int) -> AuditRecord:
    return AuditRecord(
        time_ns=number,
        who="ada",
        role="admin",
        subject=None,
        client="",
        method="PUT",
        path=f"/v1/pods/p{number}",
        what="update pod",
        status=200,
    )


def test_the_audit_log_is_for_administrators(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    log = AuditLog(file, lambda: 0)
    for number in range(3000):
        log.write(record(number))
    log.close()
    newest = audit_value(file, ADMIN, 2)
    assert [line["time_ns"] for line in newest] == [2999, 2998]
    assert len(audit_value(file, ADMIN, 1000)) == 1000
    assert why_no_audit(file, ADMIN) is None
    assert why_no_audit(None, ADMIN) == "no audit log: `audit: {file: ...}` of the API server's settings"
    with pytest.raises(ForbiddenError, match="administrators"):
        audit_value(file, Principal("eve", Role.VIEWER), 2)
    with pytest.raises(NotFoundError, match=r"audit: \{file"):
        audit_value(None, ADMIN, 2)


def test_ports_are_those_of_the_topology() -> None:
    topology = build_topology()
    view = NetworkView(topology, lambda: 0, ["collector"])
    view.take_snapshot(Collector(topology, MonotonicClock()).snapshot())
    switch = topology.switches[0].name
    ports = ports_value(view, switch)
    assert {port["port"]: port["peer"] for port in ports} == {
        number: peer.node for number, peer in topology.neighbours[switch].items()
    }
    assert {port["condition"] for port in ports} == {None}
    msgspec.json.encode(system_value(view))
    with pytest.raises(NotFoundError, match="no switch"):
        ports_value(view, "s99")


def test_entries_do_not_show_nonces() -> None:
    row = ({"job": "0x1"}, None, "add_up(nonce=0x1c6167a7dad0ea90, epoch=0x2)", 3, None)
    entry = _entry(row)
    assert (entry["match"], entry["action"]) == ("job 0x1", "add_up(nonce=hidden, epoch=0x2)")
