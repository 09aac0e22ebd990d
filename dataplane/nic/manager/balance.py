"""Policies that spread packets over the consumers of a group."""

from __future__ import annotations

from enum import IntEnum


class Balance(IntEnum):
    """All keep a flow in order: it changes its consumer only while none of its packets is outstanding."""

    FLOW_HASH = 0
    """A flow's hash decides; it moves only when consumers join or leave."""
    ROUND_ROBIN = 1
    """Flows take turns; a flow is reassigned once none of its packets is outstanding."""
    LEAST_LOADED = 2
    """The consumer with the fewest packets outstanding gets the next flow."""
