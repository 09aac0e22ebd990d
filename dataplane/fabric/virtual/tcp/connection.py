"""One end of a connection (RFC 9293, section 3.10): its state, its timers, and its response to each segment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dataplane.errors import FabricError
from dataplane.events import EventQueue
from dataplane.fabric.virtual.tcp.agreement import MOST_WINDOW, Agreement
from dataplane.fabric.virtual.tcp.delayed_acks import DelayedAcks
from dataplane.fabric.virtual.tcp.reassembly import Reassembly
from dataplane.fabric.virtual.tcp.segments import (
    ACK,
    CE,
    CWR,
    ECE,
    ECT0,
    FIN,
    NOT_ECT,
    PSH,
    RST,
    SYN,
    Segment,
    position_of,
    reset_of,
    sequence_of,
)
from dataplane.fabric.virtual.tcp.sender import Acknowledgment, Outgoing, Sender
from dataplane.fabric.virtual.tcp.settings import TcpSettings
from dataplane.fabric.virtual.tcp.states import OPENING, RECEIVING, SENDING, WRITABLE, Address, State
from dataplane.fabric.virtual.tcp.statistics import TcpStatistics
from dataplane.fabric.virtual.tcp.timers import LazyTimer
from dataplane.wire.tcp import Tcp
from dataplane.wire.tcp_options import TcpOptions

_STAMP_NS: Final = 1_000_000
_WORD: Final = 1 << 32


class Connection:
    """A byte stream each way; everything happens in the fabric's events.

    `write` accepts what the buffer has room for; `on_writable` is called when there is room again after a short write.
    Data goes to `on_data`; without one it waits for `read`, and the window closes. `on_established` and `on_closed` are
    called once; `error` then holds the reason, None after both ends have finished.
    """

    def __init__(
        self,
        address: Address,
        settings: TcpSettings,
        events: EventQueue,
        transmit: Callable[[Address, Segment], bool],
        *,
        first_sequence: int,
        stamp_offset: int = 0,
    ) -> None:
        self.address, self.settings = address, settings
        self.state = State.CLOSED
        self.error: FabricError | None = None
        self.statistics = TcpStatistics()
        self.on_established: Callable[[], None] | None = None
        self.on_data: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.on_closed: Callable[[], None] | None = None
        self.forget: Callable[[], None] | None = None
        """Set by the stack: frees the connection's ports."""
        self._agreed = Agreement(settings, address.local.version)
        self.sender = Sender(settings, self._agreed.mss, self.statistics)
        self._events, self._transmit = events, transmit
        self._first_sequence, self._stamp_offset = first_sequence, stamp_offset
        self._peer_first = 0
        self._stream = Reassembly(1)
        self._unread = bytearray()
        self._end: int | None = None
        self._told_limit = 0
        self._told_position = 0
        self._recent_stamp = 0
        self._opened_ns = 0
        self._attempts = 0
        self._echoes = self._wants_room = False
        self._twice: tuple[int, int] | None = None
        self._retransmission = LazyTimer(events, self._timed_out)
        self._early = LazyTimer(events, self._on_wake)
        self._owed = DelayedAcks(settings, events, self._acknowledge)
        self._last_wait = LazyTimer(events, self._close)

    # application interface

    def write(self, data: bytes) -> int:
        """Send data; return how much of it the buffer accepted. Raises FabricError once closed or finished."""
        if self.state not in WRITABLE or self.sender.will_finish:
            raise self.error or FabricError(f"{self}: nothing can be written in state {self.state}")
        taken = self.sender.write(data)
        self._wants_room = self._wants_room or taken < len(data)
        self._send()
        return taken

    def read(self, most_bytes: int) -> bytes:
        """Return received data that no `on_data` consumed, b'' if there is none."""
        data = bytes(self._unread[:most_bytes])
        del self._unread[:most_bytes]
        opened = self._position + self._room - self._told_limit
        if data and opened >= min(self.settings.receive_buffer_bytes // 2, self._agreed.own_mss):
            self._acknowledge()
        return data

    def close(self) -> None:
        """Send a FIN behind the written data, once connected; idempotent.

        The other end may go on sending.
        """
        follows = {
            State.SYN_SENT: State.SYN_SENT,
            State.SYN_RECEIVED: State.SYN_RECEIVED,
            State.ESTABLISHED: State.FIN_WAIT_1,
            State.CLOSE_WAIT: State.LAST_ACK,
        }
        state = follows.get(self.state)
        if state is not None:
            self.sender.finish()
            self.state = state
            self._send()

    def abort(self) -> None:
        """Abort the connection, and tell the other end (RST)."""
        if self.state not in {State.CLOSED, State.TIME_WAIT, State.SYN_SENT}:
            self._emit(RST | ACK, self.sender.next)
        self._fail("was given up here")

    def __str__(self) -> str:
        address = self.address
        return f"tcp {address.local} port {address.local_port} to {address.remote} port {address.remote_port}"

    # stack interface

    def open(self) -> None:
        """Send a SYN."""
        self.state = State.SYN_SENT
        self._send_syn()

    def answer(self, syn: Segment) -> None:
        """Accept a SYN that arrived at a listener, and answer it."""
        self.state = State.SYN_RECEIVED
        self._agree(syn)
        self._send_syn()

    def hear(self, segment: Segment) -> None:
        """Process a segment of this connection (section 3.10.7)."""
        self.statistics.segments_received += 1
        if self.state is State.CLOSED:
            return
        if self.state is State.SYN_SENT:
            self._hear_unsynchronised(segment)
        elif self._is_acceptable(segment):
            self._hear_acceptable(segment)
        self._send()

    # opening

    def _hear_unsynchronised(self, segment: Segment) -> None:
        """Process a segment in SYN-SENT (section 3.10.7.3)."""
        flags = segment.flags
        if flags & ACK and self._ack_position(segment) != 1:
            if not flags & RST:
                self._transmit(self.address, reset_of(segment))
            return
        if flags & RST:
            if flags & ACK:
                self._fail("was refused")
            return
        if not flags & SYN:
            return
        self._agree(segment)
        if flags & ACK:
            self._establish(segment)
        else:  # simultaneous open
            self.state = State.SYN_RECEIVED
            self._send_syn()

    def _agree(self, syn: Segment) -> None:
        """Process the other end's SYN."""
        self._agreed.hear(syn)
        self._peer_first = syn.header.sequence
        if syn.options.timestamps is not None:
            self._recent_stamp = syn.options.timestamps[0]
        self.sender.set_mss(self._agreed.mss)
        self.sender.has_sack = self._agreed.sack

    def _establish(self, segment: Segment) -> None:
        self._retransmission.clear()
        rtt_ns = None if self._attempts else self._now_ns - self._opened_ns
        self.sender.begin(segment.header.window << self._window_shift(segment), rtt_ns)
        self._attempts = 0
        if self.state is State.SYN_SENT:
            self._acknowledge()
        self.state = State.FIN_WAIT_1 if self.sender.will_finish else State.ESTABLISHED
        self.sender.sample(self._now_ns)
        if self.on_established is not None:
            self.on_established()

    def _send_syn(self) -> None:
        flags = SYN if self.state is State.SYN_SENT else SYN | ACK
        if self._agreed.ecn:
            flags |= ECE if flags & ACK else ECE | CWR
        self._opened_ns = self._now_ns
        self._emit(flags, 0)
        timeout_ns = self.settings.initial_rto_ns << self._attempts
        self._retransmission.set(self._now_ns + min(timeout_ns, self.settings.most_rto_ns))

    # receiving

    def _is_acceptable(self, segment: Segment) -> bool:
        """Check sequence number and timestamp; a failing segment is only acknowledged (section 3.10.7.4, RFC 7323)."""
        position, window = self._position, self._room
        start = position_of(self._peer_first, segment.header.sequence, position)
        end = start + segment.length
        stamps = segment.options.timestamps
        is_old = (
            self._agreed.timestamps
            and stamps is not None
            and not segment.flags & RST
            and (stamps[0] - self._recent_stamp) % _WORD >= _WORD // 2
        )
        fits = start < position + window and end > position
        if not segment.length:
            fits = position <= start <= position + window
        if not fits or is_old:
            if not segment.flags & RST:
                self.statistics.duplicate_segments += bool(segment.length)
                self._twice = (start, end) if start < end <= position else None
                self._acknowledge()
            return False
        if stamps is not None and start <= self._told_position:
            self._recent_stamp = stamps[0]
        return True

    def _hear_acceptable(self, segment: Segment) -> None:
        flags = segment.flags
        if flags & RST:
            # RFC 5961: only the exact next number resets a connection; a near miss gets a challenge ACK.
            if position_of(self._peer_first, segment.header.sequence, self._position) == self._position:
                self._fail("was reset by the other end")
            else:
                self._acknowledge()
            return
        if flags & SYN:
            if self.state is State.SYN_RECEIVED and not flags & ACK:
                self._send_syn()
            else:
                self._acknowledge()
            return
        if flags & ACK and self._hear_acknowledgment(segment):
            self._hear_data(segment)

    def _hear_acknowledgment(self, segment: Segment) -> bool:
        """Process a segment's acknowledgment; return whether its data may be processed."""
        position = self._ack_position(segment)
        if self.state is State.SYN_RECEIVED:
            if not 1 <= position <= self.sender.next:
                self._transmit(self.address, reset_of(segment))
                return False
            self._establish(segment)
        if position > self.sender.next:
            self._acknowledge()
            return False
        blocks = tuple(
            (self._near_sent(start), self._near_sent(end)) for start, end in segment.options.sack if self._agreed.sack
        )
        window = segment.header.window << self._window_shift(segment)
        is_echo = self._agreed.ecn and bool(segment.flags & ECE)
        heard = Acknowledgment(position, window, blocks, not segment.length, is_echo)
        if self.sender.hear(heard, self._now_ns):
            self._attempts = 0
            self._retransmission.clear()
            self._call_when_writable()
        elif self._attempts and self.sender.is_shut_out:
            self._attempts = 0  # a receiver that answers probes is alive, however long its window stays closed
        self._follow_acknowledgment()
        return self.state is not State.CLOSED

    def _follow_acknowledgment(self) -> None:
        if not self.sender.is_finished:
            return
        if self.state is State.FIN_WAIT_1:
            self.state = State.FIN_WAIT_2
        elif self.state is State.CLOSING:
            self._wait_last()
        elif self.state is State.LAST_ACK:
            self._close()

    def _hear_data(self, segment: Segment) -> None:
        if segment.flags & CWR:
            self._echoes = False
        if self._agreed.ecn and segment.ecn == CE:
            self._echoes = True
        if not segment.length:
            return
        if self.state not in RECEIVING:
            self._acknowledge()
            return
        start = position_of(self._peer_first, segment.header.sequence, self._position)
        if segment.flags & FIN:
            self._end = start + len(segment.payload)
        before = self._position
        had_gap = bool(self._stream.blocks)
        end = start + segment.length
        if any(first <= start and end <= last for first, last in self._stream.blocks):
            self._twice = (start, end)
        payload = segment.payload[: max(0, before + self._room - start)]
        fresh = self._stream.take(start, payload)
        self.statistics.out_of_order += start > before
        self.statistics.received_bytes += len(fresh)
        ends = self._end is not None and self._stream.position == self._end
        # Acknowledge immediately: data out of order or filling a gap, marks, the end (RFC 5681, 4.2).
        at_once = had_gap or start != before or ends or self._echoes
        self._owed.heard(len(fresh), self.sender.mss_bytes, self.sender.timeout.timeout_ns, at_once=at_once)
        if ends:
            self._follow_end()
        self._deliver(fresh)
        if self._owed.is_due:
            self._acknowledge()
        if ends and self.on_end is not None:
            self.on_end()

    def _follow_end(self) -> None:
        """Process the other end's FIN (section 3.10.7.4, eighth)."""
        self._stream.position += 1
        self._end = None
        if self.state is State.ESTABLISHED:
            self.state = State.CLOSE_WAIT
        elif self.state is State.FIN_WAIT_1:
            self.state = State.CLOSING
        else:
            self._wait_last()

    def _deliver(self, fresh: bytes) -> None:
        if not fresh:
            return
        if self.on_data is None:
            self._unread += fresh
        else:
            self.on_data(fresh)

    def _call_when_writable(self) -> None:
        has_room = self.sender.room_bytes >= min(self.settings.send_buffer_bytes // 2, self.sender.mss_bytes)
        if self._wants_room and has_room and self.on_writable is not None and self.state in WRITABLE:
            self._wants_room = False
            self.on_writable()

    # sending

    def _send(self) -> None:
        """Send what may be sent, and set the timers."""
        if self.state not in SENDING:
            return
        if not self.sender.is_waiting:
            self._retransmission.clear()  # it was a probe's, if anything's
        while (outgoing := self.sender.take(self._now_ns)) is not None:
            self._emit_data(outgoing)
        if self.sender.is_waiting or self.sender.is_shut_out:
            if not self._retransmission.is_set:
                self._retransmission.set(self._now_ns + self.sender.timeout.timeout_ns)
        else:
            self._retransmission.clear()
        due_ns = self.sender.wake_ns(self._retransmission.due_ns)
        if due_ns is None:
            self._early.clear()
        else:
            self._early.set(max(due_ns, self._now_ns))

    def _on_wake(self) -> None:
        """Handle a silence long enough to suspect a loss but shorter than the timeout (RFC 8985)."""
        if self.sender.wake(self._now_ns):
            self._retransmission.set(self._now_ns + self.sender.timeout.timeout_ns)
        self._send()

    def _timed_out(self) -> None:
        if self.state not in OPENING and self.sender.may_probe:
            self._on_wake()
            return
        limit = self.settings.syn_retries if self.state in OPENING else self.settings.retries
        if self._attempts >= limit:
            self._fail(f"was not answered: {self._attempts + 1} attempts")
            return
        self._attempts += 1
        if self.state in OPENING:
            self._send_syn()
        elif self.sender.is_waiting:
            self.sender.timed_out(self._now_ns)
            self._send()
        elif self.sender.is_shut_out:
            # Old data must be acknowledged again, with the current window.
            self._emit(ACK, self.sender.first - 1)
            self.sender.timeout = self.sender.timeout.backed_off()
            self._send()

    def _emit_data(self, outgoing: Outgoing) -> None:
        flags = ACK | (FIN if outgoing.is_last else 0) | (PSH if outgoing.data else 0)
        flags |= CWR if outgoing.has_reduced else 0
        # Retransmissions carry no ECT (RFC 3168, section 6.1.5).
        is_markable = self._agreed.ecn and outgoing.data and not outgoing.is_repeated
        self._emit(flags, outgoing.position, outgoing.data, ECT0 if is_markable else NOT_ECT)

    def _acknowledge(self) -> None:
        self._emit(ACK, self.sender.next)

    def _emit(self, flags: int, position: int, payload: bytes = b"", ecn: int = NOT_ECT) -> None:
        is_syn = bool(flags & SYN)
        window = self._room
        shown = min(window if is_syn else window >> self._agreed.own_shift, MOST_WINDOW)
        options = self._agreed.options(self._stamps()) if is_syn else self._options(with_sack=not payload)
        acknowledged = 0
        if flags & ACK:
            acknowledged = sequence_of(self._peer_first, self._position)
            self._note_told(shown << (0 if is_syn else self._agreed.own_shift))
            flags |= ECE if self._echoes and not is_syn else 0
        header = Tcp(
            self.address.local_port,
            self.address.remote_port,
            sequence_of(self._first_sequence, position),
            acknowledged,
            flags=flags,
            window=shown,
            options=options.encode(),
        )
        self.statistics.segments_sent += 1
        if not self._transmit(self.address, Segment(header, options, payload, ecn)):
            self.statistics.refused += 1

    def _note_told(self, window: int) -> None:
        self._told_position = self._position
        self._told_limit = self._position + window
        self._owed.sent()

    def _options(self, *, with_sack: bool) -> TcpOptions:
        twice, self._twice = (self._twice,) if self._twice else (), None
        blocks = (*twice, *self._stream.blocks) if with_sack and self._agreed.sack else ()
        sack = tuple((sequence_of(self._peer_first, a), sequence_of(self._peer_first, b)) for a, b in blocks[:4])
        return TcpOptions(sack=sack, timestamps=self._stamps() if self._agreed.timestamps else None)

    def _stamps(self) -> tuple[int, int]:
        return (self._now_ns // _STAMP_NS + self._stamp_offset) % _WORD, self._recent_stamp

    # closing

    def _wait_last(self) -> None:
        self.state = State.TIME_WAIT
        self._retransmission.clear()
        self._last_wait.set(self._now_ns + self.settings.time_wait_ns)

    def _fail(self, why: str) -> None:
        if self.state is not State.CLOSED:
            self.error = FabricError(f"{self} {why}")
            self._close()

    def _close(self) -> None:
        self.state = State.CLOSED
        for timer in (self._retransmission, self._early, self._last_wait):
            timer.clear()
        self._owed.sent()
        if self.forget is not None:
            self.forget()
        if self.on_closed is not None:
            self.on_closed()

    # sequence numbers

    @property
    def _now_ns(self) -> int:
        return self._events.clock.time_ns

    @property
    def _position(self) -> int:
        """The first missing position of the other end's stream."""
        return self._stream.position

    @property
    def _room(self) -> int:
        """The receive window: the free buffer space behind that position."""
        return max(0, self.settings.receive_buffer_bytes - len(self._unread))

    def _ack_position(self, segment: Segment) -> int:
        return self._near_sent(segment.header.acknowledgment)

    def _near_sent(self, sequence: int) -> int:
        return position_of(self._first_sequence, sequence, self.sender.first)

    def _window_shift(self, segment: Segment) -> int:
        return 0 if segment.flags & SYN else self._agreed.peer_shift
