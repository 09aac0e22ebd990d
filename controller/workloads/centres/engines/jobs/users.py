"""Users by name, as settings of engines have them."""

from __future__ import annotations

import os
import pwd

from controller.workloads.centres.errors import EngineError


def named_user(engine: str, key: str, name: str) -> tuple[int, int]:
    """Return a user's and its group's number; raise EngineError where it is not there, or we may not be it."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise EngineError(engine, f"{key}: there is no user {name}") from None
    if os.geteuid() != 0:
        raise EngineError(engine, f"{key}: jobs as {name} take root")
    if found.pw_uid == 0:
        raise EngineError(engine, f"{key}: {name} is the agent's own user; see unsafe_same_user")
    return found.pw_uid, found.pw_gid
