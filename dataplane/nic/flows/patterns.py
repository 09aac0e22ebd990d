"""Translates a rule's match to values and masks over the whole key, with all that its fields imply; strict."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from dataplane.errors import ClassifierError
from dataplane.nic.flows.fields import FIELDS, FRAME_WORD, KEY_WORDS, FlowField, Kind, Layer
from dataplane.nic.flows.rules import Exact, FlowRule, Masked, MatchValue, Range

_LAYERS_PLACE: Final = FRAME_WORD * 64
_TRANSPORTS: Final = Layer.UDP | Layer.TCP
_PROTOCOLS: Final = {Layer.TCP: 6, Layer.UDP: 17}
_ETHER_TYPES: Final = {4: 0x0800, 6: 0x86DD}
_WORD: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """A field that must lie in a range that no mask can express."""

    field: FlowField
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FlowPattern:
    """Matches a key whose bits under `mask` are `value`, both numbers over all words, and that is within all bounds."""

    value: int
    mask: int
    bounds: tuple[Bounds, ...] = ()


@dataclass(frozen=True, slots=True)
class _Written:
    """A field's parsed value: bits, bounds, and the IP version it belongs to."""

    value: int
    mask: int
    bounds: tuple[int, int] | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class _Demand:
    """Bits that a field of the rule requires."""

    field: str
    value: int
    mask: int


class _WrongValueError(Exception):
    """The value of a field is invalid; the text says why."""


def pattern_of(rule: FlowRule) -> FlowPattern:
    """Return a rule's pattern; raise ClassifierError, naming rule and field, for what no frame can have."""
    demands: list[_Demand] = []
    bounds: list[Bounds] = []
    for name, given in rule.match.items():
        field = FIELDS.get(name)
        if field is None:
            raise ClassifierError("there is no such field", rule=rule.name, field=name)
        try:
            written = _read(field, given)
            demands += _demands(field, written)
        except _WrongValueError as error:
            raise ClassifierError(str(error), rule=rule.name, field=name) from None
        if written.bounds is not None:
            bounds.append(Bounds(field, *written.bounds))
    value, mask = _merge(rule.name, demands)
    _check_ether_type(rule, demands)
    kept = tuple(bound for bound in bounds if not _is_decided(rule.name, bound, value, mask, demands))
    return FlowPattern(value, mask, kept)


def _demands(field: FlowField, written: _Written) -> tuple[_Demand, ...]:
    """List a field's demands: its bits, and what goes with them."""
    version = written.version
    if field.name == "ip.version" and written.mask == field.most:
        version = written.value
        if version not in _ETHER_TYPES:
            raise _WrongValueError(f"{version} is neither 4 nor 6")
    own = _Demand(field.name, written.value << field.first_bit, written.mask << field.first_bit)
    return (own, *_implied_by(field, version))


@functools.cache
def _implied_by(field: FlowField, version: int | None) -> tuple[_Demand, ...]:
    """List what a field implies of its frame: the layers containing it, their markers, an address's version."""
    looked_at = field.layers | (_TRANSPORTS if field.layers & _TRANSPORTS else 0)
    implied = [_Demand(field.name, field.layers << _LAYERS_PLACE, looked_at << _LAYERS_PLACE)]
    for layer, protocol in _PROTOCOLS.items():
        if layer in field.layers:
            implied += [_other(field, "ip.protocol", protocol), _other(field, "ip.fragment", 0)]
    if version is not None:
        implied += [_other(field, "ip.version", version), _other(field, "eth.type", _ETHER_TYPES[version])]
    return tuple(implied)


def _other(field: FlowField, name: str, value: int) -> _Demand:
    other = FIELDS[name]
    return _Demand(field.name, value << other.first_bit, other.most << other.first_bit)


def _merge(rule: str, demands: list[_Demand]) -> tuple[int, int]:
    """Return value and mask of all demands together."""
    value = mask = 0
    for demand in demands:
        if (value ^ demand.value) & mask & demand.mask:
            raise _conflict(rule, demand, demands)
        value |= demand.value
        mask |= demand.mask
    return value, mask


def _conflict(rule: str, demand: _Demand, demands: list[_Demand]) -> ClassifierError:
    other = next(earlier for earlier in demands if (earlier.value ^ demand.value) & earlier.mask & demand.mask)
    return ClassifierError(f"cannot be combined with {other.field}", rule=rule, field=demand.field)


