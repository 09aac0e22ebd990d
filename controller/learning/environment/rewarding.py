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

    With another `gain` of the settings, -T or -log2(1 + T), where T is the time from the request to the task's end and
    what its transfers and its slot leave others to wait for: who comes to a port waits for as long as it is taken then,
    and all that a port is taken for until it is free again is half the square of that time. `left` is by how much the
    decision made the sum of these squares grow, in `BACKLOG_UNIT_NS` squared; `port_hz` are those that come to each
    port. `held` and `slot_hz` say the same of the slot that the task takes, until it ends.

    `utilisation` is U, tasks that run in parallel over cores of compute units. `latency_ns` is L, from the request to
    its data being served; `eviction_ns` is P, evicted bytes over the bandwidth of their eviction, None where nothing
    was evicted. All are counted in the settings' unit; a latency of less than 1 ns is 1 ns.
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
