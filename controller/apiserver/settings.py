"""The settings file of `millrace api serve`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from controller.apiserver.default_socket import default_socket
from controller.apiserver.oidc import OidcIssuer
from controller.apiserver.resources.project import Quota
from controller.apiserver.sessions.board import SessionLimits
from controller.cluster.alto.settings import AltoView
from controller.common.http_connections import ConnectionLimits
from controller.common.http_server import HttpLimits
from dataplane.config import Strict
from dataplane.rpc.addresses import exposed, is_loopback, is_unix, target_of

Positive = Annotated[int, Meta(ge=1)]
PositiveS = Annotated[float, Meta(gt=0, le=86_400)]
AgeS = Annotated[float, Meta(gt=0, le=1e9)]


class EtcdPlace(Strict, frozen=True):
    """An etcd, version 3; of several members any one that answers."""

    addresses: Annotated[tuple[str, ...], Meta(min_length=1)] = ("127.0.0.1:2379",)
    """HOST:PORT; where there are several, IP addresses. Without `ca` others than loopback are plain:HOST:PORT."""

    root: str = "/millrace"
    """What our keys begin with there."""

    timeout_s: PositiveS = 5.0
    """A call without an answer for so long has failed."""

    ca: str | None = None
    """PEM file of the authority that signed etcd's certificate; without it the connection is not encrypted."""

    certificate: str | None = None
    """PEM file of our certificate, where etcd asks for one."""

    private_key: str | None = None
    """PEM file of its key."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together")
        if self.certificate is not None and self.ca is None:
            raise ValueError("a certificate is of use with a ca only")
        problem = next((found for one in self.addresses if (found := exposed(one, has_tls=self.ca is not None))), None)
        if problem is not None:
            raise ValueError(f"addresses: {problem}")

    @property
    def target(self) -> str:
        """The address as gRPC takes it."""
        targets = [target_of(address) for address in self.addresses]
        return targets[0] if len(targets) == 1 else f"ipv4:{','.join(targets)}"


class StoragePlace(Strict, frozen=True):
    """Where resources are kept: a file of SQLite, or an etcd."""

    sqlite: str | None = None
    """The file; one server has it."""

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
    """With it every client must show a certificate that this authority signed; one with a role serves as a token."""


class AuditSettings(Strict, frozen=True):
    """The log of who did what."""

    file: str
    """Lines of JSON; only its user may read it. Opened again on SIGHUP."""

    reads: bool = False
    """Also what was read; else what changes something, and refusals."""

    max_bytes: Annotated[int, Meta(ge=1 << 16)] = 64 << 20
    """A larger file becomes FILE.1, that one FILE.2, and so on."""

    kept: Annotated[int, Meta(ge=1, le=1000)] = 8
    """So many older files are kept."""


class ApiLimits(Strict, frozen=True):
    """What a server takes."""

    request_bytes: Positive = 1 << 20
    """The largest body."""

    header_bytes: Positive = 16 << 10
    """The largest head of a request."""

    head_s: PositiveS = 10.0
    """The head of a request takes no longer, TLS's first words neither."""

    body_s: PositiveS = 20.0
    """The body takes no longer."""

    send_s: PositiveS = 30.0
    """Whoever takes nothing of an answer for so long is left."""

    idle_s: PositiveS = 60.0
    """A connection without a request is closed after so long."""

    connections: Positive = 1024
    """At a time, of whoever has shown who it is; more are told so and closed. Of users three quarters at most."""

    connections_of_one: Positive = 96
    """Of them, of one user."""

    strangers: Positive = 1024
    """Connections over which nobody has shown yet who it is, beside those; of more the oldest is closed."""

    strangers_of_one: Positive = 256
    """Of them, of one address."""

    watches: Positive = 512
    """At a time, of the connections. Of users three quarters at most."""

    watches_of_one: Positive = 32
    """Of them, of one user."""

    watch_events: Positive = 16_384
    """Events kept in memory for those who watch; who falls further behind is ended, and may resume."""

    heartbeat_s: PositiveS = 10.0
    """A watch without an event says after so long up to which revision it has seen everything."""

    requests_per_s: Positive = 2000
    """Of one node, centre, scheduler, controller or administrator."""

    user_requests_per_s: Positive = 100
    """Of one user."""

    user_seats: Positive = 8
    """Requests of users that are worked on at a time; the others wait for their turns, each user in a queue."""

    user_queue: Positive = 64
    """Requests of one user that wait; more are refused."""

    queue_s: PositiveS = 10.0
    """A request waits no longer for its turn."""

    refusals_per_s: Positive = 10
    """Wrong tokens of one address; more get no answer of their own."""

    sessions: Positive = 256
    """Logs that are read and commands that run in containers, at a time."""

    sessions_of_one: Positive = 32
    """Of them, of one principal."""

    session_answer_s: PositiveS = 10.0
    """A node begins to answer within so long."""

    session_idle_s: PositiveS = 3600.0
    """A session in which nothing is said for so long ends."""

    silence_s: PositiveS = 30.0
    """The other end of a session that does not even say that it is there has gone."""

    @property
    def session(self) -> SessionLimits:
        """What concerns sessions."""
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
        """What concerns each connection."""
        return HttpLimits(self.header_bytes, self.head_s, self.send_s, self.idle_s, self.connections)

    @property
    def held(self) -> ConnectionLimits:
        """What concerns connections together."""
        return ConnectionLimits(self.connections, self.connections_of_one, self.strangers, self.strangers_of_one)


