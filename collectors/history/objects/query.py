"""SQL over the long history: DuckDB scans pyarrow's datasets, and reaches nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from collectors.errors import HistoryError
from collectors.history.objects.bucket import Bucket
from collectors.history.objects.compaction import days_in
from collectors.history.objects.settings import ObjectStoreSettings
from collectors.history.parquet import PROBLEMS
from collectors.history.query import (
    BATCH_ROWS,
    WRONG_STATEMENT,
    Answer,
    batches_of,
    in_words,
    refuse_all_but_one_select,
    tables_in,
)
from collectors.history.schema import TABLES, Table
from collectors.history.views import connect

SCHEME: Final = "s3://"
_ATTEMPTS: Final = 5
_PARTS: Final = pa.schema([("shard", pa.string()), ("day", pa.string())])


def bucket_at(url: str, environment: Mapping[str, str] = os.environ) -> Bucket:
    """Return the bucket of an URL, s3://BUCKET/PREFIX; raise HistoryError.

    Region, endpoint and credentials are those of the environment.
    """
    parts = urlsplit(url)
    problem = "is not s3://BUCKET[/PREFIX]"
    if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise HistoryError(f"{SCHEME}...: {problem}" if "@" in url else f"{url}: {problem}")
    try:
        settings = msgspec.convert({"bucket": parts.netloc, "prefix": parts.path.strip("/")}, ObjectStoreSettings)
    except msgspec.ValidationError as error:
        raise HistoryError(f"{url}: {problem}: {error}") from None
    return Bucket(settings, environment)


def query_objects(bucket: Bucket, statement: str) -> Answer:
    """Answer one SELECT over the tables of `schema.TABLES`, which have `shard` and `day`, too; raise HistoryError."""
    problem = ""
    for _ in range(_ATTEMPTS):
        listed = {table.name: _keys(bucket, table) for table in tables_in(statement)}
        try:
            return _answer(bucket, statement, listed)
        except WRONG_STATEMENT as error:
            raise HistoryError(in_words(error)) from error
        except (duckdb.Error, *PROBLEMS) as error:
            problem = in_words(error)
            # What was compacted since it was listed may be gone.
            if listed == {name: _keys(bucket, TABLES[name]) for name in listed}:
                break
    raise HistoryError(f"{bucket}: {problem}")


def _keys(bucket: Bucket, table: Table) -> list[str]:
    return [stored.key for day in days_in(bucket, table) for stored in day.present]


def _answer(bucket: Bucket, statement: str, listed: Mapping[str, list[str]]) -> Answer:
    connection = connect()
    refuse_all_but_one_select(connection, statement)
    for name, keys in listed.items():
        connection.register(f"_{name}", _dataset(bucket, TABLES[name], keys))
        connection.execute(f"CREATE VIEW {name} AS FROM _{name}")
    connection.execute("SET enable_external_access=false")
    connection.execute("SET lock_configuration=true")
    relation = connection.sql(statement)
    reader = relation.to_arrow_reader(BATCH_ROWS)
    return Answer(tuple(relation.columns), batches_of(connection, next(reader, None), reader))


def _dataset(bucket: Bucket, table: Table, keys: list[str]) -> ds.Dataset | pa.Table:
    schema = pa.schema([*table.schema, *_PARTS])
    if not keys:
        return schema.empty_table()
    return ds.dataset(
        [f"{bucket.root}/{key}" for key in keys],
        schema=schema,
        format="parquet",
        filesystem=bucket.file_system,
        partitioning=ds.partitioning(_PARTS, flavor="hive"),
    )
