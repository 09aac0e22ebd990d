"""P4Runtime's binary strings: unsigned big-endian integers (specification, section 8.4)."""

from __future__ import annotations

from dataplane.switch.p4runtime.errors import Code, P4RuntimeError


def encode(value: int) -> bytes:
    """Return the canonical, shortest string; zero takes one byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode(data: bytes, width: int, where: str) -> int:
    """Return the value of a string of any length, with or without leading zeros.

    Raises OUT_OF_RANGE, naming `where`, if the string is empty or its value does not fit `width` bits.
    """
    if not data:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{where}: an empty byte string has no value")
    value = int.from_bytes(data, "big")
    if value.bit_length() > width:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{where}: {value.bit_length()} bits do not fit {width}")
    return value


def encode_signed(value: int, width: int) -> bytes:
    """Return the canonical string of a `width` bit pattern that represents a number in two's complement."""
    signed = value - (1 << width) if value >> (width - 1) else value
    return signed.to_bytes(((signed if signed >= 0 else ~signed).bit_length() + 8) // 8, "big", signed=True)


def decode_signed(data: bytes, width: int, where: str) -> int:
    """Return the `width` bit pattern of a two's complement string; raise OUT_OF_RANGE as `decode` does."""
    if not data:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{where}: an empty byte string has no value")
    value = int.from_bytes(data, "big", signed=True)
    if not -(1 << (width - 1)) <= value < 1 << (width - 1):
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{where}: {value} does not fit {width} signed bits")
    return value & ((1 << width) - 1)
