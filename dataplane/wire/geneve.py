"""Geneve header, 8 bytes and options, and its option for INT (RFC 8926, section 3; INT v2.1, section 5.7.4).

Version2=0 OptionLength6 O1 C1 Reserved6 ProtocolType16 | VNI24 Reserved8; each option
Class16 Type8 Reserved3 Length5 and that many words. INT's class is 0x0103, its type the INT header's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need
from dataplane.wire.int_shim import IntType

HEADER: Final = "geneve"
OPTION: Final = "geneve option"
MIN_SIZE: Final = 8
OPTION_SIZE: Final = 4
UDP_PORT: Final = 6081
INT_CLASS: Final = 0x0103
LONGEST_OPTION_BYTES: Final = 124
"""Maximum size of one option: all of INT-MD's header and stack must fit."""

_INT_TYPES: Final = frozenset(kind.value for kind in IntType)


@dataclass(frozen=True, slots=True)
class GeneveOption:
    """An option; `value` is whole words."""

    option_class: int
    option_type: int
    value: bytes = b""

    @property
    def size(self) -> int:
        """Length in bytes, value included."""
        return OPTION_SIZE + len(self.value)

    @property
    def int_type(self) -> IntType | None:
        """Type of the INT header in the value, None for any other option."""
        is_int = self.option_class == INT_CLASS and self.option_type in _INT_TYPES
        return IntType(self.option_type) if is_int else None

    def encode(self) -> bytes:
        """Return the option's bytes, reserved bits 0; raise WireError unless its value is 0 to 31 words."""
        if len(self.value) % 4 or len(self.value) > LONGEST_OPTION_BYTES:
            raise WireError(OPTION, f"a value of {len(self.value)} bytes is not 0 to 31 words")
        fit(OPTION, option_class=(self.option_class, 16), option_type=(self.option_type, 8))
        return self.option_class.to_bytes(2, "big") + bytes((self.option_type, len(self.value) // 4)) + self.value


@dataclass(frozen=True, slots=True)
class Geneve:
    """A Geneve header; `protocol_type` is an EtherType (0x6558: an Ethernet frame follows)."""

    vni: int
    protocol_type: int
    options: tuple[GeneveOption, ...] = ()
    is_control: bool = False
    is_critical: bool = False

    @property
    def size(self) -> int:
        """Length in bytes, options included."""
        return MIN_SIZE + sum(option.size for option in self.options)

    def encode(self) -> bytes:
        """Return the header's bytes, reserved bits 0; raise WireError for a value that does not fit."""
        options = b"".join(option.encode() for option in self.options)
        length = len(options) // 4
        fit(HEADER, vni=(self.vni, 24), protocol_type=(self.protocol_type, 16), option_length=(length, 6))
        first = length << 24 | self.is_control << 23 | self.is_critical << 22 | self.protocol_type
        return (first << 32 | self.vni << 8).to_bytes(MIN_SIZE, "big") + options


def decode(data: bytes, offset: int = 0) -> Geneve:
    """Return the header at `offset` with its options; raise WireError if it is cut short or of another version."""
    need(HEADER, data, offset, MIN_SIZE)
    words = int.from_bytes(data[offset : offset + MIN_SIZE], "big")
    if words >> 62:
        raise WireError(HEADER, f"version is {words >> 62}, not 0", offset=offset)
    at = offset + MIN_SIZE
    end = at + 4 * (words >> 56 & 0x3F)
    need(HEADER, data, offset, end - offset)
    options: list[GeneveOption] = []
    while at < end:
        # Cut at the header's end, so that no option reaches beyond the stated length.
        options.append(_option(data[:end], at))
        at += options[-1].size
    return Geneve(
        vni=words >> 8 & 0xFF_FFFF,
        protocol_type=words >> 32 & 0xFFFF,
        options=tuple(options),
        is_control=bool(words >> 55 & 1),
        is_critical=bool(words >> 54 & 1),
    )


def _option(data: bytes, offset: int) -> GeneveOption:
    need(OPTION, data, offset, OPTION_SIZE)
    size = 4 * (data[offset + 3] & 0x1F)
    need(OPTION, data, offset + OPTION_SIZE, size)
    value = bytes(data[offset + OPTION_SIZE : offset + OPTION_SIZE + size])
    return GeneveOption(int.from_bytes(data[offset : offset + 2], "big"), data[offset + 2], value)
