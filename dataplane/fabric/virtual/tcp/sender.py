"""The sending half of a connection: choice of the next segment and effect of acknowledgments; no sockets or timers.

Positions count from the SYN, which is 0; data begins at 1, and a FIN occupies one position after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dataplane.clock import NS_PER_S
from dataplane.fabric.virtual.tcp.congestion import Acked, CongestionControl
from dataplane.fabric.virtual.tcp.congestion.proportional_rate import ProportionalRate
from dataplane.fabric.virtual.tcp.congestion.values import UNLIMITED
from dataplane.fabric.virtual.tcp.retransmission_timeout import RetransmissionTimeout
from dataplane.fabric.virtual.tcp.scoreboard import DUPLICATES, Scoreboard
from dataplane.fabric.virtual.tcp.settings import TcpSettings
from dataplane.fabric.virtual.tcp.statistics import Sample, TcpStatistics
from dataplane.fabric.virtual.tcp.tail_loss_probe import Answer, TailLossProbe, probe_after_ns

_DEFAULT_RTT_NS: Final = 100_000_000


class Repair(Enum):
    """State of loss recovery, by how the loss was noticed."""

    NONE = "none"
    RECOVERY = "recovery"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A piece to be sent now."""

    position: int
    data: bytes
    is_last: bool
    """A FIN follows the data."""
    is_repeated: bool = False
    has_reduced: bool = False
    """The window was reduced because of a mark: CWR."""


@dataclass(frozen=True, slots=True)
class Acknowledgment:
    """A segment's acknowledgment: everything before a position, blocks beyond it, and the window from there."""

    position: int
    window_bytes: int
    blocks: tuple[tuple[int, int], ...] = ()
    is_bare: bool = True
    """The segment carries nothing else."""
    is_echo: bool = False
    """The receiver saw a mark: ECE."""

    @property
    def needless_end(self) -> int | None:
        """End of data that the first block reports as received twice, or None (DSACK, RFC 2883, section 4)."""
        if not self.blocks:
            return None
        start, end = self.blocks[0]
        within = any(first <= start and end <= last for first, last in self.blocks[1:2])
        return end if end <= self.position or within else None


