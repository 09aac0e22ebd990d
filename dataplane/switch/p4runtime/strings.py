"""Types that P4Runtime translates to strings: maps each string to a data plane number (section 8.3).

A program annotates a type with `@p4runtime_translation("", string)`; controllers then write strings for its values. The
switch assigns each new string a number, as wide as the type is in the data plane, and responds with the string. The
program's own mappings (`@p4runtime_translation_mappings`) and numbers in its own entries stay as they are. Strings of
port types are the ports' numbers in decimal, as the data plane numbers them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping

from finsy.proto import p4i, p4t

from dataplane.errors import EntryError, EntryFault, ProgramError
from dataplane.switch.p4runtime import bytestrings
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid

MAX_STRINGS = 1 << 20
"""Maximum strings of a type at a time; fewer if the type has fewer numbers."""

ANY_WIDTH = 1 << 16
"""Width of a value if the P4Info does not give it."""

_MAPPINGS = "@p4runtime_translation_mappings"
_PAIR = re.compile(r'\{\s*"((?:[^"\\]|\\.)*)"\s*,\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*\}')
_DECIMAL = re.compile(rb"0|[1-9][0-9]{0,9}")


class StringMap:
    """The strings of one type and their numbers; every method may be called from any thread."""

    def __init__(self, name: str, declared: Mapping[bytes, int], *, ports: bool) -> None:
        self.name, self.ports = name, ports
        self.width = ANY_WIDTH
        self._lock = threading.Lock()
        self._fixed = dict(declared)
        self._numbers = dict(declared)
        self._strings = {number: string for string, number in declared.items()}
        self._next = 1  # 0 last: metadata start as 0, and many programs take it for "none"
        self._kept = 0

    @property
    def capacity(self) -> int:
        """Maximum strings at a time."""
        return min(1 << min(self.width, 64), MAX_STRINGS)

    def decode(self, string: bytes, width: int, where: str) -> int:
        """Return the number of a string, which gets one if it has none.

        Raises INVALID_ARGUMENT for a string that names no port, OUT_OF_RANGE for an empty one that the program does not
        map and for a number that does not fit `width` bits, RESOURCE_EXHAUSTED where every number has a string.
        """
        with self._lock:
            number = self._numbers.get(string)
            if number is None:
                number = self._port(string, where) if self.ports else self._new(string, where)
        if number.bit_length() > width:
            raise P4RuntimeError(Code.OUT_OF_RANGE, f"{where}: {string!r} is {number}, which does not fit {width} bits")
        return number

    def encode(self, number: int) -> bytes:
        """Return the string of a number; one without a string is written in decimal."""
        with self._lock:
            return self._strings.get(number, str(number).encode())

    def is_crowded(self) -> bool:
        """Return whether unused strings should make room."""
        with self._lock:
            number, capacity = len(self._numbers), self.capacity
            return number >= capacity or (4 * number >= 3 * capacity and 16 * (number - self._kept) >= capacity)

    def reserve(self, numbers: Iterable[int]) -> None:
        """Reserve numbers in the program's own entries: they get no string but their decimal."""
        with self._lock:
            for number in numbers:
                if number not in self._strings:
                    self._strings[number] = str(number).encode()
                    self._numbers.setdefault(self._strings[number], number)
                    self._fixed[self._strings[number]] = number

    def keep(self, numbers: Iterable[int]) -> None:
        """Forget every string except those of these numbers, and those of the program."""
        with self._lock:
            kept = {number: self._strings[number] for number in numbers if number in self._strings}
            kept |= {number: string for string, number in self._fixed.items()}
            self._strings = kept
            self._numbers = {string: number for number, string in kept.items()}
            self._kept = len(kept)

    def adopt(self, other: StringMap) -> None:
        """Take over the strings of the same type of an earlier program; raise EntryError if both map."""
        with other._lock:
            pairs = dict(other._numbers)
        with self._lock:
            for string, number in pairs.items():
                if self._numbers.get(string, number) != number or self._strings.get(number, string) != string:
                    problem = f"the new program has another number for {string!r}, or another string for {number}"
                    raise EntryError(EntryFault.INVALID, problem, where=self.name)
                self._numbers[string], self._strings[number] = number, string

    def _port(self, string: bytes, where: str) -> int:
        if _DECIMAL.fullmatch(string) is None:
            raise invalid(f"{where}: {string!r} is not a port: type {self.name} uses decimal port numbers")
        return int(string)

    def _new(self, string: bytes, where: str) -> int:
        if not string:
            raise P4RuntimeError(Code.OUT_OF_RANGE, f"{where}: an empty string has no value")
        capacity = self.capacity
        if len(self._strings) >= capacity:
            problem = f"{where}: all {capacity} numbers of the type {self.name} have a string"
            raise P4RuntimeError(Code.RESOURCE_EXHAUSTED, problem)
        while self._next in self._strings or self._next >= capacity:
            self._next = (self._next + 1) % capacity
        self._numbers[string], self._strings[self._next] = self._next, string
        return self._numbers[string]


class StringMaps:
    """The types of one program that are translated to strings, by name."""

    def __init__(self, info: p4i.P4Info) -> None:
        """Raise ProgramError for mappings that give a string or a number twice."""
        self._maps = {
            name: StringMap(name, _declared(name, spec), ports=_is_port(name, spec))
            for name, spec in sorted(info.type_info.new_types.items())
            if spec.translated_type.WhichOneof("sdn_type") == "sdn_string"
        }

    def __iter__(self) -> Iterator[StringMap]:
        return iter(self._maps.values())

    def of(self, type_name: str, width: int = ANY_WIDTH) -> StringMap | None:
        """Return the strings of a type that is `width` bits wide in the data plane; None if it is not translated."""
        string_map = self._maps.get(type_name)
        if string_map is not None:
            string_map.width = min(string_map.width, width)
        return string_map

    @property
    def ports(self) -> StringMap | None:
        """The strings of the type of ports; None if ports are numbers."""
        return next((string_map for string_map in self if string_map.ports), None)

    def adopt(self, other: StringMaps) -> None:
        """Take over the strings of an earlier program's types of the same names."""
        for name, string_map in self._maps.items():
            if name in other._maps:
                string_map.adopt(other._maps[name])


def decode(strings: StringMap | None, data: bytes, width: int, where: str) -> int:
    """Return the number for a controller's bytes: a string of `strings`, or else a binary number."""
    return bytestrings.decode(data, width, where) if strings is None else strings.decode(data, width, where)


def encode(strings: StringMap | None, number: int) -> bytes:
    """Return the bytes that represent a number to a controller."""
    return bytestrings.encode(number) if strings is None else strings.encode(number)


def _is_port(name: str, spec: p4t.P4NewTypeSpec) -> bool:
    return "port" in name.lower() or "port" in spec.translated_type.uri.lower()


def _declared(name: str, spec: p4t.P4NewTypeSpec) -> dict[bytes, int]:
    """Return the strings that a program itself maps to numbers."""
    pairs: dict[bytes, int] = {}
    for annotation in spec.annotations:
        if not annotation.startswith(_MAPPINGS):
            continue
        for string, number in _PAIR.findall(annotation):
            key = re.sub(r"\\(.)", r"\1", string).encode()
            if key in pairs or int(number, 0) in pairs.values():
                raise ProgramError(f"maps {string!r} or {number} twice", construct=f"type {name}")
            pairs[key] = int(number, 0)
    return pairs
