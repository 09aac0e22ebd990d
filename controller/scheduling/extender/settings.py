"""Settings of the scheduler extender."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, field

from controller.apiserver.settings import Positive, PositiveS, TlsSettings, is_own
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.common.http_server import HttpLimits
from controller.scheduling.framework.profiles import ProfileSettings
from controller.scheduling.settings import MetricsSettings
from dataplane.config import Strict
from dataplane.rpc.addresses import is_unix
from dataplane.topology.values import DeviceKind

SCHEDULERS: Final = ("system:kube-scheduler", "kube-scheduler", "millrace-scheduler")
ADDRESS: Final = "127.0.0.1:8888"
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


class DeviceResource(Strict, frozen=True):
    """An extended resource that a device plugin counts, and what kind of device one of it is."""

    resource: Annotated[str, Meta(min_length=1, max_length=317)]
    """Its name; with a `*` at the end all that begin so."""

    kind: DeviceKind

    def is_of(self, name: str) -> bool:
        """Return whether a resource of this name is meant."""
        return name.startswith(self.resource[:-1]) if self.resource.endswith("*") else name == self.resource


DEVICES: Final = tuple(
    DeviceResource(resource=resource, kind=kind)
    for kind, resources in (
        (
            DeviceKind.GPU,
            ("nvidia.com/gpu*", "nvidia.com/mig-*", "amd.com/gpu*", "gpu.intel.com/i915", "gpu.intel.com/xe"),
        ),
        (DeviceKind.TPU, ("google.com/tpu",)),
        (
            DeviceKind.NPU,
            ("habana.ai/gaudi", "huawei.com/Ascend*", "huawei.com/npu", "aws.amazon.com/neuron*", "qualcomm.com/qaic"),
        ),
        (DeviceKind.FPGA, ("xilinx.com/fpga-*", "amd.com/xilinx_*", "fpga.intel.com/*")),
    )
    for resource in resources
)
"""Resources of device plugins that are known without being told."""


class KubernetesSettings(Strict, frozen=True):
    """The API server. Without `server` it is the cluster's own, by the pod's service account."""

    server: str | None = None
    """https://HOST:PORT; http only to loopback, as `kubectl proxy` serves it."""

    ca: str | None = f"{_ACCOUNT}/ca.crt"
    """PEM file of the authority that signed its certificate; null: those that the system trusts."""

    token_file: str | None = f"{_ACCOUNT}/token"
    """The bearer token, read again when it changes; null: none."""

    certificate: str | None = None
    """PEM file of our certificate instead of a token."""

    private_key: str | None = None
    """PEM file of its key."""

    timeout_s: PositiveS = 3.0
    """A call without an answer for so long has failed; less than kube-scheduler waits for a binding."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together")
        if self.server is not None and not self.server.startswith("https://") and not _is_local(self.server):
            raise ValueError(f"server: {self.server} is neither https://HOST:PORT nor http on loopback")


class ExtenderLimits(Strict, frozen=True):
    """What the extender takes."""

    request_bytes: Positive = 128 << 20
    """The largest body: 5,000 whole nodes of 25 KiB."""

    nodes: Positive = 10_000
    """Nodes of one request."""

    header_bytes: Positive = 16 << 10
    head_s: PositiveS = 10.0
    """The head of a request takes no longer, TLS's first words neither."""
    body_s: PositiveS = 5.0
    """The body takes no longer."""
    send_s: PositiveS = 5.0
    """Whoever takes nothing of an answer for so long is left."""
    idle_s: PositiveS = 120.0
    connections: Positive = 32
    """At a time; more are answered with 503."""
    answer_s: PositiveS = 4.0
    """What is not decided in this time is answered with an error: less than kube-scheduler's httpTimeout."""

    settle_s: Annotated[float, Meta(ge=0, le=60)] = 0.5
    """So long a pod with peers waits for those that were decided about before it to be on their nodes."""

    @property
    def http(self) -> HttpLimits:
        """What concerns connections."""
        return HttpLimits(self.header_bytes, self.head_s, self.send_s, self.idle_s, self.connections)


class ExtenderSettings(Strict, frozen=True):
    """Everything that `millrace scheduler extend` reads from its file."""

    listen: str = ADDRESS
    """HOST:PORT, or unix:PATH. Others than loopback need `tls`, with `client_ca` or a `token_file`."""

    tls: TlsSettings | None = None
    """The server's certificate; with `client_ca` whoever calls shows one that this authority signed."""

    certificate_check_s: PositiveS = 60.0
    """How often the certificates' files are looked at; they are read again once they have changed."""

    token_file: str | None = None
    """A secret that whoever calls has to show: as a bearer token, or as the password of the URL's user."""

    callers: Annotated[tuple[str, ...], Meta(min_length=1, max_length=64)] | None = None
    """With a `client_ca`, whose certificates may call: common names, DNS names or URIs. Null: those of a
    kube-scheduler, "system:kube-scheduler", "kube-scheduler" and "millrace-scheduler", or with a `token_file` any."""

    kubernetes: KubernetesSettings | None = None
    """The API server, to know nodes and pods and to bind; null: nothing is known but what a request says."""

    topology: str | None = None
    """A topology file, or a bundled one's name: what lies between nodes; null: nothing is known of the network."""

    network: NetworkStateSettings | None = None
    """Where the network's state comes from; null: the topology's nominal figures are what is known."""

    host_label: str | None = None
    """The label that has the name of a node's host in the topology; null: nodes have their hosts' names."""

    profiles: Annotated[tuple[ProfileSettings, ...], Meta(min_length=1)] = field(
        default_factory=lambda: (ProfileSettings(),)
    )
    """Ways to decide; a pod names its own by an annotation, else it is the first."""

    devices: tuple[DeviceResource, ...] = ()
    """Resources of device plugins beside those that are known; the first that has a name counts."""

    stretch: bool = False
    """Scores from 0 for the worst node to 10 for the best, instead of their share of the most points there are."""

    limits: ExtenderLimits = msgspec.field(default_factory=ExtenderLimits)

    metrics: MetricsSettings | None = None
    """Where Prometheus finds metrics; null: nowhere."""

    explained_nodes: Annotated[int, Meta(ge=1, le=1024)] = 64
    """So many refused nodes of an answer have their own reason, the others the policy's name."""

    kept_decisions: Annotated[int, Meta(ge=1, le=100_000)] = 1024
    """Of so many pods, the newest, GET /pods/NAMESPACE/NAME says what was decided."""

    @property
    def names(self) -> frozenset[str] | None:
        """Names of certificates that may call, None where certificates are not asked for, or any may."""
        if is_unix(self.listen) or self.tls is None or self.tls.client_ca is None:
            return None
        if self.callers is None:
            return frozenset(SCHEDULERS) if self.token_file is None else None
        return frozenset(self.callers)

    @property
    def is_open(self) -> bool:
        """Whether whoever can connect over TCP may call."""
        return not is_unix(self.listen) and self.token_file is None and self.names is None

    def __post_init__(self) -> None:
        if self.callers is not None and (self.tls is None or self.tls.client_ca is None):
            raise ValueError("callers: names of certificates are of use with a client_ca in tls only")
        if is_own(self.listen):
            return
        if self.tls is None or (self.tls.client_ca is None and self.token_file is None):
            raise ValueError(
                f"listen: others can reach {self.listen}: it needs tls, with a client_ca or beside a token_file"
            )


def _is_local(server: str) -> bool:
    return server.startswith("http://") and is_own(server.removeprefix("http://").rstrip("/"))
