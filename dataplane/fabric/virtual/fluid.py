"""Links under flows of constant rates: loads, backlogs and losses as a fluid, for all links at once.

A link's backlog grows by what arrives beyond its rate, drains otherwise, and is cut off at the queue's length, as the
frames of a port's queue are. What leaves a link arrives at the flow's next link at once: delays of links and queues do
not shift rates. Rates are bits on the wire per second, times ns of one clock, links and flows numbers from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataplane.clock import NS_PER_S

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

_ROUNDS: Final = 24
"""Maximum passes over the links for one solution; routes without circles need one for each link of the longest."""
_SAME: Final = 1e-9
_PASSING_FRAMES: Final = 3
"""A shorter backlog is one that comes and goes with packets."""
_MOST_USED: Final = 0.98
"""Load above which random waits stay as they are there: the backlog tells the rest."""


@dataclass(frozen=True, slots=True)
class FluidFlows:
    """Flows in columns: the links of each in their order, padded with the number of links; rate; bits of a frame.

    `random` is 1 for flows whose frames come at random times, 0 for those of equal gaps.
    """

    hops: Numbers
    rate_bps: Floats
    frame_bits: Floats
    random: Floats


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """A link at one time: arriving and leaving background, frames of it that wait, and the share that is lost."""

    offered_bps: float
    sent_bps: float
    backlog_frames: float
    wait_ns: float
    loss: float


NO_FLOWS: Final = FluidFlows(np.empty((0, 1), np.int64), np.empty(0), np.empty(0), np.empty(0))


class FluidLinks:
    """The state of all links; `advance` to a time before anything changes, then `solve`."""

    def __init__(
        self, rate_bps: Sequence[int], queue_frames: Sequence[int], longest_step_ns: int, *, sampled: float = 0.0
    ) -> None:
        """Begin without flows; `longest_step_ns` is the longest time that the caller lets pass between two calls.

        `sampled` is the rate of packets that belong to the flows, as a share of the flows' own.
        """
        count = len(rate_bps)
        self.rate_bps = np.array(rate_bps, np.float64)
        self.passes = np.ones(count)
        """The share of what a link sends that arrives at its end."""
        self.offered_bps = np.zeros(count)
        self.sent_bits = np.zeros(count)
        self.sent_frames = np.zeros(count)
        self.lost_bits = np.zeros(count)
        self.accepted_bits = np.zeros(count)
        self.frame_bits = np.full(count, 8e3)
        self._queue_frames = np.array(queue_frames, np.float64)
        self._limit_bits = (self._queue_frames + 1) * self.frame_bits
        self._backlog_bits = np.zeros(count)
        self._since_ns = np.zeros(count, np.int64)
        self._random_bps = np.zeros(count)
        self._sampled = sampled
        self._packet_bps = np.zeros(count)
        self._packet_bits = np.zeros(count)
        self._packets_since_ns = 0
        self._step_s = longest_step_ns / NS_PER_S
        self.take_flows(NO_FLOWS)

    @property
    def flows(self) -> FluidFlows:
        """The flows and their links."""
        return self._flows

    def take_flows(self, flows: FluidFlows) -> None:
        """Have other flows, or other routes, from the last `advance` on."""
        self._flows, count = flows, len(self.rate_bps)
        pairs = flows.hops[:, :-1] * (count + 1) + flows.hops[:, 1:]
        unique, self._pair_of = np.unique(pairs, return_inverse=True)
        first, second = np.divmod(unique, count + 1)
        rates = np.append(self.rate_bps, np.inf)
        self._second = second
        self._is_spaced = (second < count) & (rates[first] <= rates[second])

    def advance(self, now_ns: int) -> None:
        """Let time pass, at the present rates."""
        passed_s = (now_ns - self._since_ns) / NS_PER_S
        arrived = self.offered_bps * passed_s
        grown = self._backlog_bits + arrived - self.rate_bps * passed_s
        after = np.clip(grown, 0.0, self._limit_bits)
        lost = np.maximum(grown - after, 0.0) * (grown > 0)
        sent = arrived + self._backlog_bits - after - lost
        self.lost_bits += lost
        self.accepted_bits += arrived - lost
        self.sent_bits += sent
        self.sent_frames += sent / self.frame_bits
        self._backlog_bits = after
        self._since_ns[:] = now_ns
        self._measure_packets(now_ns)

    def solve(self) -> None:
        """Compute what arrives at each link, from flows' rates, what their earlier links let pass, and backlogs."""
        flows, count = self.flows, len(self.rate_bps)
        factor = np.ones(count + 1)
        arriving = np.empty(flows.hops.shape)
        weights: Floats = np.zeros(count + 1)
        for round_ in range(_ROUNDS):
            passing = factor[flows.hops]
            arriving[:, 0] = flows.rate_bps
            np.cumprod(passing[:, :-1], axis=1, out=passing[:, :-1])
            arriving[:, 1:] = flows.rate_bps[:, None] * passing[:, :-1]
            weights = self._sums(arriving)
            new = self._passing(weights[:-1])
            if np.abs(new - factor[:-1]).max(initial=0.0) < _SAME:
                break
            # Flows in a circle would let full links alternate with empty ones.
            factor[:-1] = new if round_ < _ROUNDS // 2 else (new + factor[:-1]) / 2
        self.offered_bps = weights[:-1]
        self._random_bps = self._coming_together(arriving)
        frames = self._sums(arriving / flows.frame_bits[:, None])[:-1]
        np.divide(self.offered_bps, frames, out=self.frame_bits, where=frames > 0)
        self._limit_bits = (self._queue_frames + 1) * self.frame_bits

    def _sums(self, of_hops: Floats) -> Floats:
        """Return sums by link of something by flow and hop, and last the padding's."""
        return np.bincount(self.flows.hops.ravel(), of_hops.ravel(), len(self.rate_bps) + 1).astype(np.float64)

    def load(self, link: int, now_ns: int) -> LinkLoad:
        """Return a link's state at a time, not before the last `advance`."""
        backlog, offered, rate = self._backlog_at(link, now_ns), self.offered_bps[link], self.rate_bps[link]
        frame = self.frame_bits[link]
        is_full = backlog > self._limit_bits[link] - frame
        return LinkLoad(
            offered_bps=float(offered),
            sent_bps=float(rate if backlog > 0 else min(offered, rate)),
            backlog_frames=backlog / frame,
            wait_ns=backlog * NS_PER_S / rate,
            loss=1 - self._accepted(link) if is_full else 0.0,
        )

    # what a packet meets

    def is_idle(self, link: int) -> bool:
        """Return whether neither flows nor a backlog are on a link."""
        return not self.offered_bps[link] and not self._backlog_bits[link]

    def depth(self, link: int, now_ns: int) -> int:
        """Return the frames that wait on a link at a time, one place of its queue left free."""
        return int(min(self._queue_frames[link] - 1, self._backlog_at(link, now_ns) // self.frame_bits[link]))

    def wait_ns(self, link: int, now_ns: int) -> int:
        """Return how long a packet that comes now waits for the backlog."""
        return self.time_ns(link, self._backlog_at(link, now_ns))

    def time_ns(self, link: int, bits: float) -> int:
        """Return how long a link takes to send so many bits."""
        return round(float(bits * NS_PER_S / self.rate_bps[link]))

    def arrived_bits(self, link: int, now_ns: int) -> float:
        """Return the bits that a link has accepted ever, up to a time."""
        passed_s = max(0, now_ns - int(self._since_ns[link])) / NS_PER_S
        arriving_bps = self.offered_bps[link]
        if arriving_bps > self.rate_bps[link] and self.chance(link, now_ns) < 1:
            arriving_bps *= self._accepted(link)
        return float(self.accepted_bits[link] + arriving_bps * passed_s)

    def chance(self, link: int, now_ns: int) -> float:
        """Return the probability that a link's queue accepts a packet that comes now."""
        if self._backlog_at(link, now_ns) <= self._limit_bits[link] - self.frame_bits[link]:
            return 1.0
        return self._accepted(link)

    def random_wait(self, link: int, now_ns: int) -> tuple[float, float]:
        """Return the probability that a packet finds frames that came at random, and its mean wait (ns) for these.

        An M/D/1 queue in its steady state; nothing while there is a backlog.
        """
        rate, frame = self.rate_bps[link], self.frame_bits[link]
        if self._backlog_at(link, now_ns) > frame:
            return 0.0, 0.0
        chance = self._random_bps[link] / rate
        with_packets = 1 + self._packet_bps[link] / max(self.offered_bps[link], 1.0)
        return chance, frame * NS_PER_S / rate / (2 * (1 - min(chance * with_packets, _MOST_USED)))

    def refuse_packet(self, link: int) -> None:
        """Note that a packet came to a full queue."""
        self._packet_bits[link] += self.frame_bits[link]

    def add_packet(self, link: int, now_ns: int, bits: int) -> None:
        """Note that a link begins to send a packet: the backlog waits for it."""
        backlog = self._backlog_at(link, now_ns)
        passed_s = max(0, now_ns - int(self._since_ns[link])) / NS_PER_S
        sent = self._backlog_bits[link] + self.offered_bps[link] * passed_s - backlog
        excess = max(0.0, sent - self.rate_bps[link] * passed_s)
        self.lost_bits[link] += excess
        self.accepted_bits[link] += self.offered_bps[link] * passed_s - excess
        self._packet_bits[link] += bits
        # The packet's own bits leave with the backlog's and do not count as the background's.
        self.sent_bits[link] += sent - excess - bits
        self.sent_frames[link] += (sent - excess - bits) / self.frame_bits[link]
        self._backlog_bits[link] = backlog + bits
        self._since_ns[link] = max(now_ns, int(self._since_ns[link]))

    def _backlog_at(self, link: int, now_ns: int) -> float:
        passed_s = max(0, now_ns - int(self._since_ns[link])) / NS_PER_S
        grown = self._backlog_bits[link] + (self.offered_bps[link] - self.rate_bps[link]) * passed_s
        return float(min(max(grown, 0.0), self._limit_bits[link]))

    def _accepted(self, link: int) -> float:
        """Return the share of arriving traffic that a full queue has room for."""
        return float(min(1.0, self.rate_bps[link] / max(self.offered_bps[link] + self._packet_bps[link], 1.0)))

    def _passing(self, offered_bps: Floats) -> Floats:
        """Return what leaves each link, as a share of the background that arrives, on average over the next step."""
        # What was measured of packets follows only after some steps.
        whole = offered_bps + np.maximum(self._packet_bps, self._sampled * offered_bps)
        # Part of a backlog is packets, which the next link counts itself, and so is what a single one delays.
        background = np.divide(offered_bps, whole, out=np.zeros_like(whole), where=whole > 0) * self._backlog_bits
        stored = np.maximum(background - _PASSING_FRAMES * self.frame_bits, 0.0)
        most = np.minimum(self.rate_bps, offered_bps + stored / self._step_s)
        # Packets have their part of a link that is full.
        share = np.divide(self.rate_bps, whole, out=np.ones_like(whole), where=whole > self.rate_bps)
        leaving = np.where(whole > self.rate_bps, offered_bps * share, most)
        return np.divide(leaving, offered_bps, out=np.ones_like(leaving), where=offered_bps > 0) * self.passes

    def _coming_together(self, arriving: Floats) -> Floats:
        """Return the rate at each link whose frames may find others at random.

        Frames that come over the same earlier link, which is not faster, are spaced already and never meet.
        """
        random = self._sums(arriving * self.flows.random[:, None])[:-1]
        of_pair = np.bincount(self._pair_of.ravel(), arriving[:, 1:].ravel(), len(self._second)) * self._is_spaced
        spaced = np.bincount(self._second, of_pair**2, len(self.rate_bps) + 1)[:-1]
        alone = np.divide(spaced, self.offered_bps**2, out=np.zeros_like(random), where=self.offered_bps > 0)
        meeting: Floats = random * np.maximum(1 - alone, 0.0)
        return meeting

    def _measure_packets(self, now_ns: int) -> None:
        """Follow the rate of the packets that come to each link, over some of the caller's steps."""
        passed_s = (now_ns - self._packets_since_ns) / NS_PER_S
        if passed_s < self._step_s:
            return
        weight = min(1.0, passed_s / (16 * self._step_s))
        self._packet_bps += weight * (self._packet_bits / passed_s - self._packet_bps)
        self._packet_bits[:] = 0.0
        self._packets_since_ns = now_ns
