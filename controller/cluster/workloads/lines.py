"""Text files of records, line by line: every field is checked, every error names file and line."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO, Final, cast

from controller.cluster.workloads.errors import WorkloadError
from dataplane.given import LINE_BYTES, open_given

MIB: Final = 1 << 20
MOST: Final = 10**18
"""Upper bound of numbers without a bound of their own."""
MOST_S: Final = 4_000_000_000
"""Upper bound of times: Unix time until 2096, and still an int64 in ns."""

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
"""Narrower than int() and float(), which also take 1_000, digits of all scripts, "nan" and "inf"."""
_GZIP: Final = b"\x1f\x8b"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Record:
    """A line's fields by name, and its location."""

    file: str
    line: int
    fields: Mapping[str, str]

    def error(self, problem: str) -> WorkloadError:
        """Return an error that names file and line."""
        return WorkloadError(f"{self.file}:{self.line}: {problem}")

    def text(self, name: str) -> str:
        """Return a non-empty field."""
        if not (value := self.fields[name]):
            raise self.error(f"{name} is empty")
        return value

    def integer(self, name: str, least: int = 0, most: int = MOST) -> int:
        """Return an integer from `least` to `most`; 4.00 is one."""
        value = self._number(name, least, most)
        if value != int(value):
            raise self.error(f"{name} is {_shortened(self.fields[name])}, not a whole number")
        return int(value)

    def real(self, name: str, least: float = 0.0, most: float = MOST) -> float:
        """Return a number from `least` to `most`."""
        return float(self._number(name, least, most))

    def time_ns(self, name: str, least_s: int = 0, most_s: int = MOST_S) -> int:
        """Return a time in seconds, which may have a fraction, as ns."""
        return round(self._number(name, least_s, most_s).scaleb(9))

    def _number(self, name: str, least: float, most: float) -> Decimal:
        text = self.fields[name]
        if not _NUMBER.fullmatch(text):
            raise self.error(f"{name} is {_shortened(text)!r}, not a number")
        value = Decimal(text)
        if value < least:
            raise self.error(f"{name} is {_shortened(text)}, less than {least:g}")
        if value > most:
            raise self.error(f"{name} is {_shortened(text)}, more than {most:.12g}")
        return value


def read_csv(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield the rows of a CSV file whose header names at least these columns; raise WorkloadError otherwise.

    Other columns and empty lines are skipped.
    """
    reader = csv.reader(_decoded(path), strict=True)
    try:
        header = next(reader, None)
        if header is None or any(header.count(column) != 1 for column in columns):
            found = "missing" if header is None else _shortened(", ".join(header), 300)
            raise WorkloadError(f"{path}:1: the columns are {found}, not {', '.join(columns)}")
        place = {column: header.index(column) for column in columns}
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise WorkloadError(f"{path}:{reader.line_num}: {len(row)} fields, not {len(header)}")
            yield Record(str(path), reader.line_num, {column: row[at] for column, at in place.items()})
    except csv.Error as error:
        raise WorkloadError(f"{path}:{reader.line_num}: {error}") from None


def read_words(
    path: Path, columns: tuple[str, ...], *, optional: int = 0, missing: str = "", comments: str = "#"
) -> Iterator[Record]:
    """Yield the lines of a file of blank-separated words; the last `optional` may lack and are then `missing`.

    Empty lines, and those that begin with one of `comments`, are skipped; comments may have any bytes.
    """
    marks = tuple(mark.encode() for mark in comments)
    for number, line in _lines(path):
        if line.lstrip().startswith(marks):
            continue
        words = _text(path, number, line).split()
        if not words:
            continue
        if not len(columns) - optional <= len(words) <= len(columns):
            wanted = len(columns) if not optional else f"{len(columns) - optional} to {len(columns)}"
            raise WorkloadError(f"{path}:{number}: {len(words)} fields, not {wanted}")
        words += [missing] * (len(columns) - len(words))
        yield Record(str(path), number, dict(zip(columns, words, strict=True)))


def _decoded(path: Path) -> Iterator[str]:
    for number, line in _lines(path):
        yield _text(path, number, line)


def _text(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise WorkloadError(f"{path}:{number}: is not UTF-8 text") from None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a file, which may be gzipped, without a byte-order mark."""
    number = 0
    try:
        with open_given(path) as file:
            is_gzip = file.peek(len(_GZIP)).startswith(_GZIP)
            lines = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if is_gzip else file
            while line := lines.readline(LINE_BYTES + 1):
                if len(line) > LINE_BYTES:
                    raise WorkloadError(f"{path}:{number + 1}: has more than {LINE_BYTES // MIB} MiB")
                # A carriage return alone ends a line, too: otherwise a comment would hide all that follows it.
                for part in line.splitlines(keepends=True):
                    number += 1
                    yield number, part.removeprefix(_BYTE_ORDER_MARK) if number == 1 else part
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise WorkloadError(f"{path}: is a damaged gzip file, after line {number}") from None
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}") from None


def _shortened(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
