"""Changes allowed to a pod that holds a share, and parts that are then fixed; pure."""

from __future__ import annotations

from typing import Final

import msgspec

from controller.apiserver.resources.pod import PodSpec

MAY_CHANGE: Final = frozenset({"priority", "idle_limit_s", "restart", "stop_grace_s"})
"""Parts that are reread while the pod runs, as are labels. All others chose the node or made the containers."""


def changed_parts(found: PodSpec, wanted: PodSpec) -> tuple[str, ...]:
    """Return the names of the parts that differ."""
    names = (field.name for field in msgspec.structs.fields(PodSpec))
    return tuple(name for name in names if getattr(found, name) != getattr(wanted, name))


def fixed_changes(found: PodSpec, wanted: PodSpec) -> tuple[str, ...]:
    """Return the names of differing parts that are fixed while the pod holds a share."""
    return tuple(name for name in changed_parts(found, wanted) if name not in MAY_CHANGE)
