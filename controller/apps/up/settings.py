"""The settings file of `millrace up`: common settings, and a section for each daemon."""

from __future__ import annotations

from typing import Annotated, Self

import msgspec

from collectors.events.rules import RuleSettings
from collectors.history.settings import HistorySettings
from collectors.metrics.settings import MetricsSettings
from collectors.settings import CollectorSettings
from controller.apiserver.resources.base import LabelName, LabelValue, Name, Names
from controller.apiserver.resources.hardware import DeviceNumber
from controller.apiserver.settings import ApiLimits, AuditSettings, Retention, StoragePlace, TlsSettings
from controller.apiserver.settings import MetricsSettings as ApiMetrics
from controller.apps.up.state import StateFolder, default_run
from controller.balance.control.controller import ControlSettings
from controller.balance.levers.settings import LeverSettings
from controller.balance.rules import TABLE, IntervalRule, IntervalTable, PlatformRule
from controller.balance.running.settings import BusSettings, LoadSettings
from controller.balance.running.silence import SilenceSettings as DriveSilence
from controller.balance.settings import MetricsSettings as BalanceMetrics
from controller.balance.settings import MovingSettings
from controller.common.tracing import TraceSettings
from controller.network.aggregation.service.settings import JobSettings
from controller.network.aggregation.settings import AggregationSettings
from controller.network.content.settings import StoreSettings
from controller.network.daemon_settings import MetricsSettings as ControllerMetrics
from controller.network.gnmi.settings import Hellos
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.settings import DecideSettings, ManagedFlow
from controller.network.paths.settings import MetricsSettings as PathsMetrics
from controller.network.tables.sources import RoutedNetworks
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.tables.telemetry.reporting import NO_REPORTING, Reporting
from controller.scheduling.pods import PodProfileSettings
from controller.scheduling.settings import MetricsSettings as SchedulerMetrics
from controller.scheduling.settings import QueueSettings
from controller.scheduling.tasks.settings import TaskSettings
from controller.workloads.centres.settings import LocalSettings, SqlSettings, TrialSettings, UnitSettings
from controller.workloads.centres.settings import MetricsSettings as CentreMetrics
from controller.workloads.nodes.runtimes.settings import RuntimeSettings
from controller.workloads.nodes.settings import (
    IdleSection,
    ImagesSection,
    LimitsSection,
    MpsSection,
    NicSection,
    RestartSection,
)
from controller.workloads.placement.settings import FlappingSettings, RetrySettings, SilenceSettings
from controller.workloads.placement.settings import MetricsSettings as PlacementMetrics
from dataplane.config import Settings, Strict
from dataplane.fabric.live.settings import FabricMetrics, Time
from dataplane.rpc.access.settings import TlsSettings as ServiceTls

Positive = Annotated[int, msgspec.Meta(ge=1)]
PositiveS = Annotated[float, msgspec.Meta(gt=0)]


class FabricSection(Strict, frozen=True):
    """The fabric to start, and the traffic between its hosts."""

    demands: str | None = None
    """Demand matrix: CSV, or a text file of the YATES project; default: the topology's own, else equal demands."""
    matrix: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Matrix number in a file that holds several."""
    peak_utilisation: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.3
    """Demands are stretched so that the busiest link carries this share of its rate; 0: hosts send nothing."""
    hops_per_s: PositiveS = 800.0
    """Frames times switches that hosts make a second: rates are divided so that one machine can follow."""
    rate_divisor: Positive | None = None
    """Divisor of the topology's rates and demands; default: what `hops_per_s` requires."""
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Seed of arrivals and of the programs' random numbers."""
    metrics: FabricMetrics | None = FabricMetrics()
    """Prometheus endpoint; default: on loopback at the documented port, see docs/network/metrics.md; null: none."""


