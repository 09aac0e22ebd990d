"""Files of probe tasks, YAML or JSON, and their resource in the API: strict, errors with file, line and key; and back.

A file is the resource's spec with its name and `millrace`, the version of the format, before it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from controller.apiserver.resources.base import Name
from controller.apiserver.resources.probe_task import KernelUseSpec, ProbeTaskSpec, TargetRunSpec
from controller.probing.errors import ProbeError
from controller.probing.values import Implementation, KernelUse, Library, Link, ProbeTask, TargetRun, sizes_of
from dataplane.config import Document, load_document, loads_document


class ProbeTaskFile(ProbeTaskSpec, frozen=True, kw_only=True):
    """A file; `millrace` is the version of the format."""

    millrace: Literal[1]
    name: Name


def load(path: Path) -> ProbeTask:
    """Return the probe task in a file; raise ConfigError with file, line and key."""
    return _resolve(load_document(path, ProbeTaskFile))


def loads(text: str, *, file: str = "<text>") -> ProbeTask:
    """Return the probe task in YAML or JSON text (it starts with {); raise ConfigError with file, line and key."""
    return _resolve(loads_document(text, ProbeTaskFile, file=file, as_json=text.lstrip().startswith("{")))


def dumps(probe: ProbeTask, *, as_json: bool = False) -> str:
    """Return the probe task as text that `loads` reads back as an equal value."""
    document = {"millrace": 1, "name": probe.name, **_document(probe)}
    if as_json:
        return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"
    import yaml  # noqa: PLC0415 - the runner reads JSON

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=4096)
    return text


def of_spec(name: str, spec: ProbeTaskSpec) -> ProbeTask:
    """Return the probe task that a resource of that name holds; raise ProbeError with the place of a wrong value."""
    uses = []
    for index, use in enumerate(spec.uses):
        try:
            uses.append(_use(use))
        except ProbeError as error:
            raise ProbeError(error.problem, at=f"uses[{index}].{error.at}") from None
    return ProbeTask(
        name,
        spec.category,
        tuple(uses),
        tuple(Link(link.src, link.dst) for link in spec.links),
        spec.task_type or "",
        spec.target,
        spec.ratio,
        spec.unmatched,
        spec.share_matched,
        spec.seed,
        spec.format_version,
        _reference(spec.reference),
    )


def to_spec(probe: ProbeTask) -> ProbeTaskSpec:
    """Return the spec of a probe task's resource."""
    return msgspec.convert(_document(probe), ProbeTaskSpec)


def _resolve(document: Document[ProbeTaskFile]) -> ProbeTask:
    try:
        return of_spec(document.value.name, document.value)
    except ProbeError as error:
        raise document.error(error.problem, error.at) from None


def _use(spec: KernelUseSpec) -> KernelUse:
    code = spec.implementation
    return KernelUse(
        spec.name,
        spec.kernel,
        spec.version,
        sizes_of(spec.sizes),
        spec.repetitions,
        spec.executions,
        Implementation(code.device, Library(code.library), code.entry, code.threads),
        spec.tolerance,
        spec.operator,
        spec.scale,
        spec.splits,
    )


def _reference(spec: TargetRunSpec | None) -> TargetRun | None:
    return None if spec is None else TargetRun(spec.cpu_time_s, tuple(sorted(spec.kernels_s.items())))


def _document(probe: ProbeTask) -> dict[str, Any]:
    """Return a probe task as plain data, without values that equal the defaults."""
    document = {
        "category": probe.category,
        "task_type": probe.task_type or None,
        "target": probe.target or None,
        "ratio": probe.ratio,
        "seed": probe.seed or None,
        "uses": [_use_document(use) for use in probe.uses],
        "links": [{"src": link.src, "dst": link.dst} for link in probe.links],
        "unmatched": list(probe.unmatched) or None,
        "share_matched": probe.share_matched,
        "format_version": probe.format_version,
        "reference": None if (reference := probe.reference) is None else _reference_document(reference),
    }
    return {key: value for key, value in document.items() if value is not None}


def _reference_document(reference: TargetRun) -> dict[str, Any]:
    return {"cpu_time_s": reference.cpu_time_s, "kernels_s": dict(reference.kernels_s)}


def _use_document(use: KernelUse) -> dict[str, Any]:
    document = {
        "name": use.name,
        "kernel": use.kernel,
        "version": use.version,
        "sizes": dict(use.sizes),
        "repetitions": use.repetitions,
        "executions": use.executions,
        "tolerance": use.tolerance,
        "implementation": _implementation_document(use.implementation),
        "operator": use.operator or None,
        "scale": None if use.scale == 1 else use.scale,
        "splits": use.splits or None,
    }
    return {key: value for key, value in document.items() if value is not None}


def _implementation_document(code: Implementation) -> dict[str, Any]:
    document: dict[str, Any] = {"device": code.device.value, "library": code.library.value, "entry": code.entry}
    return document | ({"threads": True} if code.threads else {})
