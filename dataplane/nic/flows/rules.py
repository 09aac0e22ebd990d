"""Rules of the flow classifier: what a frame must match, and what happens to it then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from types import MappingProxyType
from typing import TypeAlias

from dataplane.errors import ClassifierError
from dataplane.nic.structures import ActionKind

MOST_U32 = 0xFFFF_FFFF
MOST_U64 = 0xFFFF_FFFF_FFFF_FFFF

Exact: TypeAlias = int | str | IPv4Address | IPv6Address
"""A number, a MAC address as text or number, an IP address as text or object."""


@dataclass(frozen=True, slots=True)
class Masked:
    """The bits of `value` under `mask`; the others are ignored and must be 0 in `value`. `Masked(0, 0)`: any."""

    value: Exact
    mask: Exact


@dataclass(frozen=True, slots=True)
class Range:
    """Everything from `first` to `last`, inclusive."""

    first: Exact
    last: Exact


MatchValue: TypeAlias = Exact | IPv4Network | IPv6Network | Masked | Range
"""An address as text may end in a prefix length: "10.0.0.0/8", "2001:db8::/32", "02:00:00:00:00:00/24"."""


@dataclass(frozen=True, slots=True)
class ToConsumers:
    """The frame goes to one of a group of consumers."""

    group: str


@dataclass(frozen=True, slots=True)
class Drop:
    """The frame is dropped."""


@dataclass(frozen=True, slots=True)
class FlowVerdict:
    """The classifier's verdict on a frame; `rule` and `group` are numbers, rule 0 is the default."""

    action: ActionKind
    group: int
    mark: int
    rule: int
    flow_hash: int


@dataclass(frozen=True, slots=True)
class Call:
    """The frame goes to a function, and is finished when that returns.

    `function` is the address of a native `FrameFunction` (dataplane/nic/structures.py), called with `context`, or a
    Python function, whose exceptions are logged and counted. It is called by the driver thread: others wait.
    """

    function: int | Callable[[bytes, FlowVerdict], object]
    context: int = 0


Action: TypeAlias = ToConsumers | Drop | Call


@dataclass(frozen=True, slots=True)
class FlowRule:
    """A rule: frames that have all of `match` (names in dataplane/nic/flows/fields.py) get the action.

    Of the matching rules, the one with the highest priority applies, the older of two equals. `count` counts packets
    and bytes; `mark` goes with the packet. Raises ClassifierError for a number that does not fit (u32; u64 in `Call`).
    """

    name: str
    match: Mapping[str, MatchValue]
    action: Action
    priority: int = 0
    count: bool = False
    mark: int = 0

    def __post_init__(self) -> None:
        """Freeze the match as it is now."""
        object.__setattr__(self, "match", MappingProxyType(dict(self.match)))
        self._check("priority", self.priority, 0, MOST_U32)
        self._check("mark", self.mark, 0, MOST_U32)
        if isinstance(self.action, Call):
            self._check("context", self.action.context, 0, MOST_U64)
            if isinstance(self.action.function, int):
                self._check("function", self.action.function, 1, MOST_U64)

    def _check(self, name: str, number: int, least: int, most: int) -> None:
        if not least <= number <= most:
            raise ClassifierError(f"{name} {number} is not in {least} to {most}", rule=self.name)
