"""Errors of the collectors' side.

MillraceError
└── CollectorError         the collector cannot receive, store or serve
"""

from __future__ import annotations

from dataplane.errors import MillraceError


class CollectorError(MillraceError):
    """The collector cannot receive, store or serve."""
