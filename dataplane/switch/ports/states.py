"""Known states of a switch's ports: device up, administratively down, neighbour responding; values only.

Names are those of openconfig-interfaces (oper-status, admin-status) and of RFC 5880 (session states, diagnostics), so
that gNMI and the controller use the same terms. Times are nanoseconds on the switch's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from dataplane.errors import SwitchError

NS_PER_US = 1_000
SHORTEST_INTERVAL_NS = 1_000_000
LONGEST_INTERVAL_NS = ((1 << 32) - 1) * NS_PER_US
"""Limit of a hello's fields: microseconds in 32 bits (RFC 5880, section 4.1)."""
MOST_MISSES = 255


class OperStatus(StrEnum):
    """Operational state of a port's device (openconfig-interfaces, oper-status; RFC 2863, ifOperStatus)."""

    UP = "UP"
    DOWN = "DOWN"
    """The device exists and was set down."""
    LOWER_LAYER_DOWN = "LOWER_LAYER_DOWN"
    """The device is set up but has no carrier: nothing is at the other end, or that end is down."""
    NOT_PRESENT = "NOT_PRESENT"
    """The device is gone."""
    UNKNOWN = "UNKNOWN"
    """The port's attachment does not report it: a capture file, memory."""


class HelloState(StrEnum):
    """The state of a session between two neighbours (RFC 5880, section 6.2)."""

    ADMIN_DOWN = "ADMIN_DOWN"
    DOWN = "DOWN"
    INIT = "INIT"
    UP = "UP"


class Diagnostic(StrEnum):
    """Reason why a session last left UP or was taken down (RFC 5880, section 4.1)."""

    NO_DIAGNOSTIC = "NO_DIAGNOSTIC"
    CONTROL_DETECTION_EXPIRED = "CONTROL_DETECTION_EXPIRED"
    ECHO_FAILED = "ECHO_FAILED"
    NEIGHBOR_SIGNALED_DOWN = "NEIGHBOR_SIGNALED_DOWN"
    FORWARDING_RESET = "FORWARDING_RESET"
    PATH_DOWN = "PATH_DOWN"
    CONCATENATED_PATH_DOWN = "CONCATENATED_PATH_DOWN"
    ADMIN_DOWN = "ADMIN_DOWN"
    REVERSE_CONCATENATED_PATH_DOWN = "REVERSE_CONCATENATED_PATH_DOWN"


@dataclass(frozen=True, slots=True)
class HelloSettings:
    """Interval of a port's hellos, and the number of missed ones after which the neighbour is given up."""

    interval_ns: int = 50_000_000
    """Between two hellos, whole microseconds; each is sent 10 to 25 % early (RFC 5880, section 6.8.7)."""
    multiplier: int = 3
    """Sent to the neighbour: it gives us up after this many intervals without a hello."""

    def __post_init__(self) -> None:
        if not SHORTEST_INTERVAL_NS <= self.interval_ns <= LONGEST_INTERVAL_NS or self.interval_ns % NS_PER_US:
            raise SwitchError(f"hellos: an interval of {self.interval_ns} ns is not 1 ms to 4294 s in whole us")
        if not 1 <= self.multiplier <= MOST_MISSES:
            raise SwitchError(f"hellos: a multiplier of {self.multiplier} is not 1 to {MOST_MISSES}")


@dataclass(frozen=True, slots=True)
class HelloSession:
    """State of the link to a port's neighbour according to hellos."""

    settings: HelloSettings
    state: HelloState = HelloState.DOWN
    diagnostic: Diagnostic = Diagnostic.NO_DIAGNOSTIC
    remote_state: HelloState = HelloState.DOWN
    """The neighbour's last reported state; DOWN before its first hello, and once it is given up."""
    remote_diagnostic: Diagnostic = Diagnostic.NO_DIAGNOSTIC
    local_discriminator: int = 0
    """The number of this end: 1 << 31 | device id (its low 22 bits) << 9 | port."""
    remote_discriminator: int = 0
    """The neighbour's, which identifies its device and port; 0: unknown."""
    was_up: bool = False
    """It has been UP since hellos were set on this port, and the neighbour has not turned its own off since then."""
    since_ns: int = 0
    """Time of the last change of `state`."""
    sent: int = 0
    received: int = 0
    """Hellos that counted as life."""
    drops: Mapping[str, int] = field(default_factory=dict)
    """Frames addressed as hellos that did not, by name (`dataplane.switch.hellos.session.HelloDrop`)."""

    @property
    def is_lost(self) -> bool:
        """True if the neighbour responded once but no longer does: one that never did proves nothing."""
        return self.was_up and self.state is not HelloState.UP


@dataclass(frozen=True, slots=True)
class PortState:
    """The current state of a port; the CPU port has none."""

    port: int
    device: str
    """The name of the port's attachment; its number in virtual time."""
    speed_bps: int | None = None
    """The rate that the switch sends at, else the device's, if it reports one."""
    admin_up: bool = True
    oper: OperStatus = OperStatus.UP
    since_ns: int = 0
    """Time of the last change of `oper` or `admin_up`."""
    hello: HelloSession | None = None
    """None while no hellos are set here."""
    not_joined: str | None = None
    """Reason why consecutive TCP segments do not leave as one packet; "" if they do, None if none could."""

    @property
    def is_open(self) -> bool:
        """True if the switch takes and sends frames here; otherwise it drops them as `port_down`."""
        return self.admin_up and self.oper in {OperStatus.UP, OperStatus.UNKNOWN}

    @property
    def is_usable(self) -> bool:
        """True if frames sent here reach a neighbour, as far as this end knows; watched group members follow this."""
        return self.is_open and not (self.hello is not None and self.hello.is_lost)


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Frames a port has received, sent and dropped (by name) since the switch was made, excluding hellos."""

    rx_frames: int
    rx_bytes: int
    tx_frames: int
    tx_bytes: int
    queued_frames: int
    drops: Mapping[str, int]


PortListener = Callable[[PortState], None]


class PortControl(Protocol):
    """Port interface for management of a switch; every method may be called from any thread.

    Methods that name a port raise SwitchError if there is no such one; the CPU port has no state.
    """

    def port_states(self) -> Mapping[int, PortState]:
        """Return the current state of all ports."""
        ...

    def port_counters(self) -> Mapping[int, PortCounters]:
        """Return the counters of all ports, the CPU port's too."""
        ...

    def set_admin(self, port: int, up: bool) -> None:
        """Take a port out of use or put it back; hellos, if there are any, announce it to the neighbour."""
        ...

    def set_hello(self, port: int, settings: HelloSettings | None) -> None:
        """Start hellos on a port, change them, or (None) stop them; the change is announced to the neighbour."""
        ...

    def add_port_listener(self, listener: PortListener) -> Callable[[], None]:
        """Call `listener` with a port's new state at each change except of counts; return a function that ends that.

        Calls come one at a time, in the order of the changes, without any lock held, on the thread that made the
        change. They must not block. The earlier state is in `port_states`, read afterwards.
        """
        ...
