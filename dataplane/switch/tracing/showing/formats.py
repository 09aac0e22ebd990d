"""The forms that a trace may have; here, and not beside what makes them, so that asking for help is quick."""

from __future__ import annotations

from enum import StrEnum


class TraceFormat(StrEnum):
    """How a packet is explained: for people, or one JSON object a line."""

    TEXT = "text"
    JSON = "json"
