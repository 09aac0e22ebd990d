"""Settings of the controller daemon."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from collectors.shards.settings import CollectorLeases
from controller.common.errors import ControllerError
from controller.common.standby.settings import StandbySettings
from controller.common.tracing import TraceSettings
from controller.network.aggregation.service.settings import JobSettings
from controller.network.aggregation.settings import AggregationSettings
from controller.network.content.settings import StoreSettings
from controller.network.gnmi.settings import Hellos
from controller.network.links.status import RETURN_AFTER_NS
from controller.network.p4runtime.grpc_session import Target
from controller.network.tables.base import WATCH_ALL
from controller.network.tables.sources import RoutedNetworks
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.tables.telemetry.reporting import NO_REPORTING, Reporting
from dataplane.config import Settings, Strict
from dataplane.config.suggestions import did_you_mean
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.channels import uncallable
from dataplane.topology.values import Topology

_PLACEHOLDER: Final = re.compile(r"\{[^}]*\}")

PositiveNs = Annotated[int, msgspec.Meta(ge=1)]
DurationNs = Annotated[int, msgspec.Meta(ge=0)]


class RetrySettings(Settings, frozen=True):
    """Timeouts and waits of the daemon."""

    first_wait_ns: PositiveNs = 100_000_000
    """Wait before a switch is tried again; doubled with each failure."""
    longest_wait_ns: PositiveNs = 5_000_000_000
    """The longest wait before a switch is tried again."""
    timeout_ns: PositiveNs = 10_000_000_000
    """Timeout of opening a session and of a switch's answers; time in which the daemon itself was
    busy does not count."""
    patience_ns: DurationNs = 5_000_000_000
    """After its start the daemon changes no paths before it has read every switch, or no other one for this long."""
    drain_ns: DurationNs = 200_000_000
    """From the last new entry to the first removal, for packets that are still on the old path."""
    at_once: Annotated[int, msgspec.Meta(ge=1)] = 16
    """Switches whose program and tables are read and written at the same time; the others wait for their turn."""


class LinkSettings(Settings, frozen=True):
    """Settings of links that fail and return."""

    return_after_ns: DurationNs = RETURN_AFTER_NS
    """A dead link is used again when it has been up for this long without interruption."""


class MetricsSettings(Strict, frozen=True):
    """Settings of the endpoint that serves the controller's metrics to Prometheus."""

    address: str = "127.0.0.1"
    """The local address; nothing authenticates, so any other than loopback must be explicit: `plain:0.0.0.0`."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9472
    """The TCP port, 0 for a free one."""


RELOADED: Final = ("watches", "reporting", "int_domain", "routed_networks")
"""Keys that SIGHUP applies."""


class DaemonSettings(Strict, frozen=True):
    """Everything that `millrace controller` reads from its file."""

    topology: str
    """The topology: a file, a bundled name, or a family such as fat-tree:k=4."""
    switches: str | dict[str, str]
    """Every switch's P4Runtime address: 'unix:/path', 'host:port' or 'plain:host:port'.

    Or a pattern for all, in which {name} and {id} are each switch's own: 'unix:/run/millrace/{name}.sock'; among
    addresses the pattern of '*' is for those that are not named.
    """
    path_server: str | None = None
    """gRPC address of the path server, of a pair both, separated by a comma; left out, all traffic follows the base
    routes."""
    collector: str | None = None
    """gRPC address of the collector's feed: jobs are placed by its measurements, and it is sent dead links and jobs'
    names; by default jobs are placed by the topology's delays, and do not move."""
    collectors: CollectorLeases | None = None
    """Leases of several collectors, which share the switches and all are sent dead links and jobs' names; null: every
    switch reports to the topology's collector."""
    links: LinkSettings = LinkSettings()
    """Handling of links that fail and return."""
    hellos: Hellos = Hellos()
    """Hellos between neighbouring switches, which detect dead links; default: every 50 ms."""
    p4info: str | None = None
    """P4Info of the program; default: the bundled fabric program."""
    program: str | None = None
    """bmv2 JSON of the program; default: the bundled fabric program."""
    watches: tuple[Watch, ...] = WATCH_ALL
    """Flows that carry telemetry; the first rule that matches applies; default: all of UDP and TCP."""
    int_domain: IntDomain = DEFAULT_DOMAIN
    """Marking of packets with telemetry, and where telemetry begins and ends; default: by DSCP 0x17, at hosts."""
    reporting: Reporting = NO_REPORTING
    """Reports of switches besides the telemetry of watched flows; default: none."""
    aggregation: AggregationSettings | None = None
    """In-network aggregation; by default switches run the program without it, and there are no jobs."""
    jobs: JobSettings | None = None
    """The job service, where workers rendezvous; off by default. It enables aggregation even without `aggregation`."""
    store: StoreSettings | None = None
    """Named content in switches; by default switches hold none, and what they hold is removed."""
    routed_networks: tuple[RoutedNetworks, ...] = ()
    """Networks behind hosts that route; by default a host's port carries the host's own addresses alone."""
    election_id: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None
    """The P4Runtime election id; of two daemons the one with the higher id is primary. Default: when it started."""
    tls: TlsSettings | None = None
    """Certificates for HOST:PORT: of switches, path server and collector, of jobs and status that are served."""
    standby: StandbySettings | None = None
    """The lease of a pair of controllers, whose token is the election id; null: this one runs alone."""
    retry: RetrySettings = RetrySettings()
    """Timeouts and waits of the daemon."""
    listen: str | None = None
    """gRPC address where the daemon's status is served; left out, nowhere."""
    metrics: MetricsSettings | None = None
    """Endpoint that Prometheus scrapes, with job metrics among the rest; null disables it."""
    traces: TraceSettings | None = None
    """Destination of OpenTelemetry traces of reroutes; null disables them."""

    def __post_init__(self) -> None:
        if self.standby is not None and self.election_id is not None:
            raise ValueError("election_id: with standby it is the lease's token")
        if self.standby is not None and self.jobs is not None and self.jobs.database is not None:
            raise ValueError("jobs.database: with standby jobs are kept with the lease")
        if self.collectors is not None and self.collector is not None:
            raise ValueError("collector: collectors finds the feeds of all")

    @property
    def effective_aggregation(self) -> AggregationSettings | None:
        """Settings of aggregation in switches; None if it is off."""
        default = None if self.jobs is None else AggregationSettings()
        return self.aggregation or default

    def targets(self, topology: Topology) -> dict[str, Target]:
        """Return every switch of the topology with its address; raise ControllerError for one too many or missing."""
        switches = switch_addresses(self.switches, topology)
        problem = None if self.collector is None else uncallable(self.collector, self.tls)
        if problem is not None:
            raise ControllerError(f"collector: {self.collector!r} {problem}")
        for name, address in switches.items():
            problem = uncallable(address, self.tls)
            if problem is not None:
                raise ControllerError(f"switches.{name}: {address!r} {problem}")
        return {node.name: Target(node.name, switches[node.name], node.node_id) for node in topology.switches}


def switch_addresses(given: str | Mapping[str, str], topology: Topology) -> dict[str, str]:
    """Return every switch's address, by names or by patterns; raise ControllerError for one too many or missing."""
    named = {"*": given} if isinstance(given, str) else given
    for name in named:
        if name != "*" and name not in topology.switch:
            hint = did_you_mean(name, topology.switch)
            raise ControllerError(f"switches.{name}: topology {topology.name} has no such switch{hint}")
    addresses = {}
    for node in topology.switches:
        address = named.get(node.name, named.get("*"))
        if address is None:
            raise ControllerError(f"switches: switch {node.name} of {topology.name} has no address")
        addresses[node.name] = address.replace("{name}", node.name).replace("{id}", str(node.node_id))
        left = _PLACEHOLDER.search(addresses[node.name])
        if left is not None:
            raise ControllerError(f"switches: {left[0]} in {address!r} is neither {{name}} nor {{id}}")
    return addresses
