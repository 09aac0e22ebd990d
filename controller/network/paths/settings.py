"""Settings of the path server: how it decides, what it records, where it listens."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from collectors.settings import FeedClientSettings
from collectors.shards.settings import CollectorLeases
from controller.common.standby.settings import StandbySettings
from controller.common.tracing import TraceSettings
from controller.network.intents import FlowSpec
from controller.network.links.settings import LEAST_SAMPLES
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.telemetry_load import TelemetryLoad
from dataplane.config import Settings, Strict
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.limits import Limits
from dataplane.rpc.own_folder import default_address

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
DurationNs = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]

_LEAST_PATIENCE_NS: Final = 1_000_000_000
_MISSED_INTERVALS: Final = 3

ADDRESS: Final = default_address("paths")
"""Default address of the path server, for itself and its clients."""


class Mode(StrEnum):
    """Criterion by which paths are compared."""

    LEAST_DELAY = "least-delay"
    MOST_BANDWIDTH = "most-bandwidth"
    BOTH = "both"


class BalanceSettings(Strict, frozen=True):
    """Settings of weights in groups of equally good next hops; hold-down, settling and headroom are the decider's."""

    enabled: bool = True
    """Allow weights to change; otherwise only single flows move."""
    confirm_rounds: Positive = 3
    """A link must be overloaded in this many consecutive rounds before weights change."""
    min_gain: Share = 0.05
    """If no weights restore a link's headroom, they change if that takes this share of its rate off it."""
    changes_per_round: Positive = 4
    """Groups (of one switch, for one destination) that may change in a round, those that load the link most first."""
    return_room: Share = 0.15
    """A group returns to equal weights when, with those, this share of each link's rate would stay free beyond the
    headroom, for `hold_down`."""


class DecideSettings(Settings, frozen=True):
    """Settings of the decider: its criteria, and limits that keep it stable."""

    mode: Mode = Mode.LEAST_DELAY
    """least-delay; most-bandwidth (the widest bottleneck); both: least delay among paths that are wide enough."""
    widest_share: Share = 0.5
    """In mode both: a path is wide enough with this share of the widest path's bottleneck."""
    min_gain: Share = 0.1
    """A flow moves only if the new path is better by this share of what it has."""
    min_gain_ns: DurationNs | None = msgspec.field(default=None, name="min_gain_time")
    """... and, where delay decides, by this much delay. By default a queue counts if it is longer than `idle_frames`
    and the link has load (`loaded`), so that delays without load move nothing."""
    min_gain_bps: Annotated[int, msgspec.Meta(ge=0)] = 100_000
    """... and, where bandwidth decides, by this much bandwidth."""
    confirm_rounds: Positive = 20
    """A gain in delay must last for this many consecutive rounds before a flow moves; a dead path and an overloaded
    link are left at once."""
    headroom: Share = 0.2
    """A path has room for a flow if, with the flow on it, each of its links keeps this share of its rate free."""
    hold_down_ns: DurationNs = 5_000_000_000
    """A flow that has moved stays where it is for this long, unless its path dies."""
    settle_ns: DurationNs = 700_000_000
    """After any move no other flow moves for this long, so that the next round sees the effect of the move."""
    moves_per_round: Positive = 2
    """Flows that may move in one round; the loads of links are predicted again after each."""
    relief_moves: Positive = 32
    """... and flows that may leave an overloaded link in one round, without confirmation."""
    idle_frames: Annotated[float, msgspec.Meta(ge=0)] = 2.0
    """A queue that is sent within the time of this many full frames is normal."""
    loaded: Share = 0.5
    """Without `min_gain_time`, a queue counts on links that carry at least this share of their rate."""
    full: Share = 0.9
    """A link with a queue and a load of this share of its rate is overloaded: flows leave it at once."""
    hidden: Annotated[float, msgspec.Meta(ge=1.0)] = 1.25
    """A flow from a full link needs this many times its measured rate as room: it may send more than arrives."""
    foreseen: Annotated[float, msgspec.Meta(ge=1.0)] = 1.05
    """A link over which flows send this share of its rate is overloaded, even without a queue."""
    balance: BalanceSettings = BalanceSettings()
    """Weights of ECMP groups, which change where no single flow fits elsewhere."""
    watch: TelemetryLoad | None = None
    """Load that telemetry adds to packets and to the links to the collector; by default it is ignored."""
    candidates: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    """Shortest paths (by configured delay) that are compared for each flow, besides the best measured one."""
    stale_after_ns: DurationNs = 1_000_000_000
    """Telemetry of a link older than this is not used: the link counts as empty, with its configured delay."""
    ignore_change: Annotated[float, msgspec.Meta(ge=0.0, le=0.5)] = 0.0
    """A link's delay counts as unchanged until it has changed by this share; it saves work in large fabrics."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Threads that share the work when all shortest path trees are computed again; for large fabrics."""
    dead_loss: Share = 0.9
    """A link that loses this share of its frames is dead, once the next round confirms it by new losses."""
    dead_loss_samples: Positive = LEAST_SAMPLES
    """Packets that must be measured on a link, within the collector's window, before it can die by loss."""
    dead_after_ns: DurationNs | None = None
    """A link that was measured once and is silent for this long is dead; only for fabrics whose flows never pause."""
    return_after_ns: DurationNs = 5_000_000_000
    """Flows return to a path when it has been without a dead link for this long; for links that the controller reports
    (ports, hellos), the controller waits itself (`links.return_after`)."""
    relieved_utilisation: Share = 0.8
    """A link whose predicted utilisation falls below this after a move has no queue, for flows on it, in this round."""


