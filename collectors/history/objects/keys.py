"""Keys of the long history: TABLE/shard=NAME/day=YYYY-MM-DD/..., below the prefix.

A closed file of a collector is END-NUMBER-DIGEST.parquet there, by its newest row's time, its number among the
collector's files and the beginning of its SHA-256: what has the same key is the same. compacted-NUMBER.parquet is
merged from earlier objects of the day, whose names its metadata lists: from the moment that it is there, they are not
part of the history, though they are deleted later. Two compactors cannot both write the same number.
"""

from __future__ import annotations

import re
import time
from typing import Final

REPLACES: Final = b"millrace.replaces"
"""Metadata of a compacted object: the names of what it replaces, separated by line ends."""
_COMPACTED: Final = re.compile(r"compacted-(\d{6})\.parquet")


def day_of(end_s: int) -> str:
    """Return the day (UTC) of a time."""
    return time.strftime("%Y-%m-%d", time.gmtime(end_s))


def folder_of(table: str, shard: str, day: str) -> str:
    """Return the beginning of a day's keys."""
    return f"{table}/shard={shard}/day={day}"


def closed_key(table: str, shard: str, end_s: int, number: int, sha256: str) -> str:
    """Return the key of a closed file."""
    return f"{folder_of(table, shard, day_of(end_s))}/{end_s:010d}-{number:08d}-{sha256[:16]}.parquet"


def compacted_name(number: int) -> str:
    """Return the name of a compacted object."""
    return f"compacted-{number:06d}.parquet"


def compacted_number(name: str) -> int | None:
    """Return the number of a compacted object, None for the name of any other."""
    match = _COMPACTED.fullmatch(name)
    return None if match is None else int(match[1])
