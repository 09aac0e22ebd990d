"""Settings of the operators' page."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from controller.cluster.network_state.settings import NetworkStateSettings
from dataplane.config import Settings

PositiveS = Annotated[float, Meta(gt=0, le=86_400)]


class ViewSettings(Settings, frozen=True):
    """Serve the operators' page at `/`, and what it shows below /v1/view."""

    topology: str = ""
    """File or name of the network's topology; without one the page shows no network."""

    network_state: NetworkStateSettings = NetworkStateSettings()
    """Collector and path server that the page shows."""

    hosts: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    """Names by which browsers reach the server, besides the addresses that it listens at: others are refused."""

    viewers: Annotated[int, Meta(ge=1, le=10_000)] = 128
    """Streams open at one time."""

    session_s: PositiveS = field(default=43_200.0, name="session_age")
    """Age at which a browser has to sign in again."""

    sessions: Annotated[int, Meta(ge=1, le=100_000)] = 1024
    """Signed-in browsers; beyond that the oldest is signed out."""
