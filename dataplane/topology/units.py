"""Human-readable rates, delays and sizes: a number with an explicit unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from dataplane.config.quantities import RATE, read_quantity

_RATES_BPS = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9, "Tbit/s": 10**12}
_DELAYS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_SIZES_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DATA_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15} | _SIZES_BYTES
_BYTE_RATES = {"B/s": 1, "kB/s": 10**3, "MB/s": 10**6, "GB/s": 10**9, "TB/s": 10**12}
_OPERATION_RATES = {"op/s": 1, "Mop/s": 10**6, "Gop/s": 10**9, "Top/s": 10**12, "Pop/s": 10**15}

_SHARE = re.compile(r"(?P<number>\d{1,18}(\.\d{1,18})?(e-\d{1,2})?) ?(?P<percent>%)?", re.ASCII)

MAX_RATE_BPS = 100 * 10**12
"""A rate above 100 Tbit/s is assumed to be a typo."""
MAX_DELAY_NS = 60 * 10**9
"""A delay above a minute is assumed to be a typo."""
PPB = 10**9
"""The whole, in the parts in which shares are counted."""
MAX_SIZE_BYTES = 1 << 60
MAX_BYTES_PER_S = 10**16
MAX_OPS_PER_S = 10**21
"""The same limit for memory, for its rates and those of buses, and for operations per second."""


def parse_rate_bps(text: str) -> int:
    """Parse '9.92 Gbit/s' to bit/s; raise ValueError unless it is whole and between 1 bit/s and 100 Tbit/s."""
    value = _parse(text, RATE.units, "a rate such as '10 Gbit/s'")
    if not 1 <= value <= MAX_RATE_BPS:
        raise ValueError(f"rate {text!r} is not between 1 bit/s and {format_rate(MAX_RATE_BPS)}")
    return value


def parse_delay_ns(text: str) -> int:
    """Parse '5.7 ms' to nanoseconds; raise ValueError unless it is whole and at most a minute."""
    value = _parse(text, _DELAYS_NS, "a delay such as '5.7 ms'")
    if value > MAX_DELAY_NS:
        raise ValueError(f"delay {text!r} is above {format_delay(MAX_DELAY_NS)}")
    return value


def parse_share_ppb(given: str | float) -> int:
    """Parse '0.1%' or 0.001 to parts in 10^9; raise ValueError unless it is a whole number of them and 0 to 1."""
    match = _SHARE.fullmatch(str(given).strip())
    if match is None:
        raise ValueError(f"{given!r} is not a share such as '0.1%' or 0.001")
    share = Fraction(match["number"]) / (100 if match["percent"] else 1)
    if share > 1:
        raise ValueError(f"{given!r} is more than 100%")
    if (share * PPB).denominator != 1:
        raise ValueError(f"{given!r} is not a whole number of parts in 10^9")
    return int(share * PPB)


def parse_size_bytes(text: str) -> int:
    """Parse '40 GiB' to bytes; raise ValueError unless it is whole and between 1 B and 2^60 B."""
    value = _parse(text, _SIZES_BYTES, "a size such as '40 GiB'")
    if not 1 <= value <= MAX_SIZE_BYTES:
        raise ValueError(f"size {text!r} is not between 1 B and {format_size(MAX_SIZE_BYTES)}")
    return value


def parse_data_bytes(text: str) -> int:
    """Parse '2.4 GB' (10^9) or '2 GiB' of data to bytes; raise ValueError unless it is whole and at most 2^60 B."""
    value = _parse(text, _DATA_BYTES, "an amount of data such as '2.4 GB'")
    if value > MAX_SIZE_BYTES:
        raise ValueError(f"{text!r} is above {format_size(MAX_SIZE_BYTES)}")
    return value


def parse_bytes_per_s(text: str) -> int:
    """Parse '12.8 GB/s' to bytes per second (GB: 10^9); raise ValueError unless it is whole and above 0."""
    value = _parse(text, _BYTE_RATES, "a rate such as '12.8 GB/s'")
    if not 1 <= value <= MAX_BYTES_PER_S:
        raise ValueError(f"rate {text!r} is not between 1 B/s and {format_bytes_per_s(MAX_BYTES_PER_S)}")
    return value


def parse_ops_per_s(text: str) -> int:
    """Parse '19.5 Top/s' to operations per second; raise ValueError unless it is whole and above 0."""
    value = _parse(text, _OPERATION_RATES, "a rate such as '19.5 Top/s'")
    if not 1 <= value <= MAX_OPS_PER_S:
        raise ValueError(f"rate {text!r} is not between 1 op/s and {format_ops_per_s(MAX_OPS_PER_S)}")
    return value


def format_size(size_bytes: int) -> str:
    """Format bytes as text that `parse_size_bytes` reads back exactly, in the largest unit without a fraction."""
    unit = next(name for name in reversed(_SIZES_BYTES) if size_bytes % _SIZES_BYTES[name] == 0)
    return f"{size_bytes // _SIZES_BYTES[unit]} {unit}"


def format_bytes_per_s(bytes_per_s: int) -> str:
    """Format bytes per second as text that `parse_bytes_per_s` reads back exactly."""
    return _format(bytes_per_s, _BYTE_RATES)


def format_ops_per_s(ops_per_s: int) -> str:
    """Format operations per second as text that `parse_ops_per_s` reads back exactly."""
    return _format(ops_per_s, _OPERATION_RATES)


def format_rate(rate_bps: int) -> str:
    """Format bit/s as text that `parse_rate_bps` reads back exactly."""
    return _format(rate_bps, _RATES_BPS)


def format_delay(delay_ns: int) -> str:
    """Format nanoseconds as text that `parse_delay_ns` reads back exactly."""
    return _format(delay_ns, _DELAYS_NS)


def format_share(share_ppb: int) -> str:
    """Format parts in 10^9 as text that `parse_share_ppb` reads back exactly."""
    whole, rest = divmod(share_ppb, PPB // 100)
    fraction = f"{rest:07d}".rstrip("0")
    return f"{whole}.{fraction}%" if fraction else f"{whole}%"


def _parse(text: str, units: Mapping[str, int] | Mapping[str, Fraction], wanted: str) -> int:
    value = read_quantity(text, {name: Fraction(factor) for name, factor in units.items()})
    if value is None:
        raise ValueError(f"{text!r} is not {wanted} (units: {', '.join(units)})")
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of {next(iter(units))}")
    return int(value)


def _format(value: int, units: dict[str, int]) -> str:
    unit = max((name for name in units if value >= units[name]), key=units.__getitem__, default=next(iter(units)))
    whole, rest = divmod(value, units[unit])
    digits = len(str(units[unit])) - 1
    fraction = f"{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{whole}.{fraction} {unit}" if fraction else f"{whole} {unit}"
