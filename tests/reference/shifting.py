"""Traffic engineering's kernels in plain Python: traffic moves to cheaper paths, and is divided by whole weights.

The twin of controller/network/paths/engineering/kernels, number for number. Links are in the kernels' order.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction

from controller.network.paths.engineering.kernel_calls import Traffic
from controller.network.paths.engineering.structures import POWER_BITS, SLOPE_BITS, STEPS, TOP
from controller.network.tables.routing import MAX_GROUP_SIZE

INFINITE = 1 << 70


@dataclass
class PlainTraffic:
    """A copy of traffic and prices; `shift` and `round` are those of `Traffic` for one row."""

    tails: list[int]
    heads: list[int]
    destinations: list[int]
    flows: list[list[int]]
    entering: list[list[int]]
    load: list[int]
    columns: list[tuple[int, int, int, int]]
    power: list[int]
    sharpness: int

    @classmethod
    def of(cls, traffic: Traffic) -> PlainTraffic:
        """Return a copy of traffic with its prices."""
        graph, prices, links = traffic.layout.graph, traffic.prices, len(traffic.load)
        return cls(
            [graph.tail[link] for link in range(links)],
            [graph.head[link] for link in range(links)],
            traffic.destinations.tolist(),
            traffic.flows.tolist(),
            traffic.entering.tolist(),
            traffic.load.tolist(),
            [(prices.factor[k], prices.slope[k], prices.most[k], prices.delay[k]) for k in range(links)],
            [prices.power[k] for k in range(1 << STEPS)],
            prices.sharpness,
        )

    def cost(self, link: int, more: int = 0) -> int:
        """Return a link's cost if its load changes."""
        factor, slope, most, delay = self.columns[link]
        load = self.load[link] + more
        exponent = load * slope >> SLOPE_BITS if load < most else self.sharpness + TOP << STEPS
        whole, part = divmod(exponent, 1 << STEPS)
        return delay + (factor * self.power[part] >> POWER_BITS + self.sharpness - whole)

    def leaving(self, switch: int) -> list[int]:
        """Return the links that leave a switch."""
        return [link for link, tail in enumerate(self.tails) if tail == switch]

    def order(self, row: int) -> list[int]:
        """Return the switches in order of a row's traffic, after removal of its cycles."""
        flow = self.flows[row]
        while True:
            waiting = [0] * len(self.entering[row])
            for link, amount in enumerate(flow):
                waiting[self.heads[link]] += amount > 0
            ready = [switch for switch, count in enumerate(waiting) if count == 0]
            for near in ready:  # grows meanwhile
                for link in self.leaving(near):
                    if flow[link]:
                        waiting[self.heads[link]] -= 1
                        if waiting[self.heads[link]] == 0:
                            ready.append(self.heads[link])
            if len(ready) == len(waiting):
                return ready
            self._remove_cycle(row, waiting)

    def _remove_cycle(self, row: int, waiting: list[int]) -> None:
        flow = self.flows[row]
        switch = next(switch for switch, count in enumerate(waiting) if count)
        trail: list[int] = []
        while switch not in (self.heads[link] for link in trail):
            # The last link in the kernels' order, as they take it.
            trail.append(
                max(k for k, head in enumerate(self.heads) if head == switch and flow[k] and waiting[self.tails[k]])
            )
            switch = self.tails[trail[-1]]
        cycle = trail[[self.heads[link] for link in trail].index(switch) :]
        self._move(row, cycle, -min(flow[link] for link in cycle))

    def _move(self, row: int, links: list[int], amount: int) -> None:
        for link in links:
            self.flows[row][link] += amount
            self.load[link] += amount

    def distances(self, destination: int) -> list[int]:
        """Return the least cost from every switch to a destination."""
        distance = [INFINITE] * len(self.entering[0])
        distance[destination] = 0
        queue = [(0, destination)]
        while queue:
            reached, switch = heapq.heappop(queue)
            if reached > distance[switch]:
                continue
            for link, head in enumerate(self.heads):
                if head == switch and reached + self.cost(link) < distance[self.tails[link]]:
                    distance[self.tails[link]] = reached + self.cost(link)
                    heapq.heappush(queue, (distance[self.tails[link]], self.tails[link]))
        return distance

    def shift(self, row: int) -> None:
        """Move traffic of a row from its dearest paths to its cheapest tree."""
        flow, destination = self.flows[row], self.destinations[row]
        order, least = self.order(row), self.distances(destination)
        dearest, along, tree = [0] * len(order), dict[int, int](), dict[int, int]()
        for switch in reversed(order):
            for link in self.leaving(switch):
                beyond = self.cost(link) + dearest[self.heads[link]]
                if flow[link] and beyond > dearest[switch]:
                    dearest[switch], along[switch] = beyond, link
                if switch not in tree and self.cost(link) + least[self.heads[link]] == least[switch]:
                    tree[switch] = link
        for switch in order:
            differs = switch in along and along[switch] != tree[switch]
            if differs and dearest[switch] > least[switch] + (least[switch] >> 10):
                self._equalise(row, switch, along, tree)

    def _equalise(self, row: int, start: int, along: dict[int, int], tree: dict[int, int]) -> None:
        cheap = [start]
        while cheap[-1] != self.destinations[row]:
            cheap.append(self.heads[tree[cheap[-1]]])
        used = [along[start]]
        while self.heads[used[-1]] not in cheap:
            used.append(along[self.heads[used[-1]]])
        other = [tree[switch] for switch in cheap[: cheap.index(self.heads[used[-1]])]]
        room = min(self.flows[row][link] for link in used)

        def pays(amount: int) -> bool:
            return sum(self.cost(link, amount) for link in other) < sum(self.cost(link, -amount) for link in used)

        low, high = (room, room) if pays(room) else (0, room)
        for _ in range(8):
            middle = (low + high) // 2
            low, high = (middle, high) if pays(middle) else (low, middle)
        self._move(row, other, low)
        self._move(row, used, -low)

    def round(self, row: int) -> list[int]:
        """Shift a row's traffic and divide it by whole weights; return these by link."""
        self.shift(row)
        order, flow, weights = self.order(row), self.flows[row], [0] * len(self.heads)
        passing = [0 if switch == self.destinations[row] else more for switch, more in enumerate(self.entering[row])]
        groups = {switch: self.leaving(switch) for switch in order}
        parts = {switch: weights_of([flow[link] for link in groups[switch]]) for switch in order}
        for switch in order:
            left = passing[switch] if switch != self.destinations[row] else 0
            total, whole = sum(parts[switch]), left
            for link, weight in zip(groups[switch], parts[switch], strict=True):
                amount = min(left, -(-whole * weight // total)) if whole and weight else 0
                weights[link] = weight if whole else 0
                left -= amount
                passing[self.heads[link]] += amount
                self._move(row, [link], amount - flow[link])
        return weights


def weights_of(amounts: list[int]) -> list[int]:
    """Return the smallest whole weights in proportion: exact to 2 ** -20, else within a 64th, else nearest of 32."""
    total = sum(amounts)
    if not total:
        return [0] * len(amounts)
    if max(amounts) == total:
        return [int(amount > 0) for amount in amounts]
    options = [_largest_remainder(amounts, parts) for parts in range(1, MAX_GROUP_SIZE + 1)]
    errors = [
        max(
            abs(Fraction(weight, sum(option)) - Fraction(amount, total))
            for weight, amount in zip(option, amounts, strict=True)
        )
        for option in options
    ]
    for within in (Fraction(1, 1 << 20), Fraction(1, 64)):
        for option, error in zip(options, errors, strict=True):
            if error <= within:
                return option
    return options[-1]


def _largest_remainder(amounts: list[int], parts: int) -> list[int]:
    total = sum(amounts)
    weights = [amount * parts // total for amount in amounts]
    rests = [amount * parts % total for amount in amounts]
    for index in sorted(range(len(amounts)), key=lambda index: -rests[index])[: parts - sum(weights)]:
        weights[index] += 1
    return weights
