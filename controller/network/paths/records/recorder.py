"""The recording module: the record table of all hops, one row a hop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Any

from collectors.record_columns import COLUMNS, RecordColumns
from collectors.values import FlowKey, HopRecord, RecordKind
from controller.common.errors import PathError
from dataplane.database import Database
from dataplane.topology.values import LinkKey, Topology

_COLUMNS = (
    "received_ns, src, dst, protocol, src_port, dst_port, reporter_id, sequence, hop_index, hop_count, node_id,"
    " ingress_port, egress_port, hop_latency_ns, queue_id, queue_occupancy_frames, ingress_timestamp_ns,"
    " egress_timestamp_ns, tx_bytes_per_window, packet_id, kind, buffer_occupancy_frames"
)
_INSERT = f"INSERT INTO records ({_COLUMNS}) VALUES ({', '.join('?' * 22)})"  # noqa: S608 - constants only
_SELECT = f"SELECT {_COLUMNS} FROM records"  # noqa: S608 - constants only

MAX_ANSWER = 100_000
"""Most records returned by one query."""


class Recorder:
    """Writes hop records in batches, keeps the newest `max_records`, and answers queries about them."""

    def __init__(self, database: Database, *, max_records: int, batch_records: int = 2000) -> None:
        self._database, self._max_records, self._batch_records = database, max_records, batch_records
        self.written = 0

    def record(self, records: Iterable[HopRecord]) -> None:
        """Write records as `record_columns` does."""
        self.record_columns(RecordColumns.of(list(records)))

    def record_columns(self, records: RecordColumns, offset_ns: int = 0) -> None:
        """Write records, one transaction per batch, and delete the oldest; raise PathError if the file refuses.

        `offset_ns` is added to the times of receipt.
        """
        source = _rows(records, offset_ns)
        while rows := list(islice(source, self._batch_records)):
            with self._database.transaction() as connection:
                connection.executemany(_INSERT, rows)
                # Ids grow with every row: rows beyond the number to keep have the lowest.
                connection.execute(
                    "DELETE FROM records WHERE id <= (SELECT max(id) FROM records) - ?", (self._max_records,)
                )
            self.written += len(rows)

    def of_flow(self, flow: FlowKey, limit: int = 100) -> list[HopRecord]:
        """Return a flow's newest records, newest first."""
        return self._select(
            "WHERE src = ? AND dst = ? AND protocol = ? AND src_port = ? AND dst_port = ?",
            (flow.src.packed, flow.dst.packed, flow.protocol, flow.src_port, flow.dst_port),
            limit,
        )

    def between(
        self, src: IPv4Address | IPv6Address, dst: IPv4Address | IPv6Address, limit: int = 100
    ) -> list[HopRecord]:
        """Return the newest records of all flows between two addresses, newest first."""
        return self._select("WHERE src = ? AND dst = ?", (src.packed, dst.packed), limit)

    def of_link(self, topology: Topology, link: LinkKey, limit: int = 100) -> list[HopRecord]:
        """Return the newest records of hops that sent onto a link, newest first; PathError for an unknown link."""
        directed = topology.directed_links.get(link)
        if directed is None or directed.tail.node not in topology.switch:
            raise PathError(f"topology {topology.name} has no link {link} that starts at a switch")
        node = topology.switch[directed.tail.node]
        return self._select("WHERE node_id = ? AND egress_port = ?", (node.node_id, directed.tail.port), limit)

    def in_time(self, start_ns: int, end_ns: int, limit: int = 1000) -> list[HopRecord]:
        """Return records received from `start_ns` on and before `end_ns`, newest first."""
        return self._select("WHERE received_ns >= ? AND received_ns < ?", (start_ns, end_ns), limit)

    def newest(self, limit: int = 100) -> list[HopRecord]:
        """Return the newest records of all, newest first."""
        return self._select("", (), limit)

    def count(self) -> int:
        """Return how many records are kept."""
        [(number,)] = self._database.query("SELECT count(*) FROM records")
        return int(number)

    def _select(self, where: str, parameters: tuple[object, ...], limit: int) -> list[HopRecord]:
        if not 1 <= limit <= MAX_ANSWER:
            raise PathError(f"a limit of {limit} records is not between 1 and {MAX_ANSWER}")
        statement = f"{_SELECT} {where} ORDER BY received_ns DESC, id DESC LIMIT ?"
        return [_record(row) for row in self._database.query(statement, (*parameters, limit))]


_SIGNED = 1 << 63
_SPAN = 1 << 64


def _rows(records: RecordColumns, offset_ns: int) -> Iterator[tuple[object, ...]]:
    """Yield the records as rows of the table."""
    keys = [(flow.src.packed, flow.dst.packed, flow.protocol, flow.src_port, flow.dst_port) for flow in records.flows]
    others = (records.known(name) for name in COLUMNS if name != "received_ns")
    signed = zip(*map(_to_signed, others), strict=True)
    for received_ns, flow, rest in zip(records.columns["received_ns"], records.flow, signed, strict=True):
        yield (received_ns + offset_ns, *keys[flow], *rest)


def _record(row: Sequence[Any]) -> HopRecord:
    flow = FlowKey(ip_address(row[1]), ip_address(row[2]), row[3], row[4], row[5])
    rest: list[Any] = [_to_unsigned(value) for value in row[6:]]
    record = HopRecord(row[0], flow, *rest)
    return replace(record, kind=RecordKind(record.kind))


def _to_signed(column: Sequence[int | None]) -> Sequence[int | None]:
    """Return numbers as SQLite's signed integers: a packet's id of 64 bits need not fit."""
    if all(value is None or value < _SIGNED for value in column):
        return column
    return [value - _SPAN if value is not None and value >= _SIGNED else value for value in column]


def _to_unsigned(value: int | None) -> int | None:
    return value + _SPAN if value is not None and value < 0 else value
