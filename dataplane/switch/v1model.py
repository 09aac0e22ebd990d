"""Constants that v1model and simple_switch leave open: ports, kinds of packets, bounds. The same in both pipelines."""

from __future__ import annotations

from enum import IntEnum

DROP_PORT = 511
"""The egress_spec of a packet to be dropped, as in simple_switch."""

MAX_BLOCKS = 1 << 16
"""A packet is dropped when an action jumps this often."""

MAX_RESUBMITS = 16
"""A packet that requests yet another resubmission is dropped as resubmit_limit."""

PRIORITIES = 8
"""Queues of a port; a packet with a greater priority is dropped as priority_out_of_range."""

DIGEST_QUEUE_MESSAGES = 1024
"""Maximum digests waiting for `take_digests`; further ones are counted as digest_queue_full."""


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
"""Kinds of packets that a full queue may deflect: copies requested in addition to the packet are just lost."""
