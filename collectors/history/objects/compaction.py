"""Compaction: a day's objects of a collector become one, which replaces them by a single write.

The object names what it replaces, so a crash before that write changes nothing, and after it nothing is read twice;
what it replaces is deleted once no query can be reading it, by whoever compacts next. A second compactor that reaches
the same number finds it taken, and begins again.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from collectors.errors import HistoryError
from collectors.history.objects.bucket import Bucket, StoredObject
from collectors.history.objects.keys import REPLACES, compacted_name, compacted_number, day_of, folder_of
from collectors.history.objects.settings import ObjectStoreSettings
from collectors.history.parquet import PROBLEMS, first_line
from collectors.history.schema import TABLES, Table
from dataplane.clock import NS_PER_S

_DAY: Final = re.compile(r"(?P<table>[a-z_]+)/shard=(?P<shard>[^/]+)/day=(?P<day>\d{4}-\d\d-\d\d)/(?P<name>[^/]+)")
_FEWEST: Final = 2
_MOST_BYTES: Final = 4 << 30
"""Days with more stay as they are: a single write has at most 5 GiB."""
_LEVEL: Final = 3


@dataclass(frozen=True, slots=True)
class DayObjects:
    """A day of a table's, by one collector: the objects that make it up, and those that others have replaced."""

    table: Table
    shard: str
    day: str
    present: tuple[StoredObject, ...]
    replaced: tuple[StoredObject, ...]
    compacted: StoredObject | None

    @property
    def folder(self) -> str:
        """The beginning of its keys."""
        return folder_of(self.table.name, self.shard, self.day)


def days_in(bucket: Bucket, table: Table) -> list[DayObjects]:
    """Return all days of a table, oldest first; raise HistoryError."""
    by_day: dict[tuple[str, str], list[StoredObject]] = {}
    for stored in bucket.listing(table.name):
        match = _DAY.fullmatch(stored.key)
        if match is not None and stored.key.endswith(".parquet"):
            by_day.setdefault((match["day"], match["shard"]), []).append(stored)
    return [_sorted_out(bucket, table, shard, day, objects) for (day, shard), objects in sorted(by_day.items())]


def _sorted_out(bucket: Bucket, table: Table, shard: str, day: str, objects: Sequence[StoredObject]) -> DayObjects:
    compacted = [stored for stored in objects if compacted_number(_name(stored)) is not None]
    # One object alone replaces nothing that is still there: most days need no look into it.
    names = {name for stored in compacted for name in replaced_by(bucket, stored)} if len(objects) > 1 else set()
    present = tuple(stored for stored in objects if _name(stored) not in names)
    replaced = tuple(stored for stored in objects if _name(stored) in names)
    # Keys are in order of number.
    return DayObjects(table, shard, day, present, replaced, compacted[-1] if compacted else None)


def replaced_by(bucket: Bucket, compacted: StoredObject) -> frozenset[str]:
    """Return the names of the objects that a compacted one replaces; raise HistoryError."""
    try:
        metadata = pq.read_schema(f"{bucket.root}/{compacted.key}", filesystem=bucket.file_system).metadata or {}
    except PROBLEMS as error:
        raise HistoryError(f"{bucket}: cannot read {compacted.key}: {first_line(error)}") from None
    return frozenset(metadata.get(REPLACES, b"").decode().split("\n")) - {""}


class Compactor:
    """Compacts days that are over; `now_s` is UNIX time. One is enough, several are safe."""

    def __init__(self, bucket: Bucket, settings: ObjectStoreSettings, now_s: Callable[[], float]) -> None:
        self._bucket, self._settings, self._now_s = bucket, settings, now_s
        self.compacted = self.deleted = 0

    def step(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Compact what is due and delete what has been replaced for long enough; raise HistoryError."""
        over = day_of(int(self._now_s() - self._settings.compact_after_ns / NS_PER_S))
        for table in TABLES.values():
            for day in days_in(self._bucket, table):
                if stopped():
                    return
                self._delete_replaced(day)
                small = sum(stored.size_bytes for stored in day.present) <= _MOST_BYTES
                if day.day < over and len(day.present) >= _FEWEST and small:
                    self._compact(day)

    def _delete_replaced(self, day: DayObjects) -> None:
        if day.compacted is None:
            return
        if self._now_s() - day.compacted.written_s < self._settings.keep_replaced_ns / NS_PER_S:
            return
        for stored in day.replaced:
            self._bucket.delete(stored.key)
            self.deleted += 1

    def _compact(self, day: DayObjects) -> None:
        number = 1 if day.compacted is None else (compacted_number(_name(day.compacted)) or 0) + 1
        # An earlier compacted object stays listed among the replaced while it is there, and so does what it replaced.
        names = [_name(stored) for stored in (*day.present, *day.replaced)]
        with tempfile.TemporaryDirectory(prefix="millrace-compact-") as folder:
            file = Path(folder) / "compacted.parquet"
            try:
                self._merge(day, names, file)
            except PROBLEMS as error:
                raise HistoryError(f"{self._bucket}: cannot compact {day.folder}: {first_line(error)}") from None
            # If another compactor has this number, the next step sees what it wrote.
            if self._bucket.put(f"{day.folder}/{compacted_name(number)}", file):
                self.compacted += 1

    def _merge(self, day: DayObjects, names: Sequence[str], file: Path) -> None:
        schema = day.table.schema
        metadata = {**(schema.metadata or {}), REPLACES: "\n".join(names).encode()}
        with pq.ParquetWriter(
            file,
            schema.with_metadata(metadata),
            compression="zstd",
            compression_level=_LEVEL,
            write_page_checksum=True,
        ) as writer:
            for stored in sorted(day.present, key=_order):
                path = f"{self._bucket.root}/{stored.key}"
                with pq.ParquetFile(path, filesystem=self._bucket.file_system) as source:
                    for batch in source.iter_batches():
                        writer.write_table(_of_schema(pa.Table.from_batches([batch]), schema))


def _of_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with a schema's columns; those that an earlier version did not write are null."""
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _name(stored: StoredObject) -> str:
    return stored.key.rpartition("/")[2]


def _order(stored: StoredObject) -> tuple[bool, str]:
    """Return an order by time: what was compacted is older than what came since."""
    return compacted_number(_name(stored)) is None, _name(stored)
