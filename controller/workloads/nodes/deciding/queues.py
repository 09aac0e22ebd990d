"""Choice of the queues that a process gets; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dataplane.nic.managed.messages import GrantKind


@dataclass(frozen=True, slots=True)
class GrantRule:
    """Queues of a device that are handed out, as which transport, and to whom.

    `users` are the kernel's numbers. `jobs`: claims must name one of them; empty: they need not name any.
    """

    device: str
    queues: tuple[int, ...]
    kind: GrantKind
    users: frozenset[int]
    jobs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Poller:
    """A process that has, or wants, queues."""

    program: str
    process: int
    user: int

    def __str__(self) -> str:
        """Return the process for people."""
        return f"{self.program} (process {self.process}, user {self.user})"


@dataclass(frozen=True, slots=True)
class Granted:
    """Queues for a claim."""

    kind: GrantKind
    queues: tuple[int, ...]


def granted(
    rules: Sequence[GrantRule], held: Mapping[tuple[str, int], Poller], asking: Poller, device: str, job: str
) -> Granted | str:
    """Return the queues of a device that a process gets, or a line that says why it gets none.

    `held` has who polls or was granted a queue. A ring takes one queue, AF_XDP all of the device.
    """
    named = [rule for rule in rules if rule.device == device]
    if not named:
        return f"no queue of {device} is granted on this node"
    allowed = [rule for rule in named if asking.user in rule.users]
    if not allowed:
        users = sorted({user for rule in named for user in rule.users})
        return f"queues of {device} are granted to {_listed('user', users)}, not to user {asking.user}"
    fitting = [rule for rule in allowed if not rule.jobs or job in rule.jobs]
    if not fitting:
        jobs = sorted({name for rule in allowed for name in rule.jobs})
        return f"queues of {device} are granted to {_listed('job', jobs)}, not to {job or 'no job'}"
    busy: dict[int, Poller] = {}
    for rule in fitting:
        taken = _taken(rule, held)
        free = tuple(queue for queue in rule.queues if queue not in taken)
        if rule.kind == "xdp" and not taken:
            return Granted(rule.kind, rule.queues)
        if rule.kind != "xdp" and free:
            return Granted(rule.kind, free[:1])
        busy |= taken
    return "; ".join(f"queue {queue} of {device} is held by {holder}" for queue, holder in sorted(busy.items())[:4])


def _taken(rule: GrantRule, held: Mapping[tuple[str, int], Poller]) -> dict[int, Poller]:
    """Return the queues that stand in a rule's way, with their holders."""
    of_device = {queue: holder for (device, queue), holder in held.items() if device == rule.device}
    if rule.kind == "xdp":
        return of_device  # its program takes the frames of all queues
    return {queue: of_device[queue] for queue in rule.queues if queue in of_device}


def _listed(what: str, items: Collection[object]) -> str:
    return f"{what}{'s' if len(items) > 1 else ''} {', '.join(map(str, items))}"
