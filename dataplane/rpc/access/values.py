"""The caller's identity: a role, and a name for the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """Role of a caller; each service decides what a role may do."""

    USER = "user"
    VIEWER = "viewer"
    """Reads everything that is shown to operators, of all users; changes nothing."""
    NODE = "node"
    """A machine's container manager; its subject is the machine's name."""
    CENTRE = "centre"
    """A compute centre's agent; its subject is the centre's name."""
    SERVICE = "service"
    """Our own schedulers and controllers."""
    PLACEMENT = "placement"
    """The workload controller."""
    HOLDER = "holder"
    """An upstream device that holds units of pools; its subject is its name there."""
    BALANCE = "balance"
    """The balancer that distributes the units of pools."""
    WORKER = "worker"
    """A worker of all-reduce jobs; its subject is its host's name in the topology."""
    ADMIN = "admin"


class Right(StrEnum):
    """Right of a user beyond its role, if its token grants it."""

    EXEC = "exec"
    """Run commands in containers, and so see and change everything in them."""
    KERNELS = "kernels"
    """Write probe kernels, whose code compute centres run."""
    SCORING = "scoring"
    """Write the policies by which probe results are scored, which decides prices."""
    CHANGE = "change"
    """Change the data of network services, besides reading it."""
    OPERATE = "operate"
    """Also control them: end jobs, replace rules and programs."""


SUBJECTS = (Role.NODE, Role.CENTRE, Role.HOLDER, Role.WORKER)
"""Roles whose tokens and certificates belong to one node, centre, holder of units, or host."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller; `subject` is the one node, centre, holder or host that it represents.

    `name` is for logs and limits, and marks the resources a user creates as its own. A user also acts on everything in
    its `projects`.
    """

    name: str
    role: Role
    subject: str | None = None
    rights: tuple[Right, ...] = ()
    projects: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Format the caller for a refusal or a log line."""
        whose = "" if self.subject is None else f" {self.subject}"
        return f"{self.name} ({self.role.value}{whose})"


def problem_of(
    role: Role, subject: str | None, rights: tuple[Right, ...], projects: tuple[str, ...] = ()
) -> str | None:
    """Return why this role, subject, rights and projects are no valid combination; None if they are."""
    if (role in SUBJECTS) != (subject is not None):
        return f"role {role.value} " + ("names its node, centre, holder or host" if role in SUBJECTS else "names none")
    if rights and role is not Role.USER:
        return f"rights are for role user, not {role.value}"
    if projects and role is not Role.USER:
        return f"projects are for role user, not {role.value}"
    return None


LOCAL = Principal("local", Role.ADMIN)
"""Anyone who can open a socket that is accessible only to its own user."""
