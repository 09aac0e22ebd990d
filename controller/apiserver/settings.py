"""The settings file of `millrace api serve`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from controller.apiserver.default_socket import default_socket
from controller.apiserver.oidc import OidcIssuer
from controller.apiserver.resources.project import Quota
from controller.apiserver.sessions.board import SessionLimits
from controller.cluster.alto.settings import AltoView
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.common.http_connections import ConnectionLimits
from controller.common.http_server import HttpLimits
from controller.common.standby.settings import StandbySettings
from dataplane.config import Settings, Strict
from dataplane.leases.place import EtcdPlace
from dataplane.rpc.addresses import is_loopback, is_unix

Positive = Annotated[int, Meta(ge=1)]
PositiveS = Annotated[float, Meta(gt=0, le=86_400)]
AgeS = Annotated[float, Meta(gt=0, le=1e9)]


class StoragePlace(Strict, frozen=True):
    """Storage of resources: an SQLite file, or an etcd."""

    sqlite: str | None = None
    """The file; used by one server at a time."""

    etcd: EtcdPlace | None = None
    """Shared by any number of servers."""

    def __post_init__(self) -> None:
        if (self.sqlite is None) == (self.etcd is None):
            raise ValueError("either sqlite or etcd")


class TlsSettings(Strict, frozen=True):
    """PEM files; read again on SIGHUP."""

    certificate: str
    private_key: str
    client_ca: str | None = None
    """If set, every client must show a certificate signed by this authority; one with a role serves as a token."""


class AuditSettings(Strict, frozen=True):
    """The audit log."""

    file: str
    """JSON lines that only the owner can read. Reopened on SIGHUP."""

    reads: bool = False
    """Also log reads; otherwise only changes and refusals."""

    max_bytes: Annotated[int, Meta(ge=1 << 16)] = 64 << 20
    """A larger file becomes FILE.1, that one FILE.2, and so on."""

    kept: Annotated[int, Meta(ge=1, le=1000)] = 8
    """Number of older files to keep."""


class ApiLimits(Settings, frozen=True):
    """Limits of the server."""

    request_bytes: Positive = 1 << 20
    """Largest request body."""

    header_bytes: Positive = 16 << 10
    """Largest request head."""

    head_s: PositiveS = 10.0
    """Timeout of a request's head, and of the TLS handshake."""

    body_s: PositiveS = 20.0
    """Timeout of a request's body."""

    send_s: PositiveS = 30.0
    """Close a connection whose reader takes nothing of an answer for this long."""

    idle_s: PositiveS = 60.0
    """Close a connection without requests after this long."""

    connections: Positive = 1024
    """Concurrent authenticated connections; more are refused with a reason. Users get at most three quarters."""

    connections_of_one: Positive = 96
    """Connections per user, among these."""

    strangers: Positive = 1024
    """Additional unauthenticated connections; beyond that the oldest is closed."""

    strangers_of_one: Positive = 256
    """Unauthenticated connections per address, among these."""

    watches: Positive = 512
    """Concurrent watches, included in the connections. Users get at most three quarters."""

    watches_of_one: Positive = 32
    """Watches per user, among these."""

    watch_events: Positive = 16_384
    """Events kept in memory for watches; a watch that falls further behind is ended, and may resume."""

    heartbeat_s: PositiveS = 10.0
    """Interval at which a watch without events reports the revision up to which it has seen everything."""

    requests_per_s: Positive = 2000
    """Per node, centre, scheduler, controller or administrator."""

    user_requests_per_s: Positive = 100
    """Per user."""

    user_seats: Positive = 8
    """Concurrent requests of all users; the others wait in a queue per user."""

    user_queue: Positive = 64
    """Waiting requests per user; more are refused."""

    queue_s: PositiveS = 10.0
    """Longest wait of a queued request."""

    refusals_per_s: Positive = 10
    """Invalid tokens per address; beyond that they get no answer of their own."""

    sessions: Positive = 256
    """Concurrent logs being read and commands running in containers."""

    sessions_of_one: Positive = 32
    """Sessions per principal, among these."""

    session_answer_s: PositiveS = 10.0
    """Time for a node to begin its answer."""

    session_idle_s: PositiveS = 3600.0
    """End a session without data after this long."""

    silence_s: PositiveS = 30.0
    """Without even a keep-alive for this long, the other end of a session counts as gone."""

    @property
    def session(self) -> SessionLimits:
        """Limits of sessions."""
        return SessionLimits(
            self.sessions,
            self.sessions_of_one,
            self.session_answer_s,
            self.session_idle_s,
            self.silence_s,
            self.heartbeat_s,
        )

    @property
    def http(self) -> HttpLimits:
        """Limits of each connection."""
        return HttpLimits(self.header_bytes, self.head_s, self.send_s, self.idle_s, self.connections)

    @property
    def held(self) -> ConnectionLimits:
        """Limits of all connections together."""
        return ConnectionLimits(self.connections, self.connections_of_one, self.strangers, self.strangers_of_one)


