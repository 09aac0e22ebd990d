"""File of what users add to rules and events: acknowledgements, and changes of rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from collectors.errors import CollectorError
from collectors.events.changes import RuleChange
from collectors.events.rules import Rule
from collectors.values import EventNote
from dataplane.database import Database, Layout, Synchronous

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS notes (
    rule TEXT NOT NULL, subject TEXT NOT NULL, by TEXT NOT NULL, text TEXT NOT NULL, at_ns INTEGER NOT NULL,
    PRIMARY KEY (rule, subject)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rule_changes (
    name TEXT PRIMARY KEY, rule TEXT, settings_rule TEXT, by TEXT NOT NULL, at_ns INTEGER NOT NULL
) WITHOUT ROWID;
"""
_LAYOUT: Final = Layout(
    owner="the collector's notes on events",
    schema=_SCHEMA,
    version=1,
    error=CollectorError,
    synchronous=Synchronous.FULL,
)

NoteKey = tuple[str, str]
"""An open event: its rule's name, and its subject in words."""


class EventStore:
    """Notes on open events, and changes of rules, in a file; every method raises CollectorError."""

    def __init__(self, path: str) -> None:
        self._database = Database(path, _LAYOUT)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def notes(self) -> Mapping[NoteKey, EventNote]:
        """Return the notes on events that were open when they were last heard of."""
        rows = self._database.query("SELECT rule, subject, by, text, at_ns FROM notes")
        return {(rule, subject): EventNote(*note) for rule, subject, *note in rows}

    def put_note(self, key: NoteKey, note: EventNote) -> None:
        """Keep the note on an event."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?)", (*key, note.by, note.text, note.at_ns)
            )

    def drop_notes(self, keys: Iterable[NoteKey]) -> None:
        """Forget notes."""
        with self._database.transaction() as connection:
            connection.executemany("DELETE FROM notes WHERE rule = ? AND subject = ?", keys)

    def rule_changes(self) -> tuple[RuleChange, ...]:
        """Return the changes of rules."""
        rows = self._database.query(
            "SELECT name, rule, settings_rule, by, at_ns FROM rule_changes ORDER BY at_ns, name"
        )
        try:
            return tuple(
                RuleChange(name, _rule_of(rule), _rule_of(settings_rule), by, at_ns)
                for name, rule, settings_rule, by, at_ns in rows
            )
        except msgspec.DecodeError as error:
            raise CollectorError(
                f"{self._database.path}: a changed rule is not one of this version: {error}"
            ) from error

    def put_rule_changes(self, changes: Iterable[RuleChange]) -> None:
        """Keep these changes of rules, and no others."""
        rows = [
            (change.name, _text_of(change.rule), _text_of(change.settings_rule), change.by, change.at_ns)
            for change in changes
        ]
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM rule_changes")
            connection.executemany("INSERT INTO rule_changes VALUES (?, ?, ?, ?, ?)", rows)


def _text_of(rule: Rule | None) -> str | None:
    return None if rule is None else msgspec.json.encode(rule).decode()


def _rule_of(text: str | None) -> Rule | None:
    return None if text is None else msgspec.json.decode(text, type=Rule)
