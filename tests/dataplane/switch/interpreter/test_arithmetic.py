"""Every operator against Python's own integers: arithmetic.p4."""

from __future__ import annotations

import logging
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.program.calculations import CRCS
from dataplane.switch.interpreter.hashes import crc, csum16, xor16
from tests.dataplane.switch.interpreter.harness import Bench, MakeBench

RESULTS = struct.Struct("!BBHBBbbbBBbBBBB3sh")
HASHES = struct.Struct("!HIHQHBBB")

BYTE = st.integers(0, 255)
SIGNED = st.integers(-128, 127)


@pytest.fixture(scope="module")
def bench(make_bench: MakeBench) -> Bench:
    return make_bench("arithmetic")


def signed(value: int) -> int:
    return (value + 128) % 256 - 128


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def expected(a: int, b: int, c: int, d: int, wide: bytes) -> tuple[int | bytes, ...]:
    truths = (a == b, a != b, a < b, a <= b, c > d, c >= d and a != 0, c < 0 or d < 0)
    middle = (a & 15) << 4 | b >> 4
    return (
        (a + b) % 256,
        (a - b) % 256,
        a * b,
        clamp(a + b, 0, 255),
        clamp(a - b, 0, 255),
        signed(c + d),
        clamp(c + d, -128, 127),
        clamp(c - d, -128, 127),
        (a << b) % 256,
        a >> b,
        c >> b,
        (a & b) ^ (a | 15),
        a ^ 255,
        sum(truth << bit for bit, truth in enumerate(truths)),
        a if c < d else b,
        bytes([wide[1], middle, wide[5]]),
        c,
    )


def loop_sum(b: int) -> int:
    return sum(range(1, b)) if 1 <= b <= 10 else 55


@given(a=BYTE, b=BYTE, c=SIGNED, d=SIGNED, wide=st.binary(min_size=6, max_size=6))
def test_operators(bench: Bench, a: int, b: int, c: int, d: int, wide: bytes) -> None:
    frame = struct.pack("!BBbb", a, b, c, d) + wide + b"tail"
    data = bench.send_one(3, frame)
    assert RESULTS.unpack_from(data) == expected(a, b, c, d, wide)
    assert data[RESULTS.size + HASHES.size :] == frame


@given(a=BYTE, b=BYTE, wide=st.binary(min_size=6, max_size=6))
def test_hashes_and_loops(bench: Bench, a: int, b: int, wide: bytes) -> None:
    data = bench.send_one(3, struct.pack("!BBbb", a, b, 0, 0) + wide)
    *digests, bounded, drawn, loop = HASHES.unpack_from(data, RESULTS.size)
    covered = wide + bytes([a])
    identity = int.from_bytes(covered, "big")
    assert digests == [crc(CRCS["crc16"])(covered), zlib.crc32(covered), csum16(covered), identity, xor16(covered)]
    assert bounded == 10 + zlib.crc32(bytes([a])) % 5
    assert 3 <= drawn <= 6
    assert loop == loop_sum(b)


def test_random_numbers_depend_on_the_seed_only(make_bench: MakeBench) -> None:
    def draw(seed: int) -> list[bytes]:
        fresh = make_bench("arithmetic", seed=seed)
        return [fresh.send_one(1, bytes(10)) for _ in range(20)]

    assert draw(1) == draw(1) != draw(2)


def test_log_message(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="millrace.p4"):
        bench.send_one(1, bytes([7, 9]) + bytes(8))
    assert caplog.messages == ["a=7 b=9"]
