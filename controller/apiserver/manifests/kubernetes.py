"""Pods and Jobs of Kubernetes as ours: fields that cannot be honoured are refused by their path.

A field that is empty, or has the value that Kubernetes gives it by default, asks for nothing and is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Pod, PodGroup
from controller.apiserver.resources.base import LabelName, LabelValue, Line, Name, Priority, R, Text
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.apiserver.resources.pod import Container, Location, PodSpec, Restart
from controller.apiserver.resources.pod_group import MOST_PODS, PodGroupSpec
from controller.common.quantities import milli, whole
from dataplane.config import Document, Strict
from dataplane.topology.device_kinds import DEVICE_TRAITS
from dataplane.topology.values import DeviceKind

Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=64)]
Quantity = str | int | float
_Words = Annotated[tuple[Text, ...], Meta(max_length=256)]
_Quantities = Annotated[dict[str, Quantity], Meta(max_length=64)]
_RESTARTS: Final = {"Always": Restart.ALWAYS, "OnFailure": Restart.ON_FAILURE, "Never": Restart.NEVER}
_GRACE_S: Final = 30.0
"""Kubernetes' default of terminationGracePeriodSeconds."""
_BACKOFF_LIMIT: Final = 6
"""Kubernetes' default of backoffLimit."""
_MOST_DEVICES: Final = 256
_SLICES: Final = re.compile(r"nvidia\.com/(?:mig-.*|gpu.+)|.+-(?:memory|core)", re.ASCII)
"""Resources that count parts of devices: MIG, time slices, and HAMi's memory and cores."""
_SET_BY_SERVERS: Final = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")
_INFORMATION: Final = frozenset(
    {
        *("metadata.annotations", "spec.template.metadata.annotations", "status"),
        *(f"metadata.{name}" for name in _SET_BY_SERVERS),
    }
)
"""Fields that ask for nothing."""
_DEFAULTS: Final[Mapping[str, object]] = {
    "metadata.namespace": "default",
    "completionMode": "NonIndexed",
    "suspend": False,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "serviceAccountName": "default",
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "hostNetwork": False,
    "hostPID": False,
    "hostIPC": False,
    "preemptionPolicy": "PreemptLowerPriority",
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "stdin": False,
    "tty": False,
}
"""Values of Kubernetes' defaults that hold here, too, by the ends of paths."""
_EXPANDED: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


class _Camel(Strict, frozen=True, rename="camel"):
    """Base of Kubernetes' objects."""


class _Metadata(_Camel, frozen=True):
    name: Name
    labels: Labels = msgspec.field(default_factory=dict)


class _Variable(_Camel, frozen=True):
    name: Line
    value: Text = ""


class _Port(_Camel, frozen=True):
    """A port that a container listens at, for information."""

    container_port: int
    name: str = ""
    protocol: str = "TCP"


class _Resources(_Camel, frozen=True):
    requests: _Quantities = msgspec.field(default_factory=dict)
    limits: _Quantities = msgspec.field(default_factory=dict)


class _Container(_Camel, frozen=True):
    name: Name
    image: Line
    command: _Words = ()
    args: _Words = ()
    env: Annotated[tuple[_Variable, ...], Meta(max_length=256)] = ()
    working_dir: Line | None = None
    ports: Annotated[tuple[_Port, ...], Meta(max_length=256)] = ()
    resources: _Resources = _Resources()


class _PodSpec(_Camel, frozen=True):
    containers: Annotated[tuple[_Container, ...], Meta(min_length=1, max_length=16)]
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    node_selector: Annotated[dict[LabelName, LabelValue], Meta(max_length=32)] = msgspec.field(default_factory=dict)
    node_name: Name | None = None
    priority: Priority = 0
    termination_grace_period_seconds: Annotated[int, Meta(ge=0, le=86_400)] | None = None


class _Pod(_Camel, frozen=True):
    api_version: Literal["v1"]
    kind: Literal["Pod"]
    metadata: _Metadata
    spec: _PodSpec


class _TemplateMetadata(_Camel, frozen=True):
    labels: Labels = msgspec.field(default_factory=dict)


class _Template(_Camel, frozen=True):
    spec: _PodSpec
    metadata: _TemplateMetadata = _TemplateMetadata()


class _JobSpec(_Camel, frozen=True):
    template: _Template
    completions: Annotated[int, Meta(ge=1)] | None = None
    parallelism: Annotated[int, Meta(ge=1)] = 1
    backoff_limit: Annotated[int, Meta(ge=0)] | None = None


class _Job(_Camel, frozen=True):
    api_version: Literal["batch/v1"]
    kind: Literal["Job"]
    metadata: _Metadata
    spec: _JobSpec


