"""The collector's settings, one sentence each; every default suits a fabric of some dozen switches."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Address
from typing import Annotated, Final

from msgspec import Meta

from dataplane.config import Settings, Strict
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.own_folder import default_address
from dataplane.wire.geneve import UDP_PORT as GENEVE_PORT
from dataplane.wire.int_shim_gre import ETHER_INT
from dataplane.wire.ioam import TimestampFormat
from dataplane.wire.marking import EXACT_DSCP
from dataplane.wire.vxlan_gpe import UDP_PORT as VXLAN_GPE_PORT

Positive = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Dscp = Annotated[int, Meta(ge=0, le=63)]

FEED_ADDRESS: Final = default_address("collector")
"""The default address of the feed, for the collector and for its clients."""


class SequenceSettings(Settings, frozen=True):
    """Settings of the evaluation of gaps in the reports' sequence numbers."""

    window_reports: Positive = 1024
    """Distance behind the newest at which a report is still recognised as late or repeated; a report that far ahead is
    not trusted until the next one follows it.
    """

    largest_gap_reports: Positive = 65_536
    """A longer jump ahead, down to a small number, is a restart of the switch, not a loss."""

    silence_ns: Positive = 1_000_000_000
    """After this long without a report a small number is a restart of the switch, not a repetition."""

    repeats_before_restart: Positive = 16
    """This many numbers with new content, or behind the window, in ascending order with nothing new in between, are a
    restart as well."""

    max_reporters: Positive = 4096
    """Maximum number of (node, hardware) pairs accounted; when full, the one unheard for longest is evicted."""


class ClockSettings(Settings, frozen=True):
    """Settings of the estimation of offsets and drifts of unsynchronised clocks from packets' time stamps."""

    interval_ns: Positive = 100_000_000
    """Time between two estimates, or 0.05 ms a cable where that is more; a direction's fastest packet of it counts."""

    memory_ns: Positive = 10_000_000_000
    """Older observations weigh less: after this time 1/e."""

    pair_within_ns: Positive = 1_000_000_000
    """Packets of the two directions make one observation if they are no further apart than this."""

    forget_after_ns: Positive = 60_000_000_000
    """A link without observations for this long no longer connects clocks."""

    resolution_ns: Positive = 1_000
    """Resolution of the time stamps: no uncertainty is smaller than this."""

    largest_drift_ppb: Positive = 200_000
    """No two clocks drift apart faster, in parts per 10**9 (an ordinary crystal: 20,000 to 100,000)."""

    wander_ppb: Annotated[int, Meta(ge=0)] = 1_000
    """Largest error of a drift estimate: uncertainty grows by this while a link is not observed."""

    jump_ns: Positive = 1_000_000
    """Two successive observations that are further off than this, and agree, mean a clock that was set or restarted."""

    largest_uncertainty_ns: Positive = 10_000_000
    """A link whose correction may be off by more is not corrected: its delay comes from hop latency."""


class JobWatchSettings(Settings, frozen=True):
    """Settings of the state of jobs of in-network aggregation, derived from reports of complete items."""

    window_ns: Positive = 10_000_000_000
    """The span, back from a job's newest report, over which its waits and stragglers are judged."""

    forget_after_ns: Positive = 60_000_000_000
    """A job without reported items for this long is no longer listed."""

    max_jobs: Positive = 1024
    """Maximum number of jobs kept, each once per switch; when full, the one unheard for longest is evicted."""


class StateSettings(Settings, frozen=True):
    """Settings of the network's state, derived from hop records."""

    window_ns: Positive = 500_000_000
    """The span, back from a link's newest sample, over which delay and queue are averaged."""

    stale_after_ns: Positive = 3_000_000_000
    """A link without reports for this long has its nominal figures again."""

    rate_window_ns: Positive = 2_000_000_000
    """The span over which a flow's rate is measured."""

    sample_every: Positive = 1
    """One in this many packets of a flow carries telemetry, as in the controller's watch rules; scales rates."""

    forget_path_after_ns: Positive = 10_000_000_000
    """A flow without a report for this long is no longer listed with its path."""

    max_flows: Positive = 8192
    """Maximum number of flows whose rates and paths are kept; when full, light flows are evicted first. Each costs 208
    bytes, and 0.65 us and 40 bytes in each state that the feed sends."""

    max_routes: Positive = 8192
    """Maximum number of different paths through the switches; unused ones are evicted. With at least `max_flows`, every
    flow has one.
    """

    max_pending_packets: Positive = 65_536
    """Maximum number of packets waiting for the reports of their other hops; when full, the oldest is evicted."""

    drops_per_report: Positive = 32
    """Maximum number of drops counted per report packet (our switches put four in one); further ones are `drops
    capped` and do not change the loss."""

    longest_wait_ns: Positive = 200_000_000
    """Longest time that a packet waits for the reports of its other hops; then it is evaluated without them."""

    longest_link_delay_ns: Positive = 10_000_000_000
    """Time stamps of two hops that are further apart, or out of order, do not belong to one packet or one clock."""

    tx_window_ns: Annotated[int, Meta(ge=1, le=9_000_000_000)] = 65_536_000
    """The span of the bytes that a switch reports as TX utilisation: 2**16 microseconds in our P4 program."""

    probe_udp_port: Port | None = None
    """The UDP destination port of probe packets, null if there are none: delays that only they measure are `probes`."""

    clocks: ClockSettings = ClockSettings()
    """Estimation of clocks, unless the topology declares them synchronised."""

    jobs: JobWatchSettings = JobWatchSettings()
    """Watch over jobs of in-network aggregation."""


