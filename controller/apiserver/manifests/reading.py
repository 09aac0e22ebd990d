"""Parse manifests into resources: every error names file, line, key and the expected form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from controller.apiserver.manifests.kubernetes import is_kubernetes, read_kubernetes
from controller.apiserver.manifests.quantities import NEVER, IdleLimit, Quantity
from controller.apiserver.manifests.schema import (
    ContainerScript,
    DeviceScript,
    GroupScript,
    PeerScript,
    PodScript,
    RequestedKind,
    Script,
    TemplateScript,
)
from controller.apiserver.manifests.values import Scripted
from controller.apiserver.resources import Metadata, Pod, PodGroup
from controller.apiserver.resources.base import R
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.apiserver.resources.operator_graphs import graph_of_operators
from controller.apiserver.resources.pod import Container, Location, PeerNeed, PodSpec, Restart, location_problem
from controller.apiserver.resources.pod_group import PodGroupSpec
from controller.apiserver.resources.task import OperatorCount
from controller.cluster.hardware import ACCELERATORS
from controller.cluster.operators import OperatorError
from dataplane.config import Document, loads_documents
from dataplane.errors import ConfigError
from dataplane.given import read_given_text
from dataplane.topology.values import DeviceKind

MAIN: Final = "main"
"""Default name of the only container."""
_OF_CONTAINER: Final = ("image", "bundle", "command", "environment", "working_folder")
_NAME_RULE: Final = re.compile(r"expected `str` matching regex '\^\[a-z0-9\].*'")
_LABEL_RULE: Final = re.compile(r"expected `str` matching regex .*")
MOST_BYTES: Final = 8 << 20


def read_file(path: Path) -> tuple[Scripted, ...]:
    """Return the resources in a file, in order; raise ConfigError."""
    try:
        text = read_given_text(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(error.strerror or "cannot be read", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=str(path)) from error
    return read_text(text, str(path))


def read_text(text: str, file: str = "<text>") -> tuple[Scripted, ...]:
    """Return the resources in a text of YAML documents, in order; raise ConfigError."""
    try:
        documents = loads_documents(text, Script, file=file, decode=quantity, is_foreign=is_kubernetes)
    except ConfigError as error:
        problem = _NAME_RULE.sub("is not a name: use lower-case letters, digits, dots and hyphens", error.problem)
        problem = _LABEL_RULE.sub("is not a label: use letters, digits and ._/-", problem)
        raise ConfigError(problem, file=error.file, line=error.line, key=error.key) from error
    resources = tuple(_scripted(document) for document in documents)
    if not resources:
        raise ConfigError("it contains neither a pod nor a group", file=file)
    _check_names(resources)
    return resources


def quantity(kind: type, raw: Any) -> Any:  # noqa: ANN401 - what msgspec does not know
    """Return a quantity with its unit, as a msgspec decoding hook."""
    if issubclass(kind, Quantity):
        return kind.read(raw)
    raise NotImplementedError(kind)


def _scripted(document: Document[Script]) -> Scripted:
    if is_kubernetes(document.raw):
        return Scripted(read_kubernetes(document), document.file, document.line_of("apiVersion") or 1)
    pod, group = document.value.pod, document.value.group
    if (pod is None) == (group is None):
        raise document.error("a document contains either `pod` or `group`", "pod" if pod is not None else "")
    resource: Pod | PodGroup
    if pod is not None:
        resource, key = _pod(document, pod), "pod"
    else:
        assert group is not None
        resource, key = _group(document, group), "group"
    return Scripted(resource, document.file, document.line_of(key) or 1)


def _check_names(resources: tuple[Scripted, ...]) -> None:
    first: dict[str, Scripted] = {}
    for scripted in resources:
        before = first.setdefault(scripted.name, scripted)
        if before is not scripted:
            raise ConfigError(
                f"is already in line {before.line}", file=scripted.file, line=scripted.line, key=scripted.name
            )


def _pod(document: Document[Script], pod: PodScript) -> Pod:
    spec = _spec(document, pod, "pod", group=pod.group)
    return _checked(document, "pod", Pod(metadata=Metadata(name=pod.name, labels=pod.labels), spec=spec))


def _group(document: Document[Script], group: GroupScript) -> PodGroup:
    if group.template is not None and group.template.labels:
        raise document.error("the workload controller sets the labels of a template's pods", "group.template.labels")
    template = None if group.template is None else _spec(document, group.template, "group.template", group=None)
    try:
        spec = PodGroupSpec(
            size=group.size,
            priority=group.priority,
            wait_s=None if group.wait is None else group.wait.value,
            template=template,
            allreduce=group.allreduce,
            on_failure=group.on_failure,
        )
    except ValueError as error:
        raise document.error(str(error), "group") from None
    resource = PodGroup(metadata=Metadata(name=group.name, labels=group.labels), spec=spec)
    return _checked(document, "group", resource)


def _spec(document: Document[Script], script: TemplateScript, key: str, *, group: str | None) -> PodSpec:
    containers = tuple(_containers(document, script, key))
    request = Request(
        cpu_milli=0 if script.cpu is None else script.cpu.value,
        memory_bytes=0 if script.memory is None else script.memory.value,
        devices=tuple(_device(document, need, f"{key}.devices[{at}]") for at, need in enumerate(script.devices)),
    )
    required = script.location
    location = (
        None
        if required is None
        else Location(node=required.node, device=required.device, device_kind=required.device_kind)
    )
    if location == Location():
        raise document.error("is empty: give node, device or device_kind", f"{key}.location")
    told: dict[str, Any] = {} if script.stop_grace is None else {"stop_grace_s": script.stop_grace.value}
    if script.restart_limit is not None and script.restart is not Restart.ON_FAILURE:
        raise document.error("belongs to `restart: on-failure`", f"{key}.restart_limit")
    spec = PodSpec(
        containers=containers,
        request=request,
        location=location,
        node_labels=script.node_labels,
        peers=tuple(_peer(document, peer, f"{key}.peers[{at}]") for at, peer in enumerate(script.peers)),
        priority=script.priority,
        idle_limit_s=_idle_limit(script.idle_limit),
        restart=script.restart,
        restart_limit=script.restart_limit,
        group=group,
        profile=script.profile,
        operators=_operators(document, script, key),
        **told,
    )
    if why := location_problem(spec):
        raise document.error(why, f"{key}.location.device_kind")
    return spec


def _idle_limit(limit: IdleLimit | None) -> float | Literal["never"] | None:
    if limit is None:
        return None
    return NEVER if math.isinf(limit.value) else limit.value


def _operators(document: Document[Script], script: TemplateScript, key: str) -> tuple[OperatorCount, ...]:
    """Return a pod's operators; raise ConfigError if they form no valid graph."""
    try:
        graph_of_operators("pod", script.operators)
    except OperatorError as error:
        raise document.error(error.problem, f"{key}.operators") from None
    return script.operators


