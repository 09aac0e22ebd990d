"""Typed clients of the API server, asynchronous and synchronous: resources in, resources out."""

from __future__ import annotations

from controller.apiserver.client.asynchronous import ApiClient
from controller.apiserver.client.place import Place, find_place
from controller.apiserver.client.synchronous import SyncApiClient
from controller.apiserver.client.values import Event, Listing

__all__ = ["ApiClient", "Event", "Listing", "Place", "SyncApiClient", "find_place"]
