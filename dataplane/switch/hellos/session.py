"""A session between two neighbours, as a value: its input, output and timeouts; no clock or timers.

RFC 5880, section 6.8, asynchronous mode. Not implemented: authentication, demand mode, echo, poll sequences (a change
of the intervals is announced by a packet that is sent at once).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from dataplane.switch.ports.states import NS_PER_US, Diagnostic, HelloSession, HelloSettings, HelloState
from dataplane.wire import bfd

SLOW_US = 1_000_000
"""The shortest interval of an end that is not UP (section 6.8.3)."""

_DIAGNOSTICS = tuple(Diagnostic)
_TO_WIRE = {state: bfd.State[state.name] for state in HelloState}
_FROM_WIRE = {number: state for state, number in _TO_WIRE.items()}
_ANSWERS = {
    (HelloState.DOWN, HelloState.DOWN): HelloState.INIT,
    (HelloState.DOWN, HelloState.INIT): HelloState.UP,
    (HelloState.INIT, HelloState.INIT): HelloState.UP,
    (HelloState.INIT, HelloState.UP): HelloState.UP,
    (HelloState.UP, HelloState.DOWN): HelloState.DOWN,
}
"""The next state by own state and the neighbour's (section 6.8.6); other pairs change nothing."""


class HelloDrop(StrEnum):
    """Reason to ignore a frame that is addressed as a hello."""

    MALFORMED = "hello_malformed"
    """Truncated, of another version, or inconsistent in itself."""
    REFLECTED = "hello_reflected"
    """It is our own: the cable loops back."""
    NOT_FOR_US = "hello_not_for_us"
    """It responds to another switch."""
    STRANGER = "hello_stranger"
    """It claims our session but is not from the neighbour that we have it with."""
    ADMIN_DOWN = "hello_admin_down"
    """The port has been taken out of use: no incoming frame makes it UP."""
    UNREAD = "hello_unread"
    """More new hellos arrived at once than were read; they will be sent again."""


@dataclass(frozen=True, slots=True)
class Session:
    """One end's view; `bfd.` in comments are the RFC's variables (section 6.8.1)."""

    local: int  # bfd.LocalDiscr
    settings: HelloSettings
    state: HelloState = HelloState.DOWN  # bfd.SessionState
    diagnostic: Diagnostic = Diagnostic.NO_DIAGNOSTIC  # bfd.LocalDiag
    since_ns: int = 0
    was_up: bool = False
    remote: int = 0  # bfd.RemoteDiscr
    remote_state: HelloState = HelloState.DOWN  # bfd.RemoteSessionState
    remote_diagnostic: Diagnostic = Diagnostic.NO_DIAGNOSTIC
    remote_multiplier: int = 0
    remote_min_tx_us: int = 0
    remote_min_rx_us: int = 1  # bfd.RemoteMinRxInterval

    @property
    def desired_min_tx_us(self) -> int:
        """The desired sending interval: slow while nothing depends on it."""
        own_us = self.settings.interval_ns // NS_PER_US
        return own_us if self.state is HelloState.UP else max(SLOW_US, own_us)

    @property
    def send_interval_ns(self) -> int | None:
        """The time between two hellos, before random shortening; None: the neighbour wants none."""
        if self.remote_min_rx_us == 0:
            return None
        return max(self.desired_min_tx_us, self.remote_min_rx_us) * NS_PER_US

    @property
    def expected_interval_ns(self) -> int:
        """The longest time between two hellos of the neighbour."""
        return max(self.settings.interval_ns, self.remote_min_tx_us * NS_PER_US)

    @property
    def detection_ns(self) -> int | None:
        """The silence after which the neighbour counts as gone (section 6.8.4); None: no neighbour is expected."""
        if self.state not in {HelloState.INIT, HelloState.UP}:
            return None
        return self.remote_multiplier * self.expected_interval_ns

    def packet(self) -> bfd.Bfd:
        """Return this end's current packet (section 6.8.7)."""
        return bfd.Bfd(
            state=_TO_WIRE[self.state],
            diagnostic=_DIAGNOSTICS.index(self.diagnostic),
            detect_multiplier=self.settings.multiplier,
            my_discriminator=self.local,
            your_discriminator=self.remote,
            desired_min_tx_us=self.desired_min_tx_us,
            required_min_rx_us=self.settings.interval_ns // NS_PER_US,
        )

    def describe(self, sent: int = 0, received: int = 0) -> HelloSession:
        """Return the public state."""
        return HelloSession(
            settings=self.settings,
            state=self.state,
            diagnostic=self.diagnostic,
            remote_state=self.remote_state,
            remote_diagnostic=self.remote_diagnostic,
            local_discriminator=self.local,
            remote_discriminator=self.remote,
            was_up=self.was_up,
            since_ns=self.since_ns,
            sent=sent,
            received=received,
        )


