"""Reads a probe task's JSON quickly: the twin of `files.load`, without the libraries that name lines and keys.

The runner starts for every probe, and its imports are a good part of its time. Values check themselves.
"""

from __future__ import annotations

import json
from typing import Any, Final

from controller.probing.errors import ProbeError
from controller.probing.values import Implementation, KernelUse, Library, Link, ProbeTask, TargetRun, sizes_of
from dataplane.topology.values import DeviceKind

MAX_BYTES: Final = 8 << 20
Keys = dict[str, tuple[type, ...]]
"""Types of an object's entries; those of `_MUST` are required."""

_TEXT, _COUNT, _NUMBER = (str,), (int,), (int, float)
_PROBE: Final[Keys] = {
    "millrace": _COUNT,
    "name": _TEXT,
    "category": _TEXT,
    "uses": (list,),
    "links": (list,),
    "task_type": (str, type(None)),
    "target": _TEXT,
    "ratio": _COUNT,
    "unmatched": (list,),
    "share_matched": (int, float, type(None)),
    "seed": _COUNT,
    "format_version": _COUNT,
    "reference": (dict, type(None)),
}
_USE: Final[Keys] = {
    "name": _TEXT,
    "kernel": _TEXT,
    "version": _COUNT,
    "implementation": (dict,),
    "tolerance": _NUMBER,
    "sizes": (dict,),
    "repetitions": _COUNT,
    "executions": _COUNT,
    "operator": _TEXT,
    "scale": _NUMBER,
    "splits": _TEXT,
}
_CODE: Final[Keys] = {"device": _TEXT, "library": _TEXT, "entry": _TEXT, "threads": (bool,)}
_REFERENCE: Final[Keys] = {"cpu_time_s": _NUMBER, "kernels_s": (dict,)}
_LINK: Final[Keys] = {"src": _TEXT, "dst": _TEXT}
_MUST: Final = {
    id(_PROBE): ("millrace", "name", "category", "uses"),
    id(_USE): ("name", "kernel", "version", "implementation", "tolerance"),
    id(_CODE): ("device", "library", "entry"),
    id(_LINK): ("src", "dst"),
    id(_REFERENCE): ("cpu_time_s", "kernels_s"),
}


def read(path: str) -> ProbeTask:
    """Return the probe task in a JSON file; raise ProbeError with file and key."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes as long to import as json
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ProbeError(f"{path}: {error.strerror}") from error
    return decode(content, file=path)


def decode(content: bytes, *, file: str = "<text>") -> ProbeTask:
    """Return the probe task in JSON text; raise ProbeError with file and key."""
    if len(content) > MAX_BYTES:
        raise ProbeError(f"{file}: more than {MAX_BYTES} bytes")
    try:
        document = json.loads(content, object_pairs_hook=_once, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ProbeError(f"{file}: invalid JSON: {error}") from error
    try:
        return _probe(document)
    except ProbeError as error:
        raise ProbeError(f"{file}: {error.at}: {error.problem}" if error.at else f"{file}: {error.problem}") from None


def _probe(document: Any) -> ProbeTask:  # noqa: ANN401 - whatever the file holds
    fields = _checked(document, _PROBE, "")
    if fields["millrace"] != 1:
        raise ProbeError(f"unknown format {fields['millrace']}; known: 1", at="millrace")
    uses = tuple(_use(use, f"uses[{index}]") for index, use in enumerate(fields["uses"]))
    links = [_checked(link, _LINK, f"links[{index}]") for index, link in enumerate(fields.get("links", ()))]
    unmatched = fields.get("unmatched", ())
    if any(not isinstance(name, str) for name in unmatched):
        raise ProbeError("names must be text", at="unmatched")
    if fields.get("task_type") == "":
        raise ProbeError("must not be empty", at="task_type")
    return ProbeTask(
        fields["name"],
        fields["category"],
        uses,
        tuple(Link(link["src"], link["dst"]) for link in links),
        fields.get("task_type") or "",
        fields.get("target", ""),
        fields.get("ratio", 1000),
        tuple(unmatched),
        fields.get("share_matched"),
        fields.get("seed", 0),
        fields.get("format_version", 1),
        _reference(fields.get("reference")),
    )


def _reference(document: Any) -> TargetRun | None:  # noqa: ANN401 - whatever the file holds
    if document is None:
        return None
    fields = _checked(document, _REFERENCE, "reference")
    if any(type(value) not in _NUMBER for value in fields["kernels_s"].values()):
        raise ProbeError("seconds must be numbers", at="reference.kernels_s")
    kernels_s = {name: float(value) for name, value in fields["kernels_s"].items()}
    return TargetRun(float(fields["cpu_time_s"]), tuple(sorted(kernels_s.items())))


def _use(document: Any, at: str) -> KernelUse:  # noqa: ANN401 - whatever the file holds
    fields = _checked(document, _USE, at)
    code = _checked(fields["implementation"], _CODE, f"{at}.implementation")
    sizes = fields.get("sizes", {})
    if any(type(size) is not int for size in sizes.values()):
        raise ProbeError("sizes must be whole numbers", at=f"{at}.sizes")
    try:
        implementation = Implementation(
            DeviceKind(code["device"]), Library(code["library"]), code["entry"], code.get("threads", False)
        )
    except ValueError as error:
        raise ProbeError(str(error), at=f"{at}.implementation") from None
    try:
        return KernelUse(
            fields["name"],
            fields["kernel"],
            fields["version"],
            sizes_of(sizes),
            fields.get("repetitions", 1),
            fields.get("executions", 1),
            implementation,
            float(fields["tolerance"]),
            fields.get("operator", ""),
            float(fields.get("scale", 1.0)),
            fields.get("splits", ""),
        )
    except ProbeError as error:
        raise ProbeError(error.problem, at=f"{at}.{error.at}") from None


def _checked(document: Any, keys: Keys, at: str) -> dict[str, Any]:  # noqa: ANN401 - whatever the file holds
    """Return an object whose entries are known and of their types; raise ProbeError with the place otherwise."""
    if not isinstance(document, dict):
        raise ProbeError("must be an object", at=at)
    for name, value in document.items():
        if name not in keys:
            raise ProbeError(f"unknown key; known: {', '.join(keys)}", at=f"{at}.{name}".lstrip("."))
        if type(value) not in keys[name]:
            raise ProbeError(f"is {type(value).__name__}", at=f"{at}.{name}".lstrip("."))
    if lacking := next((name for name in _MUST[id(keys)] if name not in document), None):
        raise ProbeError(f"{lacking} is missing", at=at)
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError(f"a key appears twice: {', '.join(name for name, _ in pairs)}")
    return entries


def _refused(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")
