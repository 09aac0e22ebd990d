"""Resources as the storage has them: JSON under /api/PLURAL/NAME; the revision is the storage's own.

Text that a terminal would take for commands is refused where users write it, and replaced wherever else it comes from.
It is looked for in the JSON: there a control character is an escape, but for DEL and those beyond ASCII. Tabs and ends
of lines are text.
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
BY_PLURAL: Final[dict[str, Kind[Any]]] = {kind.plural: kind for kind in KINDS}

_ENCODER: Final = msgspec.json.Encoder()
# An escape counts if the backslashes before it pair off; JSON writes U+0080 to U+009F as they are, in UTF-8.
_CONTROL: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:\\u00(?:0[0-8bce-f]|1[0-9a-f])|\\[bf]|\x7f|\xc2[\x80-\x9f])", re.IGNORECASE
)
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()


def prefix_of(kind: Kind[Any]) -> str:
    """Return what keys of a kind begin with."""
    return f"{ROOT}{kind.plural}/"


def key_of(kind: Kind[Any], name: str) -> str:
    """Return a resource's key; raise InvalidError for what is no name."""
    if not name or len(name) > MAX_NAME or "/" in name or "\0" in name:
        raise InvalidError(f"{name[:MAX_NAME]!r} is no name of a {kind.name}")
    return prefix_of(kind) + name


def kind_of(key: str) -> Kind[Any] | None:
    """Return the kind of a key's resource, None if it is of none."""
    _, _, rest = key.partition(ROOT)
    return BY_PLURAL.get(rest.partition("/")[0])


def encode(resource: R) -> bytes:
    """Return what the storage keeps; raise TooLargeError for more than it takes."""
    data = _ENCODER.encode(resource)
    if len(data) > MAX_VALUE_BYTES:
        name = resource.metadata.name
        raise TooLargeError(f"{name} has {len(data)} bytes, a resource at most {MAX_VALUE_BYTES}")
    return data


def decode(kind: Kind[R], stored: Stored) -> R:
    """Return a resource with its revision; raise StorageError for what is none."""
    try:
        found: R = _decoder(kind.plural).decode(stored.value)
    except MALFORMED as error:
        raise StorageError(f"{stored.key} is no {kind.name} of this version: {error}") from None
    return replace(found, metadata=replace(found.metadata, revision=stored.modified))


def decoded_as(kind: Kind[R], data: bytes) -> R:
    """Return a resource of what `encode` has made of one."""
    found: R = _decoder(kind.plural).decode(data)
    return found


def check_plain(kind: Kind[R], resource: R) -> None:
    """Raise InvalidError for a resource with a control character anywhere in it."""
    data = encode(resource)
    found = _CONTROL.search(data) if _may_have_control(data) else None
    if found is not None:
        character = ascii(found[0][len(found[1]) :].decode()).strip("'")
        raise InvalidError(f"{kind.name} {resource.metadata.name}: control character {character} in its text")


def made_plain(data: bytes) -> bytes:
    """Return an encoded resource with a replacement character for each control character."""
    return _CONTROL.sub(rb"\1" + _REPLACEMENT, data) if _may_have_control(data) else data


def _may_have_control(data: bytes) -> bool:
    # Looking for single bytes takes a hundredth of what the expression takes, and most text has none of these.
    return b"\\" in data or b"\x7f" in data or b"\xc2" in data


@cache
def _decoder(plural: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(BY_PLURAL[plural].type)
