"""A daemon's own token for the API server: made at the first start, kept in a private file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.client.place import read_token
from controller.apiserver.tokens import TokenRequest
from controller.apps.up.state import write_private
from controller.common.errors import ApiError, UnauthorizedError
from dataplane.rpc.access import Role

_RETRY_S: Final = 0.2


async def ensure_token(
    file: Path, daemon: str, api: str, role: Role = Role.SERVICE, subject: str | None = None
) -> None:
    """Return once `file` has a token of a role that the API at a UNIX socket accepts, however long that takes.

    Raises ApiError for a file that is not a token, UpError if none can be written.
    """
    while True:
        if file.exists():
            read_token(file)  # one that others can read is refused at once
        try:
            if not file.exists() or not await _is_taken(file, api):
                async with ApiClient(Place(api)) as client:
                    made = await client.create_token(TokenRequest(name=f"up-{daemon}", role=role, subject=subject))
                write_private(file, f"{made.token}\n")
        except ApiError:
            # Not up yet, or unable to write: its own health check reports it.
            await asyncio.sleep(_RETRY_S)
        else:
            return


async def _is_taken(file: Path, api: str) -> bool:
    """Return whether the API knows a token: its data may not match the file."""
    async with ApiClient(Place(api, read_token(file))) as client:
        try:
            await client.health()
        except UnauthorizedError:
            return False
    return True
