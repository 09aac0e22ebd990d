"""Tables as Parquet that Spark reads: its types, columns by position, and files that cannot be written."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.spark.sessions import schema_of
from controller.acceleration.running.spark.tables import write_tables


def test_columns_get_types_that_spark_has(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a b": pa.array([255, None], pa.uint8()),
            "B": pa.array([1 << 63, 1], pa.uint64()),
            "nested": pa.array([[1], None]),
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        }
    )
    files = write_tables({"T": table}, tmp_path)
    written = pq.read_table(files["T"])
    assert written.schema.names == ["c0", "c1", "c3"]
    assert written.schema.types == [pa.int16(), pa.decimal128(20, 0), pa.decimal128(9, 2)]
    assert written.to_pylist()[0] == {"c0": 255, "c1": Decimal(1 << 63), "c3": Decimal("1.50")}


def test_files_are_written_as_duckdb_reads_them(tmp_path: Path) -> None:
    source = tmp_path / "it's.csv"
    source.write_text("day,n\n2024-01-31,7\n")
    assert schema_of("t", source).types == [pa.date32(), pa.int64()]
    files = write_tables({"t": source, "other": source}, tmp_path, only=("t",))
    assert list(files) == ["t"]
    assert pq.read_table(files["t"]).column("c1").to_pylist() == [7]


def test_a_table_without_a_known_type_keeps_its_rows(tmp_path: Path) -> None:
    files = write_tables({"t": pa.table({"l": [[1], [2]]})}, tmp_path)
    assert pq.read_table(files["t"]).num_rows == 2


def test_a_folder_that_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^table t: ") as caught:
        write_tables({"t": pa.table({"a": [1]})}, tmp_path / "no")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_an_infinite_date_is_one_line(tmp_path: Path, kind: str) -> None:
    with duckdb.connect(":memory:") as connection:
        table = connection.sql(f"SELECT CAST('infinity' AS {kind}) AS d").to_arrow_table()
    with pytest.raises(RunError, match=f"column d: an infinite {kind.lower()} cannot be run on Spark") as caught:
        write_tables({"t": table}, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^table t: .*no\.parquet"):
        schema_of("t", tmp_path / "no.parquet")
