"""Event logs as files: every compression alike, cut and damaged anywhere, rolled, folders, what is no log."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from controller.acceleration.errors import AccelerationError
from controller.acceleration.spark import files
from controller.acceleration.spark.codecs import parts_of
from controller.acceleration.spark.files import Lines, Log, logs_at
from controller.acceleration.spark.reading import read_log
from tests.controller.acceleration.spark.spark_logs import (
    IN_TWO,
    LZ4,
    ODD,
    OLD,
    ROLLED,
    SNAPPY,
    application,
    gzipped,
    outcome,
    plain,
)


def lines_of(path: Path) -> tuple[list[bytes], list[str]]:
    lines = Lines(Log(str(path), (path,)))
    return list(lines), lines.faults


def compressed(data: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def test_sparks_own_codecs_hold_the_same_events() -> None:
    lz4, snappy = application(LZ4), application(SNAPPY)
    assert [query.description for query in lz4.queries if query.stages] == ["q06"]
    assert len(plain(LZ4).splitlines()) == len(plain(SNAPPY).splitlines())
    for one in (lz4, snappy):
        assert one.faults == ()
        assert [(stage.input_rows, stage.written_rows) for stage in one.queries[-1].stages] == [(60175, 1), (0, 0)]


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4", "none"])
def test_compressions_hold_the_same_lines(codec: str, tmp_path: Path) -> None:
    data = plain(OLD)
    path = tmp_path / "log"
    path.write_bytes(data if codec == "none" else gzipped(data) if codec == "gzip" else compressed(data, codec))
    assert lines_of(path) == (data.splitlines(), [])


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_streams_appended_to_each_other_are_one(codec: str, tmp_path: Path) -> None:
    half = plain(OLD)[:50_000]
    parts = [gzipped(half) if codec == "gzip" else compressed(half, codec)] * 2
    path = tmp_path / "log"
    path.write_bytes(b"".join(parts))
    assert lines_of(path) == ((half * 2).splitlines(), [])


@pytest.mark.parametrize("source", [LZ4, SNAPPY, ODD, OLD], ids=lambda path: path.suffix)
@pytest.mark.parametrize("seed", range(8))
def test_a_cut_stream_keeps_the_lines_before_the_cut(source: Path, seed: int, tmp_path: Path) -> None:
    data = source.read_bytes()
    cut = random.Random(seed).randrange(64, len(data) - 1)
    path = tmp_path / "cut"
    path.write_bytes(data[:cut])
    lines, faults = lines_of(path)
    whole = plain(source).splitlines()
    assert faults == ["its compressed data end in the middle"]
    assert lines[:-1] == whole[: max(len(lines) - 1, 0)]


@pytest.mark.parametrize("source", [LZ4, SNAPPY, ODD, OLD], ids=lambda path: path.suffix)
@pytest.mark.parametrize("seed", range(12))
def test_damaged_bytes_never_raise_beyond_one_line(source: Path, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data = bytearray(source.read_bytes())
    for _ in range(5):
        data[rng.randrange(16, len(data))] = rng.randrange(256)
    path = tmp_path / "damaged"
    path.write_bytes(data)
    assert len(outcome(lambda: read_log(Log("damaged", (path,))).faults).splitlines()) <= 1


def test_lzf_is_refused_with_what_is_supported(tmp_path: Path) -> None:
    path = tmp_path / "log.lzf"
    path.write_bytes(b"ZV\x00\x00\x05hello")
    with pytest.raises(AccelerationError, match=r"log\.lzf: lzf is not supported; zstd, lz4, snappy and gzip are"):
        application(path)


def test_missing_pyarrow_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(AccelerationError, match=r"needs pyarrow: pip install 'millrace-net\[history\]'"):
        application(LZ4)
    assert application(OLD).faults == ()


def test_rolled_files_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    lines = plain(ROLLED).splitlines(keepends=True)
    folder = tmp_path / "eventlog_v2_app"
    folder.mkdir()
    for index in range(12):
        part = lines[index * len(lines) // 12 : (index + 1) * len(lines) // 12]
        (folder / f"events_{index + 1}_app.gz").write_bytes(gzipped(b"".join(part)))
    (folder / "appstatus_app").touch()
    found, expected = application(folder), application(ROLLED)
    assert (found.queries, found.others, found.faults) == (expected.queries, expected.others, ())


def test_a_log_that_spark_rolled_is_whole() -> None:
    found = application(IN_TWO)
    assert found.faults == ()
    assert Counter(query.description for query in found.queries if query.stages) == dict.fromkeys(
        ("q04", "q06", "q12", "q13", "q14", "q19", "q22"), 10
    )


def test_a_rolled_log_without_its_first_file_says_so(tmp_path: Path) -> None:
    (folder,) = IN_TWO.iterdir()
    shutil.copytree(folder, tmp_path / folder.name)
    next((tmp_path / folder.name).glob("events_1_*")).unlink()
    found = application(tmp_path)
    assert found.faults[:2] == ("lacks file 1", "lacks its beginning")
    assert 0 < len(found.queries) < 70


def test_a_compact_file_replaces_those_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "eventlog_v2_app"
    folder.mkdir()
    for name in ("events_1_app", "events_2_app.compact", "events_2_app", "events_3_app", "events_5_app"):
        (folder / name).write_text(f"{name}\n")
    (log,) = logs_at(folder)
    assert [file.name for file in log.files] == ["events_2_app.compact", "events_3_app", "events_5_app"]
    assert log.lacks == (4,)
    assert Lines(log).faults == ["lacks file 4"]


def test_a_folder_holds_files_and_rolled_logs(tmp_path: Path) -> None:
    (tmp_path / "eventlog_v2_b").mkdir()
    (tmp_path / "eventlog_v2_b" / "events_1_b").touch()
    (tmp_path / "a").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "other").mkdir()
    assert [Path(log.name).name for log in logs_at(tmp_path)] == ["a", "eventlog_v2_b"]
    with pytest.raises(AccelerationError, match="no event log in this folder"):
        logs_at(tmp_path / "other")
    with pytest.raises(AccelerationError, match="nothing: No such file"):
        application(tmp_path / "nothing")


def test_lines_are_bounded_and_the_next_ones_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files, "LINE_BYTES", 100_000)
    path = tmp_path / "log"
    path.write_bytes(b"first\n" + b"x" * 300_000 + b"\nsecond\n" + b"y" * 150_000 + b"\nthird")
    lines = Lines(Log("log", (path,)))
    assert list(lines) == [b"first", b"second", b"third"]
    assert (lines.count, lines.too_long) == (5, 2)


def test_a_file_without_an_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LINE_BYTES", 1 << 18)
    with pytest.raises(AccelerationError, match="/dev/zero: is not an event log of Spark: no line is an event"):
        application(Path("/dev/zero"))
    with pytest.raises(AccelerationError, match="/dev/urandom: is not an event log of Spark"):
        application(Path("/dev/urandom"))


def test_much_data_from_few_come_in_parts(tmp_path: Path) -> None:
    """A MiB in a thousand bytes: parts are small whatever they come from."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzipped(b"\n" * (1 << 20)))
    assert path.stat().st_size < 2_000
    with path.open("rb") as file:
        assert max(len(part) for part in parts_of(file, "bomb.gz")) <= 1 << 17
    assert lines_of(path) == ([], [])
