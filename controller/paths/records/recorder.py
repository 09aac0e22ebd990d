"""The recording module: the record table of all hops, one row a hop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from operator import attrgetter
from typing import Any

from collectors.values import FlowKey, HopRecord, RecordKind
from controller.errors import PathError
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
"""Records that one query returns at most."""


class Recorder:
    """Writes hop records in batches, keeps the newest `max_records`, and answers queries about them."""

    def __init__(self, database: Database, *, max_records: int, batch_records: int = 2000) -> None:
        self._database, self._max_records, self._batch_records = database, max_records, batch_records
        self.written = 0

    def record(self, records: Iterable[HopRecord], offset_ns: int = 0) -> None:
        """Write records, a transaction a batch, and let the oldest go; raise PathError if the file refuses.

        `offset_ns` is added to when they were received.
        """
        source = iter(records)
        while batch := list(islice(source, self._batch_records)):
            rows = [_row(record, offset_ns) for record in batch]
            with self._database.transaction() as connection:
                connection.executemany(_INSERT, rows)
                # Ids grow with every row, so the newest ones are those above the highest less what is kept.
                connection.execute(
                    "DELETE FROM records WHERE id <= (SELECT max(id) FROM records) - ?", (self._max_records,)
                )
            self.written += len(batch)

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
            raise PathError(f"topology {topology.name} has no link {link} that a switch sends onto")
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
        [(found,)] = self._database.query("SELECT count(*) FROM records")
        return int(found)

    def _select(self, where: str, parameters: tuple[object, ...], limit: int) -> list[HopRecord]:
        if not 1 <= limit <= MAX_ANSWER:
            raise PathError(f"a limit of {limit} records is not between 1 and {MAX_ANSWER}")
        statement = f"{_SELECT} {where} ORDER BY received_ns DESC, id DESC LIMIT ?"
        return [_record(row) for row in self._database.query(statement, (*parameters, limit))]


_rest_of = attrgetter(*(field.name for field in fields(HopRecord)[2:]))
_SIGNED = 1 << 63
_SPAN = 1 << 64


def _row(record: HopRecord, offset_ns: int) -> tuple[object, ...]:
    flow = record.flow
    key = (flow.src.packed, flow.dst.packed, flow.protocol, flow.src_port, flow.dst_port)
    return (record.received_ns + offset_ns, *key, *(_to_signed(value) for value in _rest_of(record)))


def _record(row: Sequence[Any]) -> HopRecord:
    flow = FlowKey(ip_address(row[1]), ip_address(row[2]), row[3], row[4], row[5])
    rest: list[Any] = [_to_unsigned(value) for value in row[6:]]
    record = HopRecord(row[0], flow, *rest)
    return replace(record, kind=RecordKind(record.kind))


def _to_signed(value: int | None) -> int | None:
    """SQLite's integers are signed, a time stamp of 64 bits need not fit."""
    return value - _SPAN if value is not None and value >= _SIGNED else value


def _to_unsigned(value: int | None) -> int | None:
    return value + _SPAN if value is not None and value < 0 else value
