"""A switch's ports in the same process: the same messages as over gRPC, without the transport, for virtual time."""

from __future__ import annotations

from collections.abc import Mapping

from finsy.proto import gnmi

from controller.common.errors import SessionError
from controller.network.gnmi.mirror import PortMirror, subscription
from controller.network.gnmi.observer import PortObserver
from dataplane.switch.gnmi import GnmiCore, GnmiError
from dataplane.switch.ports.states import HelloSettings


class InProcessPorts:
    """A subscription to a switch's GnmiCore; the observer is called within the call that causes a change."""

    def __init__(self, switch: str, core: GnmiCore, observer: PortObserver) -> None:
        self._switch, self._core, self._observer = switch, core, observer
        self._mirror = PortMirror()
        self._subscription = core.subscribe(subscription().subscribe, self._take)

    def start(self, hellos: Mapping[int, HelloSettings | None]) -> None:
        """Report every port to the observer, then set the desired hellos; raise SessionError if that fails.

        Ports without desired hellos are left alone.
        """
        for message in self._subscription.initial():
            self._mirror.take(message.update)
        self._observer.reachable(self._switch)
        for state in self._mirror.states():
            self._observer.port_changed(self._switch, state)
        request = self._mirror.corrections(hellos)
        if request is None:
            return
        try:
            self._core.set(request, "the controller")
        except GnmiError as error:
            raise SessionError(self._switch, "set hellos", error.message, code=error.code.name) from error

    def close(self) -> None:
        """End the subscription; the observer sees the switch as unreachable."""
        self._core.close(self._subscription)
        self._observer.unreachable(self._switch)

    def _take(self, message: gnmi.SubscribeResponse) -> None:
        for state in self._mirror.take(message.update):
            self._observer.port_changed(self._switch, state)
