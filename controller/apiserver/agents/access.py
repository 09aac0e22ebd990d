"""Addresses for agents: the API server, and the network namespace named in the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from controller.apiserver.client import Place, find_place
from controller.apiserver.client.place import read_token

RUN_NETNS: Final = Path("/run/netns")


def api_place(address: str | None, token_file: str | None) -> Place:
    """Return the API server's address, with the agent's own token if a token file is given."""
    server = find_place(address)
    if token_file is None:
        return server
    return Place(server.address, read_token(Path(token_file)), server.ca)


def namespace_of(text: str | None) -> Path | None:
    """Return the network namespace for a path, an `ip netns` name or FABRIC:HOST; None for None."""
    if text is None:
        return None
    fabric, colon, host = text.partition(":")
    return RUN_NETNS / (f"mr-{fabric}-{host}" if colon else text)  # an absolute path stays as it is
