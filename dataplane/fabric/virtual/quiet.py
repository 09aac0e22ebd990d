"""Elision of hellos that change nothing in virtual time; their effects are applied when they matter.

Once both ends of a cable are UP and the cable carries, every hello repeats the last one: until the cable, a port or the
settings change, or a caller asks, nothing depends on when they arrive. Their times, and with them counts and silences,
are then drawn as they would have been, so that everything happens at the same nanosecond as with each hello as an
event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dataplane.fabric.virtual.cable import Cable
from dataplane.switch.hellos.port_hello import PortHello
from dataplane.switch.switch import Switch


@dataclass(frozen=True, slots=True)
class HelloEnd:
    """One end of a cable between switches: the switch, its port, and the direction it sends in."""

    switch: Switch
    port: int
    cable: Cable
    wake: Callable[[], None]
    """Makes the fabric ask the switch again when something is due."""

    @property
    def hello(self) -> PortHello | None:
        """The port's hellos, None while it sends none."""
        return self.switch.hellos.ports.get(self.port)


class QuietCable:
    """The two ends of a cable; at rest, neither has events."""

    def __init__(self, ends: tuple[HelloEnd, HelloEnd]) -> None:
        self._ends = ends
        self._at_rest = False

    def rest(self, now_ns: int) -> None:
        """Skip hellos from now on, if none changes anything."""
        first, other = self._ends
        if self._at_rest or not (_hears(first, other, now_ns) and _hears(other, first, now_ns)):
            return
        self._at_rest = True
        for end, hello in self._alive():
            hello.rest()
            end.switch.hellos.schedule()

    def stir(self, now_ns: int) -> None:
        """Apply the skipped hellos; from now on each hello is an event."""
        if not self._at_rest:
            return
        self._at_rest = False
        first, other = self._ends
        self._make_up(first, other, now_ns)
        self._make_up(other, first, now_ns)
        for end, hello in self._alive():
            hello.resume(now_ns)
            end.switch.hellos.schedule()
            end.wake()

    def _make_up(self, sender: HelloEnd, receiver: HelloEnd, now_ns: int) -> None:
        """Apply the hellos that would have been sent up to now: most have arrived, the last ones are on the cable."""
        outgoing, heard = sender.hello, receiver.hello
        for sent_ns in () if outgoing is None else outgoing.skip(now_ns):
            arrives_ns = sent_ns + sender.cable.link.delay_ns
            if arrives_ns <= now_ns and heard is not None:
                heard.credit(arrives_ns)
            elif outgoing is not None:
                sender.cable.carry_hello(outgoing.frame, sent_ns)

    def _alive(self) -> Iterator[tuple[HelloEnd, PortHello]]:
        for end in self._ends:
            hello = end.hello
            if hello is not None:
                yield end, hello


def _hears(receiver: HelloEnd, sender: HelloEnd, now_ns: int) -> bool:
    """Return whether the receiver's state stays the same for as long as the sender's and the cable's do."""
    own, their = receiver.hello, sender.hello
    if own is None or their is None or not sender.cable.up:
        return False
    return own.is_settled_with(their, sender.cable.link.delay_ns, now_ns)
