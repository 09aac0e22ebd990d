"""Pods of a group's template: their names, labels, and variables about the group."""

from __future__ import annotations

import functools
import hashlib
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Pod, PodGroup
from controller.apiserver.resources.pod import Container, PodSpec

GROUP: Final = "millrace/group"
GROUP_UID: Final = "millrace/group-uid"
INDEX: Final = "millrace/index"
TEMPLATE: Final = "millrace/template"
_OURS: Final = "millrace/"


def pod_name(group: str, index: int) -> str:
    """Return the name of a group's pod."""
    return f"{group}-{index}"


def pod_of(group: PodGroup, index: int, job_service: str | None) -> Pod:
    """Return a pod of a group's template, with the group's labels, and ours."""
    template = group.spec.template
    assert template is not None
    name, told = group.metadata.name, environment_of(group, index, job_service)
    containers = tuple(_with_variables(container, told) for container in template.containers)
    labels = {key: value for key, value in group.metadata.labels.items() if not key.startswith(_OURS)}
    labels |= {GROUP: name, GROUP_UID: group.metadata.uid, INDEX: str(index), TEMPLATE: template_hash(group)}
    spec: PodSpec = replace(template, containers=containers, group=name)
    metadata = Metadata(
        name=pod_name(name, index),
        owner=group.metadata.owner,
        project=group.metadata.project,
        part_of=name,
        labels=labels,
    )
    return Pod(metadata=metadata, spec=spec)


def environment_of(group: PodGroup, index: int, job_service: str | None) -> dict[str, str]:
    """Return the variables that describe group and job to a pod's containers; they override the template's."""
    told = {
        "MILLRACE_GROUP": group.metadata.name,
        "MILLRACE_INDEX": str(index),
        "MILLRACE_SIZE": str(group.spec.size),
    }
    job = group.spec.allreduce
    if job is None:
        return told
    service = job.service or job_service
    if service is not None:
        told["MILLRACE_JOB_SERVICE"] = service
    rank, world_size = str(index), str(group.spec.size)
    names = {"MILLRACE_RANK": rank, "MILLRACE_WORLD_SIZE": world_size, "RANK": rank, "WORLD_SIZE": world_size}
    return told | names | {"MILLRACE_JOB": job.job or group.metadata.name}


def template_hash(group: PodGroup) -> str:
    """Return a hash of a pod's template: equal for equal input of users, whatever version reads it.

    The size counts if workers get it. So does how often the group has started again: pods of an earlier start are old.
    """
    spec = group.spec
    content = [
        _without_defaults(spec.template),
        _without_defaults(spec.allreduce),
        None if spec.allreduce is None else spec.size,
    ]
    if group.status.starts_again:
        content.append(group.status.starts_again)
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:16]


def is_of(pod: Pod, group: PodGroup) -> bool:
    """Return whether a pod was created for a group, and not for an earlier one of that name."""
    return pod.spec.group == group.metadata.name and pod.metadata.labels.get(GROUP_UID) == group.metadata.uid


def index_of(pod: Pod) -> int | None:
    """Return a pod's index in its group's template."""
    index = pod.metadata.labels.get(INDEX, "")
    return int(index) if index.isascii() and index.isdecimal() else None


def _with_variables(container: Container, told: dict[str, str]) -> Container:
    return replace(container, environment=container.environment | told)


def _without_defaults(value: Any) -> Any:  # noqa: ANN401 - any part of a spec
    """Return a value without its defaults, so that a version with more keys gives the same result."""
    if isinstance(value, msgspec.Struct):
        parts = ((name, getattr(value, name), default) for name, default in _defaults(type(value)))
        return {name: _without_defaults(part) for name, part, default in parts if part != default}
    if isinstance(value, tuple):
        return [_without_defaults(part) for part in value]
    return value


@functools.cache
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """Return names and defaults of a struct's fields."""
    return tuple(
        (field.name, field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory())
        for field in msgspec.structs.fields(kind)
    )
