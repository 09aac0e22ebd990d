"""The trace formats; separate from what produces them, so that asking for help is fast."""

from __future__ import annotations

from enum import StrEnum


class TraceFormat(StrEnum):
    """Format of an explanation: for people, or one JSON object per line."""

    TEXT = "text"
    JSON = "json"
