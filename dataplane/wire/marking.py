"""How an INT domain marks its packets, so that who reads one knows where INT stands (INT v2.1, section 5.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.wire import geneve, int_shim_gre, vxlan_gpe

INT_DSCP: Final = 0x17
"""The DSCP by which our programs mark INT packets, the specification's example value."""

EXACT_DSCP: Final = 0x3F


@dataclass(frozen=True, slots=True)
class Marking:
    """Each way to mark an INT packet, None for one that is not used; a domain uses one of the first four.

    `dscp` counts in the bits of `dscp_mask`: all six for a value, one for a bit. GRE's protocol type, VXLAN-GPE's and
    Geneve's UDP ports are where tunnels are looked for that carry INT.
    """

    dscp: int | None = INT_DSCP
    udp_port: int | None = None
    dscp_mask: int = EXACT_DSCP
    probe_marker: int | None = None
    gre_protocol: int | None = int_shim_gre.ETHER_INT
    vxlan_gpe_port: int | None = vxlan_gpe.UDP_PORT
    geneve_port: int | None = geneve.UDP_PORT

    def marks_dscp(self, dscp: int) -> bool:
        """Return whether a packet of this DSCP carries INT behind its TCP or UDP header."""
        return self.dscp is not None and (dscp ^ self.dscp) & self.dscp_mask == 0


UNMARKED: Final = Marking(dscp=None, gre_protocol=None, vxlan_gpe_port=None, geneve_port=None)
"""Finds no INT in any packet: for packets that may lie about theirs."""
