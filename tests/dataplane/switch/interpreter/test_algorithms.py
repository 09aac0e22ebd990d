"""Every hash algorithm, and checksums over the payload: algorithms.p4."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import ProgramError
from dataplane.program.calculations import CRCS
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.program.operations import CrcParameters
from dataplane.switch.interpreter.hashes import crc, csum16, xor16
from tests.dataplane.program.mutation import document
from tests.dataplane.switch.interpreter.harness import PROGRAMS, Bench, MakeBench

RESULT = struct.Struct("!HIHIHHQBI")
EGRESS, VERIFY, UPDATE = 1, 2, 4
CRC_16 = crc(CRCS["crc16"])
XMODEM = CrcParameters(16, 0x1021)
CASTAGNOLI = CrcParameters(32, 0x1EDC6F41, 0xFFFF_FFFF, 0xFFFF_FFFF, reflect_in=True, reflect_out=True)


@dataclass(frozen=True)
class Result:
    """Values that the program computed."""

    crc16: int
    crc32: int
    crc16_custom: int
    crc32_custom: int
    csum16: int
    xor16: int
    identity: int
    wrong: int
    egress: int


@pytest.fixture(scope="module")
def bench(make_bench: MakeBench) -> Bench:
    return make_bench("algorithms")


def send(bench: Bench, what: int, fields: bytes, checksum: int, payload: bytes = b"") -> tuple[Result, bytes]:
    """Return the results and the data behind them."""
    data = bench.send_one(1, bytes([what]) + fields + checksum.to_bytes(2, "big") + payload)
    return Result(*RESULT.unpack_from(data)), data[RESULT.size :]


def names_of(algorithm: str) -> list[str]:
    return [item["name"] for item in document("algorithms")["calculations"] if item["algo"] == algorithm]


def with_parameters(parameters: dict[str, CrcParameters]) -> Program:
    paths = PROGRAMS / "algorithms.json", PROGRAMS / "algorithms.p4info.txtpb"
    return load_program(*paths, crc_parameters=parameters)


@given(what=st.integers(0, 1), fields=st.binary(min_size=2, max_size=2))
def test_algorithms(bench: Bench, what: int, fields: bytes) -> None:
    result, _ = send(bench, what, fields, 0)
    number = int.from_bytes(fields, "big")
    low = number & 0xFFF
    assert result == Result(
        crc16=CRC_16(fields),
        crc32=zlib.crc32(fields),
        crc16_custom=CRC_16(fields),
        crc32_custom=zlib.crc32((low << 4).to_bytes(2, "big")),
        csum16=csum16((number << 8 | 5 << 4).to_bytes(3, "big")),
        xor16=xor16((low << 12 | what << 4 | number >> 12).to_bytes(3, "big")),
        identity=(what << 12 | low) << 4,
        wrong=0,
        egress=7 + zlib.crc32(CRC_16(fields).to_bytes(2, "big") + bytes([what])) % 1000 if what else 0,
    )


@given(fields=st.binary(min_size=2, max_size=2), payload=st.binary(max_size=40))
def test_checksum_covers_the_payload(bench: Bench, fields: bytes, payload: bytes) -> None:
    right = csum16(bytes([VERIFY]) + fields + payload)
    assert send(bench, VERIFY, fields, right, payload)[0].wrong == 0
    assert send(bench, VERIFY, fields, right ^ 1, payload)[0].wrong == 1
    assert send(bench, 0, fields, right ^ 1, payload)[0].wrong == 0, "the condition is not met"


@given(fields=st.binary(min_size=2, max_size=2), payload=st.binary(max_size=40))
def test_updated_checksum_covers_the_payload(bench: Bench, fields: bytes, payload: bytes) -> None:
    right = csum16(bytes([UPDATE]) + fields + payload)
    assert send(bench, UPDATE, fields, 0x1234, payload)[1] == (
        bytes([UPDATE]) + fields + right.to_bytes(2, "big") + payload
    )
    assert send(bench, 0, fields, 0x1234, payload)[1] == bytes([0]) + fields + b"\x12\x34" + payload


def test_parameters_of_a_custom_crc(make_bench: MakeBench) -> None:
    [short], [long] = names_of("crc16_custom"), names_of("crc32_custom")
    bench = make_bench(with_parameters({short: XMODEM, long: CASTAGNOLI}))
    result, _ = send(bench, 0, b"\x12\x34", 0)
    assert (result.crc16_custom, result.crc32_custom) == (crc(XMODEM)(b"\x12\x34"), crc(CASTAGNOLI)(b"\x23\x40"))
    assert result.crc16 == CRC_16(b"\x12\x34"), "a CRC without parameters stays what it is"


def test_parameters_make_another_program() -> None:
    [name] = names_of("crc16_custom")
    assert with_parameters({name: XMODEM}).digest != with_parameters({}).digest


def test_hash_over_the_payload(make_bench: MakeBench) -> None:
    """Only older programs ask for it, so p4c's output is changed."""
    raw = document("algorithms")
    [calculation] = [item for item in raw["calculations"] if item["algo"] == "crc16"]
    calculation["input"].insert(0, {"type": "payload", "value": None})  # bmv2 appends it, wherever it stands
    bench = make_bench(load_program(encoded(raw), None))
    assert send(bench, 0, b"\x12\x34", 0, b"payload")[0].crc16 == CRC_16(b"\x12\x34" + b"payload")


def encoded(raw: object) -> bytes:
    return json.dumps(raw).encode()


@pytest.mark.parametrize(
    ("algorithm", "parameters", "problem"),
    [
        ("crc16", XMODEM, "which has no parameters"),
        ("csum16", XMODEM, "which has no parameters"),
        ("crc32_custom", XMODEM, "does not have 16 bits"),
        ("crc16_custom", CrcParameters(16, 0x10000), "do not fit 16 bits"),
        (None, XMODEM, "CRC parameters for missing, which does not exist"),
    ],
)
def test_wrong_parameters(algorithm: str | None, parameters: CrcParameters, problem: str) -> None:
    name = "missing" if algorithm is None else names_of(algorithm)[0]
    with pytest.raises(ProgramError, match=problem):
        with_parameters({name: parameters})
