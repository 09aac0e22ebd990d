"""Settings of the controller daemon."""

from __future__ import annotations

from typing import Annotated

import msgspec

from controller.aggregation.service.settings import JobSettings
from controller.aggregation.settings import AggregationSettings
from controller.errors import ControllerError
from controller.gnmi.settings import Hellos
from controller.links.status import RETURN_AFTER_NS
from controller.p4runtime.grpc_session import Target, TlsSettings
from controller.p4runtime.session import ELECTION_ID
from controller.store.settings import StoreSettings
from controller.tables.base import WATCH_ALL
from controller.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.tables.telemetry.int_watch import Watch
from controller.tables.telemetry.reporting import NO_REPORTING, Reporting
from dataplane.config import Strict
from dataplane.rpc.addresses import malformed
from dataplane.topology.values import Topology

PositiveNs = Annotated[int, msgspec.Meta(ge=1)]
DurationNs = Annotated[int, msgspec.Meta(ge=0)]


class RetrySettings(Strict, frozen=True):
    """How the daemon waits."""

    first_wait_ns: PositiveNs = 100_000_000
    """Wait before a switch is tried again; doubled with each failure."""
    longest_wait_ns: PositiveNs = 5_000_000_000
    """The longest wait before a switch is tried again."""
    timeout_ns: PositiveNs = 10_000_000_000
    """The longest time that opening a session may take."""
    patience_ns: DurationNs = 5_000_000_000
    """After its start the daemon changes no paths before it has read every switch, or this long."""
    drain_ns: DurationNs = 200_000_000
    """From the last new entry to the first removal, for packets that are still on the old path."""


class LinkSettings(Strict, frozen=True):
    """What is done about links that die and come back."""

    return_after_ns: DurationNs = RETURN_AFTER_NS
    """A link that was dead is used again when it has been up for so long without a break."""


class DaemonSettings(Strict, frozen=True):
    """Everything that `millrace controller` reads from its file."""

    topology: str
    """The topology: a file, the name of one that comes along, or a family such as fat-tree:k=4."""
    switches: dict[str, str]
    """Every switch's P4Runtime address: 'unix:/path' or 'host:port'."""
    path_server: str | None = None
    """gRPC address of the path server; left out, all traffic follows the base routes."""
    collector: str | None = None
    """gRPC address of the collector's feed: jobs are placed by what it measures, and it is sent dead links and jobs'
    names; left out, jobs are placed by the topology's delays, and stay where they are."""
    links: LinkSettings = LinkSettings()
    """What is done about links that die and come back."""
    hellos: Hellos = Hellos()
    """What switches that are neighbours say to each other, so that dead links are found; left out, every 50 ms."""
    p4info: str | None = None
    """P4Info of the program; left out, the fabric program that comes along."""
    program: str | None = None
    """bmv2 JSON of the program; left out, the fabric program that comes along."""
    watches: tuple[Watch, ...] = WATCH_ALL
    """Which flows carry telemetry, the first rule that matches; left out, all of UDP and TCP."""
    int_domain: IntDomain = DEFAULT_DOMAIN
    """How packets with telemetry are marked, and where telemetry begins and ends; left out, by DSCP 0x17, at hosts."""
    reporting: Reporting = NO_REPORTING
    """What switches report beside the telemetry of watched flows; left out, nothing."""
    aggregation: AggregationSettings | None = None
    """How switches add up for jobs; left out, they run the program that does not, and there are no jobs."""
    jobs: JobSettings | None = None
    """How workers of jobs meet; left out, nobody is served. With it switches add up also without `aggregation`."""
    store: StoreSettings | None = None
    """Which content switches hold by name; left out, switches drop what they hold."""
    election_id: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = ELECTION_ID
    """What the daemon bids for the primary role; of two daemons the higher one is primary."""
    tls: TlsSettings | None = None
    """TLS towards the switches; left out, connections are not encrypted."""
    retry: RetrySettings = RetrySettings()
    """How the daemon waits."""

    @property
    def effective_aggregation(self) -> AggregationSettings | None:
        """How switches add up; None if they do not."""
        default = None if self.jobs is None else AggregationSettings()
        return self.aggregation or default

    def targets(self, topology: Topology) -> dict[str, Target]:
        """Return every switch of the topology with its address; raise ControllerError for one too many or missing."""
        for name in self.switches:
            if name not in topology.switch:
                raise ControllerError(f"switches.{name}: topology {topology.name} has no such switch")
        problem = None if self.collector is None else malformed(self.collector)
        if problem is not None:
            raise ControllerError(f"collector: {self.collector!r} {problem}")
        for name, address in self.switches.items():
            problem = malformed(address)
            if problem is not None:
                raise ControllerError(f"switches.{name}: {address!r} {problem}")
        for node in topology.switches:
            if node.name not in self.switches:
                raise ControllerError(f"switches: there is no address for switch {node.name} of {topology.name}")
        return {node.name: Target(node.name, self.switches[node.name], node.node_id) for node in topology.switches}
