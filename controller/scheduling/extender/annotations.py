"""Annotations of a pod for this extender: its profile, group, peers, and the requirements on the paths to them.

    millrace.io/profile: packed
    millrace.io/group: trainer
    millrace.io/device-kind: gpu
    millrace.io/nodes: rack1-a, rack1-b
    millrace.io/peers: |
      - {host: storage-1, min_bandwidth: 1 Gbit/s, max_delay: 50 us}
      - {pod: ps-0, bytes: 40 MiB}
      - {labels: {app: ps}, min_bandwidth: 200 Mbit/s}

Peers are YAML or JSON, read strictly: unknown keys are errors. Labels and taints are matched by Kubernetes itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final, TypeVar

from msgspec import Meta

from controller.common.errors import SchedulerError
from controller.scheduling.extender import objects
from dataplane.config import Strict, loads
from dataplane.errors import ConfigError
from dataplane.topology.units import parse_delay_ns, parse_rate_bps, parse_size_bytes
from dataplane.topology.values import DeviceKind

PREFIX: Final = "millrace.io/"
_KNOWN: Final = ("peers", "nodes", "device-kind", "group", "profile")
_MOST_CHARACTERS: Final = 64 << 10
_MOST_ENTRIES: Final = 256

T = TypeVar("T")


class PeerText(Strict, frozen=True):
    """A peer as written: a host of the topology, a pod (NAME, or NAMESPACE/NAME), or all pods with labels."""

    host: str | None = None
    pod: str | None = None
    labels: Annotated[dict[str, str], Meta(min_length=1, max_length=32)] | None = None
    min_bandwidth: str | None = None
    max_delay: str | None = None
    bytes: str | None = None

    def __post_init__(self) -> None:
        if sum(part is not None for part in (self.host, self.pod, self.labels)) != 1:
            raise ValueError("a peer is either a host, a pod or labels")


@dataclass(frozen=True, slots=True)
class PeerNeed:
    """Requirements on the path to a peer, in both directions; one of host, pod (NAMESPACE/NAME) and labels is set.

    Labels match pods in `namespace`.
    """

    host: str = ""
    pod: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    namespace: str = ""
    nbytes: int = 0
    min_bps: int = 0
    max_delay_ns: int | None = None


@dataclass(frozen=True, slots=True)
class PodAnnotations:
    """Everything in a pod's annotations; empty without annotations."""

    peers: tuple[PeerNeed, ...] = ()
    nodes: tuple[str, ...] = ()
    device_kind: DeviceKind | None = None
    group: str = ""
    profile: str = ""


NOTHING: Final = PodAnnotations()


def annotations_of(pod: objects.Pod) -> PodAnnotations:
    """Return the parsed annotations of a pod; raise SchedulerError, naming pod and annotation."""
    own = {
        name.removeprefix(PREFIX): text
        for name, text in (pod.metadata.annotations or {}).items()
        if name.startswith(PREFIX)
    }
    if not own:
        return NOTHING
    if unknown := sorted(own.keys() - set(_KNOWN)):
        names = ", ".join(_KNOWN)
        raise SchedulerError(f"pod {pod.full_name}: annotation {PREFIX}{unknown[0]}: unknown; known: {names}")
    namespace = pod.metadata.namespace or "default"
    group = own.get("group", "").strip()
    return PodAnnotations(
        peers=_parsed(pod, own, "peers", lambda text: _peers(text, namespace), ()),
        nodes=_parsed(pod, own, "nodes", _names, ()),
        device_kind=_parsed(pod, own, "device-kind", lambda text: DeviceKind(text.strip()), None),
        group=f"{namespace}/{group}" if group else "",
        profile=own.get("profile", "").strip(),
    )


def matches(need: PeerNeed, pod: objects.Pod) -> bool:
    """Return whether a pod matches a peer."""
    if need.pod:
        return need.pod == pod.full_name
    labels = pod.metadata.labels or {}
    same_namespace = need.namespace == (pod.metadata.namespace or "default")
    return bool(need.labels) and same_namespace and all(labels.get(name) == value for name, value in need.labels)


def _parsed(pod: objects.Pod, own: dict[str, str], name: str, parse: Callable[[str], T], default: T) -> T:
    if (text := own.get(name)) is None:
        return default
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(f"{len(text)} characters; at most {_MOST_CHARACTERS}")
        return parse(text)
    except (ValueError, ConfigError) as error:
        problem = " ".join(str(error).split())
        raise SchedulerError(f"pod {pod.full_name}: annotation {PREFIX}{name}: {problem}") from None


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not 1 <= len(names) <= _MOST_ENTRIES:
        raise ValueError(f"{len(names)} names; 1 to {_MOST_ENTRIES} are allowed")
    return names


@lru_cache(maxsize=4096)
def _peers(text: str, namespace: str) -> tuple[PeerNeed, ...]:
    written = loads(text, tuple[PeerText, ...], file="peers")
    if len(written) > _MOST_ENTRIES:
        raise ValueError(f"{len(written)} peers; at most {_MOST_ENTRIES} are allowed")
    return tuple(_peer(peer, namespace) for peer in written)


def _peer(written: PeerText, namespace: str) -> PeerNeed:
    pod = written.pod or ""
    return PeerNeed(
        host=written.host or "",
        pod=pod if not pod or "/" in pod else f"{namespace}/{pod}",
        labels=tuple(sorted((written.labels or {}).items())),
        namespace=namespace,
        nbytes=0 if written.bytes is None else parse_size_bytes(written.bytes),
        min_bps=0 if written.min_bandwidth is None else parse_rate_bps(written.min_bandwidth),
        max_delay_ns=None if written.max_delay is None else parse_delay_ns(written.max_delay),
    )