class CollectorSection(Strict, frozen=True):
    """The collector; see docs/network/telemetry.md."""

    address: str | None = None
    """gRPC address of its feed; default: a socket in `run`."""
    udp_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    """UDP port of reports on loopback; default: the topology's."""
    listen: str = "127.0.0.1"
    """Local address of that port; switches elsewhere must be able to reach it."""
    state: CollectorSettings = CollectorSettings()
    """Collector settings; `sample_every` follows `watches`."""
    events: RuleSettings | None = None
    """Rules that raise events; default: standard ones, for full, lossy and slow links and silent switches."""
    history: HistorySettings | None = None
    """The history; default: in the state folder."""
    metrics: MetricsSettings | None = MetricsSettings()
    """Prometheus endpoint; default: on loopback at the documented port, see docs/network/metrics.md; null: none."""


class PathsSection(Settings, frozen=True):
    """The path server; see docs/network/paths.md."""

    address: str | None = None
    """gRPC address of routes and decisions; default: a socket in `run`."""
    interval_ns: Positive = 100_000_000
    """Time between two rounds of decisions."""
    flows: tuple[ManagedFlow, ...] = ()
    """The flows to decide about; default: every pair of hosts that telemetry shows."""
    decide: DecideSettings = DecideSettings(min_gain=0.25, confirm_rounds=40)
    """Path server settings; the telemetry overhead per packet follows `watches`."""
    engineering: EngineeringSettings | None = None
    """Traffic engineering: all demands at once; default: flow by flow."""
    metrics: PathsMetrics | None = PathsMetrics()
    """Prometheus endpoint; default: on loopback at the documented port, see docs/network/metrics.md; null: none."""
    traces: TraceSettings | None = None
    """OpenTelemetry endpoint for traces of reroutes; default: none."""


class ControllerSection(Strict, frozen=True):
    """The controller; see docs/network/controller.md."""

    address: str | None = None
    """gRPC address of its status; default: a socket in `run`."""
    hellos: Hellos = Hellos()
    """Hellos between neighbouring switches."""
    reporting: Reporting = NO_REPORTING
    """Switch reports besides the telemetry of watched flows."""
    aggregation: AggregationSettings | None = None
    """In-network aggregation; default: none."""
    jobs: JobSettings | None = None
    """The job service; default: none."""
    store: StoreSettings | None = None
    """Named content in switches; default: none."""
    routed_networks: tuple[RoutedNetworks, ...] = ()
    """Networks behind hosts that route, besides the hosts' own addresses; default: none."""
    metrics: ControllerMetrics | None = ControllerMetrics()
    """Prometheus endpoint; default: on loopback at the documented port, see docs/network/metrics.md; null: none."""
    traces: TraceSettings | None = None
    """OpenTelemetry endpoint for traces of reroutes; default: none."""


class PageSection(Settings, frozen=True):
    """The operators' page, served by the API server."""

    address: str = "127.0.0.1"
    """Address to listen at; `api: {tls: ...}` is required beyond loopback."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 9465
    """TCP port."""
    hosts: tuple[str, ...] = ()
    """Names by which browsers reach it, besides its address."""


class ApiSection(Strict, frozen=True):
    """The API server, over HTTP; its resources are in the state folder."""

    address: str | None = None
    """UNIX socket for this user's own daemons and commands; default: in `run`."""
    listen: tuple[str, ...] = ()
    """Additional addresses, HOST:PORT; `tls` is required beyond loopback."""
    storage: StoragePlace | None = None
    """Storage of resources; default: an SQLite file in the state folder."""
    tls: TlsSettings | None = None
    """Certificate and key for HOST:PORT."""
    audit: AuditSettings | None = None
    """Audit log; default: none."""
    limits: ApiLimits = ApiLimits()
    """Request limits."""
    retention: Retention = Retention()
    """Retention of old resources."""
    page: PageSection | None = PageSection()
    """The operators' page; null: none."""
    metrics: ApiMetrics | None = ApiMetrics()
    """Prometheus endpoint; default: on loopback at the documented port, see docs/network/metrics.md; null: none."""


class SchedulerSection(Settings, frozen=True):
    """The scheduler; `millrace scheduler --help`."""

    profiles: Annotated[tuple[PodProfileSettings, ...], msgspec.Meta(min_length=1)] | None = None
    """Scheduling profiles; default: the scheduler's own."""
    queue: QueueSettings = msgspec.field(default_factory=QueueSettings)
    """Pod queue."""
    stale_after_ns: Positive = 10_000_000_000
    """Maximum age of network figures used."""
    metrics: SchedulerMetrics = SchedulerMetrics()
    """Prometheus endpoint, also the liveness check; default: on loopback at the documented port."""
    explained_nodes: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    """Maximum number of nodes whose reasons a decision records."""
    tasks: TaskSettings | None = None
    """Task dispatch to compute centres; unless set, enabled with defaults where centres are named, else off."""


