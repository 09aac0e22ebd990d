"""Who calls: a role, and a name for the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What somebody may do at all; which service allows what to a role is the service's to say."""

    USER = "user"
    NODE = "node"
    """A machine's container manager; its subject is the machine's name."""
    CENTRE = "centre"
    """A compute centre's agent; its subject is the centre's name."""
    SERVICE = "service"
    """Schedulers and controllers of ours."""
    PLACEMENT = "placement"
    """The main controller."""
    HOLDER = "holder"
    """An upstream device that holds units of pools; its subject is the name that it has there."""
    BALANCE = "balance"
    """Who shares units of pools out."""
    ADMIN = "admin"


class Right(StrEnum):
    """What a user may do beyond his role, where his token says so."""

    EXEC = "exec"
    """Run commands in containers, and so see and change all that is in them."""
    KERNELS = "kernels"
    """Write probe kernels, whose code compute centres run."""


SUBJECTS = (Role.NODE, Role.CENTRE, Role.HOLDER)
"""Roles whose tokens are of one node, one centre, one holder of units."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls; `name` is for logs and limits, `subject` the one node or centre that it stands for."""

    name: str
    role: Role
    subject: str | None = None
    rights: tuple[Right, ...] = ()


LOCAL = Principal("local", Role.ADMIN)
"""Whoever may open a socket that only its own user can."""
