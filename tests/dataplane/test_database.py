"""SQLite files: permissions, durability, and failures that name the file."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from dataplane.database import IN_MEMORY, Database, Layout, Synchronous
from dataplane.errors import MillraceError


class BrokenError(MillraceError):
    """Raised by the tests' layout."""


LAYOUT = Layout("the pantry", "CREATE TABLE IF NOT EXISTS jars (jar TEXT PRIMARY KEY);", 4, BrokenError, busy_s=0.01)
INSERT = "INSERT INTO jars VALUES (?)"

Open = Callable[..., Database]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as stack:
        yield lambda layout=LAYOUT: stack.enter_context(closing(Database(str(tmp_path / "pantry.db"), layout)))


def jars(database: Database) -> list[str]:
    return [jar for (jar,) in database.query("SELECT jar FROM jars ORDER BY jar")]


def stored(path: Path, statement: str = "SELECT jar FROM jars ORDER BY jar") -> list[object]:
    """Return what another connection reads."""
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute(statement)]


def test_only_its_user_reads_a_file_that_is_made(tmp_path: Path, opened: Open) -> None:
    database = opened()
    database.write(INSERT, ("quince",))
    database.commit()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["pantry.db", "pantry.db-shm", "pantry.db-wal", "pantry.db.lock"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_the_rights_of_a_file_that_is_there_stay(tmp_path: Path, opened: Open) -> None:
    (tmp_path / "pantry.db").touch(0o644)
    opened()
    assert (tmp_path / "pantry.db").stat().st_mode & 0o777 == 0o644


def test_what_is_written_takes_effect_together(tmp_path: Path, opened: Open) -> None:
    database = opened()
    database.write(INSERT, ("quince",))
    database.write(INSERT, ("plum",))
    assert stored(tmp_path / "pantry.db") == []
    database.commit()
    assert stored(tmp_path / "pantry.db") == ["plum", "quince"]
    database.commit()
    database.write(INSERT, ("sloe",))
    database.close()
    assert jars(opened()) == ["plum", "quince"]


def test_a_transaction_that_fails_leaves_nothing(opened: Open) -> None:
    database = opened()
    with (
        pytest.raises(BrokenError, match=r"pantry\.db: cannot write the pantry: UNIQUE"),
        database.transaction() as transaction,
    ):
        transaction.executemany(INSERT, [("quince",), ("quince",)])
    assert jars(database) == []


def fill(database: Database) -> None:
    """Simulate a full disk: the file may grow by a few pages, then SQLite reports a full disk."""
    [(pages,)] = database.query("PRAGMA page_count")
    database.query(f"PRAGMA max_page_count = {pages + 2}")


FULL = r"pantry\.db: cannot write the pantry: database or disk is full"


def test_a_full_disk_is_told_as_that_in_a_transaction(opened: Open) -> None:
    database = opened()
    fill(database)
    with pytest.raises(BrokenError, match=FULL), database.transaction() as transaction:
        transaction.executemany(INSERT, [("quince",), ("plum" * 10_000,)])
    assert jars(database) == []
    with database.transaction() as transaction:
        transaction.execute(INSERT, ("sloe",))
    assert jars(database) == ["sloe"]


def test_after_a_full_disk_nothing_is_half_written(tmp_path: Path, opened: Open) -> None:
    database = opened()
    fill(database)
    database.write(INSERT, ("quince",))
    with pytest.raises(BrokenError, match=FULL):
        database.write(INSERT, ("plum" * 10_000,))
    with pytest.raises(BrokenError, match="earlier writes were rolled back"):
        database.write(INSERT, ("sloe",))
    with pytest.raises(BrokenError, match="earlier writes were rolled back"):
        database.commit()
    database.rollback()
    database.write(INSERT, ("medlar",))
    database.commit()
    assert stored(tmp_path / "pantry.db") == ["medlar"]


HELD = r"^[^ ]*pantry\.db: cannot open the pantry: process {} has it$"


def test_two_never_have_one_file(tmp_path: Path, opened: Open) -> None:
    first = opened()
    with pytest.raises(BrokenError, match=HELD.format(os.getpid())):
        opened()
    (tmp_path / "alias.db").symlink_to(tmp_path / "pantry.db")
    with pytest.raises(BrokenError, match=r"alias\.db: cannot open the pantry: process \d+ has it"):
        Database(str(tmp_path / "alias.db"), LAYOUT)
    first.write(INSERT, ("quince",))
    first.commit()
    first.close()
    assert jars(opened()) == ["quince"]


def test_file_is_held_by_another_process_until_it_dies(tmp_path: Path, opened: Open) -> None:
    command = [sys.executable, "-c", _WAITING, str(tmp_path / "pantry.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "here\n"
        with pytest.raises(BrokenError, match=HELD.format(holder.pid)):
            opened()
        holder.kill()
    assert (tmp_path / "pantry.db.lock").exists()
    opened().close()
    assert not (tmp_path / "pantry.db.lock").exists()


def test_who_only_reads_may_do_so_beside_the_owner(tmp_path: Path, opened: Open) -> None:
    path = str(tmp_path / "pantry.db")
    with pytest.raises(BrokenError, match=r"pantry\.db: cannot open the pantry: unable to open database file"):
        Database(path, LAYOUT, read_only=True)
    assert list(tmp_path.iterdir()) == []
    owner = opened()
    with pytest.raises(BrokenError, match=r"pantry\.db: the pantry has layout 4, this version needs 5"):
        Database(path, replace(LAYOUT, version=5), read_only=True)
    owner.write(INSERT, ("quince",))
    owner.commit()
    with closing(Database(path, LAYOUT, read_only=True)) as reader:
        assert jars(reader) == ["quince"]
        with pytest.raises(BrokenError, match=r"pantry\.db: cannot write the pantry: attempt to write a readonly"):
            reader.write(INSERT, ("plum",))
        reader.rollback()
        owner.write(INSERT, ("sloe",))
        owner.commit()
        assert jars(reader) == ["quince", "sloe"]


def test_nobody_reads_an_exclusive_file_beside_its_owner(tmp_path: Path, opened: Open) -> None:
    opened(replace(LAYOUT, exclusive=True))
    with pytest.raises(BrokenError, match=r"pantry\.db: cannot open the pantry: database is locked"):
        Database(str(tmp_path / "pantry.db"), LAYOUT, read_only=True)


def test_where_no_lock_can_be_made_no_file_is_opened(tmp_path: Path) -> None:
    with pytest.raises(
        BrokenError, match=r"gone/pantry\.db: cannot open the pantry: no lock file next to it: No such file"
    ):
        Database(str(tmp_path / "gone" / "pantry.db"), LAYOUT)
    (tmp_path / "pantry.db.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BrokenError, match="no lock file next to it: Too many levels of symbolic links"):
        Database(str(tmp_path / "pantry.db"), LAYOUT)
    assert not (tmp_path / "elsewhere").exists()


def test_a_layout_that_is_not_known_is_refused(opened: Open) -> None:
    opened().close()
    with pytest.raises(BrokenError, match=r"pantry\.db: the pantry has layout 4, this version needs 5: move it away"):
        opened(replace(LAYOUT, version=5))


def test_an_older_layout_is_migrated_whole_or_not_at_all(tmp_path: Path, opened: Open) -> None:
    first = opened()
    first.write(INSERT, ("quince",))
    first.commit()
    first.close()

    def rename(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE jars SET jar = 'medlar'")

    def fail(connection: sqlite3.Connection) -> None:
        rename(connection)
        connection.execute("UPDATE bottles SET jar = 'medlar'")

    with pytest.raises(BrokenError, match="no such table: bottles"):
        opened(replace(LAYOUT, version=5, migrations={4: fail}))
    assert stored(tmp_path / "pantry.db") == ["quince"]
    assert stored(tmp_path / "pantry.db", "PRAGMA user_version") == [4]
    assert jars(opened(replace(LAYOUT, version=5, migrations={4: rename}))) == ["medlar"]
    assert stored(tmp_path / "pantry.db", "PRAGMA user_version") == [5]


@pytest.mark.parametrize(("synchronous", "number"), [(Synchronous.NORMAL, 1), (Synchronous.FULL, 2)])
def test_how_safe_a_commit_is_is_the_layouts(opened: Open, synchronous: Synchronous, number: int) -> None:
    database = opened(replace(LAYOUT, synchronous=synchronous))
    assert database.query("PRAGMA synchronous") == [(number,)]
    assert database.query("PRAGMA journal_mode") == [("wal",)]


def test_memory_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(Database(IN_MEMORY, LAYOUT)) as database:
        assert jars(database) == []
    assert list(tmp_path.iterdir()) == []


_KILLED = """
import os, signal, sys
from dataplane.database import Database, Layout, Synchronous
from dataplane.errors import MillraceError
schema = "CREATE TABLE IF NOT EXISTS jars (jar TEXT PRIMARY KEY);"
database = Database(sys.argv[1], Layout("the pantry", schema, 4, MillraceError, Synchronous(sys.argv[2])))
database.write("INSERT INTO jars VALUES ('kept')")
database.commit()
database.write("INSERT INTO jars VALUES ('lost')")
os.kill(os.getpid(), signal.SIGKILL)
"""


_WAITING = """
import sys
from dataplane.database import Database, Layout
from dataplane.errors import MillraceError
database = Database(sys.argv[1], Layout("the pantry", "", 4, MillraceError))
print("here", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("synchronous", list(Synchronous))
def test_what_was_committed_survives_a_kill(tmp_path: Path, opened: Open, synchronous: Synchronous) -> None:
    command = [sys.executable, "-c", _KILLED, str(tmp_path / "pantry.db"), synchronous.value]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert jars(opened()) == ["kept"]
