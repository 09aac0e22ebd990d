"""How packets are spread over the consumers of a group."""

from __future__ import annotations

from enum import IntEnum


class Balance(IntEnum):
    """A flow stays in order under each: it changes its consumer only while none of its packets is outstanding."""

    FLOW_HASH = 0
    """A flow's hash decides; it moves only when consumers join or leave."""
    ROUND_ROBIN = 1
    """Flows take turns; a flow is assigned again once nothing of it is outstanding."""
    LEAST_LOADED = 2
    """The consumer with the fewest packets outstanding gets the next flow."""
