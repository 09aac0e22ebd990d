"""Reads calculations, selectors and checksums of a bmv2 JSON file."""

from __future__ import annotations

from dataclasses import replace

from dataplane.program.expressions import ExpressionReader
from dataplane.program.model import Checksum
from dataplane.program.operations import (
    Calculation,
    CalculationInput,
    CrcParameters,
    FieldRef,
    HeaderRef,
    Payload,
    SizedConstant,
)
from dataplane.program.raw import RawCalculation, RawChecksum, RawSelector, RawValue
from dataplane.program.scope import Scope, read_source

_CRC16 = CrcParameters(16, 0x8005, reflect_in=True, reflect_out=True)
_CRC32 = CrcParameters(32, 0x04C11DB7, 0xFFFF_FFFF, 0xFFFF_FFFF, reflect_in=True, reflect_out=True)

CRCS = {
    "crc16": _CRC16,
    "crc32": _CRC32,
    "crcCCITT": CrcParameters(16, 0x1021, 0xFFFF),
    "crc8_custom": CrcParameters(8, 0x07),
    "crc16_custom": _CRC16,
    "crc32_custom": _CRC32,
    "crc64_custom": CrcParameters(64, 0x1B, reflect_in=True, reflect_out=True),
}
"""The CRCs by bmv2's names; the custom ones have bmv2's initial parameters."""

ALGORITHMS = (*CRCS, "csum16", "cksum16", "identity", "xor16", "xor32")
"""Hash algorithms by bmv2's names."""


def read_calculation(raw: RawCalculation, scope: Scope, path: str, crc: CrcParameters | None = None) -> Calculation:
    """Return a named calculation; `crc` are the parameters of a custom CRC, if they differ from bmv2's."""
    calculation = _calculation(raw.name, raw.algo, raw.input, scope, path)
    if crc is None:
        return calculation
    if not raw.algo.endswith("_custom") or calculation.crc is None:
        raise scope.error(f"{path}.algo", f"{raw.name} is {raw.algo}, which has no parameters")
    limit = 1 << crc.width_bits
    if crc.width_bits != calculation.crc.width_bits:
        raise scope.error(f"{path}.algo", f"{raw.algo} does not have {crc.width_bits} bits")
    if not all(0 <= number < limit for number in (crc.polynomial, crc.initial, crc.final_xor)):
        raise scope.error(path, f"the parameters of {raw.name} do not fit {crc.width_bits} bits")
    return replace(calculation, crc=crc)


def read_selector(name: str, raw: RawSelector, scope: Scope, path: str) -> Calculation:
    """Return the hash by which an action selector picks a member; its input consists of fields only."""
    calculation = _calculation(name, raw.algo, raw.input, scope, path)
    if not all(isinstance(item, FieldRef) for item in calculation.inputs):
        raise scope.error(f"{path}.input", "the input of a selector must be fields")
    return calculation


def read_checksum(raw: RawChecksum, scope: Scope, path: str) -> Checksum:
    """Return a checksum with the condition under which it applies."""
    if raw.type != "generic":
        raise scope.unsupported(f"{path}.type", f"a checksum of type {raw.type!r}")
    target = scope.field(raw.target, f"{path}.target")
    if scope.spec(target).variable or target.field == "$valid$":
        raise scope.error(f"{path}.target", "a checksum is a field of fixed width")
    calculation = scope.named(scope.calculations, raw.calculation, "calculation", f"{path}.calculation")
    reader = ExpressionReader(scope)
    condition = None if raw.if_cond is None else reader.truth(raw.if_cond, f"{path}.if_cond")
    source = read_source(raw.source_info)
    return Checksum(raw.name, target, calculation, condition, raw.verify, raw.update, source)


def _calculation(name: str, algorithm: str, raw: list[RawValue], scope: Scope, path: str) -> Calculation:
    if algorithm not in ALGORITHMS:
        raise scope.unsupported(f"{path}.algo", f"hash algorithm {algorithm!r}")
    inputs = tuple(_input(item, scope, f"{path}.input[{index}]") for index, item in enumerate(raw))
    if Payload() in inputs:  # bmv2 appends it once, wherever it is named
        inputs = (*(item for item in inputs if item != Payload()), Payload())
    return Calculation(name, algorithm, inputs, CRCS.get(algorithm))


def _input(raw: RawValue, scope: Scope, path: str) -> CalculationInput:
    match raw.type:
        case "field":
            return scope.field(raw.value, path)
        case "hexstr":
            width = scope.width(raw.bitwidth, path)
            return SizedConstant(scope.hexstr(raw.value, path) & ((1 << width) - 1), width)
        case "header":
            return HeaderRef(scope.header(raw.value, path).name)
        case "payload":
            return Payload()
    raise scope.unsupported(path, f"{raw.type!r} as input of a calculation")
