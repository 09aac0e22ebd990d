"""Compute the reward of a decision."""

from __future__ import annotations

import math

from controller.learning.environment.model import BACKLOG_UNIT_NS
from controller.learning.environment.settings import Gain, PoolSettings
from dataplane.clock import NS_PER_S


def reward(
    settings: PoolSettings,
    utilisation: float,
    latency_ns: int,
    response_ns: int,
    *,
    eviction_ns: int | None = None,
    left: int = 0,
    held: int = 0,
) -> float:
    """Return lambda U + 1 / L, and with an eviction lambda U + max(beta / L, 1 / L - P): the specification's reward.

    With another `gain` of the settings, -T or -log2(1 + T), where T is the time from the request to the task's end,
    plus the waits that its transfers and its slot cause for others: an arrival at a port waits while it is occupied,
    and all that a port is occupied for until it is free again costs half the square of that time. `left` is by how much
    the decision increased the sum of these squares, in `BACKLOG_UNIT_NS` squared; `port_hz` is the arrival rate of each
    port. `held` and `slot_hz` are the same for the slot that the task takes, until it ends.

    `utilisation` is U, tasks that run in parallel over cores of compute units. `latency_ns` is L, from the request to
    its data being served; `eviction_ns` is P, evicted bytes over the bandwidth of their eviction, None without an
    eviction. All are counted in the settings' unit; a latency of less than 1 ns counts as 1 ns.
    """
    if settings.gain is not Gain.SPECIFICATION:
        waits_ns = settings.port_hz / NS_PER_S * (left * BACKLOG_UNIT_NS**2 / 2)
        waits_ns += settings.slot_hz / NS_PER_S * (held * BACKLOG_UNIT_NS**2 / 2)
        response = (response_ns + waits_ns) / settings.latency_unit_ns
        return -response if settings.gain is Gain.RESPONSE else -math.log2(1 + response)
    gain = settings.latency_unit_ns / max(latency_ns, 1)
    if eviction_ns is not None:
        gain = max(settings.eviction_bound * gain, gain - eviction_ns / settings.latency_unit_ns)
    return settings.utilisation_weight * utilisation + gain
