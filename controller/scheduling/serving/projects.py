"""Following projects: their weights, for whoever decides whose turn it is."""

from __future__ import annotations

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Project
from controller.scheduling.fairness import Weights


async def follow_weights(client: ApiClient, weights: Weights) -> None:
    """Keep weights as projects say, until cancelled."""
    async for told in client.of(Project).follow():
        if hasattr(told, "items"):
            weights.take_all(told.items)
        elif told.name:
            if told.type == "DELETE" or told.resource is None:
                weights.remove(told.name)
            else:
                weights.take(told.resource)
