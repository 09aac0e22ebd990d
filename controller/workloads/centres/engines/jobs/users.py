"""Users by name, as in engines' settings."""

from __future__ import annotations

import os
import pwd

from controller.workloads.centres.errors import EngineError


def named_user(engine: str, key: str, name: str) -> tuple[int, int]:
    """Return the numbers of a user and its group; raise EngineError if it is missing, or we may not switch to it."""
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        raise EngineError(engine, f"{key}: there is no user {name}") from None
    if os.geteuid() != 0:
        raise EngineError(engine, f"{key}: running jobs as {name} takes root")
    if account.pw_uid == 0:
        raise EngineError(engine, f"{key}: {name} is the agent's own user; see unsafe_same_user")
    return account.pw_uid, account.pw_gid
