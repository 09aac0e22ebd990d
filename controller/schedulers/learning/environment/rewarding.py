"""What a decision is worth."""

from __future__ import annotations

from controller.schedulers.learning.environment.settings import PoolSettings


def reward(settings: PoolSettings, utilisation: float, latency_ns: int, eviction_ns: int | None) -> float:
    """Return lambda U + 1 / L, and with an eviction lambda U + max(beta / L, 1 / L - P): the specification's reward.

    `utilisation` is U, tasks that run in parallel over cores of compute units. `latency_ns` is L, from the request to
    its data being served; `eviction_ns` is P, evicted bytes over the bandwidth of their eviction, None where nothing
    was evicted. Both are counted in the settings' unit; a latency of less than 1 ns is 1 ns.
    """
    gain = settings.latency_unit_ns / max(latency_ns, 1)
    if eviction_ns is not None:
        gain = max(settings.eviction_bound * gain, gain - eviction_ns / settings.latency_unit_ns)
    return settings.utilisation_weight * utilisation + gain
