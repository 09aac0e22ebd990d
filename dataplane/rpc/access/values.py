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
    """The workload controller."""
    HOLDER = "holder"
    """An upstream device that holds units of pools; its subject is the name that it has there."""
    BALANCE = "balance"
    """Who shares units of pools out."""
    WORKER = "worker"
    """A worker of jobs of all-reduce; its subject is its host's name in the topology."""
    ADMIN = "admin"


class Right(StrEnum):
    """What a user may do beyond his role, where his token says so."""

    EXEC = "exec"
    """Run commands in containers, and so see and change all that is in them."""
    KERNELS = "kernels"
    """Write probe kernels, whose code compute centres run."""
    CHANGE = "change"
    """Change what services of the network hold, beside reading it."""
    OPERATE = "operate"
    """That, and decide about them: end jobs, replace rules and programs."""


SUBJECTS = (Role.NODE, Role.CENTRE, Role.HOLDER, Role.WORKER)
"""Roles whose tokens and certificates are of one node, one centre, one holder of units, one host."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls; `subject` is the one node, centre, holder or host that it stands for.

    `name` is for logs and limits; what a user creates is his by it. A user acts on all that is of his `projects`, too.
    """

    name: str
    role: Role
    subject: str | None = None
    rights: tuple[Right, ...] = ()
    projects: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Say who it is, for a line of a refusal or of a log."""
        whose = "" if self.subject is None else f" {self.subject}"
        return f"{self.name} ({self.role.value}{whose})"


def problem_of(
    role: Role, subject: str | None, rights: tuple[Right, ...], projects: tuple[str, ...] = ()
) -> str | None:
    """Return why there is nobody of this role, subject, rights and projects; None if there is."""
    if (role in SUBJECTS) != (subject is not None):
        return f"role {role.value} " + ("names its node, centre, holder or host" if role in SUBJECTS else "names none")
    if rights and role is not Role.USER:
        return f"rights are for role user, not {role.value}"
    if projects and role is not Role.USER:
        return f"projects are for role user, not {role.value}"
    return None


LOCAL = Principal("local", Role.ADMIN)
"""Whoever may open a socket that only its own user can."""
