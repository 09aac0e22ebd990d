"""Typed clients of the service access point, asynchronous and not: resources in, resources out."""

from __future__ import annotations

from controller.api.client.asynchronous import ApiClient
from controller.api.client.place import Place, find_place
from controller.api.client.synchronous import SyncApiClient
from controller.api.client.values import Event, Listing

__all__ = ["ApiClient", "Event", "Listing", "Place", "SyncApiClient", "find_place"]