class Sender:
    """A stream's send buffer, its data in flight, and the windows that limit it."""

    def __init__(self, settings: TcpSettings, mss_bytes: int, statistics: TcpStatistics) -> None:
        self.settings, self.mss_bytes, self.statistics = settings, mss_bytes, statistics
        self.has_sack = settings.sack
        self.first = self.next = 1
        self.timeout = RetransmissionTimeout(settings.initial_rto_ns, settings.least_rto_ns, settings.most_rto_ns)
        self.board = Scoreboard(mss_bytes)
        self.control: CongestionControl = self._new_control()
        self.repair = Repair.NONE
        self._buffer = bytearray()
        self._limit = 1
        self._largest_window = 0
        self._window = 0
        self._end: int | None = None
        self._repaired_at = self._reduced_at = 0
        self._duplicates = 0
        self._has_reduced = False
        self._rate: ProportionalRate | None = None
        self._counted = 0
        self._must_repeat = False
        self._was_limited = True
        self._probe: TailLossProbe | None = None
        self._probe_from_ns: int | None = None
        self._overtaken_until_ns: int | None = None
        self._must_probe = False
        self._sent_ns: int | None = None
        self._sampled_ns: int | None = None

    # application requests

    def write(self, data: bytes) -> int:
        """Buffer as much of the data as there is room for; return the number of bytes."""
        taken = max(0, min(len(data), self.settings.send_buffer_bytes - len(self._buffer)))
        self._buffer += data[:taken]
        return taken

    def finish(self) -> None:
        """Send a FIN after the data."""
        if self._end is None:
            self._end = self.first + len(self._buffer)

    @property
    def room_bytes(self) -> int:
        """Free space in the buffer."""
        return self.settings.send_buffer_bytes - len(self._buffer)

    @property
    def is_finished(self) -> bool:
        """True if everything, including the FIN, was acknowledged."""
        return self._end is not None and self.first > self._end

    @property
    def will_finish(self) -> bool:
        """True if `finish` was called."""
        return self._end is not None

    @property
    def is_waiting(self) -> bool:
        """True if unacknowledged data is outstanding."""
        return len(self.board) > 0

    @property
    def is_shut_out(self) -> bool:
        """True if there is something to send but the receiver's window permits none of it."""
        return not self.is_waiting and self._unsent() > 0 and self._limit <= self.next

    # acknowledgments

    def begin(self, window_bytes: int, syn_rtt_ns: int | None) -> None:
        """Start with the receiver's window and the SYN's round trip.

        None: the SYN was sent twice, and the timeout is 3 s until the first sample (RFC 6298, section 5.7).
        """
        self._set_window(1, window_bytes)
        if syn_rtt_ns is not None:
            self.timeout = self.timeout.sampled(syn_rtt_ns)
            self.board.rack.least_rtt_ns = syn_rtt_ns
        else:
            initial_ns = min(3 * NS_PER_S, self.settings.most_rto_ns)
            self.timeout = RetransmissionTimeout(initial_ns, self.settings.least_rto_ns, self.settings.most_rto_ns)

    def set_mss(self, mss_bytes: int) -> None:
        """Set the maximum segment size in bytes; call before anything is sent."""
        self.mss_bytes = mss_bytes
        self.board = Scoreboard(mss_bytes)
        self.control = self._new_control()

    def hear(self, heard: Acknowledgment, now_ns: int) -> int:
        """Process an acknowledgment; return the number of newly acknowledged positions. Ignore acks of unsent data."""
        if not self.first <= heard.position <= self.next:
            return 0
        advance = heard.position - self.first
        is_duplicate = not advance and heard.is_bare and self.is_waiting and heard.window_bytes == self._window
        self._set_window(heard.position, heard.window_bytes)
        arrived = self.board.acknowledge(heard.position, now_ns)
        selected = self.board.select(heard.blocks, now_ns) if self.has_sack else None
        self._drop(heard.position)
        self.first = heard.position
        rtt_ns = arrived.rtt_ns or (None if selected is None else selected.rtt_ns)
        self._sample_rtt(rtt_ns)
        is_news = bool(advance or (selected is not None and selected.positions))
        self._judge_probe(heard, now_ns, is_duplicate=heard.is_bare and not is_news)
        if advance:
            self._duplicates = max(0, self._duplicates - max(0, -(-advance // self.mss_bytes) - 1))
        elif is_duplicate:
            self._duplicates += 1
            self.statistics.duplicate_acks += 1
        delivered = arrived.positions + (0 if selected is None else selected.positions)
        if not self.has_sack:
            delivered = self._estimate_delivered(advance, is_duplicate=is_duplicate)
        self._judge(advance, delivered, rtt_ns, now_ns)
        if advance:
            self._expect(now_ns)
        if heard.is_echo and self.repair is Repair.NONE and self.first > self._reduced_at:
            self._reduce(now_ns)
            self.statistics.marks += 1
            self._has_reduced = True
        self._sample(now_ns)
        return advance

    def timed_out(self, now_ns: int) -> None:
        """Handle a retransmission timeout: everything that has not arrived is lost."""
        again = self.repair is Repair.TIMEOUT and self.timeout.backoff > 0
        self.statistics.timeouts += 1
        self.control = self.control.timed_out(min(self.flight_bytes, self.control.window_bytes), again=again)
        self.timeout = self.timeout.backed_off()
        self.repair, self._repaired_at = Repair.TIMEOUT, self.next
        self._rate = None
        self._duplicates = 0
        self._forget_probe()
        self.board.lose_all(now_ns if self._has_rack else None)
        self._must_repeat = True
        self._sample(now_ns, at_once=True)

    # timers

    def wake_ns(self, timeout_ns: int | None) -> int | None:
        """Return when to call `wake` if nothing arrives, before the timeout or instead of it; None: never."""
        if self._probe_from_ns is None:
            return self._overtaken_until_ns
        initial_ns, delayed_ns = self.settings.initial_rto_ns, self.settings.least_rto_ns
        after_ns = probe_after_ns(self.timeout.smoothed_ns, initial_ns, delayed_ns, is_single=len(self.board) == 1)
        due = (self._probe_from_ns + after_ns, timeout_ns, self._overtaken_until_ns)
        return min(time_ns for time_ns in due if time_ns is not None)

    def wake(self, now_ns: int) -> bool:
        """Check for losses again, or probe the tail of the sent data; return True for a probe.

        A probe restarts the timeout.
        """
        if self._overtaken_until_ns is not None and self._overtaken_until_ns <= now_ns:
            if self._find_lost(0, now_ns) and self.repair is Repair.NONE:
                self._recover(now_ns)
            return False
        self._must_probe = self.may_probe
        self._probe_from_ns = None
        return self._must_probe

    @property
    def may_probe(self) -> bool:
        """True if a probe comes before the next timeout, or instead of it."""
        return self._probe_from_ns is not None

    # sending

    @property
    def flight_bytes(self) -> int:
        """Unacknowledged bytes in flight."""
        return self.next - self.first

    def take(self, now_ns: int) -> Outgoing | None:
        """Return the next piece to send, None if nothing is or may be sent."""
        if self._must_probe:
            self._must_probe = False
            return self._take_probe(now_ns)
        lost = self.board.next_lost()
        if lost is not None:
            if self._room() < lost.length and not self._must_repeat:
                return None
            self._must_repeat = False
            self.board.repeat(lost, now_ns)
            self.statistics.retransmissions += 1
            self._note_sent(lost.length, now_ns)
            return self._outgoing(lost.start, lost.end, is_repeated=True)
        self._restart_after_pause(now_ns)
        return self._take_new(now_ns)

    def _take_new(self, now_ns: int, *, is_probe: bool = False) -> Outgoing | None:
        """Return unsent data; a probe heeds only the receiver's window."""
        length = min(self.mss_bytes, self._unsent(), self._limit - self.next)
        data = min(length, self._unsent_data())
        if length <= 0 or (self._is_silly(data) and not is_probe):
            self._was_limited = False
            return None
        if self._room() < data and not is_probe:
            self._was_limited = True
            return None
        # A FIN goes with the last data, even if that fills a segment.
        end = self.next + data + int(self._end == self.next + data and self._limit > self.next + data)
        if end == self.next:
            return None
        start, self.next = self.next, end
        self.board.add(start, end, now_ns)
        self._note_sent(end - start, now_ns)
        self.statistics.sent_bytes += data
        if not is_probe:
            self._expect(now_ns)
        return self._outgoing(start, end)

    def _take_probe(self, now_ns: int) -> Outgoing | None:
        """Return a tail loss probe: new data, or else the last segment again."""
        outgoing = self._take_new(now_ns, is_probe=True)
        is_repeated = outgoing is None
        if outgoing is None:
            last = self.board.probe(now_ns)
            if last is None:
                return None
            self.statistics.retransmissions += 1
            self._note_sent(last.length, now_ns)
            outgoing = self._outgoing(last.start, last.end, is_repeated=True)
        self._probe = TailLossProbe(self.next, is_repeated)
        self.statistics.probes += 1
        return outgoing

    def sample(self, now_ns: int) -> None:
        """Record a sample of the current state."""
        self._sample(now_ns, at_once=True)

    # internals

    def _new_control(self) -> CongestionControl:
        start = self.settings.congestion.control.start
        return start(self.mss_bytes, self.settings.initial_window_segments, hystart=self.settings.hystart)

    def _unsent_data(self) -> int:
        return max(0, self.first + len(self._buffer) - self.next)

    def _unsent(self) -> int:
        """Return the number of unsent positions, including the FIN's."""
        return self._unsent_data() + int(self._end is not None and self.next <= self._end)

    def _under_way(self) -> int:
        """Return the amount in flight: without SACK, each duplicate means one segment less."""
        if self.has_sack:
            return self.board.under_way
        return max(0, self.board.under_way - self._duplicates * self.mss_bytes)

    def _room(self) -> int:
        """Return how much the congestion control permits now."""
        return self.control.window_bytes - self._under_way() if self._rate is None else self._rate.allowed_bytes

    def _note_sent(self, nbytes: int, now_ns: int) -> None:
        self._sent_ns = now_ns
        if self._rate is not None:
            self._rate = self._rate.sent(nbytes)

    def _estimate_delivered(self, advance: int, *, is_duplicate: bool) -> int:
        """Estimate the delivery reported by an acknowledgment without SACK: one segment per duplicate."""
        if is_duplicate:
            self._counted += self.mss_bytes
            return self.mss_bytes
        counted, self._counted = min(advance, self._counted), max(0, self._counted - advance)
        return advance - counted

    def _is_silly(self, data: int) -> bool:
        """Return whether a small segment should wait until the window opens (RFC 9293, section 3.8.6.2.1)."""
        is_small = 0 < data < min(self.mss_bytes, self._unsent_data())
        return is_small and self.is_waiting and 2 * data < self._largest_window

    def _outgoing(self, start: int, end: int, *, is_repeated: bool = False) -> Outgoing:
        is_last = self._end is not None and end > self._end
        offset = start - self.first
        data = bytes(self._buffer[offset : offset + end - start - int(is_last)])
        reduced, self._has_reduced = self._has_reduced and not is_repeated, self._has_reduced and is_repeated
        return Outgoing(start, data, is_last, is_repeated, reduced)

    def _set_window(self, position: int, window_bytes: int) -> None:
        self._limit = max(self._limit, position + window_bytes)
        if position + window_bytes < self._limit and position >= self.first:
            self._limit = max(self.next, position + window_bytes)
        self._window = window_bytes
        self._largest_window = max(self._largest_window, window_bytes)

    def _drop(self, position: int) -> None:
        end = self.first + len(self._buffer)
        gone = min(position, end) - self.first
        del self._buffer[:gone]
        self.statistics.delivered_bytes += gone

    def _sample_rtt(self, rtt_ns: int | None) -> None:
        if rtt_ns is not None:
            samples = max(1, -(-self.flight_bytes // (2 * self.mss_bytes)))
            self.timeout = self.timeout.sampled(rtt_ns, samples).recovered()

    @property
    def _rtt_ns(self) -> int:
        return _DEFAULT_RTT_NS if self.timeout.smoothed_ns is None else self.timeout.smoothed_ns

    @property
    def _has_rack(self) -> bool:
        return self.has_sack and self.settings.rack

    def _expect(self, now_ns: int) -> None:
        """Set the timeout for data in flight, and a probe in case nothing is acknowledged (RFC 8985, section 7.2)."""
        is_open = self.repair is Repair.NONE and not self.board.there and self.is_waiting and self._probe is None
        may = self.settings.tail_loss_probes and self.has_sack and is_open
        self._probe_from_ns = now_ns if may else None

    def _forget_probe(self) -> None:
        self._probe = self._probe_from_ns = self._overtaken_until_ns = None

    def _judge_probe(self, heard: Acknowledgment, now_ns: int, *, is_duplicate: bool) -> None:
        """React to a loss that a probe has repaired, and to needless retransmissions."""
        end, probe = heard.needless_end, self._probe
        if end is not None:
            self.statistics.needless += 1
            if probe is None or end != probe.end:
                self.board.rack.was_needless(self.first, self.next)
        if probe is None:
            return
        answer = probe.answered(heard.position, is_duplicate=is_duplicate, needless_end=end)
        if answer is not Answer.OPEN:
            self._probe = None
        if answer is Answer.REPAIRED:
            self.statistics.probe_recoveries += 1
            self._reduce(now_ns)

    def _judge(self, advance: int, delivered: int, rtt_ns: int | None, now_ns: int) -> None:
        """Update loss recovery and the congestion window."""
        if self.repair is not Repair.NONE and self.first >= self._repaired_at:
            self.repair, self._rate = Repair.NONE, None
            self.board.rack.recovered()
            self._duplicates = self._counted = 0
        has_loss = self._find_lost(advance, now_ns)
        if has_loss and self.repair is Repair.NONE:
            self._recover(now_ns)
        if self._rate is not None:
            self._rate = self._rate.delivered(delivered, self._under_way(), is_safe=advance > 0 and not has_loss)
        if advance and not has_loss and self.repair is not Repair.RECOVERY:
            is_limited = self._was_limited or self.repair is Repair.TIMEOUT
            is_after = self.repair is Repair.TIMEOUT
            heard = Acked(advance, now_ns, self._rtt_ns, is_limited, is_after, rtt_ns, self.first, self.next)
            self.control = self.control.acked(heard)

    def _recover(self, now_ns: int) -> None:
        self.repair, self._repaired_at = Repair.RECOVERY, self.next
        self.statistics.recoveries += 1
        self._must_repeat = True
        self._forget_probe()
        self._reduce(now_ns)
        self._rate = ProportionalRate(self.mss_bytes, self.control.window_bytes, self.flight_bytes)

    def _find_lost(self, advance: int, now_ns: int) -> bool:
        if self._has_rack:
            is_repairing = self.repair is not Repair.NONE
            if not self.board.there and not is_repairing:
                self._overtaken_until_ns = None
                return False
            has_loss, until_ns = self.board.find_overdue(now_ns, self._rtt_ns, is_repairing=is_repairing)
            self._overtaken_until_ns = until_ns
            return has_loss
        if self.has_sack:
            return self.board.there > 0 and self.board.find_lost(self._rtt_ns)
        if self.repair is Repair.NONE and self._duplicates >= DUPLICATES and self.first > self._repaired_at:
            self.board.lose_first()
            return True
        if self.repair is Repair.RECOVERY and advance:  # a partial acknowledgment (RFC 6582)
            self.board.lose_first()
            self._must_repeat = True
        return False

    def _reduce(self, now_ns: int) -> None:
        self._sample(now_ns, at_once=True)
        # SACKed data is no longer in flight, and would let the window grow during losses.
        self.control = self.control.reduced(min(self.flight_bytes, self.control.window_bytes))
        self._reduced_at = self.next
        self._sample(now_ns, at_once=True)

    def _restart_after_pause(self, now_ns: int) -> None:
        if self._sent_ns is not None and not self.is_waiting and now_ns - self._sent_ns > self.timeout.timeout_ns:
            self.control = self.control.restarted(self.settings.initial_window_segments * self.mss_bytes)

    def _sample(self, now_ns: int, *, at_once: bool = False) -> None:
        if not at_once and self._sampled_ns is not None and now_ns < self._sampled_ns + self.settings.sample_ns:
            return
        self._sampled_ns = now_ns
        threshold = self.control.threshold_bytes
        self.statistics.add(
            Sample(
                now_ns,
                self.control.window_bytes,
                None if threshold >= UNLIMITED else threshold,
                self._under_way(),
                self.timeout.smoothed_ns,
                self.statistics.delivered_bytes,
                self.statistics.retransmissions,
            )
        )