class Retention(Settings, frozen=True):
    """Retention of old records."""

    history_s: PositiveS = 600.0
    """Minimum age at which old revisions, which watches resume from and pages of a list refer to, are compacted."""

    decisions: Positive = 10_000
    """Number of decisions to keep: the newest, and those that placed current pods."""
    decisions_s: AgeS = field(default=604_800.0, name="decisions_age")
    """Maximum age of decisions."""
    ended_pods: Positive = 1_000
    """Number of ended pods to keep, the latest; pods of a group with a template are deleted with it."""
    ended_groups: Positive = 1_000
    """Number of ended groups to keep, the latest."""
    ended_s: AgeS = field(default=86_400.0, name="ended_age")
    """Maximum age of ended pods and groups."""
    ended_tasks: Positive = 10_000
    """Number of ended tasks to keep, the latest."""
    ended_tasks_s: AgeS = field(default=604_800.0, name="ended_tasks_age")
    """Maximum age of ended tasks."""
    probe_results: Positive = 20_000
    """Number of probe results to keep, the newest, besides the last one of each probe on each unit type."""
    probe_results_s: AgeS = field(default=2_592_000.0, name="probe_results_age")
    """Maximum age of probe results."""


class MetricsSettings(Strict, frozen=True):
    """Endpoint of the server's Prometheus metrics, for which no token is needed."""

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 9471


class ViewSettings(Settings, frozen=True):
    """Serve the operators' page at `/`, and what it shows below /v1/view."""

    topology: str = ""
    """File or name of the network's topology; without one the page shows no network."""

    network_state: NetworkStateSettings | None = NetworkStateSettings()
    """Collector and path server that the page shows; null: it shows the history alone."""

    job_service: str | None = None
    """The controller's job service: unix:PATH or HOST:PORT; null: jobs are shown as far as switches report them."""

    controller: str | None = None
    """The controller's status: unix:PATH or HOST:PORT; null: the page does not say whether it holds the switches."""

    switches: str | dict[str, str] = field(default_factory=dict)
    """P4Runtime addresses to read tables from, as in the controller's settings: by switch, or a pattern."""

    history: str | None = None
    """Folder of the collector's history, which must be on this machine; null: the page cannot go back in time."""

    hosts: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    """Names by which browsers reach the server, besides the addresses that it listens at: others are refused."""

    viewers: Annotated[int, Meta(ge=1, le=10_000)] = 128
    """Streams open at one time."""

    session_s: PositiveS = field(default=43_200.0, name="session_age")
    """Age at which a browser has to sign in again."""

    sessions: Annotated[int, Meta(ge=1, le=100_000)] = 1024
    """Signed-in browsers; beyond that the oldest is signed out."""


class ApiSettings(Strict, frozen=True):
    """The settings file."""

    storage: StoragePlace

    listen: Annotated[tuple[str, ...], Meta(min_length=1, max_length=8)] | None = None
    """unix:PATH or HOST:PORT; default: `api.sock` in the user's own folder. HOST:PORT beyond loopback needs `tls`."""

    tls: TlsSettings | None = None
    """For HOST:PORT; UNIX sockets are never encrypted."""

    audit: AuditSettings | None = None

    limits: ApiLimits = ApiLimits()

    retention: Retention = Retention()

    oidc: Annotated[tuple[OidcIssuer, ...], Meta(max_length=16)] = ()
    """Trusted issuers of OpenID Connect tokens, besides the server's own tokens."""

    quota: Quota = Quota()
    """Quota of each user without a project, and of each project without a Project resource."""

    alto: AltoView | None = None
    """If set, serve the cost map below /alto, as an ALTO server (RFC 7285) does."""

    view: ViewSettings | None = None
    """If set, serve the operators' page at / of addresses HOST:PORT."""

    standby: StandbySettings | None = None
    """The lease of a pair of API servers on one SQLite file; null: this one runs alone. Servers on etcd need none."""

    metrics: MetricsSettings | None = None
    """Prometheus endpoint besides /metrics of the API's own addresses; default: none."""

    def __post_init__(self) -> None:
        if self.standby is not None and self.storage.etcd is not None:
            raise ValueError("standby: servers that share an etcd are all active, without a lease")
        open_to_all = next((address for address in self.listen or () if not is_own(address)), None)
        if open_to_all is not None and self.tls is None:
            raise ValueError(f"listen: {open_to_all} is neither loopback nor a UNIX socket: set tls")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses to listen on."""
        return self.listen or (default_socket(),)


def is_own(address: str) -> bool:
    """Return whether only this machine can reach an address, unix:PATH or HOST:PORT."""
    return is_unix(address) or is_loopback(address)