def find_fault(session: Session, packet: bfd.Bfd) -> HelloDrop | None:
    """Return why a packet means nothing to this session, None if it does."""
    if packet.my_discriminator == session.local:
        return HelloDrop.REFLECTED
    if packet.your_discriminator not in {0, session.local}:
        return HelloDrop.NOT_FOR_US
    if packet.your_discriminator and session.remote not in {0, packet.my_discriminator}:
        return HelloDrop.STRANGER
    return HelloDrop.ADMIN_DOWN if session.state is HelloState.ADMIN_DOWN else None


def hear(session: Session, packet: bfd.Bfd, now_ns: int) -> Session:
    """Return the session after a packet in which `find_fault` found none (section 6.8.6)."""
    state = _FROM_WIRE[packet.state]
    diagnostic = _diagnostic_of(packet)
    heard = replace(
        session,
        remote=packet.my_discriminator,
        remote_state=state,
        remote_diagnostic=diagnostic,
        remote_multiplier=packet.detect_multiplier,
        remote_min_tx_us=packet.desired_min_tx_us,
        remote_min_rx_us=packet.required_min_rx_us,
    )
    if state is HelloState.ADMIN_DOWN:
        # An end that stopped its hellos was not lost; one that took the port out of use carries no frames.
        heard = replace(heard, was_up=heard.was_up and diagnostic is Diagnostic.ADMIN_DOWN)
        return _change(heard, HelloState.DOWN, Diagnostic.NEIGHBOR_SIGNALED_DOWN, now_ns)
    answer = _ANSWERS.get((session.state, state), session.state)
    cause = {
        HelloState.UP: Diagnostic.NO_DIAGNOSTIC,
        HelloState.DOWN: Diagnostic.NEIGHBOR_SIGNALED_DOWN,
    }.get(answer, session.diagnostic)
    return _change(heard, answer, cause, now_ns)


def expire(session: Session, now_ns: int) -> Session:
    """Return the session after `detection_ns` without a packet (section 6.8.4)."""
    if session.detection_ns is None:
        return session
    forgotten = replace(
        session, remote=0, remote_state=HelloState.DOWN, remote_diagnostic=Diagnostic.NO_DIAGNOSTIC, remote_min_rx_us=1
    )
    return _change(forgotten, HelloState.DOWN, Diagnostic.CONTROL_DETECTION_EXPIRED, now_ns)


def set_admin(session: Session, up: bool, now_ns: int) -> Session:
    """Return the session after its port was taken out of use, or put back (section 6.8.16)."""
    if up is (session.state is not HelloState.ADMIN_DOWN):
        return session
    if up:
        return _change(session, HelloState.DOWN, Diagnostic.NO_DIAGNOSTIC, now_ns)
    return _change(session, HelloState.ADMIN_DOWN, Diagnostic.ADMIN_DOWN, now_ns)


def end(session: Session, now_ns: int) -> Session:
    """Return the last packet of an end that stops sending hellos: the neighbour need not take it for a loss."""
    return _change(session, HelloState.ADMIN_DOWN, Diagnostic.NO_DIAGNOSTIC, now_ns)


def _change(session: Session, state: HelloState, diagnostic: Diagnostic, now_ns: int) -> Session:
    if state is session.state:
        return session
    was_up = session.was_up or state is HelloState.UP
    return replace(session, state=state, diagnostic=diagnostic, since_ns=now_ns, was_up=was_up)


def _diagnostic_of(packet: bfd.Bfd) -> Diagnostic:
    """Return a packet's diagnostic; numbers that the RFC reserves carry no meaning."""
    number = packet.diagnostic
    return _DIAGNOSTICS[number] if number < len(_DIAGNOSTICS) else Diagnostic.NO_DIAGNOSTIC