class PlacementSection(Settings, frozen=True):
    """The workload controller; see docs/cluster/placement.md."""

    silence: SilenceSettings = SilenceSettings()
    """Nodes that do not report."""
    flapping: FlappingSettings = FlappingSettings()
    """Nodes that come and go."""
    retries: RetrySettings = RetrySettings()
    """Pods of groups that fail."""
    stuck_s: PositiveS = 60.0
    """Time after which a pod that its node does not stop is reported."""
    metrics: PlacementMetrics = PlacementMetrics()
    """Prometheus endpoint, also the liveness check; default: on loopback at the documented port."""


class BalanceSection(Settings, frozen=True):
    """The management service of unit pools; see docs/cluster/balance-service.md."""

    interval_s: PositiveS = 1.0
    """Time between two rounds."""
    stale_s: PositiveS = 10.0
    """Time without a report after which a holder gets no units."""
    moving: MovingSettings = MovingSettings()
    """Movement of units."""
    table: IntervalTable = TABLE
    """Interval table for pools with the rule `table`."""
    keep_s: PositiveS = 7 * 86_400.0
    """Retention of the history in the state folder."""
    metrics: BalanceMetrics = BalanceMetrics()
    """Prometheus endpoint, also the liveness check; default: on loopback at the documented port."""


class DriveSection(Settings, frozen=True):
    """The control loop of a unit of a node, `millrace balance drive`; see docs/cluster/balance-service.md."""

    load: LoadSettings
    """Meter of the unit's cores."""
    bus: BusSettings | None = None
    """Meter of its bus; default: the link to the node's host, by telemetry. A device is looked up in the host."""
    levers: LeverSettings = LeverSettings()
    """Its levers; a pool is this API server's by default."""
    control: ControlSettings = ControlSettings()
    """Its controller."""
    table: IntervalRule | None = None
    """The rule of the interval table; default: the specification's, unless there is `platform`."""
    platform: PlatformRule | None = None
    """The platform's rule instead."""
    interval_s: PositiveS = 1.0
    """Length of the interval of each sample."""
    silence: DriveSilence = DriveSilence()
    """Reaction to missing samples."""
    rest_s: PositiveS = 30.0
    """Time after which a failed lever is tried again."""
    record: str | None = None
    """A CSV file to which each turn is appended; default: none."""


