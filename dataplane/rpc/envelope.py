"""What every message between our processes is: [version, body] in MessagePack."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from dataplane.errors import MillraceError

T = TypeVar("T")


class _Message(msgspec.Struct, array_like=True, frozen=True):
    version: int
    body: msgspec.Raw


def enclose(version: int, body: object) -> bytes:
    """Return a message of a version."""
    return msgspec.msgpack.encode((version, body))


def disclose(message: bytes, version: int, schema: type[T], error: Callable[[str], MillraceError]) -> T:
    """Return a message's body; raise `error` for another version or layout."""
    try:
        outer = msgspec.msgpack.decode(message, type=_Message)
        if outer.version != version:
            raise error(f"the peer speaks version {outer.version}, this side {version}: update one of the two")
        return msgspec.msgpack.decode(outer.body, type=schema)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise error(f"a message does not decode: {problem}") from problem
