"""Watched projects: their weights, for deciding whose turn it is."""

from __future__ import annotations

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Project
from controller.scheduling.fairness import Weights


async def follow_weights(client: ApiClient, weights: Weights) -> None:
    """Keep weights in line with the projects, until cancelled."""
    async for event in client.of(Project).follow():
        if hasattr(event, "items"):
            weights.take_all(event.items)
        elif event.name:
            if event.type == "DELETE" or event.resource is None:
                weights.remove(event.name)
            else:
                weights.take(event.resource)
