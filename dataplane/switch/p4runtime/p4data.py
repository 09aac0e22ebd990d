"""P4Data: values of P4 types as messages, laid out by the P4Info's type specifications (section 8.5).

A digest's values come from the data plane flat, one number per leaf of its type, in source order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from finsy.proto import p4d, p4i, p4t

from dataplane.errors import ProgramError
from dataplane.switch.p4runtime import bytestrings
from dataplane.switch.p4runtime.strings import StringMaps, encode

Encoder = Callable[[Iterator[int]], p4d.P4Data]

_LARGEST_DEPTH = 64
ANY_WIDTH = 0
"""In `DataLayout.widths`, marks a number whose data plane width the P4Info does not give."""


class DataLayout:
    """Encoding of one P4Info object's data; raises ProgramError naming the object and the type if it is impossible."""

    def __init__(self, spec: p4t.P4DataTypeSpec, info: p4i.P4Info, construct: str, strings: StringMaps) -> None:
        self._types, self._strings = info.type_info, strings
        self._construct = construct
        self.widths: list[int] = []
        self._encode = self._encoder(spec, 0)

    def encode(self, values: tuple[int, ...]) -> p4d.P4Data:
        """Return the message for the leaves' values, whose widths are `widths`."""
        return self._encode(iter(values))

    def _encoder(self, spec: p4t.P4DataTypeSpec, depth: int) -> Encoder:
        if depth > _LARGEST_DEPTH:
            raise self._refusal("types nested too deeply")
        kind = spec.WhichOneof("type_spec")
        match kind:
            case "bitstring":
                return self._bits(spec.bitstring)
            case "bool":
                self.widths.append(1)
                return lambda values: p4d.P4Data(bool=bool(next(values)))
            case "tuple":
                return self._tuple([self._encoder(member, depth + 1) for member in spec.tuple.members])
            case "struct":
                members = self._types.structs[self._declared(self._types.structs, spec.struct.name)].members
                return self._struct([self._encoder(member.type_spec, depth + 1) for member in members])
            case "new_type":
                return self._new_type(spec.new_type.name, depth)
            case "serializable_enum":
                name = self._declared(self._types.serializable_enums, spec.serializable_enum.name)
                self.widths.append(self._types.serializable_enums[name].underlying_type.bitwidth)
                return lambda values: p4d.P4Data(enum_value=bytestrings.encode(next(values)))
            case _:
                raise self._refusal(f"data of type {kind or 'none'}")

    def _bits(self, spec: p4t.P4BitstringLikeTypeSpec) -> Encoder:
        match spec.WhichOneof("type_spec"):
            case "bit":
                self.widths.append(spec.bit.bitwidth)
                return lambda values: p4d.P4Data(bitstring=bytestrings.encode(next(values)))
            case "int":
                width = spec.int.bitwidth
                self.widths.append(width)
                return lambda values: p4d.P4Data(bitstring=bytestrings.encode_signed(next(values), width))
            case _:
                raise self._refusal("data of type varbit")

    def _new_type(self, name: str, depth: int) -> Encoder:
        """Return the encoder of a type's original, or of its strings; a translated number is the data plane's own."""
        declared = self._types.new_types[self._declared(self._types.new_types, name)]
        if declared.WhichOneof("representation") == "original_type":
            return self._encoder(declared.original_type, depth + 1)
        strings = self._strings.of(name)
        self.widths.append(ANY_WIDTH)
        return lambda values: p4d.P4Data(bitstring=encode(strings, next(values)))

    def _declared(self, types: object, name: str) -> str:
        if name not in types:  # type: ignore[operator]  # a protobuf map
            raise self._refusal(f"the type {name!r}, which is not declared,")
        return name

    def _refusal(self, what: str) -> ProgramError:
        return ProgramError(f"{what} is not supported", construct=self._construct)

    @staticmethod
    def _tuple(members: list[Encoder]) -> Encoder:
        def encode(values: Iterator[int]) -> p4d.P4Data:
            data = p4d.P4Data()
            data.tuple.SetInParent()
            data.tuple.members.extend(member(values) for member in members)
            return data

        return encode

    @staticmethod
    def _struct(members: list[Encoder]) -> Encoder:
        def encode(values: Iterator[int]) -> p4d.P4Data:
            data = p4d.P4Data()
            data.struct.SetInParent()
            data.struct.members.extend(member(values) for member in members)
            return data

        return encode