def _containers(document: Document[Script], script: TemplateScript, key: str) -> Iterator[Container]:
    """Yield the container described by a pod's own keys, or those below `containers`."""
    own = next((name for name in _OF_CONTAINER if getattr(script, name)), None)
    if own is not None and script.containers:
        raise document.error("belongs below a container where `containers` is given", f"{key}.{own}")
    parts = script.containers or (
        ContainerScript(
            name=MAIN,
            image=script.image,
            bundle=script.bundle,
            command=script.command,
            environment=script.environment,
            working_folder=script.working_folder,
        ),
    )
    seen: set[str] = set()
    for at, part in enumerate(parts):
        where = f"{key}.containers[{at}]" if script.containers else key
        if (part.image is None) == (part.bundle is None):
            problem = "has either `image` or `bundle`, not both" if part.image else "needs `image` or `bundle`"
            raise document.error(problem, where)
        if part.name in seen:
            raise document.error(f"there is already a container {part.name}", f"{where}.name")
        seen.add(part.name)
        container = msgspec.convert(msgspec.to_builtins(part), Container)
        if (wrong := container.problem()) is not None:
            raise document.error(wrong[1], f"{where}.{wrong[0]}")
        yield container


def _device(document: Document[Script], need: DeviceScript, key: str) -> DeviceNeed:
    kinds = _kinds(document, need, key)
    if need.count is not None and need.share is not None:
        raise document.error("applies to one device: give either `count` or `share`", f"{key}.share")
    if need.model is not None and need.models:
        raise document.error("give either `model` or `models`", f"{key}.models")
    return DeviceNeed(
        kind=kinds[0] if len(kinds) == 1 else None,
        any_of=() if len(kinds) == 1 else kinds,
        count=need.count or 1,
        thousandths=1000 if need.share is None else need.share.value,
        models=need.models if need.model is None else (need.model,),
        memory_bytes=0 if need.memory is None else need.memory.value,
    )


def _kinds(document: Document[Script], need: DeviceScript, key: str) -> tuple[DeviceKind, ...]:
    """Return the acceptable kinds of a request for devices."""
    if (need.kind is None) == (not need.any_of):
        problem = "give either `kind` or `any_of`" if need.any_of else "needs `kind` or `any_of`"
        raise document.error(problem, f"{key}.any_of" if need.any_of else key)
    if need.kind is RequestedKind.ANY:
        return ACCELERATORS
    kinds = need.any_of if need.kind is None else (DeviceKind(need.kind.value),)
    for at, kind in enumerate(kinds):
        where = f"{key}.any_of[{at}]" if need.any_of else f"{key}.kind"
        if kind is DeviceKind.CPU:
            raise document.error("request cores by `cpu`", where)
        if kind in kinds[:at]:
            raise document.error(f"{kind} appears twice", where)
    return tuple(kind for kind in ACCELERATORS if kind in kinds)


def _peer(document: Document[Script], peer: PeerScript, key: str) -> PeerNeed:
    if (peer.pod is None) == (peer.host is None):
        raise document.error("a peer is either a `pod` or a `host`", key)
    return PeerNeed(
        pod=peer.pod,
        host=peer.host,
        min_bps=0 if peer.min_bandwidth is None else peer.min_bandwidth.value,
        max_delay_ns=None if peer.max_delay is None else peer.max_delay.value,
    )


def _checked(document: Document[Script], key: str, made: R) -> R:
    """Return a resource that passes the API server's schema; raise ConfigError with its message."""
    try:
        return msgspec.convert(msgspec.to_builtins(made), type(made))
    except msgspec.ValidationError as error:
        raise document.error(str(error), key) from None
