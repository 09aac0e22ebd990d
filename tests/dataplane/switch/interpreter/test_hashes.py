"""Hash algorithms against published check values."""

from __future__ import annotations

import pytest

from dataplane.program.calculations import ALGORITHMS
from dataplane.switch.interpreter.hashes import HASHES

CHECK = b"123456789"
IPV4_HEADER = bytes.fromhex("45000073000040004011" + "0000" + "c0a80001c0a800c7")


@pytest.mark.parametrize(
    ("algorithm", "data", "value"),
    [
        ("crc16", CHECK, 0xBB3D),
        ("crc16_custom", CHECK, 0xBB3D),
        ("crc32", CHECK, 0xCBF43926),
        ("crc32_custom", CHECK, 0xCBF43926),
        ("crcCCITT", CHECK, 0x29B1),
        ("csum16", IPV4_HEADER, 0xB861),
        ("csum16", b"", 0xFFFF),
        ("csum16", b"\xff\xff", 0),
        ("csum16", b"\x00\x00", 0xFFFF),
        ("csum16", b"\x01", 0xFEFF),
        ("csum16", b"\x00\x01\x02", 0xFDFE),
        ("identity", b"\x01\x02", 0x0102),
        ("identity", bytes(range(1, 11)), 0x0102030405060708),
        ("xor16", b"\x12\x34\x56\x78\x9a", 0x1234 ^ 0x5678 ^ 0x9A00),
        ("xor32", b"\x12\x34\x56\x78\x9a", 0x12345678 ^ 0x9A000000),
        ("crc16", b"", 0),
        ("crc32", b"", 0),
    ],
)
def test_check_values(algorithm: str, data: bytes, value: int) -> None:
    assert HASHES[algorithm](data) == value


def test_every_algorithm_that_loads_is_there() -> None:
    assert set(HASHES) == set(ALGORITHMS)
