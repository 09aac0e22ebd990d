"""Settings of the scheduler extender."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, field

from controller.apiserver.settings import Positive, PositiveS, TlsSettings, is_own
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.common.http_server import HttpLimits
from controller.scheduling.pods import PodProfileSettings
from controller.scheduling.settings import MetricsSettings
from dataplane.config import Settings, Strict
from dataplane.rpc.addresses import is_unix
from dataplane.topology.device_kinds import DEVICE_TRAITS
from dataplane.topology.values import DeviceKind

SCHEDULERS: Final = ("system:kube-scheduler", "kube-scheduler", "millrace-scheduler")
ADDRESS: Final = "127.0.0.1:8888"
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


class DeviceResource(Strict, frozen=True):
    """An extended resource counted by a device plugin, and the device kind of one unit."""

    resource: Annotated[str, Meta(min_length=1, max_length=317)]
    """Its name; a trailing `*` matches all names with that prefix."""

    kind: DeviceKind

    def is_of(self, name: str) -> bool:
        """Return whether a resource name matches."""
        return name.startswith(self.resource[:-1]) if self.resource.endswith("*") else name == self.resource


DEVICES: Final = tuple(
    DeviceResource(resource=resource, kind=kind)
    for kind, traits in DEVICE_TRAITS.items()
    for resource in traits.resources
)
"""Resources of well-known device plugins."""


class KubernetesSettings(Settings, frozen=True):
    """The API server. Without `server` it is the cluster's own, with the pod's service account."""

    server: str | None = None
    """https://HOST:PORT; http only to loopback, as `kubectl proxy` serves it."""

    ca: str | None = f"{_ACCOUNT}/ca.crt"
    """PEM file of the authority that signed its certificate; null: the system's trusted authorities."""

    token_file: str | None = f"{_ACCOUNT}/token"
    """File of the bearer token, read again when it changes; null: none."""

    certificate: str | None = None
    """PEM file of the client certificate, used instead of a token."""

    private_key: str | None = None
    """PEM file of its key."""

    timeout_s: PositiveS = 3.0
    """Timeout of a call; shorter than kube-scheduler's for a binding."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together")
        if self.server is not None and not self.server.startswith("https://") and not _is_local(self.server):
            raise ValueError(f"server: {self.server} is neither https://HOST:PORT nor http on loopback")


class ExtenderLimits(Settings, frozen=True):
    """Limits of the extender."""

    request_bytes: Positive = 128 << 20
    """The largest body: 5,000 whole nodes of 25 KiB."""

    nodes: Positive = 10_000
    """Maximum number of nodes in one request."""

    header_bytes: Positive = 16 << 10
    head_s: PositiveS = 10.0
    """Maximum time for the head of a request, and for the TLS handshake."""
    body_s: PositiveS = 5.0
    """Maximum time for the body."""
    send_s: PositiveS = 5.0
    """A client that reads nothing of an answer for this long is disconnected."""
    idle_s: PositiveS = 120.0
    connections: Positive = 32
    """Maximum number of simultaneous connections; more are answered with 503."""
    answer_s: PositiveS = 4.0
    """Deadline of a decision, after which the answer is an error: less than kube-scheduler's httpTimeout."""

    settle_s: Annotated[float, Meta(ge=0, le=60)] = 0.5
    """Time for which a pod with peers waits for pods decided before it to be on their nodes."""

    @property
    def http(self) -> HttpLimits:
        """Limits of connections."""
        return HttpLimits(self.header_bytes, self.head_s, self.send_s, self.idle_s, self.connections)


class ExtenderSettings(Settings, frozen=True):
    """Contents of the settings file of `millrace scheduler extend`."""

    listen: str = ADDRESS
    """HOST:PORT, or unix:PATH. Addresses other than loopback need `tls`, with `client_ca` or a `token_file`."""

    tls: TlsSettings | None = None
    """The server's certificate; with `client_ca`, callers must present one signed by this authority."""

    certificate_check_s: PositiveS = 60.0
    """Interval at which the certificate files are checked; they are reloaded after a change."""

    token_file: str | None = None
    """File of a secret that callers must present: as a bearer token, or as the password of the URL's user."""

    callers: Annotated[tuple[str, ...], Meta(min_length=1, max_length=64)] | None = None
    """With a `client_ca`, the certificate names (common, DNS or URI) that may call.

    Null: those of a kube-scheduler, "system:kube-scheduler", "kube-scheduler" and "millrace-scheduler", or with a
    `token_file` any.
    """

    kubernetes: KubernetesSettings | None = None
    """The API server, to follow nodes and pods and to bind; null: only the contents of a request are known."""

    topology: str | None = None
    """A topology file, or the name of a bundled one: the network between nodes; null: the network is unknown."""

    network: NetworkStateSettings | None = None
    """Source of the network's state; null: the topology's nominal figures."""

    host_label: str | None = None
    """The label with the name of a node's host in the topology; null: nodes are named like their hosts."""

    profiles: Annotated[tuple[PodProfileSettings, ...], Meta(min_length=1)] = field(
        default_factory=lambda: (PodProfileSettings(),)
    )
    """Ways to decide; a pod names its own by an annotation, else the first applies."""

    devices: tuple[DeviceResource, ...] = ()
    """Resources of device plugins in addition to the well-known ones; the first match of a name counts."""

    stretch: bool = False
    """Scores from 0 for the worst node to 10 for the best, instead of their share of the maximum points."""

    limits: ExtenderLimits = msgspec.field(default_factory=ExtenderLimits)

    metrics: MetricsSettings | None = None
    """Address of the Prometheus metrics; null: none."""

    explained_nodes: Annotated[int, Meta(ge=1, le=1024)] = 64
    """Number of refused nodes in an answer with their own reason; the others get the policy's name."""

    kept_decisions: Annotated[int, Meta(ge=1, le=100_000)] = 1024
    """Number of newest pods whose decision GET /pods/NAMESPACE/NAME returns."""

    @property
    def names(self) -> frozenset[str] | None:
        """Names of certificates that may call, None if certificates are not requested or any may call."""
        if is_unix(self.listen) or self.tls is None or self.tls.client_ca is None:
            return None
        if self.callers is None:
            return frozenset(SCHEDULERS) if self.token_file is None else None
        return frozenset(self.callers)

    @property
    def is_open(self) -> bool:
        """True if anyone who can connect over TCP may call."""
        return not is_unix(self.listen) and self.token_file is None and self.names is None

    def __post_init__(self) -> None:
        if self.callers is not None and (self.tls is None or self.tls.client_ca is None):
            raise ValueError("callers: certificate names need a client_ca in tls")
        if is_own(self.listen):
            return
        if self.tls is None or (self.tls.client_ca is None and self.token_file is None):
            raise ValueError(f"listen: others can reach {self.listen}: it needs tls, and a client_ca or a token_file")


def _is_local(server: str) -> bool:
    return server.startswith("http://") and is_own(server.removeprefix("http://").rstrip("/"))
