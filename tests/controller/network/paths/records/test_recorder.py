"""The record table."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from collectors.values import FlowKey, HopRecord, RecordKind
from controller.common.errors import PathError
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.records.database import open_path_database
from controller.network.paths.records.queries import answer
from controller.network.paths.records.recorder import Recorder
from controller.network.paths.records.store import PathStore
from controller.network.paths.records.values import Assigned, HistoryQuery, RecordQuery
from dataplane.database import Database
from dataplane.topology.values import LinkKey, Topology

OpenDatabase = Callable[[str], Database]

S = 1_000_000_000
FOUR = FlowKey(IPv4Address("10.0.1.1"), IPv4Address("10.0.4.1"), 17, 5000, 6000)
SIX = FlowKey(IPv6Address("fd00::1"), IPv6Address("fd00::2"), 6, 1, 2)


def record(time_ns: int, flow: FlowKey = FOUR, *, node_id: int = 1, port: int | None = 2) -> HopRecord:
    """Return a hop record; its stamps use all 64 bits."""
    return HopRecord(
        received_ns=time_ns,
        flow=flow,
        reporter_id=4,
        sequence=0xFFFFFFFF,
        hop_index=0,
        hop_count=None,
        node_id=node_id,
        ingress_port=1,
        egress_port=port,
        hop_latency_ns=1000,
        queue_id=0,
        queue_occupancy_frames=7,
        ingress_timestamp_ns=(1 << 64) - 1,
        egress_timestamp_ns=1 << 63,
        tx_bytes_per_window=None,
        packet_id=99,
        kind=RecordKind.XD,
        buffer_occupancy_frames=12,
    )


@pytest.fixture
def recorder(tmp_path: Path, open_database: OpenDatabase) -> Recorder:
    """Return a recorder that keeps ten rows."""
    return Recorder(open_database(str(tmp_path / "paths.db")), max_records=10, batch_records=3)


def test_records_come_back_equal_and_newest_first(recorder: Recorder) -> None:
    records = [record(1), record(3, SIX), record(2)]
    recorder.record(records)
    assert recorder.of_flow(FOUR) == [records[2], records[0]]
    assert recorder.of_flow(SIX) == [records[1]]
    assert recorder.between(SIX.src, SIX.dst) == [records[1]]
    assert recorder.in_time(2, 3) == [records[2]]


def test_the_oldest_records_go(recorder: Recorder) -> None:
    recorder.record(record(time_ns) for time_ns in range(25))
    assert recorder.count() == 10
    assert [record.received_ns for record in recorder.of_flow(FOUR)] == list(range(24, 14, -1))
    assert recorder.written == 25


def test_records_of_a_link_are_those_of_its_port(recorder: Recorder, diamond: Topology) -> None:
    recorder.record([record(1), record(2, port=3), record(3, node_id=2), record(4, port=None)])
    assert [record.received_ns for record in recorder.of_link(diamond, LinkKey("a", "b"))] == [1]
    with pytest.raises(PathError, match="has no link a->d"):
        recorder.of_link(diamond, LinkKey("a", "d"))
    with pytest.raises(PathError, match="has no link ha->a"):
        recorder.of_link(diamond, LinkKey("ha", "a"))


def test_a_query_names_at_most_one_thing(recorder: Recorder, diamond: Topology) -> None:
    recorder.record([record(5)])
    between = RecordQuery(src="10.0.1.1", dst="10.0.4.1")
    assert len(answer(recorder, diamond, between)) == 1
    assert len(answer(recorder, diamond, replace(between, protocol=17, src_port=5000, dst_port=6000))) == 1
    assert len(answer(recorder, diamond, replace(between, protocol=6))) == 0
    assert len(answer(recorder, diamond, RecordQuery(link=LinkKey("a", "b")))) == 1
    assert len(answer(recorder, diamond, RecordQuery(start_ns=0, end_ns=9))) == 1
    assert len(answer(recorder, diamond, RecordQuery())) == 1
    wrong = (
        (replace(between, src_port=5000), "needs the protocol"),
        (replace(between, protocol=1 << 70), "is not between 0 and 255"),
        (RecordQuery(dst="10.0.4.1"), "'' is neither an IPv4"),
        (RecordQuery(start_ns=0, end_ns=1 << 63), "not a valid time span"),
        (RecordQuery(start_ns=-1, end_ns=5), "not a valid time span"),
        (replace(between, link=LinkKey("a", "b")), "takes exactly one of"),
        (RecordQuery(start_ns=1), "a start and an end"),
        (RecordQuery(src="ha", dst="hb"), "'ha' is neither an IPv4 nor an IPv6 address"),
    )
    for query, problem in wrong:
        with pytest.raises(PathError, match=problem):
            answer(recorder, diamond, query)
    with pytest.raises(PathError, match="a limit of 0 records"):
        recorder.of_flow(FOUR, 0)


def test_a_batch_that_fails_leaves_nothing_behind(tmp_path: Path, open_database: OpenDatabase) -> None:
    database = open_database(str(tmp_path / "paths.db"))
    recorder = Recorder(database, max_records=10, batch_records=3)
    with database.transaction() as connection:
        connection.execute(
            "CREATE TEMP TRIGGER refuse BEFORE INSERT ON records WHEN new.node_id = 7"
            " BEGIN SELECT RAISE(ABORT, 'no node 7'); END"
        )
    with pytest.raises(PathError, match=r"paths\.db: cannot write.*no node 7"):
        recorder.record([record(1), record(2, node_id=7)])
    assert recorder.count() == 0


def test_records_survive(tmp_path: Path, open_database: OpenDatabase) -> None:
    path = str(tmp_path / "paths.db")
    database = open_database(path)
    Recorder(database, max_records=10).record([record(1)])
    database.close()
    assert Recorder(open_database(path), max_records=10).of_flow(FOUR) == [record(1)]


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "paths.db"
    path.write_bytes(b"this is not SQLite" * 100)
    with pytest.raises(PathError, match=r"paths\.db: cannot open the path server's database: file is not a database"):
        open_path_database(str(path))
    with pytest.raises(PathError, match="cannot open the path server's database: "):
        open_path_database(str(tmp_path / "nowhere" / "paths.db"))


def test_a_database_of_another_layout_is_refused(tmp_path: Path, open_database: OpenDatabase) -> None:
    path = str(tmp_path / "paths.db")
    open_database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=7")
    connection.close()
    with pytest.raises(PathError, match="has layout 7, this version needs 3"):
        open_database(path)


def test_times_of_the_machine_become_utc_and_stay_in_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, open_database: OpenDatabase
) -> None:
    """Layout 2 used the machine's monotonic clock: here with two runs and a reboot in between."""
    path = str(tmp_path / "paths.db")
    database = open_database(path)
    Recorder(database, max_records=10).record([record(900 * S), record(10 * S), record(30 * S)])
    moves = [Decision(at * S, FlowSpec("ha", "hd"), ("a", "b"), ("a", "c"), (), "why") for at in (901, 20)]
    PathStore(database, max_decisions=9).save(4, {moves[0].flow: Assigned(("a", "c"), 20 * S)}, moves)
    with database.transaction() as connection:
        connection.execute("PRAGMA user_version=2")
    database.close()
    os.utime(path, ns=(1_000_000 * S, 1_000_000 * S))
    database = open_database(path)
    assert "times converted from the machine's own clock to UTC" in caplog.text
    records = Recorder(database, max_records=10).newest()
    assert [row.received_ns // S for row in records] == [1_000_000, 1_000_000, 999_980]
    store = PathStore(database, max_decisions=9)
    assert [move.time_ns // S for move in store.decisions(HistoryQuery())] == [999_990, 1_000_000]
    assert store.load() == (4, {moves[0].flow: Assigned(("a", "c"), 999_990 * S)}, ())
    database.close()
    caplog.clear()
    assert Recorder(open_database(path), max_records=10).newest() == records
    assert caplog.text == ""


def test_an_empty_database_of_the_layout_before_is_taken(tmp_path: Path, open_database: OpenDatabase) -> None:
    path = str(tmp_path / "paths.db")
    open_database(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=2")
    connection.close()
    assert Recorder(open_database(path), max_records=10).newest() == []


def test_a_locked_database_is_an_error_not_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_database: OpenDatabase
) -> None:
    monkeypatch.setattr("controller.network.paths.records.database.BUSY_S", 0.01)
    path = str(tmp_path / "paths.db")
    opened = open_database(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(PathError, match="database is locked"):
            Recorder(opened, max_records=1).record([record(1)])


def test_second_path_server_is_refused_an_open_database(tmp_path: Path, open_database: OpenDatabase) -> None:
    path = str(tmp_path / "paths.db")
    open_database(path)
    with pytest.raises(PathError, match=rf"^{path}: cannot open the path server's database: process \d+ has it$"):
        open_database(path)
