"""Hash algorithms against published check values."""

from __future__ import annotations

import pytest

from dataplane.program.calculations import ALGORITHMS, CRCS
from dataplane.program.operations import Calculation, CrcParameters
from dataplane.switch.interpreter.hashes import HASHES, bind_hash, crc

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
    assert bind_hash(Calculation("c", algorithm, (), CRCS.get(algorithm)))(data) == value


@pytest.mark.parametrize(
    ("parameters", "value"),
    [
        (CrcParameters(8, 0x07), 0xF4),
        (CrcParameters(8, 0x31, reflect_in=True, reflect_out=True), 0xA1),
        (CrcParameters(16, 0x1021), 0x31C3),
        (CrcParameters(16, 0x1021, 0xFFFF, 0xFFFF, reflect_in=True, reflect_out=True), 0x906E),
        (CrcParameters(16, 0x8005, 0xFFFF, reflect_in=True, reflect_out=True), 0x4B37),
        (CrcParameters(16, 0x8005), 0xFEE8),
        (CrcParameters(32, 0x1EDC6F41, 0xFFFF_FFFF, 0xFFFF_FFFF, reflect_in=True, reflect_out=True), 0xE3069283),
        (CrcParameters(32, 0x04C11DB7, 0xFFFF_FFFF, 0xFFFF_FFFF), 0xFC891918),
        (CrcParameters(64, 0x1B, (1 << 64) - 1, (1 << 64) - 1, reflect_in=True, reflect_out=True), 0xB90956C775A41001),
    ],
    ids=["8/smbus", "8/maxim", "16/xmodem", "16/x-25", "16/modbus", "16/umts", "32/iscsi", "32/bzip2", "64/go-iso"],
)
def test_crcs_of_the_catalogue(parameters: CrcParameters, value: int) -> None:
    """The check values are those of the catalogue of parametrised CRC algorithms (reveng.sourceforge.io)."""
    assert crc(parameters)(CHECK) == value


def test_every_algorithm_that_loads_is_there() -> None:
    assert {*HASHES, *CRCS} == set(ALGORITHMS)
