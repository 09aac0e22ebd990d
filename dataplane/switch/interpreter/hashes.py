"""The hash algorithms that bmv2 offers, by its names: bytes in, an unsigned integer out."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from dataplane.program.operations import Calculation, CrcParameters

Digest: TypeAlias = Callable[[bytes], int]


def bind_hash(calculation: Calculation) -> Digest:
    """Return the function that computes an algorithm."""
    if calculation.crc is not None:
        return crc(calculation.crc)
    return HASHES[calculation.algorithm]


@cache
def crc(parameters: CrcParameters) -> Digest:
    """Return the function that computes a cyclic redundancy check, byte by byte with a table."""
    if parameters == CrcParameters(32, 0x04C11DB7, 0xFFFF_FFFF, 0xFFFF_FFFF, reflect_in=True, reflect_out=True):
        return zlib.crc32
    width, mask, top = parameters.width_bits, (1 << parameters.width_bits) - 1, parameters.width_bits - 8
    table = [_divide(byte, parameters.polynomial, width) for byte in range(256)]
    order = [_reflect(byte, 8) if parameters.reflect_in else byte for byte in range(256)]

    def compute(data: bytes) -> int:
        remainder = parameters.initial
        for byte in data:
            remainder = (remainder << 8 & mask) ^ table[remainder >> top ^ order[byte]]
        return (_reflect(remainder, width) if parameters.reflect_out else remainder) ^ parameters.final_xor

    return compute


def _divide(byte: int, polynomial: int, width: int) -> int:
    """Return the remainder of a byte, shifted up to the register's width."""
    remainder, top = byte << (width - 8), 1 << (width - 1)
    for _ in range(8):
        remainder = remainder << 1 ^ (polynomial if remainder & top else 0)
    return remainder & ((1 << width) - 1)


def _reflect(value: int, width: int) -> int:
    return int(f"{value:0{width}b}"[::-1], 2)


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


HASHES: dict[str, Digest] = {
    "csum16": csum16,
    "cksum16": csum16,
    "identity": identity,
    "xor16": xor16,
    "xor32": xor32,
}
