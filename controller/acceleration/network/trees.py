"""The reduction tree: in each round machines form groups of at most k, and one machine aggregates a group's data.

Unlike in an aggregation tree, whose switches add up, machines do the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from controller.acceleration.errors import AccelerationError


class Aggregators(StrEnum):
    """Choice of the machine that aggregates a group.

    apart: none of the group, as the specification counts: all k send, each over the network. member: the group's first,
    whose own part stays in place; k - 1 send, as real programs do.
    """

    APART = "apart"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Transfer:
    """Data sent from one machine to another in a round; all transfers of a tree carry the same amount."""

    src: str
    dst: str


@dataclass(frozen=True, slots=True)
class Group:
    """Machines whose data is aggregated in one round, and the machine that has the sum afterwards."""

    aggregator: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReductionTree:
    """Rounds of groups; the last round has one group. A single machine has no rounds.

    `hosts` are all machines, near ones adjacent. `fan_in` is the most members of a group.
    """

    hosts: tuple[str, ...]
    fan_in: int
    rounds: tuple[tuple[Group, ...], ...]

    @property
    def root(self) -> str:
        """The machine that has the final sum."""
        return self.rounds[-1][0].aggregator if self.rounds else self.hosts[0]

    @property
    def transfers(self) -> tuple[tuple[Transfer, ...], ...]:
        """Transfers over the network in each round, without data that stays in place."""
        return tuple(tuple(_transfers(groups)) for groups in self.rounds)

    @property
    def shares(self) -> tuple[tuple[int, ...], ...]:
        """Number of machines' outputs in each transfer, round by round."""
        held, counts = dict.fromkeys(self.hosts, 1), []
        for groups in self.rounds:
            counts.append(tuple(held[transfer.src] for transfer in _transfers(groups)))
            held = {group.aggregator: sum(held[name] for name in group.members) for group in groups}
        return tuple(counts)


def reduction_tree(hosts: Sequence[str], fan_in: int, aggregators: Aggregators = Aggregators.APART) -> ReductionTree:
    """Return the tree over these machines: groups of `fan_in` neighbours, whose aggregators form the next round.

    With at most `fan_in` machines, one of them has the sum after one round, and its own part stays in place. Raise
    AccelerationError without machines, for a duplicate machine, and for a fan-in below 2.
    """
    if fan_in < 2:
        raise AccelerationError(f"fan-in {fan_in}: a reduction tree needs at least 2 inputs per machine")
    if not hosts:
        raise AccelerationError("a reduction tree needs at least one machine")
    if len(set(hosts)) < len(hosts):
        twice = next(name for name in hosts if list(hosts).count(name) > 1)
        raise AccelerationError(f"machine {twice} is in the reduction tree twice")
    rounds: list[tuple[Group, ...]] = []
    holders = tuple(hosts)
    while len(holders) > 1:
        parts = tuple(holders[start : start + fan_in] for start in range(0, len(holders), fan_in))
        chosen = _apart(parts, hosts) if aggregators is Aggregators.APART else [part[0] for part in parts]
        rounds.append(tuple(Group(name, part) for name, part in zip(chosen, parts, strict=True)))
        holders = tuple(chosen)
    return ReductionTree(tuple(hosts), fan_in, tuple(rounds))


def _apart(parts: Sequence[tuple[str, ...]], hosts: Sequence[str]) -> list[str]:
    """Return for each group a distinct machine outside it: one of a neighbouring group, as near as possible."""
    if len(parts) == 1:
        inside = set(parts[0])
        return [next((name for name in hosts if name not in inside), parts[0][0])]
    order = [index ^ 1 for index in range(len(parts))]
    if len(parts) % 2:
        order[-3:] = len(parts) - 2, len(parts) - 1, len(parts) - 3
    return [parts[index][0] for index in order]


def _transfers(groups: Sequence[Group]) -> Iterator[Transfer]:
    for group in groups:
        yield from (Transfer(member, group.aggregator) for member in group.members if member != group.aggregator)
