"""Encoding of resources in the storage: JSON under /api/PLURAL/NAME; the revision is the storage's own.

Text that a terminal would interpret as commands is refused when users write it, and replaced in everything else. The
check works on the JSON, which escapes control characters except DEL and those beyond ASCII. Tabs and newlines are
text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from controller.apiserver.resources import KINDS, Kind
from controller.apiserver.resources.base import MAX_NAME, R
from controller.apiserver.storage import Stored
from controller.apiserver.storage.values import MAX_VALUE_BYTES
from controller.common.errors import InvalidError, StorageError, TooLargeError
from dataplane.malformed import MALFORMED

ROOT: Final = "/api/"

_ENCODER: Final = msgspec.json.Encoder()
# An escape counts if the backslashes before it pair off; JSON leaves U+0080 to U+009F unescaped, in UTF-8.
_CONTROL: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:\\u00(?:0[0-8bce-f]|1[0-9a-f])|\\[bf]|\x7f|\xc2[\x80-\x9f])", re.IGNORECASE
)
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()


def prefix_of(kind: Kind[Any]) -> str:
    """Return the key prefix of a kind."""
    return f"{ROOT}{kind.plural}/"


def key_of(kind: Kind[Any], name: str) -> str:
    """Return a resource's key; raise InvalidError for an invalid name."""
    if not name or len(name) > MAX_NAME or "/" in name or "\0" in name:
        raise InvalidError(f"{name[:MAX_NAME]!r} is not a valid name of a {kind.name}")
    return prefix_of(kind) + name


def kind_of(key: str) -> Kind[Any] | None:
    """Return the kind of the resource under a key; None if there is none."""
    _, _, rest = key.partition(ROOT)
    return KINDS.of_plural(rest.partition("/")[0])


def encode(resource: R) -> bytes:
    """Encode a resource for the storage; raise TooLargeError if it is too large."""
    data = _ENCODER.encode(resource)
    if len(data) > MAX_VALUE_BYTES:
        name = resource.metadata.name
        raise TooLargeError(f"{name} has {len(data)} bytes; a resource may have at most {MAX_VALUE_BYTES}")
    return data


def decode(kind: Kind[R], stored: Stored) -> R:
    """Decode a resource with its revision; raise StorageError if it is invalid."""
    try:
        resource: R = _decoder(kind.type).decode(stored.value)
    except MALFORMED as error:
        raise StorageError(f"{stored.key} is not a {kind.name} of this version: {error}") from None
    return replace(resource, metadata=replace(resource.metadata, revision=stored.modified))


def decoded_as(kind: Kind[R], data: bytes) -> R:
    """Decode a resource from the output of `encode`."""
    resource: R = _decoder(kind.type).decode(data)
    return resource


def check_plain(kind: Kind[R], resource: R) -> None:
    """Raise InvalidError for a resource with a control character anywhere in it."""
    data = encode(resource)
    match = _CONTROL.search(data) if _may_have_control(data) else None
    if match is not None:
        character = ascii(match[0][len(match[1]) :].decode()).strip("'")
        raise InvalidError(f"{kind.name} {resource.metadata.name}: control character {character} in its text")


def made_plain(data: bytes) -> bytes:
    """Replace each control character in an encoded resource."""
    return _CONTROL.sub(rb"\1" + _REPLACEMENT, data) if _may_have_control(data) else data


def _may_have_control(data: bytes) -> bool:
    # Searching for single bytes takes a hundredth of the expression's time, and most text has none of these.
    return b"\\" in data or b"\x7f" in data or b"\xc2" in data


@cache
def _decoder(resource: type[Any]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(resource)
