"""Settings of a device's rings: their sizes and behaviour, and DPDK's additional ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

RX_BYTES, TX_BYTES = 8 << 20, 2 << 20
"""4,900 frames of 1,500 bytes outlast a stop of 5 ms at a million frames a second."""


@dataclass(frozen=True, slots=True)
class DpdkSettings:
    """Settings of a port of kind DPDK, in addition to the sizes of its rings.

    device: a driver of DPDK's virtual devices with its arguments, such as "net_af_xdp" or "net_pcap,rx_pcap=in.pcap";
    arguments that net_af_packet and net_af_xdp need are put in front. A port whose name is a PCI address takes that
    device and ignores this. memory_mib: all that the process's DPDK ports may use; the first port's counts.
    """

    device: str = "net_af_packet"
    memory_mib: int = 256

    @property
    def driver(self) -> str:
        """Return the driver's name."""
        return self.device.partition(",")[0]

    @property
    def arguments(self) -> str:
        """Return the driver's arguments."""
        return self.device.partition(",")[2]


@dataclass(frozen=True, slots=True)
class RingSettings:
    """Settings of a port's rings, per queue: a ring that is too small loses frames in bursts, a large one costs memory.

    rx_frames, tx_frames: slots to receive into and to send from, None for what RX_BYTES and TX_BYTES hold. frame_bytes:
    the longest frame that must fit, None for the device's MTU; longer ones are counted and dropped. block_bytes,
    block_timeout_ms: of TPACKET_V3; a frame waits until its block is full, at most for the timeout.
    qdisc_bypass: AF_PACKET hands frames to the driver past the device's queueing discipline. stamps: the clock
    that times received frames where the queue's `stamps` is set; a device without a clock refuses "hardware".
    busy_poll_us: AF_XDP, for threads that poll: one that finds nothing runs the device's receiver itself, and a thread
    does so for this long before it sleeps. 0: only interrupts run it. join_segments: AF_PACKET sends consecutive TCP
    segments as one packet of up to 64 KB, for a device whose other end is a TCP/IP stack of Linux; "gated": only while
    a `JoinWatch` has verified that it is, and that nothing reads frames there.
    first_queue: AF_PACKET gives both directions of a flow the same queue, counted from this one; another value on the
    other device takes the two directions to different queues. dpdk: for ports of kind DPDK.
    """

    rx_frames: int | None = None
    tx_frames: int | None = None
    frame_bytes: int | None = None
    block_bytes: int = 1 << 18
    block_timeout_ms: int = 1
    qdisc_bypass: bool = False
    stamps: Literal["none", "software", "hardware"] = "software"
    busy_poll_us: int = 0
    join_segments: Literal["never", "gated", "always"] = "never"
    first_queue: int = 0
    dpdk: DpdkSettings = field(default_factory=DpdkSettings)

    def rx_bytes(self, slot_bytes: int) -> int:
        """Return the memory to receive into, in slots of a size."""
        return RX_BYTES if self.rx_frames is None else self.rx_frames * slot_bytes

    def tx_bytes(self, slot_bytes: int) -> int:
        """Return the memory to send from, in slots of a size."""
        return TX_BYTES if self.tx_frames is None else self.tx_frames * slot_bytes
