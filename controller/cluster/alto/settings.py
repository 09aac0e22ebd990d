"""Settings of the ALTO server."""

from __future__ import annotations

from typing import Annotated

import msgspec

from controller.cluster.network_state.settings import NetworkStateSettings
from dataplane.config import Strict
from dataplane.rpc.own_folder import default_address

ADDRESS = default_address("alto")

Positive = Annotated[int, msgspec.Meta(ge=1)]


class AltoView(Strict, frozen=True):
    """What is served, wherever that is: by a server of its own, or below /alto of another one."""

    topology: str
    """The topology: a file, a bundled name, or a family such as fat-tree:k=4."""
    base: str | None = None
    """What URIs in the directory begin with, as http://alto.example:8010; default: http://HOST:PORT, else a path."""
    network_state: NetworkStateSettings = NetworkStateSettings()
    """Where the network's state comes from, and how old it may be."""
    most_pairs: Positive = 4_000_000
    """Costs that one answer may have."""


class AltoSettings(AltoView, frozen=True):
    """Everything that `millrace alto serve` reads from its file."""

    listen: str = ADDRESS
    """Where it is served: unix:PATH, or a loopback address as 127.0.0.1:8010. Nothing authenticates who asks."""
    request_bytes: Positive = 4 << 20
    """The largest body of a request."""
    request_timeout_ns: Positive = 10_000_000_000
    """How long the head and the body of a request may take to arrive, and a reader may take nothing of its answer."""
    connections: Positive = 128
    """Requests at a time; more are answered with 503."""
