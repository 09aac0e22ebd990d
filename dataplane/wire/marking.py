"""Marking of an INT domain's packets, which tells readers where INT is (INT v2.1, section 5.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.wire import geneve, int_shim_gre, vxlan_gpe
from dataplane.wire.ioam import TimestampFormat

INT_DSCP: Final = 0x17
"""DSCP with which our programs mark INT packets, the specification's example value."""

EXACT_DSCP: Final = 0x3F


@dataclass(frozen=True, slots=True)
class Marking:
    """Each way to mark an INT packet, None for an unused one; a domain uses one of the first four.

    `dscp` counts in the bits of `dscp_mask`: all six for a value, one for a bit. GRE's protocol type, and VXLAN-GPE's
    and Geneve's UDP ports, identify tunnels that may carry INT. `ifa_protocol` is the IP protocol of IFA's header,
    `ioam_namespace` that of IOAM traces that are read.
    """

    dscp: int | None = INT_DSCP
    udp_port: int | None = None
    dscp_mask: int = EXACT_DSCP
    probe_marker: int | None = None
    gre_protocol: int | None = int_shim_gre.ETHER_INT
    vxlan_gpe_port: int | None = vxlan_gpe.UDP_PORT
    geneve_port: int | None = geneve.UDP_PORT
    ifa_protocol: int | None = None
    ioam_namespace: int | None = None
    ioam_timestamps: TimestampFormat = TimestampFormat.POSIX

    def marks_dscp(self, dscp: int) -> bool:
        """Return whether a packet with this DSCP carries INT after its TCP or UDP header."""
        return self.dscp is not None and (dscp ^ self.dscp) & self.dscp_mask == 0


UNMARKED: Final = Marking(dscp=None, gre_protocol=None, vxlan_gpe_port=None, geneve_port=None)
"""Finds no INT in any packet: for packets whose marking cannot be trusted."""
