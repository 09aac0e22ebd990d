"""Projects as watched: their weights, for deciding whose turn it is."""

from __future__ import annotations

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Project
from controller.scheduling.fairness import Weights


async def follow_weights(client: ApiClient, weights: Weights) -> None:
    """Keep weights in line with the projects, until cancelled."""
    async for told in client.of(Project).follow():
        if hasattr(told, "items"):
            weights.take_all(told.items)
        elif told.name:
            if told.type == "DELETE" or told.resource is None:
                weights.remove(told.name)
            else:
                weights.take(told.resource)