_VERSIONS: Final = {"Pod": "v1", "Job": "batch/v1"}
_KINDS: Final[Mapping[str, type[_Pod | _Job]]] = {"Pod": _Pod, "Job": _Job}


def is_kubernetes(raw: object) -> bool:
    """Return whether a document is an object of Kubernetes."""
    return isinstance(raw, dict) and "apiVersion" in raw and "kind" in raw


def read_kubernetes(document: Document[Any]) -> Pod | PodGroup:
    """Return the resource that a Pod or Job describes; raise ConfigError with the path of the field."""
    raw = document.raw
    schema = _KINDS.get(raw["kind"]) if isinstance(raw["kind"], str) else None
    if schema is None:
        raise document.error(f"{str(raw['kind'])[:60]!r} is not read: Pod and Job are", "kind")
    kept = _Fields(document).kept(raw, msgspec.inspect.type_info(schema), "")
    try:
        given = msgspec.convert(kept, schema, strict=True)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        key = path.rstrip("`").lstrip(".")
        problem = problem.replace("Object ", "").replace("Expected `", "expected `")
        if problem.startswith("Invalid enum value"):
            expected = f"one of {', '.join(_RESTARTS)}" if key.endswith("restartPolicy") else _VERSIONS[raw["kind"]]
            problem = f"{problem.removeprefix('Invalid enum value ')} is not {expected}"
        raise document.error(problem, key) from None
    try:
        return _pod(document, given) if isinstance(given, _Pod) else _job(document, given)
    except (msgspec.ValidationError, ValueError) as error:
        raise document.error(str(error), "spec") from None


class _Fields:
    """Fields of a document, known ones and others."""

    def __init__(self, document: Document[Any]) -> None:
        self._document = document
        # A few lines of YAML's aliases can expand to more parts than memory holds: each is looked at once.
        self._done: dict[tuple[int, int], Any] = {}

    def kept(self, raw: Any, kind: msgspec.inspect.Type, path: str) -> Any:  # noqa: ANN401 - a part of a document
        """Return a part without the fields that ask for nothing; raise ConfigError for unknown others."""
        if isinstance(kind, msgspec.inspect.Metadata):
            return self.kept(raw, kind.type, path)
        once = id(raw), id(kind)
        if once not in self._done:
            self._done[once] = self._parts(raw, kind, path)
        return self._done[once]

    def _parts(self, raw: Any, kind: msgspec.inspect.Type, path: str) -> Any:  # noqa: ANN401 - a part of a document
        if isinstance(kind, msgspec.inspect.VarTupleType) and isinstance(raw, list):
            return [self.kept(each, kind.item_type, f"{path}[{at}]") for at, each in enumerate(raw)]
        if not isinstance(kind, msgspec.inspect.StructType) or not isinstance(raw, dict):
            return raw
        fields, kept = {field.encode_name: field.type for field in kind.fields}, {}
        for key, value in raw.items():
            where = f"{path}.{key}".lstrip(".")
            if key in fields:
                # Kubernetes writes null for what is not set.
                if value is not None:
                    kept[key] = self.kept(value, fields[key], where)
            elif value is not None and value not in ({}, [], "") and not _asks_for_nothing(where, str(key), value):
                raise self._document.error("is a field that cannot be honoured here", where)
        return kept


def _asks_for_nothing(path: str, key: str, value: object) -> bool:
    default = _DEFAULTS.get(path, _DEFAULTS.get(key))
    return path in _INFORMATION or (default is not None and type(value) is type(default) and value == default)


def _pod(document: Document[Any], given: _Pod) -> Pod:
    spec = _spec(document, given.spec, _RESTARTS[given.spec.restart_policy], "spec")
    return _checked(Pod(metadata=Metadata(name=given.metadata.name, labels=given.metadata.labels), spec=spec))


