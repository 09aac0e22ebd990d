"""Rules for the flow classifier, of all kinds of match, about values that frames have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

from hypothesis import strategies as st

from dataplane.nic.flows.fields import FIELDS, Kind
from dataplane.nic.flows.rules import Action, Drop, FlowRule, Masked, MatchValue, Range, ToConsumers
from tests.dataplane.nic.flows.frames import IPV4, IPV6
from tests.reference.flow_key import FieldValue, read_fields

ADDRESSES = tuple(map(ip_address, IPV4 + IPV6))
ACTIONS: tuple[Action, ...] = (Drop(), ToConsumers("reports"), ToConsumers("others"))
Address: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Seen:
    """Frames, and the fields of each."""

    frames: Sequence[bytes]
    fields: Sequence[dict[str, FieldValue]]

    def values(self, name: str) -> list[FieldValue]:
        """List what the frames have in a field."""
        return [fields[name] for fields in self.fields if name in fields]


def seen_in(frames: Sequence[bytes]) -> Seen:
    return Seen(frames, [read_fields(frame) for frame in frames])


@st.composite
def masks(draw: st.DrawFn, width: int) -> int:
    """Return a mask: a prefix, a suffix, or any."""
    full = (1 << width) - 1
    free = draw(st.integers(0, width))
    return draw(st.sampled_from((full >> free << free, full >> free, draw(st.integers(0, full)))))


@st.composite
def addresses(draw: st.DrawFn, values: Sequence[FieldValue]) -> MatchValue:
    """Return an address, a prefix, a masked one or a range."""
    pool = [address for address in (*ADDRESSES, *values) if not isinstance(address, int)]
    value = draw(st.sampled_from(pool))
    kind = draw(st.sampled_from(("object", "text", "prefix", "masked", "range")))
    if kind == "object":
        return value
    if kind == "text":
        return str(value)
    if kind == "range":
        other = draw(st.sampled_from([address for address in pool if address.version == value.version]))
        return Range(type(value)(min(int(value), int(other))), str(type(value)(max(int(value), int(other)))))
    if kind == "prefix":
        length = draw(st.integers(0, value.max_prefixlen))
        free = value.max_prefixlen - length
        return f"{type(value)(int(value) >> free << free)}/{length}"
    mask = draw(masks(value.max_prefixlen))
    return Masked(type(value)(int(value) & mask), str(type(value)(mask)))


@st.composite
def numbers(draw: st.DrawFn, name: str, values: Sequence[FieldValue]) -> MatchValue:
    """Return a number, a masked one, a range, or the prefix of a MAC address."""
    field = FIELDS[name]
    value, other = (draw(st.sampled_from((*map(int, values), 0, 4, 6, field.most))) & field.most for _ in range(2))
    kind = draw(st.sampled_from(("exact", "prefix", "masked", "range")))
    if kind == "range":
        return Range(min(value, other), max(value, other))
    if kind == "masked":
        mask = draw(masks(field.width))
        return Masked(value & mask, mask)
    if kind == "prefix" and field.kind is Kind.MAC:
        length = draw(st.integers(0, 48))
        return (value >> 48 - length << 48 - length).to_bytes(6, "big").hex(":") + f"/{length}"
    return value


@st.composite
def rules(draw: st.DrawFn, name: str, seen: Seen) -> FlowRule:
    """Return a rule of a name; no frame at all may match it, or it may be one to refuse."""
    names = [name for name in FIELDS if seen.values(name)] * 3 + list(FIELDS)
    match: dict[str, MatchValue] = {}
    for wanted in draw(st.lists(st.sampled_from(names), max_size=3, unique=True)):
        values = seen.values(wanted)
        is_address = FIELDS[wanted].kind is Kind.ADDRESS
        match[wanted] = draw(addresses(values) if is_address else numbers(wanted, values))
    action, count = draw(st.sampled_from(ACTIONS)), draw(st.booleans())
    return FlowRule(name, match, action, draw(st.integers(0, 3)), count, draw(st.integers(0, 9)))
