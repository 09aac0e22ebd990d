"""The API server's default address, which clients can find without the server's settings."""

from __future__ import annotations

from dataplane.rpc.own_folder import default_address


def default_socket() -> str:
    """Return the default listening address: a socket in the user's own folder."""
    return default_address("api")
