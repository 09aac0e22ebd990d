"""TCP settings of a virtual host; the defaults are those of Linux where RFCs leave a choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.clock import NS_PER_MS, NS_PER_S
from dataplane.errors import FabricError
from dataplane.fabric.virtual.tcp.congestion import Congestion

LEAST_MTU: Final = 576
MOST_MTU: Final = 9_000
MOST_BUFFER_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class TcpSettings:
    """Settings of one end; raises FabricError for invalid values.

    `sack`, `timestamps`, `window_scaling` and `ecn` are used if both ends have them. `rack` (RFC 8985: time-based loss
    detection instead of three segments) and `tail_loss_probes` need `sack`; `hystart` ends CUBIC's slow start when
    delays grow. `delayed_ack_ns` is how long an acknowledgment waits at most for a second segment (0: not at all); the
    first `quick_acks` of a connection, and after a pause, are not delayed. After `syn_retries` of a SYN, or `retries`
    of data, without an answer the connection fails. A statistics sample is taken every `sample_ns`, and whenever
    congestion is noticed.
    """

    congestion: Congestion = Congestion.CUBIC
    mtu_bytes: int = 1500
    initial_window_segments: int = 10
    """RFC 6928."""
    sack: bool = True
    timestamps: bool = True
    window_scaling: bool = True
    ecn: bool = False
    rack: bool = True
    tail_loss_probes: bool = True
    hystart: bool = True
    delayed_ack_ns: int = 40 * NS_PER_MS
    quick_acks: int = 16
    initial_rto_ns: int = NS_PER_S
    least_rto_ns: int = 200 * NS_PER_MS
    """Minimum margin of the timeout beyond the round trip; RFC 6298 requires a minimum of one second in total."""
    most_rto_ns: int = 120 * NS_PER_S
    send_buffer_bytes: int = 4 << 20
    receive_buffer_bytes: int = 4 << 20
    syn_retries: int = 6
    retries: int = 15
    time_wait_ns: int = 60 * NS_PER_S
    sample_ns: int = 10 * NS_PER_MS

    def __post_init__(self) -> None:
        for name, least, most in _BOUNDS:
            value = getattr(self, name)
            if not least <= value <= most:
                raise FabricError(f"tcp: {name} is {value}, not {least} to {most}")
        if not self.least_rto_ns <= self.initial_rto_ns <= self.most_rto_ns:
            raise FabricError("tcp: initial_rto_ns is not between least_rto_ns and most_rto_ns")


_BOUNDS: Final = (
    ("mtu_bytes", LEAST_MTU, MOST_MTU),
    ("initial_window_segments", 1, 1_000),
    ("delayed_ack_ns", 0, 500 * NS_PER_MS),
    ("quick_acks", 0, 1_000),
    ("least_rto_ns", NS_PER_MS, 60 * NS_PER_S),
    ("most_rto_ns", NS_PER_S, 3_600 * NS_PER_S),
    ("send_buffer_bytes", 1, MOST_BUFFER_BYTES),
    ("receive_buffer_bytes", 2 * LEAST_MTU, MOST_BUFFER_BYTES),
    ("syn_retries", 0, 100),
    ("retries", 0, 100),
    ("time_wait_ns", 0, 600 * NS_PER_S),
    ("sample_ns", 1_000, 3_600 * NS_PER_S),
)
