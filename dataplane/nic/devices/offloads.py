"""Turns off what a network device would do to frames behind the switch's back.

A veth pair hands frames over unfinished: checksums left to hardware that is not there, segments of 64 KB, VLAN tags
beside the frame. A switch must see what is on the wire.
"""

from __future__ import annotations

from dataplane.nic.run_off_loop import run_off_loop

OFFLOADS = (
    "rx-checksum",
    "tx-checksum-ipv4",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv6",
    "tx-checksum-fcoe-crc",
    "tx-checksum-sctp",
    "tx-scatter-gather",
    "tx-scatter-gather-fraglist",
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp-accecn-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
    "rx-gro-hw",
    "rx-gro-list",
    "rx-udp-gro-forwarding",
    "rx-lro",
    "tx-vlan-hw-insert",
    "rx-vlan-hw-parse",
    "tx-vlan-stag-hw-insert",
    "rx-vlan-stag-hw-parse",
)
"""Checksums, segmentation, aggregation, tags beside the frame; names of the kernel's netdev_features_strings."""

SEGMENTATION = ("tx-checksum-ip-generic", "tx-scatter-gather", "tx-tcp-segmentation")
"""What a device needs to take a packet of several TCP segments."""


@run_off_loop
def disable_offloads(interface: str) -> None:
    """Switch checksum, segmentation, aggregation and VLAN offloads of a device off, as far as it has them.

    Acts in the network namespace of the calling thread. Raises PortError if the device is missing or rights are.
    """
    from dataplane.nic.devices.ethtool import EthtoolSocket  # noqa: PLC0415 - only Linux has netlink

    with EthtoolSocket(interface) as ethtool:
        ethtool.set_features(dict.fromkeys(OFFLOADS, False))


@run_off_loop
def enable_segmentation(interface: str) -> None:
    """Let a device take TCP segments that are joined, as far as it can; Linux cuts them apart where it cannot.

    As `disable_offloads` otherwise, which comes first.
    """
    from dataplane.nic.devices.ethtool import EthtoolSocket  # noqa: PLC0415 - only Linux has netlink

    with EthtoolSocket(interface) as ethtool:
        ethtool.set_features(dict.fromkeys(SEGMENTATION, True))
