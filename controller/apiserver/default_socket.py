"""Where the API server is unless somebody says otherwise: clients need no settings of the server for it."""

from __future__ import annotations

from dataplane.rpc.own_folder import default_address


def default_socket() -> str:
    """Return where the service listens unless settings say otherwise: a socket in the user's own folder."""
    return default_address("api")
