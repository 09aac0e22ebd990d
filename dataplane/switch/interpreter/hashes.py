"""The hash algorithms that bmv2 offers, by its names: bytes in, an unsigned integer out."""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Callable


def crc16(data: bytes) -> int:
    """Return CRC-16/ARC: polynomial 0x8005, reflected, initial value 0."""
    remainder = 0
    for byte in data:
        remainder = (remainder >> 8) ^ _CRC16[(remainder ^ byte) & 0xFF]
    return remainder


def crc_ccitt(data: bytes) -> int:
    """Return CRC-16/CCITT-FALSE: polynomial 0x1021, initial value 0xffff."""
    return binascii.crc_hqx(data, 0xFFFF)


def csum16(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071); an odd last byte is padded with zeros."""
    number = int.from_bytes(data, "big") << (8 * (len(data) % 2))
    folded = number % 0xFFFF
    return 0xFFFF - (0xFFFF if number and not folded else folded)


def identity(data: bytes) -> int:
    """Return the first 8 bytes as a number."""
    return int.from_bytes(data[:8], "big")


def xor16(data: bytes) -> int:
    """Return the exclusive or of all 16-bit words, the last one padded with zeros."""
    return _xor(data, 2)


def xor32(data: bytes) -> int:
    """Return the exclusive or of all 32-bit words, the last one padded with zeros."""
    return _xor(data, 4)


def _xor(data: bytes, size: int) -> int:
    padded = data + bytes(-len(data) % size)
    result = 0
    for offset in range(0, len(padded), size):
        result ^= int.from_bytes(padded[offset : offset + size], "big")
    return result


def _crc16_entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0xA001 if byte & 1 else 0)
    return byte


_CRC16 = [_crc16_entry(byte) for byte in range(256)]

HASHES: dict[str, Callable[[bytes], int]] = {
    "crc16": crc16,
    "crc16_custom": crc16,
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
    "crcCCITT": crc_ccitt,
    "csum16": csum16,
    "cksum16": csum16,
    "identity": identity,
    "xor16": xor16,
    "xor32": xor32,
}
