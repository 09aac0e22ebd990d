"""A hello on the wire: a BFD control packet directly on Ethernet, to an address that no bridge forwards.

Destination 01:80:c2:00:00:0e (nearest bridge, IEEE 802.1Q, table 8-1), source a locally administered address of
(device id, port), EtherType 0x88b5 (IEEE 802, local experimental 1), the packet, zeros up to the shortest frame.
"""

from __future__ import annotations

from typing import Final

from dataplane.wire import bfd, ethernet

DESTINATION: Final = 0x0180_C200_000E
ETHER_TYPE: Final = 0x88B5
FRAME_BYTES: Final = 60
"""The shortest Ethernet frame, without its check sequence."""
PACKET_OFFSET: Final = ethernet.SIZE
HELLO_BYTES: Final = PACKET_OFFSET + bfd.SIZE

_PORT_BITS = 9
_DEVICE_BITS = 22
_LOCALLY_ADMINISTERED = 0x02 << 40
_DESTINATION_BYTES = DESTINATION.to_bytes(6, "big")
_TYPE_BYTES = ETHER_TYPE.to_bytes(2, "big")


def discriminator(device_id: int, port: int) -> int:
    """Return the discriminator of a port's session: 1, 22 bits of the device, 9 of the port; never 0."""
    return 1 << 31 | (device_id % (1 << _DEVICE_BITS)) << _PORT_BITS | port


def source_address(device_id: int, port: int) -> int:
    """Return the source address of a port's hellos."""
    return _LOCALLY_ADMINISTERED | (device_id % (1 << 31)) << _PORT_BITS | port


def encode(device_id: int, port: int, packet: bfd.Bfd) -> bytes:
    """Return the frame that carries a packet from a port."""
    header = ethernet.Ethernet(DESTINATION, source_address(device_id, port), ETHER_TYPE)
    return (header.encode() + packet.encode()).ljust(FRAME_BYTES, b"\0")


def is_hello(frame: bytes) -> bool:
    """Return whether a frame is addressed as a hello, whatever it holds."""
    return frame[:6] == _DESTINATION_BYTES and frame[12:14] == _TYPE_BYTES
