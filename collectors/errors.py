"""Errors of the collectors' side.

MillraceError
└── CollectorError         the collector cannot receive, store or serve
    ├── FeedError          the feed between collector and path server: another version, a message that does not decode
    └── HistoryError       the history's files: cannot be written or read; a query that is wrong
        └── BrokenJournalError  no later attempt will read it
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class CollectorError(MillraceError):
    """The collector cannot receive, store or serve."""


class FeedError(CollectorError):
    """The feed cannot continue: its peer speaks another version, or sent what does not decode."""


class HistoryError(CollectorError):
    """The history cannot be written or read, or a query of it is wrong; the text names the file, or what is wrong."""


class BrokenJournalError(HistoryError):
    """A journal is none, or of another version's rows: no later attempt will read it."""
