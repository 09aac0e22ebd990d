"""Which of DPDK's devices a port uses, and how much memory DPDK may have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DpdkSettings:
    """What a port of kind DPDK wants to know beside the sizes of its rings.

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
        """Return the arguments behind it."""
        return self.device.partition(",")[2]
