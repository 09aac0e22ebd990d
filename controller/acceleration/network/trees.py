"""The reduction tree: in each round machines form groups of at most k, and one machine sums up what a group has.

It is no aggregation tree, whose switches add up: here machines do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from controller.acceleration.errors import AccelerationError


class Aggregators(StrEnum):
    """Which machine sums up a group.

    apart: none of the group, as the specification counts: all k send, each over the network. member: the group's
    first, whose own part stays where it is; k - 1 send, as real programs do.
    """

    APART = "apart"
    MEMBER = "member"


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one machine sends to another one in a round; all transfers of a tree carry equally much."""

    src: str
    dst: str


@dataclass(frozen=True, slots=True)
class Group:
    """Machines whose data is summed up in one round, and the machine that has the sum then."""

    aggregator: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReductionTree:
    """Rounds of groups; the last round has one group. One machine alone has no rounds.

    `hosts` are all machines, near ones side by side. `fan_in` is the most members of a group.
    """

    hosts: tuple[str, ...]
    fan_in: int
    rounds: tuple[tuple[Group, ...], ...]

    @property
    def root(self) -> str:
        """The machine that has the sum in the end."""
        return self.rounds[-1][0].aggregator if self.rounds else self.hosts[0]

    @property
    def transfers(self) -> tuple[tuple[Transfer, ...], ...]:
        """What crosses the network in each round; what stays where it is is no transfer."""
        return tuple(tuple(_transfers(groups)) for groups in self.rounds)

    @property
    def shares(self) -> tuple[tuple[int, ...], ...]:
        """Of how many machines each transfer has the outputs, round by round."""
        held, found = dict.fromkeys(self.hosts, 1), []
        for groups in self.rounds:
            found.append(tuple(held[transfer.src] for transfer in _transfers(groups)))
            held = {group.aggregator: sum(held[name] for name in group.members) for group in groups}
        return tuple(found)


def reduction_tree(hosts: Sequence[str], fan_in: int, aggregators: Aggregators = Aggregators.APART) -> ReductionTree:
    """Return the tree over these machines: groups of `fan_in` neighbours, whose aggregators are the next round's.

    Where machines are no more than `fan_in`, one of them has the sum after one round, and its own part stays. Raise
    AccelerationError for no machine, one that is named twice, and a fan-in below 2.
    """
    if fan_in < 2:
        raise AccelerationError(f"fan-in {fan_in}: a reduction tree needs at least 2 inputs a machine")
    if not hosts:
        raise AccelerationError("a reduction tree without machines")
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
    """Return for each group a machine outside it, each another one: a group's neighbour's, as near as can be."""
    if len(parts) == 1:
        inside = set(parts[0])
        return [next((name for name in hosts if name not in inside), parts[0][0])]
    order = [place ^ 1 for place in range(len(parts))]
    if len(parts) % 2:
        order[-3:] = len(parts) - 2, len(parts) - 1, len(parts) - 3
    return [parts[place][0] for place in order]


def _transfers(groups: Sequence[Group]) -> Iterator[Transfer]:
    for group in groups:
        yield from (Transfer(member, group.aggregator) for member in group.members if member != group.aggregator)