def _check_ether_type(rule: FlowRule, demands: list[_Demand]) -> None:
    """Raise ClassifierError for IP fields with an EtherType that is not IP's; demands agree with each other."""
    given = rule.match.get("eth.type")
    inside = next((demand.field for demand in demands if demand.field.startswith(("ip.", "udp.", "tcp."))), None)
    if inside is not None and isinstance(given, int) and given not in _ETHER_TYPES.values():
        raise ClassifierError("cannot be combined with eth.type", rule=rule.name, field=inside)


def _is_decided(rule: str, bounds: Bounds, value: int, mask: int, demands: list[_Demand]) -> bool:
    """Return whether the mask decides a field that has bounds; raise ClassifierError if that is out of bounds."""
    field = bounds.field
    if mask >> field.first_bit & field.most != field.most:
        return False
    if not bounds.first <= value >> field.first_bit & field.most <= bounds.last:
        other = next(
            demand.field for demand in demands if demand.field != field.name and demand.mask >> field.first_bit & 1
        )
        raise ClassifierError(f"cannot be combined with {other}", rule=rule, field=field.name)
    return True


def _read(field: FlowField, given: MatchValue) -> _Written:
    """Parse a field's value in any notation."""
    if isinstance(given, Masked):
        return _read_masked(field, given)
    if isinstance(given, Range):
        return _read_range(field, given)
    if isinstance(given, IPv4Network | IPv6Network) or (isinstance(given, str) and "/" in given):
        return _read_prefix(field, str(given))
    value, width, version = _read_exact(field, given)
    return _Written(value, (1 << width) - 1, version=version)


def _read_exact(field: FlowField, given: Exact) -> tuple[int, int, int | None]:
    """Return a single value, its width in bits, and the version of an address."""
    if field.kind is Kind.ADDRESS:
        address = _address(given)
        return int(address), address.max_prefixlen, address.version
    if isinstance(given, str) and field.kind is Kind.MAC:
        return _mac(given), field.width, None
    if not isinstance(given, int):
        raise _WrongValueError(f"{given!r} is not a {field.kind.value}")
    if not 0 <= given <= field.most:
        raise _WrongValueError(f"{given} does not fit in {field.width} bits")
    return int(given), field.width, None


def _address(given: Exact) -> IPv4Address | IPv6Address:
    if isinstance(given, IPv4Address | IPv6Address):
        return given
    if isinstance(given, str):
        try:
            return ip_address(given)
        except ValueError:
            pass
    raise _WrongValueError(f"{given!r} is not an IP address")


def _mac(text: str) -> int:
    parts = text.split(":")
    try:
        octets = bytes(int(part, 16) for part in parts)
    except ValueError:
        octets = b""
    if len(octets) != 6 or any(len(part) != 2 for part in parts):
        raise _WrongValueError(f"{text!r} is not a MAC address")
    return int.from_bytes(octets, "big")


def _read_prefix(field: FlowField, text: str) -> _Written:
    if field.kind is Kind.NUMBER:
        raise _WrongValueError(f"{text!r} is not a number; Masked(value, mask) matches some of its bits")
    start, _, length_text = text.partition("/")
    value, width, version = _read_exact(field, start)
    if not (length_text.isascii() and length_text.isdigit() and int(length_text) <= width):
        raise _WrongValueError(f"{text!r} has no prefix length from 0 to {width}")
    full = (1 << width) - 1
    mask = full ^ full >> int(length_text)
    if value & ~mask:
        raise _WrongValueError(f"{text!r} has bits beyond its prefix")
    return _Written(value, mask, version=version)


def _read_masked(field: FlowField, given: Masked) -> _Written:
    value, width, version = _read_exact(field, given.value)
    mask, mask_width, _ = _read_exact(field, given.mask)
    if mask_width != width:
        raise _WrongValueError(f"{given.value} and the mask {given.mask} are of different IP versions")
    if value & ~mask:
        raise _WrongValueError(f"{given.value} has bits outside the mask {given.mask}")
    return _Written(value, mask, version=version)


def _read_range(field: FlowField, given: Range) -> _Written:
    """Return a range as the prefix that its bounds share, and as bounds unless that prefix covers it exactly."""
    first, width, version = _read_exact(field, given.first)
    last, last_width, _ = _read_exact(field, given.last)
    if last_width != width:
        raise _WrongValueError(f"{given.first} and {given.last} are of different IP versions")
    if first > last:
        raise _WrongValueError(f"{given.first} is above {given.last}")
    free = (1 << (first ^ last).bit_length()) - 1
    mask = (1 << width) - 1 & ~free
    is_prefix = first & free == 0 and last & free == free
    return _Written(first & mask, mask, None if is_prefix else (first, last), version)


def words_of(bits: int) -> tuple[int, ...]:
    """Return the words of a number over the whole key."""
    return tuple(bits >> 64 * word & _WORD for word in range(KEY_WORDS))
