"""Texts of users in what is shown of a log: one line, cut, without what looks like a credential."""

from __future__ import annotations

import re
from typing import Final

_MOST: Final = 60
_TELLING: Final = (
    r"[\w.-]*(?:secret|passw(?:or)?d|pwd|token|credential|api[_.-]?key|access[_.-]?key|private[_.-]?key|account[_.-]?key"
    r"|authorization|signature|sig)[\w.-]*"
)
# A name as in password = 'x', "token": "x" or OPTIONS (password 'x'), and its value up to the next separator.
_NAMED: Final = re.compile(
    rf"(?P<name>[\"'`]?\b{_TELLING}[\"'`]?\s*(?:(?:=>|[=:])\s*|\s(?=['\"])))(?:'[^']*'?|\"[^\"]*\"?|(?:bearer\s+|basic\s+)?[^\s,;&)]+)",
    re.IGNORECASE,
)
_IN_ADDRESS: Final = re.compile(r"(?P<scheme>\w+://)[^\s/@]+@")
_AWS: Final = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")


def shown(text: str, most: int = _MOST) -> str:
    """Return a text in one line of at most `most` letters; names that mean a credential keep no value."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[:4096]).split())
    line = _NAMED.sub(r"\g<name>***", line)
    line = _AWS.sub("***", _IN_ADDRESS.sub(r"\g<scheme>***@", line))
    return line if len(line) <= most else f"{line[: most - 3]}..."
