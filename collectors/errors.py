"""Errors of the collectors' side.

MillraceError
└── CollectorError         the collector cannot receive, store or serve
    ├── FeedError          the feed between collector and path server: another version, an invalid message
    └── HistoryError       the history's files cannot be written or read, or a query is invalid
        └── BrokenJournalError  a journal is invalid, for good
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class CollectorError(MillraceError):
    """The collector cannot receive, store or serve."""


class FeedError(CollectorError):
    """The feed cannot continue: its peer speaks another version, or sent an invalid message."""


class HistoryError(CollectorError):
    """The history cannot be written or read, or a query of it is invalid; the text names the file, or the problem."""


class BrokenJournalError(HistoryError):
    """A file is not a journal, or has another version's rows: no later attempt will read it."""
