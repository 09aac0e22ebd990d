"""Congestion windows as values; each step is a function of the last one and of the feedback."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from dataplane.fabric.virtual.tcp.congestion.cubic import Cubic
from dataplane.fabric.virtual.tcp.congestion.reno import Reno
from dataplane.fabric.virtual.tcp.congestion.values import Acked, CongestionControl

__all__ = ["Acked", "Congestion", "CongestionControl", "Cubic", "Reno"]


class Congestion(StrEnum):
    """Congestion control by name: RFC 5681 or RFC 9438. A control is a module of this package and a row here."""

    control: type[CongestionControl]

    def __new__(cls, name: str, control: type[CongestionControl]) -> Self:
        """Make a member of a row of the table."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.control = control
        return member

    RENO = "reno", Reno
    CUBIC = "cubic", Cubic
