"""Nodes and pods from the official Python client's models, and its JSON of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubernetes import client as k8s

BODIES = Path(__file__).parent / "bodies"
_API = k8s.ApiClient()


def recorded(name: str) -> bytes:
    """Return a recorded body from a kube-scheduler."""
    return (BODIES / f"{name}.json").read_bytes()


def plain(model: Any) -> Any:
    """Return a model as sent by the official client."""
    return _API.sanitize_for_serialization(model)


def written(model: Any) -> bytes:
    return json.dumps(plain(model)).encode()


def read_as(data: Any, kind: str) -> Any:
    """Return the official client's model of data."""

    class Response:
        def __init__(self) -> None:
            self.data = json.dumps(data)

    parsed = _API.deserialize(Response().data, kind, "application/json")
    assert parsed is not None
    return parsed


def a_node(
    name: str,
    host: str | None = None,
    taints: tuple[tuple[str, str], ...] = (),
    *,
    version: str = "",
    unschedulable: bool = False,
    **resources: str,
) -> k8s.V1Node:
    """Return a node; `_` in resource names stands for characters not in Python names: nvidia_com__gpu."""
    has = {"cpu": "8", "memory": "32Gi", "pods": "110"} | {_resource(key): value for key, value in resources.items()}
    return k8s.V1Node(
        api_version="v1",
        kind="Node",
        metadata=k8s.V1ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            resource_version=version or None,
            labels={} if host is None else {"millrace.io/host": host},
        ),
        spec=k8s.V1NodeSpec(
            unschedulable=unschedulable or None,
            taints=[k8s.V1Taint(key=key, effect=effect) for key, effect in taints] or None,
        ),
        status=k8s.V1NodeStatus(capacity=has, allocatable=has),
    )


def a_pod(
    name: str,
    node: str | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    tolerations: list[k8s.V1Toleration] | None = None,
    phase: str = "Pending",
    priority: int | None = None,
    **resources: str,
) -> k8s.V1Pod:
    """Return a pod with one container that requests resources."""
    wanted = {_resource(key): value for key, value in resources.items()}
    return k8s.V1Pod(
        api_version="v1",
        kind="Pod",
        metadata=k8s.V1ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            annotations=None if annotations is None else dict(annotations),
            labels=None if labels is None else dict(labels),
        ),
        spec=k8s.V1PodSpec(
            node_name=node,
            priority=priority,
            tolerations=tolerations,
            containers=[
                k8s.V1Container(name="c", image="i", resources=k8s.V1ResourceRequirements(requests=wanted or None))
            ],
        ),
        status=k8s.V1PodStatus(phase=phase),
    )


def arguments(pod: k8s.V1Pod, nodes: list[k8s.V1Node] | list[str]) -> bytes:
    """Return the body of filter and prioritize, with whole nodes or their names."""
    whole = [node for node in nodes if not isinstance(node, str)]
    names = [node for node in nodes if isinstance(node, str)]
    body = {
        "Pod": plain(pod),
        "Nodes": {"metadata": {}, "items": [plain(node) for node in whole]} if whole else None,
        "NodeNames": None if whole else names,
    }
    return json.dumps(body).encode()


def _resource(name: str) -> str:
    vendor, _, rest = name.partition("__")
    return f"{vendor.replace('_', '.')}/{rest.replace('_', '-')}" if rest else name
