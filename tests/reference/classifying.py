"""Finds the rule that a frame matches, in plain Python, by checking each rule against the frame's fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from dataplane.nic.flows.rules import Exact, FlowRule, Masked, MatchValue, Range
from tests.reference.flow_key import FieldValue, read_fields


def matches(rule: FlowRule, fields: Mapping[str, FieldValue]) -> bool:
    """Return whether fields of a frame satisfy a rule."""
    return all(name in fields and is_in(value, fields[name]) for name, value in rule.match.items())


def is_in(wanted: MatchValue, value: FieldValue) -> bool:
    """Return whether a field's value satisfies a rule's value for it."""
    if isinstance(wanted, IPv4Network | IPv6Network):
        return value in wanted if not isinstance(value, int) else False
    if isinstance(wanted, str) and "/" in wanted:
        return _is_in_prefix(wanted, value)
    if isinstance(wanted, Masked):
        mask, exact = _like(value, wanted.mask), _like(value, wanted.value)
        return None not in (mask, exact) and int(value) & int(mask or 0) == int(exact or 0)
    if isinstance(wanted, Range):
        first, last = _like(value, wanted.first), _like(value, wanted.last)
        return first is not None and last is not None and int(first) <= int(value) <= int(last)
    return _like(value, wanted) == value


def _is_in_prefix(text: str, value: FieldValue) -> bool:
    if not isinstance(value, int):
        return value in ip_network(text)
    start, length = text.split("/")
    free = 48 - int(length)
    return value >> free == int(_like(0, start) or 0) >> free


def _like(value: FieldValue, written: Exact) -> FieldValue | None:
    """Convert a written value to the type of another; None for an address of the other version."""
    if isinstance(value, int):
        return int(written.replace(":", ""), 16) if isinstance(written, str) else int(written)
    address = written if isinstance(written, IPv4Address | IPv6Address) else ip_address(written)
    return address if address.version == value.version else None


def find_rule(rules: Sequence[FlowRule], frame: bytes, queue: int = 0) -> FlowRule | None:
    """Return the highest-priority rule that a frame matches; the first of equals."""
    fields = read_fields(frame, queue)
    matching = [rule for rule in rules if matches(rule, fields)]
    return max(matching, key=lambda rule: rule.priority) if matching else None  # max() returns the first of the largest
