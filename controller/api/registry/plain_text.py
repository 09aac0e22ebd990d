"""Text that a terminal would take for commands: refused where users write it, replaced wherever else it comes from.

Looked for in what is stored, as JSON: there a control character is an escape, but for DEL and those beyond ASCII.
Tabs and ends of lines are text.
"""

from __future__ import annotations

import re
from typing import Final

from controller.api.registry.encoding import encode
from controller.api.resources import Kind
from controller.api.resources.base import R
from controller.errors import InvalidError

# An escape counts if the backslashes before it pair off; JSON writes U+0080 to U+009F as they are, in UTF-8.
_CONTROL: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:\\u00(?:0[0-8bce-f]|1[0-9a-f])|\\[bf]|\x7f|\xc2[\x80-\x9f])", re.IGNORECASE
)
# Most text has none of these, and is through in a tenth of the time.
_HINT: Final = re.compile(rb"\\[ubf]|[\x7f\xc2]")
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()


def check_plain(kind: Kind[R], resource: R) -> None:
    """Raise InvalidError for a resource with a control character anywhere in it."""
    data = encode(resource)
    found = _CONTROL.search(data) if _HINT.search(data) else None
    if found is not None:
        character = ascii(found[0][len(found[1]) :].decode()).strip("'")
        raise InvalidError(f"{kind.name} {resource.metadata.name}: control character {character} in its text")


def made_plain(data: bytes) -> bytes:
    """Return an encoded resource with a replacement character for each control character."""
    return _CONTROL.sub(rb"\1" + _REPLACEMENT, data) if _HINT.search(data) else data
