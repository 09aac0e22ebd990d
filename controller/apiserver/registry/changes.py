"""What of a pod may change while it holds a share, and what stays as it was when the share was given; pure."""

from __future__ import annotations

from typing import Final

import msgspec

from controller.apiserver.resources.pod import PodSpec

MAY_CHANGE: Final = frozenset({"priority", "idle_limit_s", "restart", "stop_grace_s"})
"""Read anew while it runs; labels are, too. All else a node was chosen by, or containers were made of."""


def changed_parts(found: PodSpec, wanted: PodSpec) -> tuple[str, ...]:
    """Return the names of the parts that differ."""
    names = (field.name for field in msgspec.structs.fields(PodSpec))
    return tuple(name for name in names if getattr(found, name) != getattr(wanted, name))


def fixed_changes(found: PodSpec, wanted: PodSpec) -> tuple[str, ...]:
    """Return the names of the parts that differ and may not while the pod holds a share."""
    return tuple(name for name in changed_parts(found, wanted) if name not in MAY_CHANGE)
