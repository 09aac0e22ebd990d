"""Reading of a growing file: tails, replaced and removed files, and bounds."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest

from controller.workloads.centres.logs import reading
from controller.workloads.centres.logs.reading import OutputReader, start_of_tail


def rest(reader: OutputReader) -> bytes:
    return b"".join(iter(reader.read, b""))


def reader_of(tail: int | None = None, most: int = 1 << 20) -> OutputReader:
    return OutputReader("stdout", tail=tail, most=most)


def plain_tail(content: bytes, lines: int) -> bytes:
    """Return the last lines in the obvious way."""
    return b"".join(content.splitlines(keepends=True)[-lines:]) if lines else b""


def test_tails_equal_those_of_split_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 3)
    path = tmp_path / "stdout"
    contents = [b"".join(parts) for n in range(8) for parts in itertools.product((b"a", b"\n"), repeat=n)]
    for content in contents:
        path.write_bytes(content)
        file = os.open(path, os.O_RDONLY)
        for lines in range(10):
            start = start_of_tail(file, 0, len(content), lines)
            assert content[start:] == plain_tail(content, lines), (content, lines)
        os.close(file)


def test_a_growing_file_is_read_once(tmp_path: Path) -> None:
    reader, path = reader_of(tail=1), tmp_path / "stdout"
    reader.look(tmp_path)
    assert (rest(reader), reader.is_open) == (b"", False)
    path.write_bytes(b"one\ntwo\n")
    reader.look(tmp_path)
    assert rest(reader) == b"two\n"
    with path.open("ab") as file:
        file.write(b"three\n")
    assert rest(reader) == b"", "not looked at yet"
    reader.look(tmp_path)
    assert rest(reader) == b"three\n"
    reader.close()


def test_a_removed_file_is_read_to_its_end(tmp_path: Path) -> None:
    reader, folder = reader_of(), tmp_path / "job"
    folder.mkdir()
    with (folder / "stdout").open("wb", buffering=0) as file:
        file.write(b"one\n")
        reader.look(folder)
        file.write(b"two\n")
        shutil.rmtree(folder)
        reader.look(folder)
        assert rest(reader) == b"one\ntwo\n"
    reader.close()


def test_a_replaced_file_is_continued(tmp_path: Path) -> None:
    """The engine of containers replaces the beginning of an output by the beginning and the end."""
    reader, path = reader_of(), tmp_path / "stdout"
    path.write_bytes(b"one\n")
    reader.look(tmp_path)
    assert rest(reader) == b"one\n"
    (tmp_path / "new").write_bytes(b"one\ntwo\n")
    (tmp_path / "new").replace(path)
    reader.look(tmp_path)
    assert rest(reader) == b"two\n"
    path.write_bytes(b"")
    reader.look(tmp_path)
    assert rest(reader) == b""
    reader.close()


def test_only_the_end_of_a_huge_file_is_read(tmp_path: Path) -> None:
    with (tmp_path / "stdout").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(-4, os.SEEK_END)
        file.write(b"\nend")
    for tail in (None, 10):
        reader = reader_of(tail, most=100)
        reader.look(tmp_path)
        assert rest(reader) == bytes(96) + b"\nend"
        reader.close()


def test_a_closed_reader_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"a")
    reader = reader_of()
    reader.close()
    reader.look(tmp_path)
    assert (reader.is_open, rest(reader)) == (False, b"")
