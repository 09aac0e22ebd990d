"""Journals: whole batches are recovered, whatever was cut or damaged after them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.errors import BrokenJournalError, HistoryError
from collectors.history.journal import JournalWriter, read_journal

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.list_(pa.string()))])
BATCHES = [pa.RecordBatch.from_pylist([{"x": n, "s": ["a", None]}] * (n + 1), SCHEMA) for n in range(3)]


def written(path: Path) -> Path:
    journal = JournalWriter(path, SCHEMA)
    for batch in BATCHES:
        journal.append(batch)
    assert journal.rows == 6
    journal.close()
    return path


def test_what_was_appended_is_read(tmp_path: Path) -> None:
    assert list(read_journal(written(tmp_path / "j"), SCHEMA)) == BATCHES


def test_a_journal_is_never_written_over(tmp_path: Path) -> None:
    written(tmp_path / "j")
    with pytest.raises(HistoryError, match="j: cannot be created: File exists"):
        JournalWriter(tmp_path / "j", SCHEMA)


@pytest.fixture(scope="module")
def bytes_of_journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("journal") / "j").read_bytes()


@given(data=st.data())
def test_cut_or_corrupt_byte_costs_only_what_follows_it(
    data: st.DataObject, bytes_of_journal: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    position = data.draw(st.integers(0, len(bytes_of_journal) - 1))
    spoilt = bytearray(bytes_of_journal)
    if data.draw(st.booleans()):
        del spoilt[position:]
    else:
        spoilt[position] ^= data.draw(st.integers(1, 255))
    file = tmp_path_factory.getbasetemp() / "spoilt"
    file.write_bytes(spoilt)
    batches: list[pa.RecordBatch] = []
    with suppress(HistoryError):
        batches += read_journal(file, SCHEMA)
    assert batches == BATCHES[: len(batches)]
    assert len(batches) < len(BATCHES)


def test_a_full_disk_leaves_the_batches_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalWriter(tmp_path / "j", SCHEMA)
    journal.append(BATCHES[0])
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:20]))
    with pytest.raises(HistoryError, match="j: cannot be written: the disk is full"):
        journal.append(BATCHES[1])
    monkeypatch.undo()
    journal.append(BATCHES[2])
    journal.close()
    assert list(read_journal(tmp_path / "j", SCHEMA)) == [BATCHES[0], BATCHES[2]]


def test_half_a_frame_that_cannot_be_cut_off_is_cut_off_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = JournalWriter(tmp_path / "j", SCHEMA)
    journal.append(BATCHES[0])
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", Mock(side_effect=OSError(5, "Input/output error")))
        patch.setattr(os, "write", lambda file, data: write(file, data[:20]))
        with pytest.raises(HistoryError, match="j: cannot be written: the disk is full"):
            journal.append(BATCHES[1])
        patch.setattr(os, "write", write)
        with pytest.raises(HistoryError, match="j: cannot be written: Input/output error"):
            journal.append(BATCHES[1])
    assert list(read_journal(tmp_path / "j", SCHEMA)) == [BATCHES[0]]
    journal.append(BATCHES[2])
    journal.close()
    assert list(read_journal(tmp_path / "j", SCHEMA)) == [BATCHES[0], BATCHES[2]]


@pytest.mark.parametrize("zeros", [1, 8, 20, 4096])
def test_zeros_behind_the_last_batch_are_its_end(tmp_path: Path, zeros: int) -> None:
    file = written(tmp_path / "j")
    file.write_bytes(file.read_bytes() + bytes(zeros))
    assert list(read_journal(file, SCHEMA)) == BATCHES


@pytest.mark.parametrize(
    "content", [b"", b"abc", bytes(100), b"\x40\0\0\0" + b"xyz" * 10], ids=["empty", "head", "zeros", "schema"]
)
def test_a_journal_that_was_killed_before_its_schema_has_no_rows(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content)
    assert list(read_journal(tmp_path / "j", SCHEMA)) == []


def test_a_journal_that_cannot_begin_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda *_: 3)
        for _ in range(5):
            with pytest.raises(HistoryError, match="the disk is full"):
                JournalWriter(tmp_path / "j", SCHEMA)
    assert not list(tmp_path.iterdir())
    assert len(set(Path("/proc/self/fd").iterdir())) == len(before)


def test_rows_of_an_older_version_have_null_for_what_it_lacked(tmp_path: Path) -> None:
    newer = pa.schema([*SCHEMA, ("new", pa.int64())])
    table = pa.Table.from_batches(read_journal(written(tmp_path / "j"), newer))
    assert table.drop_columns("new") == pa.Table.from_batches(BATCHES)
    assert table["new"].to_pylist() == [None] * 6


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.struct([("y", pa.int64())])])
def test_rows_of_another_kind_are_broken_for_good(tmp_path: Path, kind: pa.DataType) -> None:
    other = pa.schema([("x", kind), ("s", pa.list_(pa.string()))])
    with pytest.raises(BrokenJournalError, match="j: is not a journal of this version"):
        list(read_journal(written(tmp_path / "j"), other))


def test_unreadable_journal_is_not_reported_as_broken(tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    with pytest.raises(HistoryError, match="j: cannot be read: Is a directory") as caught:
        list(read_journal(tmp_path / "j", SCHEMA))
    assert not isinstance(caught.value, BrokenJournalError)
