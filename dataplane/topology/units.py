"""Rates and delays as people write them: a number and its unit, nothing implied."""

from __future__ import annotations

import re
from fractions import Fraction

_RATES_BPS = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9, "Tbit/s": 10**12}
_DELAYS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_QUANTITY = re.compile(r"(?P<number>\d{1,15}(\.\d{1,15})?) ?(?P<unit>[A-Za-z/]+)", re.ASCII)

MAX_RATE_BPS = 100 * 10**12
"""A rate above 100 Tbit/s is a slip of the pen."""
MAX_DELAY_NS = 60 * 10**9
"""A delay above a minute is a slip of the pen."""


def parse_rate_bps(text: str) -> int:
    """Return '9.92 Gbit/s' as bit/s; raise ValueError unless it is whole and between 1 bit/s and 100 Tbit/s."""
    value = _parse(text, _RATES_BPS, "a rate such as '10 Gbit/s'")
    if not 1 <= value <= MAX_RATE_BPS:
        raise ValueError(f"rate {text!r} is not between 1 bit/s and {format_rate(MAX_RATE_BPS)}")
    return value


def parse_delay_ns(text: str) -> int:
    """Return '5.7 ms' as nanoseconds; raise ValueError unless it is whole and at most a minute."""
    value = _parse(text, _DELAYS_NS, "a delay such as '5.7 ms'")
    if value > MAX_DELAY_NS:
        raise ValueError(f"delay {text!r} is above {format_delay(MAX_DELAY_NS)}")
    return value


def format_rate(rate_bps: int) -> str:
    """Return bit/s as text that `parse_rate_bps` reads back exactly."""
    return _format(rate_bps, _RATES_BPS)


def format_delay(delay_ns: int) -> str:
    """Return nanoseconds as text that `parse_delay_ns` reads back exactly."""
    return _format(delay_ns, _DELAYS_NS)


def _parse(text: str, units: dict[str, int], wanted: str) -> int:
    found = _QUANTITY.fullmatch(text)
    if found is None or found["unit"] not in units:
        raise ValueError(f"{text!r} is not {wanted} (units: {', '.join(units)})")
    value = Fraction(found["number"]) * units[found["unit"]]
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of {next(iter(units))}")
    return int(value)


def _format(value: int, units: dict[str, int]) -> str:
    unit = max((name for name in units if value >= units[name]), key=units.__getitem__, default=next(iter(units)))
    whole, rest = divmod(value, units[unit])
    digits = len(str(units[unit])) - 1
    fraction = f"{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{whole}.{fraction} {unit}" if fraction else f"{whole} {unit}"
