"""What v1model and simple_switch leave to constants: ports, kinds of packets, bounds. The same in both pipelines."""

from __future__ import annotations

from enum import IntEnum

DROP_PORT = 511
"""The egress_spec of a packet that is to be dropped, as in simple_switch."""

MAX_BLOCKS = 1 << 16
"""A packet is dropped when an action jumps as often as that."""

MAX_RESUBMITS = 16
"""A packet that asks to be resubmitted once more is dropped as resubmit_limit."""

PRIORITIES = 8
"""Queues of a port; a packet with a greater priority is dropped as priority_out_of_range."""

DIGEST_QUEUE_MESSAGES = 1024
"""Digests that wait for `take_digests`; those beyond are counted as digest_queue_full."""


class InstanceType(IntEnum):
    """standard_metadata.instance_type."""

    NORMAL = 0
    INGRESS_CLONE = 1
    EGRESS_CLONE = 2
    RECIRCULATED = 4
    REPLICATION = 5
    RESUBMITTED = 6
    DEFLECTED = 7
    """Not bmv2's: refused by a full queue."""


ORIGINALS = frozenset({InstanceType.NORMAL, InstanceType.REPLICATION})
"""What a full queue may deflect: copies that were requested beside the packet are just lost."""
