"""gNMI paths as values: read from and written to `gnmi.Path` (gNMI, section 2.2.2), and as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from finsy.proto import gnmi

from dataplane.switch.gnmi.errors import invalid, unimplemented

ORIGIN: Final = "openconfig"
ANY: Final = "*"
"""Matches any one element's name, or any value of a key."""
ANY_DEPTH: Final = "..."
"""Matches any number of elements."""

MAX_ELEMENTS: Final = 32
MAX_KEYS: Final = 4
MAX_TEXT: Final = 256
"""Bounds on the contents of a path; far above the tree's needs."""


@dataclass(frozen=True, slots=True)
class Step:
    """One element of a path and its keys; in a pattern, an omitted key matches every value."""

    name: str
    keys: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name + "".join(f"[{name}={value}]" for name, value in sorted(self.keys.items()))


Path = tuple[Step, ...]


def read_path(path: gnmi.Path, prefix: gnmi.Path | None = None) -> Path:
    """Return prefix and path joined; raise GnmiError if it is not one of our paths."""
    parts = (path,) if prefix is None else (prefix, path)
    for part in parts:
        if part.element:
            raise unimplemented("a path of strings (gNMI before 0.4): use elem")
        if part.origin not in {"", ORIGIN}:
            raise unimplemented(f"origin {_shortened(part.origin)!r}: the paths here are of origin {ORIGIN!r}")
    if path.target:
        raise invalid("a target goes into the prefix, not into a path")
    steps = tuple(_read_step(elem) for part in parts for elem in part.elem)
    if len(steps) > MAX_ELEMENTS:
        raise invalid(f"a path of {len(steps)} elements: at most {MAX_ELEMENTS} are read")
    return steps


def write_path(path: Path) -> gnmi.Path:
    """Return a path as a gNMI message."""
    return gnmi.Path(elem=[gnmi.PathElem(name=step.name, key=step.keys) for step in path])


def text_of(path: Sequence[Step]) -> str:
    """Return a path as people write it: `/interfaces/interface[name=eth0]/state`."""
    return "/" + "/".join(map(str, path))


def shown(path: Sequence[Step]) -> str:
    """Return a path for a one-line message, truncated if long."""
    return _shortened(text_of(path), 200)


def _read_step(elem: gnmi.PathElem) -> Step:
    keys = dict(elem.key)
    if not elem.name:
        raise invalid("a path has an element without a name")
    if len(keys) > MAX_KEYS:
        raise invalid(f"path element {_shortened(elem.name)!r} has {len(keys)} keys: no list here has so many")
    for text in (elem.name, *keys, *keys.values()):
        if len(text) > MAX_TEXT or not text.isprintable():
            raise invalid(f"a path holds {_shortened(text)!r}, which is not a valid name here")
    return Step(elem.name, keys)


def _shortened(text: str, longest: int = 32) -> str:
    return text if len(text) <= longest else f"{text[:longest]}..."
