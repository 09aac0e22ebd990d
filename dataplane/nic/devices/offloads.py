"""Turns off what a network device would do to frames behind the switch's back.

A veth pair hands over unfinished frames: checksums left to hardware that is not there, segments of 64 KB, VLAN tags
stored outside the frame. A switch must see what is on the wire.
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
"""Checksum, segmentation, aggregation and VLAN tag offloads; names of the kernel's netdev_features_strings."""

SEGMENTATION = ("tx-checksum-ip-generic", "tx-scatter-gather", "tx-tcp-segmentation")
"""Features that a device needs to take a packet of several TCP segments."""


@run_off_loop
def disable_offloads(interface: str) -> None:
    """Switch off a device's checksum, segmentation, aggregation and VLAN offloads, as far as it has them.

    Acts in the network namespace of the calling thread. Raises PortError if the device or the rights are missing.
    """
    from dataplane.nic.devices.ethtool import EthtoolSocket  # noqa: PLC0415 - only Linux has netlink

    with EthtoolSocket(interface) as ethtool:
        ethtool.set_features(dict.fromkeys(OFFLOADS, False))


@run_off_loop
def enable_segmentation(interface: str) -> None:
    """Let a device take joined TCP segments, as far as it can; Linux splits them where it cannot.

    Otherwise like `disable_offloads`, which must run first.
    """
    from dataplane.nic.devices.ethtool import EthtoolSocket  # noqa: PLC0415 - only Linux has netlink

    with EthtoolSocket(interface) as ethtool:
        ethtool.set_features(dict.fromkeys(SEGMENTATION, True))
