"""Encoding of the path server's stored values: MessagePack, versioned with the database."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from controller.common.errors import PathError
from dataplane.malformed import MALFORMED

T = TypeVar("T")


def freeze(value: object) -> bytes:
    """Return the stored form of a value."""
    return msgspec.msgpack.encode(value)


def thaw(data: object, schema: type[T]) -> T:
    """Return a stored value; raise PathError if it is invalid."""
    if not isinstance(data, bytes):
        raise PathError(f"stored {schema.__name__} is a {type(data).__name__}, not bytes")
    try:
        return msgspec.msgpack.decode(data, type=schema)
    except MALFORMED as error:
        raise PathError(f"cannot decode a stored {schema.__name__}: {error}") from error
