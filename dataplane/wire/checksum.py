"""The Internet checksum: RFC 1071 sum, RFC 1624 update, pseudo headers of RFC 768 and RFC 9293 and RFC 8200."""

from __future__ import annotations

from dataplane.wire.fields import IpAddress


def ones_complement_sum(data: bytes) -> int:
    """Return the 16-bit one's complement sum of big-endian words; an odd last byte is padded with zero.

    2**16 is 1 modulo 0xffff, so the whole buffer, read as one number, has the same remainder as the sum of its words;
    the sum of words that are not all zero never folds to zero.
    """
    number = int.from_bytes(data, "big")
    if len(data) % 2:
        number <<= 8
    return number % 0xFFFF or (0xFFFF if number else 0)


def internet_checksum(data: bytes) -> int:
    """Return the checksum (RFC 1071) of bytes with a zero checksum field; it is 0 over bytes with a correct one."""
    return ~ones_complement_sum(data) & 0xFFFF


def update(checksum: int, old: bytes, new: bytes) -> int:
    """Return `checksum` after covered bytes changed from `old` to `new`, both at even offsets (RFC 1624, section 3)."""
    total = (~checksum & 0xFFFF) + (~ones_complement_sum(old) & 0xFFFF) + ones_complement_sum(new)
    total = (total & 0xFFFF) + (total >> 16)
    # Adding the carry may carry once more.
    total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def pseudo_header(src: IpAddress, dst: IpAddress, protocol: int, length_bytes: int) -> bytes:
    """Return the prefix that a TCP or UDP checksum covers before the segment, which has `length_bytes`."""
    if src.version == 4:
        return src.packed + dst.packed + bytes((0, protocol)) + length_bytes.to_bytes(2, "big")
    return src.packed + dst.packed + length_bytes.to_bytes(4, "big") + bytes((0, 0, 0, protocol))


def transport_checksum(src: IpAddress, dst: IpAddress, protocol: int, segment: bytes) -> int:
    """Return the TCP or UDP checksum of a segment with a zero checksum field.

    Callers must apply UDP's rule that a computed 0 is sent as 0xffff (RFC 768), see `udp.checksum`.
    """
    return internet_checksum(pseudo_header(src, dst, protocol, len(segment)) + segment)
