"""Token files: the token a client shows, and the hashes of the tokens a network service accepts."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from dataplane.errors import AccessError
from dataplane.given import SECRET_BYTES, read_given, read_given_text
from dataplane.malformed import MALFORMED
from dataplane.rpc.access.tokens import TokenRecord, principal_of
from dataplane.rpc.access.values import Principal

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_token(file: Path) -> str:
    """Return the content of a token file; raise AccessError if other users may read it."""
    try:
        mode, text = file.stat().st_mode, read_given_text(file, SECRET_BYTES, encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AccessError(f"token file {file}: {getattr(error, 'strerror', None) or 'no token'}") from None
    if mode & _OTHERS:
        raise AccessError(f"token file {file} is readable by others; chmod 600 {file}")
    if not text or len(text.split()) != 1:
        raise AccessError(f"token file {file} holds no token")
    return text


def read_records(file: Path) -> dict[str, TokenRecord]:
    """Return the records of a token file, one line of JSON each, by id; raise AccessError naming the line."""
    try:
        mode, lines = file.stat().st_mode, read_given(file, SECRET_BYTES).splitlines()
    except OSError as error:
        raise AccessError(f"tokens {file}: {error.strerror}") from None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise AccessError(f"tokens {file} is writable by others; chmod 600 {file}")
    records: dict[str, TokenRecord] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line, type=TokenRecord)
        except MALFORMED as error:
            raise AccessError(f"tokens {file}:{number}: {error}") from None
        records[record.id] = record
    return records


def append_record(file: Path, record: TokenRecord) -> None:
    """Append a token to a file readable only by its user; raise AccessError."""
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(number, "ab") as out:
            out.write(msgspec.json.encode(record) + b"\n")
    except OSError as error:
        raise AccessError(f"tokens {file}: {error.strerror}") from None


class TokenFile:
    """The tokens of a file, reread once it has changed. `now_ns` is the time since 1970."""

    def __init__(self, file: Path, now_ns: Callable[[], int]) -> None:
        """Raise AccessError for an unreadable file."""
        self._file, self._now_ns = file, now_ns
        self._version = self._stat()
        self._records: Mapping[str, TokenRecord] = read_records(file)

    def principal_of(self, token: str) -> Principal:
        """Return a token's owner; raise AccessError, also if the file has become unreadable: no token is valid then."""
        version = self._stat()
        if version != self._version:
            self._records, self._version = read_records(self._file), version
        return principal_of(token, self._records, self._now_ns())

    def _stat(self) -> tuple[int, int, int]:
        try:
            stat = self._file.stat()
        except OSError as error:
            raise AccessError(f"tokens {self._file}: {error.strerror}") from None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size
