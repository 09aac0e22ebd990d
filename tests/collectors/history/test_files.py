"""Selection of the files that make up a table, despite leftovers of a crash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collectors.history import files
from collectors.history.files import journal_name, listing, name_of


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"12345")


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    listed = listing(tmp_path / "none")
    assert (listed.files, listed.journals, listed.next_number, listed.size_bytes) == ((), (), 1, 0)


def test_files_inside_a_merged_ones_range_are_replaced(tmp_path: Path) -> None:
    fine = [name_of(number, number, 1, 100 + number) for number in range(1, 6)]
    merged = name_of(2, 4, 10, 104)
    fill(tmp_path, *fine, merged, journal_name(6), "other.txt", "00000009-00000009.1ns.5.parquet.unfinished")
    listed = listing(tmp_path)
    assert [file.path.name for file in listed.files] == [fine[0], merged, fine[4]]
    assert [file.path.name for file in listed.replaced] == fine[1:4]
    assert [journal.number for journal in listed.journals] == [6]
    assert listed.next_number == 7
    assert listed.size_bytes == 7 * 5


def test_of_one_range_the_coarser_file_counts(tmp_path: Path) -> None:
    fill(tmp_path, name_of(1, 1, 1, 5), name_of(1, 1, 10, 5))
    assert [file.interval_ns for file in listing(tmp_path).files] == [10]


def test_a_journal_that_became_a_file_is_not_read_again(tmp_path: Path) -> None:
    fill(tmp_path, journal_name(3), name_of(3, 3, 1, 5), journal_name(4))
    assert [journal.number for journal in listing(tmp_path).journals] == [4]


def test_a_file_that_was_set_aside_keeps_its_number(tmp_path: Path) -> None:
    fill(tmp_path, name_of(7, 7, 1, 5) + ".corrupt", journal_name(7))
    listed = listing(tmp_path)
    assert (listed.files, listed.journals, listed.next_number) == ((), (), 8)
    assert [file.end_s for file in listed.corrupt] == [5]


def test_file_that_replaces_a_journal_meanwhile_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, complete = tmp_path / journal_name(1), tmp_path / name_of(1, 1, 1, 5)
    fill(tmp_path, journal.name)
    read = files._read

    def read_while_it_changes(folder: Path) -> list[os.DirEntry[str]]:
        """Read as a system might that passes the file's place too early and the journal's too late."""
        entries = [entry for entry in read(folder) if not journal.exists() or entry.name != journal.name]
        if journal.exists():
            journal.rename(complete)
        return entries

    monkeypatch.setattr(files, "_read", read_while_it_changes)
    assert [file.path for file in listing(tmp_path).files] == [complete]
