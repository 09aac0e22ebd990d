"""A flow's key for tests that do not care which."""

from __future__ import annotations

from ipaddress import IPv4Address

from collectors.values import FlowKey


def flow_key() -> FlowKey:
    """Return some flow's 5-tuple."""
    return FlowKey(IPv4Address("10.0.1.1"), IPv4Address("10.0.2.1"), 17, 1000, 2000)
