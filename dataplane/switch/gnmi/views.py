"""Ports as the tree shows them: named, with times of day; built from a switch's own reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from dataplane.switch.gnmi.schema import PortView
from dataplane.switch.ports.states import HelloSettings, PortCounters, PortState

NO_COUNTERS: Final = PortCounters(0, 0, 0, 0, 0, {})


def names_of(states: Mapping[int, PortState]) -> dict[int, str]:
    """Return each port's interface name: its device's, with the port's number if two share a device."""
    devices = Counter(state.device for state in states.values())
    return {
        port: state.device if state.device and devices[state.device] == 1 else f"{state.device}#{port}"
        for port, state in states.items()
    }


class Dates:
    """Converts times of a switch's clock to nanoseconds since 1970, the same time always to the same date.

    The two clocks drift against each other: recomputed each time, a date would change although nothing happened.
    Whatever is unchanged since the start has the date of the start.
    """

    def __init__(self, now_ns: Callable[[], int], epoch_ns: Callable[[], int]) -> None:
        self._now_ns, self._epoch_ns = now_ns, epoch_ns
        self._start_ns = now_ns()
        self._known: dict[tuple[int, str], tuple[int, int]] = {}

    def date(self, port: int, what: str, time_ns: int) -> int:
        """Return the date of a port's last event."""
        known = self._known.get((port, what))
        if known is None or known[0] != time_ns:
            now_ns = self._now_ns()
            known = (time_ns, max(time_ns, self._start_ns) + self._epoch_ns() - now_ns)
            self._known[port, what] = known
        return known[1]

    def view(self, state: PortState, name: str, hellos: HelloSettings, counters: PortCounters) -> PortView:
        """Return a port as the tree shows it."""
        changed_ns = self.date(state.port, "port", state.since_ns)
        hello_ns = 0 if state.hello is None else self.date(state.port, "hello", state.hello.since_ns)
        settings = hellos if state.hello is None else state.hello.settings
        return PortView(name, state, settings, changed_ns, hello_ns, counters)