class Core(StrEnum):
    """Implementation that processes reports: machine code where possible, or the readable reference alone."""

    NATIVE = "native"
    REFERENCE = "reference"


class CollectorSettings(Strict, frozen=True):
    """Everything that a collector needs besides topology and clock."""

    core: Core = Core.NATIVE
    """Implementation that processes reports: native, or reference, which gives the same results slowly."""

    records_reports_per_s: Positive = 5000
    """Subscribers get the hop records of at most this many reports a second, an even sample; others are counted."""

    other_reports_per_s: Positive | None = 2500
    """At most this many reports a second of forms that only Python reads are read completely; of the others only the
    number counts; null: all are read.

    Reading costs about 0.3 ms per report, also of drops with a subscriber; the others count, but make no records. The
    reference core reads all of them."""

    python_share: Annotated[float, Meta(gt=0, le=1)] = 0.25
    """Largest share of time for reports that Python reads one by one, for records or because of their form; when it
    runs short, records are withheld first. It does not apply if `other_reports_per_s` is null.
    """

    relays: tuple[str, ...] | None = ()
    """IPv4 addresses of relays, which check the reports' sources themselves and may forward those of any switch
    (127.0.0.1 for `millrace fabric` on the same machine); null: accept reports from any address."""

    int_dscp: Dscp | None = 0x17
    """The DSCP that marks INT packets, as the P4 program has it; null when a UDP port marks them."""

    int_udp_port: Port | None = None
    """The UDP destination port that marks INT packets; null when the DSCP does."""

    int_dscp_mask: Annotated[int, Meta(ge=1, le=63)] = EXACT_DSCP
    """Mask of the significant DSCP bits: all six for a value, one for a bit that marks INT packets."""

    int_probe_marker: Annotated[int, Meta(ge=0)] | None = None
    """The 64-bit probe marker behind TCP and UDP headers that marks INT packets, null when there is none."""

    int_gre_protocol: Annotated[int, Meta(ge=0, le=0xFFFF)] | None = ETHER_INT
    """GRE's protocol type for INT; null when no GRE tunnel carries INT."""

    vxlan_gpe_udp_port: Port | None = VXLAN_GPE_PORT
    """The UDP port of VXLAN-GPE tunnels that may carry INT, null when none does."""

    geneve_udp_port: Port | None = GENEVE_PORT
    """The UDP port of Geneve tunnels that may carry INT, null when none does."""

    ifa_protocol: Annotated[int, Meta(ge=0, le=255)] | None = None
    """The IP protocol of IFA 2.0 (131 or 253), whose stacks in packets count as INT's; null where none is trusted."""

    ioam_namespace: Annotated[int, Meta(ge=0, le=0xFFFF)] | None = None
    """The namespace whose IOAM traces in IPv6 packets count as INT's stacks; null where none is trusted."""

    ioam_timestamps: TimestampFormat = TimestampFormat.POSIX
    """Format of that namespace's timestamps: posix (Linux), ptp or ntp."""

    report_udp_port: Port | None = None
    """The reports' own UDP port, null for the topology's: reports about such packets are counted and ignored."""

    sequence: SequenceSettings = SequenceSettings()
    """Evaluation of gaps in the reports' sequence numbers."""

    state: StateSettings = StateSettings()
    """State of the network, derived from hop records."""

    def __post_init__(self) -> None:
        """Refuse markers of more than 64 bits and invalid relay addresses, which the schema cannot express."""
        if self.int_probe_marker is not None and self.int_probe_marker >= 1 << 64:
            raise ValueError("int_probe_marker does not fit 64 bits")
        for relay in self.relays or ():
            try:
                IPv4Address(relay)
            except ValueError:
                raise ValueError(f"relays: {relay!r} is not an IPv4 address") from None


class FeedClientSettings(Strict, frozen=True):
    """Settings of a feed client: the address of the collector's feed, and the waits between attempts."""

    address: str = FEED_ADDRESS
    """The feed's gRPC address: unix:PATH, HOST:PORT or plain:HOST:PORT."""

    tls: TlsSettings | None = None
    """Certificates for HOST:PORT; null: those that the environment names."""

    first_wait_ns: Positive = 100_000_000
    """Wait before the first retry; each further wait is twice as long."""

    longest_wait_ns: Positive = 1_000_000_000
    """Waits grow no longer than this."""
