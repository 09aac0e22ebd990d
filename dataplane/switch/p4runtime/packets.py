"""Packet-in and packet-out headers: P4Info's metadata fields, packed bit by bit in front of the payload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from finsy.proto import p4r

from dataplane.errors import ProgramError
from dataplane.switch.p4runtime import strings
from dataplane.switch.p4runtime.errors import invalid
from dataplane.switch.p4runtime.strings import StringMap


@dataclass(frozen=True, slots=True)
class HeaderField:
    """A field with its metadata id; `width` in bits, in the packet. A translated one has `strings`."""

    field_id: int
    name: str
    width: int
    strings: StringMap | None = None


class PacketHeader:
    """One controller header; fields are in P4Info's order, most significant bit first.

    Bits that are missing at a whole byte come last: older compilers pad the header in the program only.
    """

    def __init__(self, name: str, fields: Sequence[HeaderField]) -> None:
        """Raise ProgramError for a field without bits."""
        self.name = name
        self._fields = tuple(fields)
        for field in self._fields:
            if field.width <= 0:
                raise ProgramError(f"field {field.name} has {field.width} bits", construct=self.name)
        bits = sum(field.width for field in self._fields)
        self.length_bytes = (bits + 7) // 8
        self._padding_bits = 8 * self.length_bytes - bits

    @classmethod
    def none(cls, name: str) -> PacketHeader:
        """Return the header of a program that declares none: no fields, no bytes."""
        return cls(name, ())

    def pack(self, metadata: Iterable[p4r.PacketMetadata]) -> bytes:
        """Return the header's bytes; raise P4RuntimeError unless every field is given exactly once."""
        given: dict[int, bytes] = {}
        for item in metadata:
            if item.metadata_id in given:
                raise invalid(f"{self.name}: metadata id {item.metadata_id} appears twice")
            given[item.metadata_id] = item.value
        header = 0
        for field in self._fields:
            if field.field_id not in given:
                raise invalid(f"{self.name}: metadata {field.name} (id {field.field_id}) is missing")
            data, where = given.pop(field.field_id), f"{self.name}.{field.name}"
            header = header << field.width | strings.decode(field.strings, data, field.width, where)
        if given:
            raise invalid(f"{self.name}: there is no metadata id {min(given)}")
        return (header << self._padding_bits).to_bytes(self.length_bytes, "big")

    def unpack(self, data: bytes) -> p4r.PacketIn | None:
        """Split a frame into metadata and payload; None if it is shorter than the header."""
        if len(data) < self.length_bytes:
            return None
        packet = p4r.PacketIn(payload=data[self.length_bytes :])
        header, shift = int.from_bytes(data[: self.length_bytes], "big"), 8 * self.length_bytes
        for field in self._fields:
            shift -= field.width
            value = header >> shift & ((1 << field.width) - 1)
            packet.metadata.add(metadata_id=field.field_id, value=strings.encode(field.strings, value))
        return packet
