"""Quantities in manifests, with units: 500m of a core, 64 MiB, 5 Mbit/s, 2 ms, 10 min."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal, Self

from controller.common.quantities import whole
from dataplane.topology.units import (
    format_delay,
    format_rate,
    format_size,
    parse_delay_ns,
    parse_rate_bps,
    parse_size_bytes,
)

NEVER: Final[Literal["never"]] = "never"
_MILLI: Final = re.compile(r"(\d{1,9})m", re.ASCII)
_PARTS: Final = ("m", "u", "n")
"""Suffixes of Kubernetes for parts of a byte: 100m is hardly ever meant."""
_MOST_BYTES: Final = 1 << 53
"""Maximum number of the API, as many readers of JSON hold numbers as floats."""
_NUMBER: Final = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
_TIME: Final = re.compile(r"(?P<number>\d{1,9}(\.\d{1,9})?) ?(?P<unit>ms|s|min|h|d)", re.ASCII)
_TIMES: Final[Mapping[str, Decimal]] = {
    "ms": Decimal("0.001"), "s": Decimal(1), "min": Decimal(60), "h": Decimal(3600), "d": Decimal(86_400),
}  # fmt: skip


def _cores(raw: object) -> int:
    return _milli(raw, "cores: a number such as 2 or 0.5, or thousandths such as '500m'")


def _share(raw: object) -> int:
    wanted = "part of one device: a number up to 1, or thousandths such as '500m'"
    thousandths = _milli(raw, wanted)
    if not 1 <= thousandths <= 1000:
        raise ValueError(f"{raw!r} is not {wanted}; request whole devices by count")
    return thousandths


def _seconds(raw: object) -> float:
    match = _TIME.fullmatch(raw) if isinstance(raw, str) else None
    if match is None:
        raise ValueError(f"{raw!r} is not a time such as '30 s' (units: {', '.join(_TIMES)})")
    return float(Decimal(match["number"]) * _TIMES[match["unit"]])


def _seconds_or_never(raw: object) -> float:
    if raw == NEVER:
        return math.inf
    try:
        return _seconds(raw)
    except ValueError:
        raise ValueError(f"{raw!r} is neither a time such as '30 s' nor never (units: {', '.join(_TIMES)})") from None


def _moment(raw: object) -> int:
    if isinstance(raw, str) and _TIME.fullmatch(raw):
        # Negative means relative to the present; 0 would be a moment of its own, so 0 s becomes 1 ns.
        return -max(round(_seconds(raw) * 1e9), 1)
    moment = raw if isinstance(raw, datetime) else _iso_time(raw)
    if moment is None:
        raise ValueError(f"{raw!r} is neither a time such as 2030-01-31T12:00:00Z nor one from now on such as '2 h'")
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} is a time without a zone: write {moment.isoformat()}Z")
    return max(round(moment.timestamp() * 1e9), 0)


def _iso_time(raw: object) -> datetime | None:
    try:
        return datetime.fromisoformat(raw) if isinstance(raw, str) else None
    except ValueError:
        return None


def _milli(raw: object, wanted: str) -> int:
    if isinstance(raw, str) and (match := _MILLI.fullmatch(raw)):
        return int(match[1])
    text = str(raw)
    # A bool is an int in Python, but no number in a manifest.
    if isinstance(raw, bool) or not isinstance(raw, int | float | str) or not _NUMBER.fullmatch(text):
        raise ValueError(f"{raw!r} is not {wanted}")
    # Floats would refuse valid figures: 1.001 * 1000 is 1000.9999999999999.
    exact = Decimal(text) * 1000
    if exact != exact.to_integral_value():
        raise ValueError(f"{raw!r} is not a whole number of thousandths")
    return int(exact)


def _bytes(raw: object) -> int:
    if isinstance(raw, int | float | str) and not isinstance(raw, bool) and not str(raw).endswith(_PARTS):
        try:
            value = whole(raw)
        except ValueError:  # not one of Kubernetes' forms: 64 MiB
            pass
        else:
            return _bounded(value, raw)
    return _bounded(_with_unit(raw, parse_size_bytes, "a size such as '64 MiB', '64Mi' or a number of bytes"), raw)


def _bounded(value: int, raw: object) -> int:
    if not 1 <= value <= _MOST_BYTES:
        raise ValueError(f"size {str(raw)[:60]!r} is not between 1 B and {format_size(_MOST_BYTES)}")
    return value


def _bps(raw: object) -> int:
    return _with_unit(raw, parse_rate_bps, "a rate such as '5 Mbit/s'")


def _ns(raw: object) -> int:
    return _with_unit(raw, parse_delay_ns, "a delay such as '2 ms'")


def _with_unit(raw: object, parse: Callable[[str], int], wanted: str) -> int:
    if not isinstance(raw, str):
        raise ValueError(f"{raw!r} is not {wanted}")  # noqa: TRY004 - msgspec adds the key
    return parse(raw)


class Quantity:
    """Base of quantities with a unit; `schema` is JSON Schema."""

    __slots__ = ("value",)
    schema: ClassVar[Mapping[str, Any]]

    def __init__(self, value: float) -> None:
        self.value = value

    @staticmethod
    def parse(raw: object) -> float:
        """Return the parsed number; raise ValueError."""
        raise NotImplementedError

    @classmethod
    def read(cls, raw: object) -> Self:
        """Parse a quantity; raise ValueError with the expected form."""
        return cls(cls.parse(raw))


class Cores(Quantity):
    """Cores, in thousandths."""

    __slots__ = ()
    value: int
    parse = staticmethod(_cores)
    schema: ClassVar[Mapping[str, Any]] = {
        "type": ["string", "number"],
        "description": "Cores: a number, or thousandths with an m.",
        "examples": ["500m", 2],
    }


class Share(Quantity):
    """Share of one device, in thousandths."""

    __slots__ = ()
    value: int
    parse = staticmethod(_share)
    schema: ClassVar[Mapping[str, Any]] = {
        "type": ["string", "number"],
        "description": "Share of one device: at most 1, or thousandths with an m.",
        "examples": ["500m", 0.25],
    }


class Size(Quantity):
    """Bytes."""

    __slots__ = ()
    value: int
    parse = staticmethod(_bytes)
    schema: ClassVar[Mapping[str, Any]] = {
        "type": ["string", "number"], "description": "A size; Kubernetes' forms, too.",
        "examples": ["64 MiB", "1.5Gi", 1000000],
    }  # fmt: skip


class Rate(Quantity):
    """Bit/s."""

    __slots__ = ()
    value: int
    parse = staticmethod(_bps)
    schema: ClassVar[Mapping[str, Any]] = {"type": "string", "description": "A rate.", "examples": ["5 Mbit/s"]}


class Delay(Quantity):
    """Nanoseconds."""

    __slots__ = ()
    value: int
    parse = staticmethod(_ns)
    schema: ClassVar[Mapping[str, Any]] = {"type": "string", "description": "A delay.", "examples": ["2 ms", "150 us"]}


class Moment(Quantity):
    """Nanoseconds since 1970, or negative if relative to now: `2030-01-31T12:00:00Z`, or `2 h`."""

    __slots__ = ()
    value: int
    parse = staticmethod(_moment)
    schema: ClassVar[Mapping[str, Any]] = {
        "type": "string", "description": "A time, or a duration from now.", "examples": ["2030-01-31T12:00:00Z", "2 h"],
    }  # fmt: skip

    def at_ns(self, now_ns: int) -> int:
        """Return the absolute time, with relative ones counted from `now_ns`."""
        return self.value if self.value >= 0 else now_ns - self.value


class Duration(Quantity):
    """Seconds."""

    __slots__ = ()
    value: float
    parse = staticmethod(_seconds)
    schema: ClassVar[Mapping[str, Any]] = {
        "type": "string", "description": "A time.", "examples": ["30 s", "10 min", "2 h", "1 d"],
    }  # fmt: skip


class IdleLimit(Quantity):
    """Seconds; infinitely many for `never`."""

    __slots__ = ()
    value: float
    parse = staticmethod(_seconds_or_never)
    schema: ClassVar[Mapping[str, Any]] = {
        "type": "string", "description": "A time, or never.", "examples": ["30 min", "1 d", "never"],
    }  # fmt: skip


def milli_text(milli: int) -> str | int:
    """Format thousandths as `Cores` and `Share` parse them."""
    return milli // 1000 if milli % 1000 == 0 else f"{milli}m"


def duration_text(seconds: float) -> str:
    """Format a time as `Duration` parses it, in the largest unit that gives a whole number."""
    exact = Decimal(repr(seconds))
    for unit in ("d", "h", "min", "s"):
        if exact and exact % _TIMES[unit] == 0:
            return f"{int(exact / _TIMES[unit])} {unit}"
    return f"{exact.normalize():f} s"


size_text: Final = format_size
rate_text: Final = format_rate
delay_text: Final = format_delay
