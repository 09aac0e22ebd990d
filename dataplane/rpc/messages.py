"""Parsing of protobuf messages, and checks common to all our services: senders are not trusted.

Protobuf refuses values outside a field's type. This module checks what protobuf accepts: unknown fields, and names and
lists of unbounded length.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from dataplane.rpc.errors import MessageError

M = TypeVar("M", bound=Message)

LONGEST_NAME: Final = 256
"""Maximum number of characters in the name of a host, switch or job."""

LONGEST_TEXT: Final = 1000
"""Maximum number of characters in a sentence, which goes into logs."""


def parse_request(schema: type[M], data: bytes) -> M:
    """Parse a request; raise MessageError, also for fields that this version does not have.

    A field that the service does not know is something that its caller wants and would not get.
    """
    message = parse(schema, data)
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        raise MessageError(f"{message.DESCRIPTOR.full_name} has fields unknown to this version")
    return message


def parse(schema: type[M], data: bytes) -> M:
    """Parse a message, ignoring fields added by newer versions; raise MessageError."""
    try:
        return schema.FromString(data)
    except DecodeError as error:
        raise MessageError(f"a {schema.DESCRIPTOR.full_name} does not decode") from error


def serialize(message: Message | bytes) -> bytes:
    """Serialize a message; bytes, already serialized in another thread, stay as they are."""
    return message if isinstance(message, bytes) else message.SerializeToString()


def checked_name(value: str, field: str) -> str:
    """Return a name of 1 to `LONGEST_NAME` printable characters; raise MessageError naming the field."""
    if not (1 <= len(value) <= LONGEST_NAME and value.isprintable()):
        raise MessageError(f"{field}: a name has 1 to {LONGEST_NAME} printable characters")
    return value


def checked_text(value: str, field: str) -> str:
    """Return a sentence of at most `LONGEST_TEXT` printable characters; raise MessageError naming the field."""
    if len(value) > LONGEST_TEXT or not value.isprintable():
        raise MessageError(f"{field}: a text has at most {LONGEST_TEXT} printable characters")
    return value


def check_count(values: Sized, most: int, field: str) -> None:
    """Raise MessageError naming the field if it has more than `most` entries."""
    if len(values) > most:
        raise MessageError(f"{field} has {len(values)} entries, at most {most} are taken")


def checked_range(value: int, least: int, most: int, field: str) -> int:
    """Return an integer from `least` to `most`; raise MessageError naming the field."""
    if not least <= value <= most:
        raise MessageError(f"{field} is {value}, not in {least} to {most}")
    return value
