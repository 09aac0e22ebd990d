"""Write resources as manifests that `reading` parses into the same resources."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from controller.apiserver.manifests.quantities import (
    NEVER,
    delay_text,
    duration_text,
    milli_text,
    rate_text,
    size_text,
)
from controller.apiserver.manifests.reading import MAIN
from controller.apiserver.resources import Pod, PodGroup
from controller.apiserver.resources.hardware import DeviceNeed
from controller.apiserver.resources.pod import Container, PeerNeed, PodSpec
from controller.apiserver.resources.pod_group import OnFailure
from controller.apiserver.resources.task import OperatorCount
from controller.cluster.hardware import ACCELERATORS

_DEFAULT_GRACE_S = next(field.default for field in msgspec.structs.fields(PodSpec) if field.name == "stop_grace_s")


def script_of(resource: Pod | PodGroup) -> str:
    """Return a resource as a manifest document, without defaults."""
    content = {"pod": _pod(resource)} if isinstance(resource, Pod) else {"group": _group(resource)}
    text: str = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return text


def _pod(pod: Pod) -> dict[str, Any]:
    named = {"name": pod.metadata.name, "labels": pod.metadata.labels, "group": pod.spec.group}
    return _given({**named, **_template(pod.spec)})


def _group(group: PodGroup) -> dict[str, Any]:
    spec = group.spec
    return _given(
        {
            "name": group.metadata.name,
            "labels": group.metadata.labels,
            "size": spec.size,
            "priority": spec.priority,
            "on_failure": None if spec.on_failure is OnFailure.POD else spec.on_failure.value,
            "wait": None if spec.wait_s is None else duration_text(spec.wait_s),
            "template": None if spec.template is None else _template(spec.template),
        }
    ) | ({} if spec.allreduce is None else {"allreduce": _given(msgspec.to_builtins(spec.allreduce))})


def _template(spec: PodSpec) -> dict[str, Any]:
    request, location = spec.request, spec.location
    alone = len(spec.containers) == 1 and spec.containers[0].name == MAIN
    return _given(
        {
            **(_container(spec.containers[0]) if alone else {}),
            "containers": []
            if alone
            else [{"name": container.name, **_container(container)} for container in spec.containers],
            "cpu": milli_text(request.cpu_milli),
            "memory": size_text(request.memory_bytes) if request.memory_bytes else None,
            "devices": [_device(need) for need in request.devices],
            "location": None if location is None else _given(msgspec.to_builtins(location), zero=True),
            "node_labels": spec.node_labels,
            "peers": [_peer(peer) for peer in spec.peers],
            "priority": spec.priority,
            "restart": None if spec.restart.value == "always" else spec.restart.value,
            "profile": None if spec.profile == "default" else spec.profile,
            "operators": [_operator(operator) for operator in spec.operators],
        }
    ) | {**_times(spec), **({} if spec.restart_limit is None else {"restart_limit": spec.restart_limit})}


def _times(spec: PodSpec) -> dict[str, Any]:
    limit = spec.idle_limit_s
    times = {} if limit is None else {"idle_limit": limit if limit == NEVER else duration_text(limit)}
    if spec.stop_grace_s != _DEFAULT_GRACE_S:
        times["stop_grace"] = duration_text(spec.stop_grace_s)
    return times


def _container(container: Container) -> dict[str, Any]:
    return _given({name: part for name, part in msgspec.to_builtins(container).items() if name != "name"})


def _device(need: DeviceNeed) -> dict[str, Any]:
    whole = need.thousandths == 1000
    return _given(
        {
            "kind": "any" if need.kinds == ACCELERATORS else need.kind and need.kind.value,
            "any_of": [kind.value for kind in need.any_of] if need.kinds != ACCELERATORS else [],
            "count": need.count if whole else None,
            "share": None if whole else milli_text(need.thousandths),
            "models": list(need.models),
            "memory": size_text(need.memory_bytes) if need.memory_bytes else None,
        }
    )


def _operator(count: OperatorCount) -> dict[str, Any]:
    written, plain = (
        msgspec.to_builtins(each) for each in (count, OperatorCount(name=count.name, operator=count.operator))
    )
    others = {key: value for key, value in written.items() if value != plain[key]}
    return {"name": count.name, "operator": count.operator, **others}


def _peer(peer: PeerNeed) -> dict[str, Any]:
    return _given(
        {
            "pod": peer.pod,
            "host": peer.host,
            "min_bandwidth": rate_text(peer.min_bps) if peer.min_bps else None,
            "max_delay": None if peer.max_delay_ns is None else delay_text(peer.max_delay_ns),
        }
    )


def _given(parts: dict[str, Any], *, zero: bool = False) -> dict[str, Any]:
    """Return the non-empty parts; with `zero`, also those that are 0."""
    return {name: part for name, part in parts.items() if part or (zero and part == 0 and part is not None)}
