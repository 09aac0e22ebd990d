"""Settings of the ALTO server."""

from __future__ import annotations

from typing import Annotated

import msgspec

from controller.cluster.network_state.settings import NetworkStateSettings
from dataplane.config import Settings
from dataplane.rpc.own_folder import default_address

ADDRESS = default_address("alto")

Positive = Annotated[int, msgspec.Meta(ge=1)]


class AltoView(Settings, frozen=True):
    """Settings shared by a standalone server and a view below /alto of another server."""

    topology: str
    """The topology: a file, a bundled name, or a family such as fat-tree:k=4."""
    base: str | None = None
    """Prefix of URIs in the directory, such as http://alto.example:8010; default: http://HOST:PORT, else just paths."""
    network_state: NetworkStateSettings = NetworkStateSettings()
    """Source of the network's state, and its maximum age."""
    most_pairs: Positive = 4_000_000
    """Limit of costs in one answer."""


class AltoSettings(AltoView, frozen=True):
    """Settings file of `millrace alto serve`."""

    listen: str = ADDRESS
    """unix:PATH, or a loopback address such as 127.0.0.1:8010. Clients are not authenticated."""
    request_bytes: Positive = 4 << 20
    """Limit of a request's body."""
    request_timeout_ns: Positive = 10_000_000_000
    """Timeout of a request's head and body, and of a stalled reader."""
    connections: Positive = 128
    """Limit of concurrent requests; more are answered with 503."""