class ManagedFlow(Strict, frozen=True):
    """A flow that the path server decides about."""

    src: str
    """Name of the sending host."""
    dst: str
    """Name of the receiving host."""
    protocol: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    """IP protocol; left out, all of them."""
    src_port: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)] | None = None
    """Source port; left out, all of them."""
    dst_port: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)] | None = None
    """Destination port; left out, all of them."""
    rate_bps: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Its known rate; by default the measured rate, else its share of the load on its path."""

    @property
    def spec(self) -> FlowSpec:
        """The flow in the deciders' form."""
        return FlowSpec(self.src, self.dst, self.protocol, self.src_port, self.dst_port)


class RecordSettings(Strict, frozen=True):
    """The record table and the state that survives a restart."""

    database: str = ":memory:"
    """SQLite file (WAL); ':memory:' forgets everything at the end."""
    max_records: Positive = 1_000_000
    """Maximum number of hop records kept; the oldest are deleted first."""
    max_decisions: Positive = 10_000
    """Maximum number of decisions kept; the oldest are deleted first."""
    batch_records: Positive = 2_000
    """Hop records that are written in one transaction."""
    reports_per_s: Annotated[int, msgspec.Meta(ge=0)] = 200
    """Maximum number of reports per second whose hops are recorded, an even sample of all; 0: none."""


class MetricsSettings(Strict, frozen=True):
    """Settings of the endpoint that serves the path server's metrics to Prometheus."""

    address: str = "127.0.0.1"
    """The local address; nothing authenticates, so any other than loopback must be explicit: `plain:0.0.0.0`."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9473
    """The TCP port, 0 for a free one."""


class PathServerSettings(Settings, frozen=True):
    """Everything that `millrace paths` reads from its file."""

    topology: str
    """Path of the topology file, or its name among the bundled ones."""
    feed: str = FeedClientSettings().address
    """gRPC address of the collector's feed: 'unix:/run/millrace/collector.sock' or 'host:port'."""
    collectors: CollectorLeases | None = None
    """Leases of several collectors, whose feeds are found by them and merged; null: the one at `feed`, or several
    separated by commas."""
    listen: str = ADDRESS
    """gRPC address on which routes and decisions are served; others than a UNIX socket's or loopback need `tls`."""
    tls: TlsSettings | None = None
    """Certificates for HOST:PORT, of the feed and of what is served."""
    metrics: MetricsSettings | None = None
    """Endpoint that Prometheus scrapes; null disables it."""
    traces: TraceSettings | None = None
    """Destination of OpenTelemetry traces of reroutes; null disables them."""
    limits: Limits = Limits()
    """Limits on what all callers and subscribers may use together."""
    interval_ns: Positive = 100_000_000
    """Time between two rounds of decisions."""
    max_snapshot_age_ns: Positive | None = None
    """Nothing is decided by a state older than this, and the feed counts as silent: the collector may hang or be gone.

    Default: a second, or three intervals if those are longer.
    """
    forget_after_ns: DurationNs = 60_000_000_000
    """A flow that telemetry has not shown for this long loses its explicit path; those listed in `flows` never do."""
    max_flows: Positive = 4096
    """Maximum number of flows; when there are more, the heaviest are managed. The others are counted and follow the
    base routes. Each costs 0.45 us in a round."""
    flows: tuple[ManagedFlow, ...] = ()
    """The flows to decide about; default: every pair of hosts that telemetry shows."""
    decide: DecideSettings = DecideSettings()
    """Settings of the choice of paths."""
    engineering: EngineeringSettings | None = None
    """If given, traffic engineering: all demands at once by weighted routes; of `decide` only dead links apply."""
    records: RecordSettings = RecordSettings()
    """Settings of the records kept."""
    standby: StandbySettings | None = None
    """The lease of a pair of path servers, each with a database of its own; null: this one runs alone."""

    @property
    def oldest_snapshot_ns(self) -> int:
        """Maximum age of state used for decisions."""
        if self.max_snapshot_age_ns is not None:
            return self.max_snapshot_age_ns
        return max(_LEAST_PATIENCE_NS, _MISSED_INTERVALS * self.interval_ns)
