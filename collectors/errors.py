"""Errors of the collectors' side.

MillraceError
└── CollectorError         the collector cannot receive, store or serve
    └── FeedError          the feed between collector and path server: another version, a message that does not decode
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class CollectorError(MillraceError):
    """The collector cannot receive, store or serve."""


class FeedError(CollectorError):
    """The feed cannot go on: its peer speaks another version, or sent what does not decode."""
