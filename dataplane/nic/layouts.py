"""Linux's memory layouts of rings: linux/if_packet.h, linux/if_xdp.h."""

from __future__ import annotations

from dataplane.native import Struct, i32, u8, u16, u32, u64

TP_KERNEL = 0
TP_USER = 1
TP_CHECKSUM_NOT_READY = 1 << 3
TP_VLAN_VALID = 1 << 4
TP_TPID_VALID = 1 << 6
TP_HARDWARE_STAMP = 1 << 31
TP_AVAILABLE = 0
TP_SEND_REQUEST = 1

XDP_NEED_WAKEUP = 1
XDP_CONTINUES = 1
"""XDP_PKT_CONTD: the next descriptor continues the same frame."""

VIRTIO_NEEDS_CHECKSUM, VIRTIO_TCP_IPV4 = 1, 1
"""VIRTIO_NET_HDR_F_NEEDS_CSUM of flags, VIRTIO_NET_HDR_GSO_TCPV4 of segmentation."""

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_VLAN = 0x8100
ETHERNET_BYTES = 14
VLAN_BYTES = 4


class PacketV2Header(Struct):
    """struct tpacket2_hdr, at the head of each slot; struct sockaddr_ll follows."""

    status: u32
    length: u32
    captured: u32
    mac: u16
    net: u16
    seconds: u32
    nanoseconds: u32
    vlan_tci: u16
    vlan_tpid: u16
    padding: u32


class PacketV3Block(Struct):
    """struct tpacket_block_desc, at the head of each block."""

    version: u32
    private_offset: u32
    status: u32
    frames: u32
    first_offset: u32
    nbytes: u32
    sequence: u64


class PacketV3Header(Struct):
    """struct tpacket3_hdr, before each frame of a block."""

    next_offset: u32
    seconds: u32
    nanoseconds: u32
    captured: u32
    length: u32
    status: u32
    mac: u16
    net: u16
    rx_hash: u32
    vlan_tci: u32
    vlan_tpid: u16
    padding: u16
    more_padding: u64


class XdpDescriptor(Struct):
    """struct xdp_desc: a piece of a frame in the socket's memory."""

    addr: u64
    length: u32
    options: u32


class MessageHeader(Struct):
    """struct mmsghdr on 64-bit Linux."""

    name: u64
    name_bytes: u32
    gap0: u32
    vector: u64
    vector_count: u64
    control: u64
    control_bytes: u64
    flags: i32
    gap1: u32
    length: u32
    gap2: u32


class VirtioHeader(Struct):
    """struct virtio_net_hdr, in front of each frame if PACKET_VNET_HDR is set; numbers in the machine's byte order."""

    flags: u8
    segmentation: u8
    header_bytes: u16
    segment_bytes: u16
    checksum_start: u16
    checksum_offset: u16


class InputOutputVector(Struct):
    """struct iovec."""

    base: u64
    nbytes: u64


def field_offset(struct: type[Struct], field: str) -> int:
    """Return a field's offset in a struct, in bytes."""
    offset: int = getattr(struct, field).offset
    return offset