def _job(document: Document[Any], given: _Job) -> PodGroup:
    """Return a Job as a group: its pods run at the same time."""
    job, template = given.spec, given.spec.template
    size = job.parallelism if job.completions is None else min(job.parallelism, job.completions)
    if job.completions is None and job.parallelism > 1:
        problem = "without completions, one pod that succeeds ends the Job, which cannot be honoured here"
        raise document.error(problem, "spec.parallelism")
    if job.completions is not None and job.completions > size:
        problem = f"is above parallelism, {size}: pods that follow others cannot be honoured here"
        raise document.error(problem, "spec.completions")
    if size > MOST_PODS:
        raise document.error(f"{size} pods at once are more than {MOST_PODS}", "spec.parallelism")
    policy = template.spec.restart_policy
    if policy == "Always":
        raise document.error("of a Job is OnFailure or Never", "spec.template.spec.restartPolicy")
    made = _spec(document, template.spec, _RESTARTS[policy], "spec.template.spec")
    limit = _BACKOFF_LIMIT if job.backoff_limit is None else job.backoff_limit
    if limit and (size > 1 or len(made.containers) > 1):
        if job.backoff_limit is not None:
            problem = "counts failures of all pods and containers together, which are counted one by one here"
            raise document.error(problem, "spec.backoffLimit")
    elif limit or policy == "OnFailure":
        made = replace(made, restart=Restart.ON_FAILURE, restart_limit=limit)
    spec = PodGroupSpec(size=size, template=made)
    labels = {**given.metadata.labels, **template.metadata.labels}
    return _checked(PodGroup(metadata=Metadata(name=given.metadata.name, labels=labels), spec=spec))


def _spec(document: Document[Any], given: _PodSpec, restart: Restart, key: str) -> PodSpec:
    grace = given.termination_grace_period_seconds
    containers = [_container(document, each, f"{key}.containers[{at}]") for at, each in enumerate(given.containers)]
    return PodSpec(
        containers=tuple(containers),
        request=_request(document, given, key),
        location=None if given.node_name is None else Location(node=given.node_name),
        node_labels=given.node_selector,
        priority=given.priority,
        restart=restart,
        stop_grace_s=_GRACE_S if grace is None else float(grace),
    )


def _container(document: Document[Any], given: _Container, key: str) -> Container:
    if given.args and not given.command:
        problem = "without a command they follow the image's entry point, which is not kept here: write its command"
        raise document.error(problem, f"{key}.args")
    environment: dict[str, str] = {}
    for variable in given.env:  # which may use those before it
        environment[variable.name] = _expanded(variable.value, environment)
    container = Container(
        name=given.name,
        image=given.image,
        command=tuple(_expanded(word, environment) for word in (*given.command, *given.args)),
        environment=environment,
        working_folder=given.working_dir or None,
    )
    if (wrong := container.problem()) is not None:
        name = {"environment": "env", "working_folder": "workingDir"}.get(wrong[0], wrong[0])
        raise document.error(wrong[1], f"{key}.{name}")
    return container


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with $(NAME) replaced by variables, as Kubernetes does; $$ is a plain $."""
    return _EXPANDED.sub(lambda match: environment.get(match[1], match[0]) if match[1] else "$", text)


def _request(document: Document[Any], given: _PodSpec, key: str) -> Request:
    """Return what all containers hold: of each its limit, which it may use, else its request."""
    cpu = memory = 0
    devices: dict[DeviceKind, int] = {}
    for at, container in enumerate(given.containers):
        where = f"{key}.containers[{at}].resources"
        for name, quantity, path in _wanted(container.resources, where):
            try:
                if name == "cpu":
                    cpu += milli(quantity)
                elif name == "memory":
                    memory += whole(quantity)
                elif (count := whole(quantity)) > 0:
                    kind = _device(document, name, path)
                    if milli(quantity) != 1000 * count:
                        raise document.error(f"{quantity} is not a whole number of devices", path)
                    devices[kind] = devices.get(kind, 0) + count
            except ValueError as error:
                raise document.error(str(error), path) from None
    for kind, count in devices.items():
        if count > _MOST_DEVICES:
            raise document.error(f"{count} devices of kind {kind} are more than {_MOST_DEVICES}", f"{key}.containers")
    needs = tuple(DeviceNeed(kind=kind, count=count) for kind, count in devices.items())
    return msgspec.convert(msgspec.to_builtins(Request(cpu_milli=cpu, memory_bytes=memory, devices=needs)), Request)


def _wanted(resources: _Resources, path: str) -> Iterator[tuple[str, Quantity, str]]:
    for name in dict.fromkeys((*resources.limits, *resources.requests)):
        part = "limits" if name in resources.limits else "requests"
        yield name, getattr(resources, part)[name], f"{path}.{part}.{name}"


def _device(document: Document[Any], name: str, path: str) -> DeviceKind:
    """Return the kind of a device plugin's resource; raise ConfigError for others and for parts of devices."""
    if _SLICES.fullmatch(name):
        problem = "counts parts of devices: a manifest of Millrace requests a `share` and `memory` of one"
        raise document.error(problem, path)
    for kind, traits in DEVICE_TRAITS.items():
        for known in traits.resources:
            if name == known or (known.endswith("*") and name.startswith(known[:-1])):
                return kind
    raise document.error("is a resource that cannot be honoured here", path)


def _checked(made: R) -> R:
    return msgspec.convert(msgspec.to_builtins(made), type(made))
