"""Hashes over bytes in memory, followed by the packet's payload; `interpreter.hashes` is the reference."""

from __future__ import annotations

from llvmlite import ir

from dataplane.native import (
    Array,
    as_u16,
    as_u64,
    bswap,
    kernel,
    load_u16,
    load_u32,
    u8,
    u64,
)
from dataplane.program.operations import Calculation
from dataplane.switch.compiler.lowering.crc import Hash, crc_kernel
from dataplane.switch.compiler.lowering.routine import Routine
from dataplane.switch.compiler.lowering.routine import u64 as word

Bytes = tuple[ir.Value, ir.Value]
"""Start address and length of bytes, the latter as 64 bits."""


@kernel
def sum_native(data: Array[u8], nbytes: u64) -> u64:
    """Return the sum of all 16-bit words as they lie in memory, an odd last byte padded with a zero; below 2^50."""
    total: u64 = 0
    whole = nbytes - (nbytes & 3)
    index: u64 = 0
    while index < whole:
        total += as_u64(load_u32(data, index))
        index += 4
    if nbytes & 2 != 0:
        total += as_u64(load_u16(data, index))
        index += 2
    if nbytes & 1 != 0:
        total += as_u64(
            data[index]
        )  # the low byte of a word whose high byte is the padding, on a little-endian machine
    return total


@kernel
def fold(total: u64) -> u64:
    """Return a sum of 16-bit words with its carries added back."""
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@kernel
def csum16(data: Array[u8], nbytes: u64, payload: Array[u8], payload_bytes: u64) -> u64:
    """Return the Internet checksum."""
    total = fold(sum_native(data, nbytes))
    rest = fold(sum_native(payload, payload_bytes))
    if nbytes & 1 != 0:
        rest = as_u64(bswap(as_u16(rest)))
    return as_u64(bswap(as_u16(fold(total + rest)))) ^ 0xFFFF


@kernel
def identity(data: Array[u8], nbytes: u64, payload: Array[u8], payload_bytes: u64) -> u64:
    """Return the first 8 bytes as a number."""
    result: u64 = 0
    first = min(nbytes, 8)
    for index in range(first):
        result = result << 8 | as_u64(data[index])
    for index in range(min(payload_bytes, 8 - first)):
        result = result << 8 | as_u64(payload[index])
    return result


@kernel
def xor_words(start: u64, data: Array[u8], nbytes: u64) -> u64:
    """Return the exclusive or of all 32-bit words, the first of which lacks its `start` highest bytes."""
    result: u64 = 0
    position = start
    for index in range(nbytes):
        result ^= as_u64(data[index]) << ((3 - position & 3) * 8)
        position += 1
    return result


@kernel
def xor32(data: Array[u8], nbytes: u64, payload: Array[u8], payload_bytes: u64) -> u64:
    """Return the exclusive or of all 32-bit words, the last one padded with zeros."""
    return xor_words(0, data, nbytes) ^ xor_words(nbytes, payload, payload_bytes)


@kernel
def xor16(data: Array[u8], nbytes: u64, payload: Array[u8], payload_bytes: u64) -> u64:
    """Return the exclusive or of all 16-bit words, the last one padded with zeros."""
    whole = xor32(data, nbytes, payload, payload_bytes)
    return (whole ^ whole >> 16) & 0xFFFF


_HASHES: dict[str, Hash] = {
    "csum16": csum16,
    "cksum16": csum16,
    "identity": identity,
    "xor16": xor16,
    "xor32": xor32,
}


def sum_words(routine: Routine, data: ir.Value, nbytes: ir.Value) -> ir.Value:
    """Return the sum of 16-bit words in memory's order."""
    return routine.builder.call(routine.module.function(sum_native), [data, nbytes])


def kernel_of(calculation: Calculation) -> Hash:
    """Return the kernel that computes an algorithm over bytes, followed by a packet's payload."""
    return _HASHES[calculation.algorithm] if calculation.crc is None else crc_kernel(calculation.crc)


def hash_bytes(routine: Routine, calculation: Calculation, data: Bytes, payload: Bytes | None) -> ir.Value:
    """Return the hash of bytes, followed by a payload."""
    behind = payload or (data[0], word(0))
    return routine.builder.call(routine.module.function(kernel_of(calculation)), [*data, *behind])
