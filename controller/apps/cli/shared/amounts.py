"""Options whose numbers have a unit: the option's own for a plain number, else that of `500ms` or `10G`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar

import typer

from dataplane.config.quantities import SIZE, TIME, Unit

T = TypeVar("T")
Read = Callable[[str | float], float]


_YEARS: Final = 100
"""Longer than any intended time; in nanoseconds it fits into 64 bits."""
_DAYS: Final = _YEARS * 365.25
_MOST_BYTES: Final = (1 << 63) - 1


def in_seconds(least: float = 0.0, most: float = _DAYS * 86_400) -> Read:
    """Return a parser of times in seconds between two inclusive bounds, at most 100 years."""
    return _reader(Unit(TIME, "s"), least, most)


def in_hours(least: float = 0.0, most: float = _DAYS * 24) -> Read:
    """Return a parser of times in hours."""
    return _reader(Unit(TIME, "h"), least, most)


def in_days(least: float = 0.0, most: float = _DAYS) -> Read:
    """Return a parser of times in days."""
    return _reader(Unit(TIME, "d"), least, most)


def in_milliseconds(least: int = 0, most: float = _DAYS * 86_400_000) -> Callable[[str | int], int]:
    """Return a parser of times in whole milliseconds."""
    return _whole_reader(Unit(TIME, "ms"), least, most)


def in_bytes(least: int = 0, most: float = _MOST_BYTES) -> Callable[[str | int], int]:
    """Return a parser of sizes in bytes."""
    return _whole_reader(Unit(SIZE, "B"), least, most)


def in_gigabytes(least: float = 0.0, most: float = 1e12) -> Read:
    """Return a parser of sizes in gigabytes of 10^9 bytes."""
    return _reader(Unit(SIZE, "GB"), least, most)


def in_megabytes(least: int = 0, most: float = _MOST_BYTES // 10**6) -> Callable[[str | int], int]:
    """Return a parser of sizes in whole megabytes of 10^6 bytes."""
    return _whole_reader(Unit(SIZE, "MB"), least, most)


_NAMES: Final = {TIME: "time", SIZE: "size"}


def _reader(unit: Unit, least: float, most: float) -> Read:
    def read(text: str | float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float(_parsed(unit.parse, str(text)))
        _check(value, unit, least, most)
        return value

    read.__name__ = _NAMES[unit.kind]  # which a command's help shows
    return read


def _whole_reader(unit: Unit, least: int, most: float) -> Callable[[str | int], int]:
    def read(text: str | int) -> int:
        try:
            number = int(text)
        except ValueError:
            number = _parsed(unit.parse_whole, str(text))
        _check(number, unit, least, most)
        return number

    read.__name__ = _NAMES[unit.kind]
    return read


def _parsed(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _check(value: float, unit: Unit, least: float, most: float) -> None:
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not {unit.kind.name}")
    if value < least:
        raise typer.BadParameter(f"{value:g} {unit.name} is less than {least:g} {unit.name}")
    if value > most:
        raise typer.BadParameter(f"{value:g} {unit.name} is more than {most:g} {unit.name}")
