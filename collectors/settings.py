"""The collector's settings, one sentence each; every default suits a fabric of some dozen switches."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from dataplane.config import Strict
from dataplane.wire.geneve import UDP_PORT as GENEVE_PORT
from dataplane.wire.int_shim_gre import ETHER_INT
from dataplane.wire.marking import EXACT_DSCP
from dataplane.wire.vxlan_gpe import UDP_PORT as VXLAN_GPE_PORT

Positive = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Dscp = Annotated[int, Meta(ge=0, le=63)]


class SequenceSettings(Strict, frozen=True):
    """How gaps in the reports' sequence numbers are judged."""

    window_reports: Positive = 1024
    """How far behind the newest a report may come and still be told late from repeated; one as far ahead is not
    believed until the next one follows it."""

    largest_gap_reports: Positive = 65_536
    """A longer jump ahead, down to a small number, is a restart of the switch and no loss."""

    silence_ns: Positive = 1_000_000_000
    """After so long without a report a small number is a restart of the switch and no repetition."""

    repeats_before_restart: Positive = 16
    """So many numbers that came before with other content, or are behind the window, in ascending order with nothing
    new between them, are a restart too."""

    max_reporters: Positive = 4096
    """How many (node, hardware) pairs are accounted; the one unheard for longest makes room for a new one."""


class ClockSettings(Strict, frozen=True):
    """How offsets and drifts of clocks that nobody synchronises are estimated from packets' stamps."""

    interval_ns: Positive = 100_000_000
    """Time between two estimates, or 0.05 ms a cable where that is more; a direction's fastest packet of it counts."""

    memory_ns: Positive = 10_000_000_000
    """Older observations weigh less: after this time 1/e."""

    pair_within_ns: Positive = 1_000_000_000
    """Packets of the two directions make one observation when no more time than this lies between them."""

    forget_after_ns: Positive = 60_000_000_000
    """A link without observations for so long ties no clocks together any more."""

    resolution_ns: Positive = 1_000
    """The stamps' resolution: no estimate is called better than this."""

    largest_drift_ppb: Positive = 200_000
    """No two clocks drift apart faster, in parts per 10**9 (an ordinary crystal: 20,000 to 100,000)."""

    wander_ppb: Annotated[int, Meta(ge=0)] = 1_000
    """How far a drift may be wrong: uncertainty grows by this while a link is not observed."""

    jump_ns: Positive = 1_000_000
    """Two observations in a row that are further off than this, and agree, are a clock that was set or began anew."""

    largest_uncertainty_ns: Positive = 10_000_000
    """A link whose correction may be wrong by more is not corrected: its delay comes from hop latency."""


class JobWatchSettings(Strict, frozen=True):
    """How reports of complete items become the state of the jobs that switches add up."""

    window_ns: Positive = 10_000_000_000
    """The span, back from a job's newest report, over which its waits and stragglers are judged."""

    forget_after_ns: Positive = 60_000_000_000
    """A job that no item was reported of for so long is no longer listed."""

    max_jobs: Positive = 1024
    """How many jobs are kept, each once a switch; the one unheard for longest makes room for a new one."""


class StateSettings(Strict, frozen=True):
    """How hop records become the network's state."""

    window_ns: Positive = 500_000_000
    """The span, back from a link's newest sample, over which delay and queue are averaged."""

    stale_after_ns: Positive = 3_000_000_000
    """A link without news for so long has its nominal figures again."""

    rate_window_ns: Positive = 2_000_000_000
    """The span over which the bytes of a flow's measured packets make its rate."""

    sample_every: Positive = 1
    """Of this many packets of a flow one carries telemetry, as the controller's watch rules say; rates grow by it."""

    forget_path_after_ns: Positive = 10_000_000_000
    """A flow without a report for so long is no longer listed with its path."""

    max_flows: Positive = 8192
    """How many flows' paths are kept; the one unheard for longest makes room for a new one."""

    max_routes: Positive = 4096
    """How many different ways through the switches are kept apart; those that no flow takes any more make room."""

    max_pending_packets: Positive = 65_536
    """How many packets may wait for the reports of their other hops; the oldest makes room."""

    longest_wait_ns: Positive = 200_000_000
    """How long a packet may wait for the reports of its other hops; then what it has said is all."""

    longest_link_delay_ns: Positive = 10_000_000_000
    """Two hops' time stamps that are further apart, or in the wrong order, are not of one packet or one clock."""

    tx_window_ns: Annotated[int, Meta(ge=1, le=9_000_000_000)] = 65_536_000
    """The span whose bytes a switch reports as TX utilisation: 2**16 microseconds in our P4 program."""

    probe_udp_port: Port | None = None
    """The UDP destination port of probe packets, null when there are none: stamps that only they have are `probes`."""

    clocks: ClockSettings = ClockSettings()
    """How clocks are estimated, where the topology does not say that they are synchronised."""

    jobs: JobWatchSettings = JobWatchSettings()
    """How jobs are watched that switches add up for."""


class Core(StrEnum):
    """What works on reports: machine code wherever it can, or the readable reference alone."""

    NATIVE = "native"
    REFERENCE = "reference"


class CollectorSettings(Strict, frozen=True):
    """Everything that a collector needs besides topology and clock."""

    core: Core = Core.NATIVE
    """What works on reports: native, or reference, which says the same and is slow."""

    records_reports_per_s: Positive = 5000
    """Of so many reports a second, at most, subscribers get the hop records; the others are counted."""

    other_reports_per_s: Positive | None = 2500
    """Of so many reports a second, at most, of forms that only Python reads, more than the number counts; null: of all.

    That costs about 0.2 ms a report. So do drops that somebody subscribes to; the others count, but make no records.
    The reference core reads all of them."""

    int_dscp: Dscp | None = 0x17
    """The DSCP that marks INT packets, as the P4 program has it; null when a UDP port marks them."""

    int_udp_port: Port | None = None
    """The UDP destination port that marks INT packets; null when the DSCP does."""

    int_dscp_mask: Annotated[int, Meta(ge=1, le=63)] = EXACT_DSCP
    """Which bits of the DSCP count: all six for a value, one for a bit that marks INT packets."""

    int_probe_marker: Annotated[int, Meta(ge=0)] | None = None
    """The 64-bit probe marker behind TCP and UDP headers that marks INT packets, null when there is none."""

    int_gre_protocol: Annotated[int, Meta(ge=0, le=0xFFFF)] | None = ETHER_INT
    """GRE's protocol type for INT; null when no GRE tunnel carries INT."""

    vxlan_gpe_udp_port: Port | None = VXLAN_GPE_PORT
    """The UDP port of VXLAN-GPE tunnels that may carry INT, null when none does."""

    geneve_udp_port: Port | None = GENEVE_PORT
    """The UDP port of Geneve tunnels that may carry INT, null when none does."""

    report_udp_port: Port | None = None
    """The reports' own UDP port, null for the topology's: reports about such packets are counted and go no further."""

    sequence: SequenceSettings = SequenceSettings()
    """How gaps in the reports' sequence numbers are judged."""

    state: StateSettings = StateSettings()
    """How hop records become the network's state."""

    def __post_init__(self) -> None:
        """Refuse a marker of more than 64 bits, a bound that the schema cannot say."""
        if self.int_probe_marker is not None and self.int_probe_marker >= 1 << 64:
            raise ValueError("int_probe_marker does not fit 64 bits")
