"""The kernels of hashes and random numbers against their references in Python."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.native import kernel_library
from dataplane.program.operations import Calculation, CrcParameters
from dataplane.switch.abi import Machine
from dataplane.switch.compiler.lowering.hashing import kernel_of
from dataplane.switch.compiler.lowering.randomness import next_random
from dataplane.switch.interpreter.hashes import bind_hash
from dataplane.switch.random_numbers import SplitMix

CRCS = {
    "crc8": CrcParameters(8, 0x07),
    "crc8_mirrored": CrcParameters(8, 0x9C, 0xFF, 0x55, reflect_in=True, reflect_out=True),
    "crc16": CrcParameters(16, 0x8005, reflect_in=True, reflect_out=True),
    "crcCCITT": CrcParameters(16, 0x1021, 0xFFFF),
    "crc16_in": CrcParameters(16, 0x3D65, 0x1234, 0xFFFF, reflect_in=True),
    "crc16_out": CrcParameters(16, 0x0589, 0xB2AA, 0x0001, reflect_out=True),
    "crc32": CrcParameters(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, reflect_in=True, reflect_out=True),
    "crc32c": CrcParameters(32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, reflect_in=True, reflect_out=True),
    "crc32_bzip2": CrcParameters(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF),
    "crc64": CrcParameters(64, 0x42F0E1EBA9EA3693),
    "crc64_xz": CrcParameters(64, 0x42F0E1EBA9EA3693, (1 << 64) - 1, (1 << 64) - 1, reflect_in=True, reflect_out=True),
    "crc64_in": CrcParameters(64, 0xAD93D23594C935A9, 5, 9, reflect_in=True),
}
CALCULATIONS = {name: Calculation(name, name, (), parameters) for name, parameters in CRCS.items()}
CALCULATIONS |= {name: Calculation(name, name, ()) for name in ("csum16", "cksum16", "identity", "xor16", "xor32")}
CHECK_VALUES = {
    "crc8": 0xF4,
    "crc16": 0xBB3D,
    "crcCCITT": 0x29B1,
    "crc32": 0xCBF43926,
    "crc32c": 0xE3069283,
    "crc32_bzip2": 0xFC891918,
    "crc64": 0x6C40DF5F0B497347,
    "crc64_xz": 0x995DC9BBDF1939FA,
}
"""Checksums of b"123456789", from the catalogue of parametrised CRC algorithms (reveng)."""


def native(calculation: Calculation) -> Callable[..., int]:
    kernels = {name: kernel_of(calculation) for name, calculation in CALCULATIONS.items() if name != "cksum16"}
    return kernel_library(*kernels.values()).bind(kernel_of(calculation))


@pytest.mark.parametrize("calculation", CALCULATIONS.values(), ids=CALCULATIONS)
def test_every_length_gives_what_the_interpreter_gives(calculation: Calculation) -> None:
    run, reference, rng = native(calculation), bind_hash(calculation), random.Random(1)
    for length in range(301):
        data = rng.randbytes(length)
        assert run(data, length, b"", 0) == reference(data), length
        assert run(b"\xff" * length, length, b"", 0) == reference(b"\xff" * length), length
        assert run(bytes(length), length, b"", 0) == reference(bytes(length)), length


@pytest.mark.parametrize("calculation", CALCULATIONS.values(), ids=CALCULATIONS)
@given(data=st.binary(max_size=80), payload=st.binary(max_size=80))
def test_a_payload_goes_on_where_the_fields_end(calculation: Calculation, data: bytes, payload: bytes) -> None:
    expected = bind_hash(calculation)(data + payload)
    assert native(calculation)(data, len(data), payload, len(payload)) == expected


@pytest.mark.parametrize(("name", "value"), CHECK_VALUES.items())
def test_published_check_values(name: str, value: int) -> None:
    assert native(CALCULATIONS[name])(b"123456789", 9, b"", 0) == value


@st.composite
def parameters(draw: st.DrawFn) -> CrcParameters:
    width = draw(st.integers(8, 64))
    number, flag = st.integers(0, (1 << width) - 1), st.booleans()
    return CrcParameters(width, draw(number), draw(number), draw(number), draw(flag), draw(flag))


@settings(max_examples=25)
@given(made=parameters(), data=st.binary(max_size=40))
def test_any_parameters(made: CrcParameters, data: bytes) -> None:
    calculation = Calculation("any", "any", (), made)
    check = kernel_of(calculation)
    assert kernel_library(check).bind(check)(data, len(data), b"", 0) == bind_hash(calculation)(data)


@given(seed=st.integers(0, (1 << 64) - 1))
def test_random_numbers_are_those_of_python(seed: int) -> None:
    reference, machine, run = SplitMix(seed), Machine(random_state=seed), kernel_library(next_random).bind(next_random)
    for _ in range(20):
        assert run(machine) == reference.next()
    assert machine.random_state == reference.state
