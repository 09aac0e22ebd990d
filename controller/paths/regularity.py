"""How regularly flows' measured packets come: of a regular flow few packets show the rate.

Of packets that come by chance n give a rate with a standard deviation of one in the square root of n; of a stream with
a clock behind it, or of every k-th packet, they say more. The gaps between the stamps of a flow's first switch say
which it is. That is learned slowly: the first gap counts as one of a flow by chance. The gaps also
tell, between two rounds of decisions, of flows that send more than the last round knew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from collectors.values import FlowKey, HopRecord, RecordKind

_REMEMBERED: Final = 16
"""Gaps that count: older ones weigh less."""
_PAUSE: Final = 16
"""A gap so many times as long as the mean is a pause, after which learning restarts."""
_TELLING: Final = 4
"""So many gaps give a rate that is worth reporting."""
_GROWN: Final = 1.25
"""A flow that sends so much more than it did is news."""
_NS_PER_S: Final = 1e9
_WITH_PLACE: Final = frozenset({RecordKind.STACK, RecordKind.HOP_BY_HOP})


@dataclass(frozen=True, slots=True)
class Gaps:
    """The mean of a flow's gaps, None before there were any, and their variance as a share of that's square.

    That is 1 at most, as of packets that come by chance.
    """

    mean_ns: float | None
    variation: float


UNKNOWN_GAPS: Final = Gaps(None, 1.0)


@dataclass(slots=True)
class _Gaps:
    """What is known of a flow's gaps: how many, their mean, and their variance as a share of the mean's square."""

    last_ns: int
    count: int = 0
    mean_ns: float = 0.0
    variation: float = 1.0
    known_hz: float = 0.0
    round: int = -1

    @property
    def hz(self) -> float:
        """Packets a second, 0 while too few came."""
        return _NS_PER_S / self.mean_ns if self.count >= _TELLING and self.mean_ns else 0.0

    def add(self, gap_ns: int) -> None:
        if self.count and gap_ns > _PAUSE * self.mean_ns:
            self.count, self.mean_ns, self.variation = 0, 0.0, 1.0
            return
        self.count += 1
        if self.count == 1:
            self.mean_ns = float(gap_ns)
            return
        weight = max(1 / self.count, 1 / _REMEMBERED)
        off = (gap_ns - self.mean_ns) / self.mean_ns
        self.variation += (off * off - self.variation) * weight
        self.mean_ns += (gap_ns - self.mean_ns) * weight


class Regularity:
    """Hears hop records; at most so many flows, the one unheard for longest makes room."""

    def __init__(self, max_flows: int) -> None:
        self._max_flows = max_flows
        self._flows: OrderedDict[FlowKey, _Gaps] = OrderedDict()
        self._round = 0

    def observe(self, records: Iterable[HopRecord]) -> dict[FlowKey, float]:
        """Take note of when packets came to their first switch; records without that count for nothing.

        Return the flows that have come to send a good part more than the last round knew, with how many measured
        packets a second more; each growth once.
        """
        grown: dict[FlowKey, float] = {}
        for record in records:
            stamp_ns = record.ingress_timestamp_ns
            if record.hop_index == 0 and record.kind in _WITH_PLACE and stamp_ns is not None:
                more_hz = self._note(record.flow, stamp_ns)
                if more_hz:
                    grown[record.flow] = more_hz
        return grown

    def decided(self) -> None:
        """Take note of a round: it knows of all that was heard so far."""
        self._round += 1

    def gaps(self, flow: FlowKey) -> Gaps:
        """Return what is known of a flow's gaps."""
        gaps = self._flows.get(flow)
        if gaps is None:
            return UNKNOWN_GAPS
        return Gaps(gaps.mean_ns if gaps.count else None, min(gaps.variation, 1.0))

    def _note(self, flow: FlowKey, stamp_ns: int) -> float:
        """Note a packet of a flow; return how many measured packets a second more that makes, 0 for no news."""
        gaps = self._flows.get(flow)
        if gaps is None:
            self._flows[flow] = _Gaps(stamp_ns)
            if len(self._flows) > self._max_flows:
                self._flows.popitem(last=False)
            return 0.0
        self._flows.move_to_end(flow)
        if gaps.round != self._round:
            gaps.round, gaps.known_hz = self._round, gaps.hz
        if stamp_ns > gaps.last_ns:
            gaps.add(stamp_ns - gaps.last_ns)
        elif gaps.last_ns - stamp_ns > _PAUSE * gaps.mean_ns:
            # No packet that was overtaken: the clock was set back, or restarted.
            gaps.count, gaps.mean_ns, gaps.variation = 0, 0.0, 1.0
        else:
            return 0.0
        gaps.last_ns = stamp_ns
        if gaps.hz <= _GROWN * gaps.known_hz:
            return 0.0
        more_hz, gaps.known_hz = gaps.hz - gaps.known_hz, gaps.hz
        return more_hz
