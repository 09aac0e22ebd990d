"""Cyclic redundancy checks over bytes in memory, eight bytes per step; `interpreter.hashes.crc` is the reference.

Source: M. Kounavis, F. Berry, "A Systematic Approach to Building High Performance Software-Based CRC Generators", ISCC
2005 ("slicing by 8"): table k holds a byte's remainder after k further bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from dataplane.native import (
    Array,
    Kernel,
    as_u64,
    bswap,
    constant_table,
    kernel,
    load_be64,
    reverse_bits,
    u8,
    u16,
    u32,
    u64,
)
from dataplane.program.operations import CrcParameters

Update = Kernel[[int, Array[int], int], int]
Hash = Kernel[[Array[int], int, Array[int], int], int]

SLICES = 8
_MASK_64 = (1 << 64) - 1


@functools.cache
def crc_kernel(parameters: CrcParameters) -> Hash:
    """Return the kernel that computes a check over bytes, followed by a packet's payload; widths up to 64 bits.

    For reflected input, the register is kept mirrored, in the low bits; else it is kept in the high bits.
    """
    mirrored, turn = parameters.reflect_in, parameters.reflect_in != parameters.reflect_out
    width, final_xor = parameters.width_bits, parameters.final_xor
    initial = _reflect(parameters.initial, width) if mirrored else parameters.initial << (64 - width)
    update = _mirrored_update(parameters) if mirrored else _straight_update(parameters)
    up = mirrored == turn  # the register ends in the high bits
    name = f"crc{width}_{parameters.polynomial:x}_{parameters.initial:x}_{final_xor:x}_{mirrored:d}{turn:d}"

    @kernel(name=name)
    def check(data: Array[u8], nbytes: u64, payload: Array[u8], payload_bytes: u64) -> u64:
        register = update(initial, data, nbytes)
        if payload_bytes != 0:
            register = update(register, payload, payload_bytes)
        if turn:
            register = reverse_bits(register)
        if up:
            register = register >> (64 - width)
        return register ^ final_xor

    return check


def _mirrored_update(parameters: CrcParameters) -> Update:
    table = _table(parameters.width_bits, _slices(_mirrored_entries(parameters), _pass_mirrored))

    @kernel
    def update(register: u64, data: Array[u8], nbytes: u64) -> u64:
        index: u64 = 0
        while index + 8 <= nbytes:
            word = bswap(load_be64(data, index)) ^ register
            register = as_u64(
                table[word >> 56]
                ^ table[0x100 + (word >> 48 & 0xFF)]
                ^ table[0x200 + (word >> 40 & 0xFF)]
                ^ table[0x300 + (word >> 32 & 0xFF)]
                ^ table[0x400 + (word >> 24 & 0xFF)]
                ^ table[0x500 + (word >> 16 & 0xFF)]
                ^ table[0x600 + (word >> 8 & 0xFF)]
                ^ table[0x700 + (word & 0xFF)]
            )
            index += 8
        # The last few bytes do not depend on each other either.
        rest = nbytes - index
        left = register >> 8 * rest
        for number in range(rest):
            byte = (register >> 8 * number ^ as_u64(data[index + number])) & 0xFF
            left ^= as_u64(table[0x100 * (rest - 1 - number) + byte])
        return left

    return update


def _straight_update(parameters: CrcParameters) -> Update:
    unused = 64 - parameters.width_bits
    table = _table(
        parameters.width_bits, [entry >> unused for entry in _slices(_straight_entries(parameters), _pass_straight)]
    )

    @kernel
    def update(register: u64, data: Array[u8], nbytes: u64) -> u64:
        index: u64 = 0
        while index + 8 <= nbytes:
            word = load_be64(data, index) ^ register
            register = as_u64(
                table[word & 0xFF]
                ^ table[0x100 + (word >> 8 & 0xFF)]
                ^ table[0x200 + (word >> 16 & 0xFF)]
                ^ table[0x300 + (word >> 24 & 0xFF)]
                ^ table[0x400 + (word >> 32 & 0xFF)]
                ^ table[0x500 + (word >> 40 & 0xFF)]
                ^ table[0x600 + (word >> 48 & 0xFF)]
                ^ table[0x700 + (word >> 56)]
            )
            register <<= unused
            index += 8
        rest = nbytes - index
        left = register << 8 * rest
        for number in range(rest):
            byte = (register << 8 * number) >> 56 ^ as_u64(data[index + number])
            left ^= as_u64(table[0x100 * (rest - 1 - number) + byte]) << unused
        return left

    return update


def _table(width: int, entries: list[int]) -> Array[int]:
    """Return the concatenated tables, no wider than necessary, for the first-level cache's sake."""
    return constant_table(u16 if width <= 16 else u32 if width <= 32 else u64, entries)


def _slices(first: list[int], pass_zero: Callable[[list[int], int], int]) -> list[int]:
    """Return the entries of all tables; each follows from the one before by passing a zero byte."""
    entries = list(first)
    for begin in range(0, 256 * (SLICES - 1), 256):
        entries += [pass_zero(first, entry) for entry in entries[begin : begin + 256]]
    return entries


def _pass_mirrored(first: list[int], entry: int) -> int:
    return entry >> 8 ^ first[entry & 0xFF]


def _pass_straight(first: list[int], entry: int) -> int:
    return (entry << 8 & _MASK_64) ^ first[entry >> 56]


def _mirrored_entries(parameters: CrcParameters) -> list[int]:
    polynomial, entries = _reflect(parameters.polynomial, parameters.width_bits), []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (polynomial if remainder & 1 else 0)
        entries.append(remainder)
    return entries


def _straight_entries(parameters: CrcParameters) -> list[int]:
    polynomial, entries = parameters.polynomial << (64 - parameters.width_bits), []
    for byte in range(256):
        remainder = byte << 56
        for _ in range(8):
            remainder = (remainder << 1 & _MASK_64) ^ (polynomial if remainder >> 63 else 0)
        entries.append(remainder)
    return entries


def _reflect(value: int, width: int) -> int:
    return int(f"{value:0{width}b}"[::-1], 2)