class Retention(Strict, frozen=True):
    """What is forgotten."""

    history_s: PositiveS = 600.0
    """Old revisions, which a watch may resume from and pages of a list refer to, are kept at least so long."""

    decisions: Positive = 10_000
    """So many decisions are kept, the newest, and those by which pods are where they are."""
    decisions_s: AgeS = 604_800.0
    """For so long."""
    ended_pods: Positive = 1_000
    """So many pods that have succeeded or failed are kept, the last; those of a group with a template go with it."""
    ended_groups: Positive = 1_000
    """So many groups that have finished or failed are kept, the last."""
    ended_s: AgeS = 86_400.0
    """For so long ended pods and groups are kept."""
    ended_tasks: Positive = 10_000
    """So many tasks that have succeeded or failed are kept, the last."""
    ended_tasks_s: AgeS = 604_800.0
    """For so long."""
    probe_results: Positive = 20_000
    """So many results of probes are kept, the newest, beside the last one of each probe on each type of units."""
    probe_results_s: AgeS = 2_592_000.0
    """For so long."""


class ApiSettings(Strict, frozen=True):
    """The settings file."""

    storage: StoragePlace

    listen: Annotated[tuple[str, ...], Meta(min_length=1, max_length=8)] | None = None
    """unix:PATH or HOST:PORT; by default `api.sock` in the user's own folder. Others than loopback need `tls`."""

    tls: TlsSettings | None = None
    """For HOST:PORT; a UNIX socket is never encrypted."""

    audit: AuditSettings | None = None

    limits: ApiLimits = ApiLimits()

    retention: Retention = Retention()

    oidc: Annotated[tuple[OidcIssuer, ...], Meta(max_length=16)] = ()
    """Issuers of OpenID Connect whose tokens count, beside our own."""

    quota: Quota = Quota()
    """What each user without a project, and each project without a Project of its name, may have at a time."""

    alto: AltoView | None = None
    """With it the cost map is served below /alto, as an ALTO server (RFC 7285) serves it."""

    def __post_init__(self) -> None:
        open_to_all = next((place for place in self.listen or () if not is_own(place)), None)
        if open_to_all is not None and self.tls is None:
            raise ValueError(f"listen: {open_to_all} is neither loopback nor a UNIX socket: it needs tls")

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where to listen."""
        return self.listen or (default_socket(),)


def is_own(address: str) -> bool:
    """Return whether only this machine can reach an address, unix:PATH or HOST:PORT."""
    return is_unix(address) or is_loopback(address)
