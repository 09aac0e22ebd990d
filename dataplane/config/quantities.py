"""Human-readable quantities, a number and its unit: `500ms`, `10G`, `64 KiB`.

A name implies the unit of its plain numbers: `interval_ns: 5`, `rate_bps: 1000`. Text is converted to that unit. Keys
of times in settings have no unit: the key of a field `interval_ns` is `interval`, and its values have theirs: `10s`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

_QUANTITY: Final = re.compile(r"(?P<number>\d{1,18}(\.\d{1,18})?) ?(?P<unit>[A-Za-z/]+)", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of quantity: its name, an example, and its units by name, in multiples of a common one."""

    name: str
    example: str
    units: Mapping[str, Fraction]


def _decimal(stem: str, letters: str) -> dict[str, Fraction]:
    """Return a unit with its multiples of 1000, or with an empty stem only these: `bit/s`, `kbit/s`, ..., or `k`."""
    powers = enumerate(["", *letters])
    return {f"{letter}{stem}": Fraction(1000) ** power for power, letter in powers if letter or stem}


_TIMES: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86_400),
}
_BINARY: Final = {letter: Fraction(1024) ** power for power, letter in enumerate("KMGTP", start=1)}

TIME: Final = Kind("a time", "500ms", MappingProxyType(_TIMES))
RATE: Final = Kind(
    "a rate", "10G", MappingProxyType(_decimal("bit/s", "kMGT") | _decimal("bps", "kMGT") | _decimal("", "kMGT"))
)
SIZE: Final = Kind(
    "a size",
    "64KiB",
    MappingProxyType(
        _decimal("B", "kMGTP")
        | _decimal("", "kMGTP")
        | {f"{letter}iB": factor for letter, factor in _BINARY.items()}
        | {f"{letter}i": factor for letter, factor in _BINARY.items()}
    ),
)
FREQUENCY: Final = Kind("a frequency", "100Hz", MappingProxyType(_decimal("Hz", "kMG")))

_WRITTEN_TIMES: Final = ("d", "h", "m", "s", "ms", "us", "ns")
"""Time units used in output, largest first."""
_MOST_DIGITS: Final = 18

_SUFFIXES: Final[Mapping[str, tuple[Kind, str]]] = MappingProxyType(
    {
        "ns": (TIME, "ns"),
        "us": (TIME, "us"),
        "ms": (TIME, "ms"),
        "s": (TIME, "s"),
        "seconds": (TIME, "s"),
        "minutes": (TIME, "min"),
        "hours": (TIME, "h"),
        "days": (TIME, "d"),
        "bps": (RATE, "bit/s"),
        "kbps": (RATE, "kbit/s"),
        "mbps": (RATE, "Mbit/s"),
        "gbps": (RATE, "Gbit/s"),
        "bytes": (SIZE, "B"),
        "kib": (SIZE, "KiB"),
        "mib": (SIZE, "MiB"),
        "gib": (SIZE, "GiB"),
        "mb": (SIZE, "MB"),
        "gb": (SIZE, "GB"),
        "hz": (FREQUENCY, "Hz"),
    }
)


def read_quantity(text: str, units: Mapping[str, Fraction]) -> Fraction | None:
    """Parse a number and a unit, with or without a space between, as a multiple of 1; None for anything else."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match["unit"] not in units:
        return None
    return Fraction(match["number"]) * units[match["unit"]]


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of a name's plain numbers."""

    kind: Kind
    name: str

    def parse(self, text: str, *, with_plain: bool = True) -> Fraction:
        """Convert `500ms` to this unit; raise ValueError that shows the correct format, and that of plain numbers."""
        quantity = read_quantity(text.strip(), self.kind.units)
        if quantity is None:
            plain = f", nor a number of {self.name}" if with_plain else ""
            raise ValueError(
                f"{text!r} is not {self.kind.name} such as {self.kind.example}{plain}"
                f" (units: {', '.join(self.kind.units)})"
            )
        return quantity / self.kind.units[self.name]

    def parse_whole(self, text: str, *, with_plain: bool = True) -> int:
        """Convert `500ms` to a whole number of this unit; raise ValueError for a fraction."""
        value = self.parse(text, with_plain=with_plain)
        if value.denominator != 1:
            raise ValueError(f"{text!r} is not a whole number of {self.name}")
        return int(value)


def unit_of(name: str) -> Unit | None:
    """Return the unit that a key's or option's name ends with, None if there is none: `_per_s` is not a time."""
    words = name.replace("-", "_").lower().split("_")
    unit = _SUFFIXES.get(words[-1])
    if unit is None or len(words) < 2 or "per" in words[-3:-1]:
        return None
    return Unit(*unit)


def time_unit_of(name: str) -> Unit | None:
    """Return the unit of time that a field's name ends with, None if there is none."""
    unit = unit_of(name)
    return unit if unit is not None and unit.kind is TIME else None


def key_of(name: str) -> str | None:
    """Return the key of a time in a settings file, the field's name without its unit; None for other fields."""
    return None if time_unit_of(name) is None else name.rpartition("_")[0]


def time_text(number: float, unit: Unit) -> int | float | str:
    """Return a time as settings files have it, `500ms`; numbers without a text, such as infinity, stay numbers."""
    if not math.isfinite(number) or number < 0:
        return number
    time = Fraction(repr(number)) * unit.kind.units[unit.name]
    # The largest unit with a whole number of it: 1500ms, not 1.5s.
    for name in _WRITTEN_TIMES if time else ("s",):
        whole = time / unit.kind.units[name]
        if whole.denominator == 1:
            return f"{whole}{name}"
    # In whole numbers: a float of so many nanoseconds would not load as the same number of seconds.
    one = 10**_MOST_DIGITS
    whole_ns, rest = divmod(round(time / unit.kind.units["ns"] * one), one)
    return f"{whole_ns}.{rest:0{_MOST_DIGITS}}".rstrip("0") + "ns"