class NodeSection(Settings, frozen=True):
    """A host that this machine serves; see docs/cluster/nodes.md."""

    runtime: RuntimeSettings = RuntimeSettings()
    """Container runtime."""
    labels: dict[LabelName, LabelValue] = msgspec.field(default_factory=dict)
    """Labels of the Node resource, set at its creation."""
    devices: dict[DeviceNumber, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Devices for a container that holds a share of one, by device number: paths in /dev, or CDI names."""
    mps: MpsSection | None = None
    """Enforcement of shares of NVIDIA's devices; default: they are only admitted."""
    nic: NicSection | None = NicSection()
    """Polled queues of network devices: who may claim which; null: the node neither knows nor grants any."""
    report_s: PositiveS = 5.0
    """Time between two reports; short enough for link measurements to count as fresh."""
    restart: RestartSection = RestartSection()
    """Restarts of containers."""
    limits: LimitsSection = LimitsSection()
    """Maximum resource usage of pods."""
    images: ImagesSection = ImagesSection()
    """Retention of images that no pod uses."""
    idle: IdleSection = IdleSection()
    """Idle pods."""
    drives: dict[Name, DriveSection] = msgspec.field(default_factory=dict)
    """Control loops of the node's compute units, by the unit's name; default: none."""


class CentreSection(Settings, frozen=True):
    """A compute centre that this machine serves; see docs/cluster/centres.md."""

    hosts: Names = ()
    """Hosts of the topology in the centre; in a kernel fabric, jobs run in the first host's network namespace."""
    units: Annotated[tuple[UnitSettings, ...], msgspec.Meta(min_length=1, max_length=256)] = (
        UnitSettings(name="core"),
    )
    """Unit types that the resources are divided into; with several centres, give each its own `local.cores`."""
    local: LocalSettings = LocalSettings()
    """Share of the machine for this centre, and limits on its jobs."""
    trial: TrialSettings = TrialSettings()
    """Selection of probe kernels to try."""
    sql: SqlSettings = SqlSettings()
    """Executors of the operators of SQL tasks."""
    labels: dict[LabelName, LabelValue] = msgspec.field(default_factory=dict)
    """Labels of the Centre resource, set at its creation."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """Environment variables of jobs."""
    metrics: CentreMetrics | None = CentreMetrics()
    """Prometheus endpoint; default: on loopback at the documented port, see docs/network/metrics.md; null: none."""
    report_s: PositiveS | None = None
    """Time between two reports; default: a quarter of the lease."""


class RestartSettings(Settings, frozen=True):
    """Restarts of daemons that die, and shutdown."""

    first_wait_s: PositiveS = 0.1
    """Initial delay before a restart; doubled after each early exit."""
    longest_wait_s: PositiveS = 5.0
    """Maximum delay before a restart."""
    young_s: PositiveS = 10.0
    """Run time that resets the delay."""
    stop_s: PositiveS = 5.0
    """Grace period before a stopping daemon is killed."""


class LogSettings(Strict, frozen=True):
    """The daemons' logs in the state folder."""

    max_bytes: Positive = 10_000_000
    """File size at which a log rotates."""
    files: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    """Number of rotated files kept per daemon."""


class UpSettings(Strict, frozen=True):
    """millrace.yaml in the state folder."""

    topology: str
    """A file, a bundled name, or a family such as fat-tree:k=4."""
    run: str = ""
    """Folder of the supervisor's and switches' sockets, private to this user; default: in the state folder."""
    time: Time = Time.VIRTUAL
    """Clock of the fabric that is started: virtual (one process, no root) or kernel (namespaces, root)."""
    switches: str | dict[str, str] = msgspec.field(default_factory=dict)
    """P4Runtime addresses of all switches, or patterns like the controller's, if they already run.

    Then no fabric is started.
    """
    watches: tuple[Watch, ...] | None = None
    """Flows that carry telemetry; default: all, sampled so that reports leave room on the links."""
    tls: ServiceTls | None = None
    """Certificates for gRPC addresses HOST:PORT: feed, path server, jobs, status, and remote switches."""
    fabric: FabricSection = FabricSection()
    """The fabric that is started."""
    collector: CollectorSection = CollectorSection()
    """The collector."""
    paths: PathsSection = PathsSection()
    """The path server."""
    controller: ControllerSection = ControllerSection()
    """The controller."""
    api: ApiSection = ApiSection()
    """The API server."""
    scheduler: SchedulerSection = SchedulerSection()
    """The scheduler."""
    placement: PlacementSection = PlacementSection()
    """The workload controller."""
    balance: BalanceSection | None = None
    """The management service of unit pools; default: off."""
    nodes: dict[Name, NodeSection] = msgspec.field(default_factory=dict)
    """Hosts of the topology that this machine runs pods for, each with a container manager; default: none."""
    centres: dict[Name, CentreSection] = msgspec.field(default_factory=dict)
    """Compute centres that this machine serves, each with an agent; default: none."""
    restart: RestartSettings = RestartSettings()
    """Restarts and stops."""
    logs: LogSettings = LogSettings()
    """The daemons' logs."""

    def in_folder(self, state: StateFolder) -> Self:
        """Return the settings with the state folder's socket folder if they name none."""
        return self if self.run else msgspec.structs.replace(self, run=str(default_run(state.path)))

    def address(self, daemon: str) -> str:
        """Return the address of a daemon."""
        section: CollectorSection | PathsSection | ControllerSection | ApiSection = getattr(self, daemon)
        return section.address or f"unix:{self.run}/{daemon}.sock"
