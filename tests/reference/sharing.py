"""The plain twin of max-min fair sharing: textbook progressive filling over dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.scheduling.simulation.sharing import Finish, Hop, check_flow, check_links
from controller.scheduling.simulation.units import MOST_BPS, MOST_SECONDS, NEVER, ONE
from dataplane.clock import NS_PER_S


@dataclass(slots=True)
class _Flow:
    shares: Mapping[int, int]
    left_bits: int
    since_ns: int
    rate_bps: int = 0
    finish_ns: int = NEVER

    def change_rate(self, rate_bps: int, now_ns: int) -> None:
        sent = self.rate_bps * (now_ns - self.since_ns) // NS_PER_S
        self.left_bits = max(self.left_bits - sent, 0)
        self.since_ns, self.rate_bps = now_ns, rate_bps
        self.finish_ns = NEVER
        if rate_bps and self.left_bits // rate_bps < MOST_SECONDS:
            self.finish_ns = now_ns - (-self.left_bits * NS_PER_S // rate_bps)


@dataclass(slots=True)
class PlainSharing:
    """The plain twin of `Sharing`."""

    capacity_bps: list[int]
    _flows: dict[int, _Flow] = field(default_factory=dict)
    _changed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        check_links(self.capacity_bps)

    @property
    def flows(self) -> int:
        """Number of flows."""
        return len(self._flows)

    def add(self, hops: Sequence[Hop], bits: int, now_ns: int) -> int:
        """Start a flow; return its number."""
        check_flow(hops, bits, len(self.capacity_bps))
        number = next(slot for slot in range(len(self._flows) + 1) if slot not in self._flows)
        self._flows[number] = _Flow(dict(hops), bits, now_ns)
        self._changed.update(link for link, _ in hops)
        return number

    def remove(self, flow: int) -> None:
        """Remove a flow."""
        self._changed.update(self._flows.pop(flow).shares)

    def set_capacity(self, link: int, capacity_bps: int) -> None:
        """Set the capacity of a link."""
        check_links([capacity_bps])
        self.capacity_bps[link] = capacity_bps
        self._changed.add(link)

    def settle(self, now_ns: int) -> int:
        """Recompute rates where something has changed."""
        concerned = self._concerned()
        for number, rate_bps in max_min_rates(self.capacity_bps, {n: self._flows[n].shares for n in concerned}).items():
            if self._flows[number].rate_bps != rate_bps:
                self._flows[number].change_rate(rate_bps, now_ns)
        self._changed.clear()
        return len(concerned)

    def rate_bps(self, flow: int) -> int:
        """Return a flow's rate."""
        return self._flows[flow].rate_bps

    def first_to_finish(self) -> Finish | None:
        """Return which flow finishes first, and when."""
        will = [(flow.finish_ns, number) for number, flow in self._flows.items() if flow.finish_ns != NEVER]
        return Finish(min(will)[1], min(will)[0]) if will else None

    def _concerned(self) -> list[int]:
        links, concerned = set(self._changed), set[int]()
        while True:
            more = {n for n, flow in self._flows.items() if n not in concerned and links & flow.shares.keys()}
            if not more:
                return sorted(concerned)
            concerned |= more
            links.update(link for number in more for link in self._flows[number].shares)


def max_min_rates(capacity_bps: Sequence[int], flows: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    """Return each flow's rate, bit/s rounded down and at most `MOST_BPS`.

    `flows` give the share (of `ONE`) that crosses each link.
    """
    left = {link: capacity_bps[link] * ONE for shares in flows.values() for link in shares}
    weight = dict.fromkeys(left, 0)
    for shares in flows.values():
        for link, share in shares.items():
            weight[link] += share
    rates: dict[int, int] = {}
    while len(rates) < len(flows):
        level, full = min((min(left[link] // weight[link], MOST_BPS), link) for link in left if weight[link])
        for number in [n for n, shares in flows.items() if n not in rates and full in shares]:
            rates[number] = level
            for link, share in flows[number].items():
                left[link] -= level * share
                weight[link] -= share
    return rates
