"""The observer of ports."""

from __future__ import annotations

from typing import Protocol

from dataplane.switch.ports.states import PortState


class PortObserver(Protocol):
    """Gets the state of switches' ports, and each change; must not block."""

    def port_changed(self, switch: str, state: PortState) -> None:
        """Take a switch's report of one of its ports; its times are nanoseconds since 1970."""
        ...

    def reachable(self, switch: str) -> None:
        """Note that a switch reports its ports: first all of them, then each change."""
        ...

    def unreachable(self, switch: str) -> None:
        """Note that a switch does not report its ports, or has stopped."""
        ...
