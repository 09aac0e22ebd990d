"""The gNMI service without a transport: gRPC's servicer and the virtual fabric call the same object.

Requests and answers are the protobuf messages of gNMI 0.10; the one error is GnmiError. Every method may be called from
any thread.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from finsy.proto import gnmi

from dataplane.errors import SwitchError
from dataplane.switch.gnmi.edits import PortConfig, edited, operations
from dataplane.switch.gnmi.errors import exhausted, invalid, not_found
from dataplane.switch.gnmi.leaves import LEAVES, MODELS
from dataplane.switch.gnmi.matching import Selection, select, within
from dataplane.switch.gnmi.paths import Path, read_path, shown, text_of, write_path
from dataplane.switch.gnmi.schema import Kind, Leaf, PortView, Value
from dataplane.switch.gnmi.subscriptions import Change, Send, Subscription, models_of
from dataplane.switch.gnmi.values import ENCODINGS, check_encoding, write_subtree, write_value
from dataplane.switch.ports.states import HelloSettings, PortControl, PortCounters, PortState

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
        cached = self._known.get((port, what))
        if cached is None or cached[0] != time_ns:
            now_ns = self._now_ns()
            cached = (time_ns, max(time_ns, self._start_ns) + self._epoch_ns() - now_ns)
            self._known[port, what] = cached
        return cached[1]

    def view(self, state: PortState, name: str, hellos: HelloSettings, counters: PortCounters) -> PortView:
        """Return a port as the tree shows it."""
        changed_ns = self.date(state.port, "port", state.since_ns)
        hello_ns = 0 if state.hello is None else self.date(state.port, "hello", state.hello.since_ns)
        settings = hellos if state.hello is None else state.hello.settings
        return PortView(name, state, settings, changed_ns, hello_ns, counters)


logger = logging.getLogger("millrace.switch")

VERSION: Final = "0.10.0"
"""The version of the gNMI specification whose messages are served."""

MAX_PATHS: Final = 1_024
"""Maximum paths of one Get or Subscribe; finsy's `Switch` requests each port by its name."""
MAX_ANSWER_LEAVES: Final = 32_768
"""Maximum leaves in the answer to one Get: everything of a switch with 512 ports."""
MAX_SUBSCRIPTIONS: Final = 64
"""Maximum concurrent subscriptions."""

SLOW: Final = "gnmi_slow_subscriber"
REFUSED: Final = "gnmi_subscription_refused"
DROPS: Final = (SLOW, REFUSED)
"""Subscriptions ended because their reader was too slow, and those refused at the maximum."""

_KINDS: Final = {
    gnmi.GetRequest.ALL: frozenset(Kind),
    gnmi.GetRequest.CONFIG: frozenset({Kind.CONFIG}),
    gnmi.GetRequest.STATE: frozenset({Kind.STATE, Kind.OPERATIONAL}),
    gnmi.GetRequest.OPERATIONAL: frozenset({Kind.OPERATIONAL}),
}


class ManagedSwitch(PortControl, Protocol):
    """Properties of a switch that the service needs: its ports, and the clock for their times."""

    def now_ns(self) -> int:
        """Return the time on the switch's clock."""
        ...


class GnmiCore:
    """One switch's gNMI service; `epoch_ns` returns nanoseconds since 1970, by default the switch's own time."""

    def __init__(self, switch: ManagedSwitch, *, epoch_ns: Callable[[], int] | None = None) -> None:
        self._switch = switch
        self._epoch_ns = epoch_ns or switch.now_ns
        self._lock = threading.RLock()
        self._set_lock = threading.RLock()
        self._dates = Dates(switch.now_ns, self._epoch_ns)
        self._names = names_of(switch.port_states())
        self._hellos: dict[int, HelloSettings] = {}
        self._views: dict[int, tuple[PortView, dict[Leaf, Value]]] = {}
        self._subscriptions: set[Subscription] = set()
        self._removal: Callable[[], None] | None = None
        self.drops = dict.fromkeys(DROPS, 0)

    def capabilities(self, request: gnmi.CapabilityRequest | None = None) -> gnmi.CapabilityResponse:  # noqa: ARG002
        """Return models, encodings and version."""
        models = [gnmi.ModelData(name=name, organization=by, version=version) for name, by, version in MODELS]
        return gnmi.CapabilityResponse(supported_models=models, supported_encodings=ENCODINGS, gNMI_version=VERSION)

    def get(self, request: gnmi.GetRequest) -> gnmi.GetResponse:
        """Return one notification per path; raise GnmiError, NOT_FOUND for a named node that does not exist.

        A path with wildcards, or without keys, may select nothing.
        """
        check_encoding(request.encoding)
        models = models_of(request.use_models)
        if not request.path:
            raise invalid("a Get without a path")
        if len(request.path) > MAX_PATHS:
            raise exhausted(f"more than {MAX_PATHS} paths in one Get")
        kinds = _KINDS[request.type]
        views, room = self.views(), MAX_ANSWER_LEAVES
        answer = gnmi.GetResponse()
        for path in (read_path(path, request.prefix) for path in request.path):
            selections = within(select(path), models)
            everything = list(_present_values(selections, views))
            if not everything and any(selection.keys for selection in selections):
                raise not_found(f"{shown(path)}: no such node")
            selected = [entry for entry in everything if entry[1].leaf.kind in kinds]
            room -= len(selected)
            if room < 0:
                raise exhausted(f"more than {MAX_ANSWER_LEAVES} leaves in one Get: subscribe once")
            answer.notification.append(self._notification(request, selected))
        return answer

    def set(self, request: gnmi.SetRequest, who: str = "a client in this process") -> gnmi.SetResponse:
        """Change ports, all as requested or not at all; raise GnmiError. `who` is named in the log."""
        with self._set_lock:
            changes = edited(request, self.views())
            for port, (before, after) in changes.items():
                logger.info("port %d set by %s: %s", port, who, _words(after))
                self._apply(port, before, after)
        prefix = request.prefix if request.HasField("prefix") else None
        return gnmi.SetResponse(prefix=prefix, response=operations(request), timestamp=self._epoch_ns())

    def subscribe(self, request: gnmi.SubscriptionList, send: Send) -> Subscription:
        """Open a subscription whose changes go to `send`, which must not block; the caller closes it.

        Raises GnmiError for what cannot be subscribed to, and at the maximum of subscriptions.
        """
        if len(request.subscription) > MAX_PATHS:
            raise exhausted(f"more than {MAX_PATHS} paths in one Subscribe")
        subscription = Subscription(request, self.views, send, now_ns=self._switch.now_ns, epoch_ns=self._epoch_ns)
        with self._lock:
            if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
                self.drops[REFUSED] += 1
                raise exhausted(f"there are already {MAX_SUBSCRIPTIONS} subscriptions")
            self._subscriptions.add(subscription)
            self._listen()
        return subscription

    def close(self, subscription: Subscription) -> None:
        """Forget a subscription that ended; calling it again does nothing."""
        with self._lock:
            self._subscriptions.discard(subscription)
            if not self._subscriptions and self._removal is not None:
                self._removal()
                self._removal = None

    def count_slow(self) -> None:
        """Count a subscription that ended because its client does not read it."""
        with self._lock:
            self.drops[SLOW] += 1

    def now_ns(self) -> int:
        """Return the time on the switch's clock."""
        return self._switch.now_ns()

    def views(self) -> tuple[PortView, ...]:
        """Return the current state of all ports, in the order of their numbers."""
        states, counters = self._switch.port_states(), self._switch.port_counters()
        with self._lock:
            return tuple(self._view(states[port], counters.get(port, NO_COUNTERS)) for port in sorted(states))

    def _view(self, state: PortState, counters: PortCounters = NO_COUNTERS) -> PortView:
        hellos = self._hellos.get(state.port, HelloSettings())
        return self._dates.view(state, self._names[state.port], hellos, counters)

    def _notification(
        self, request: gnmi.GetRequest, selected: Sequence[tuple[PortView, Selection, Value]]
    ) -> gnmi.Notification:
        notification = gnmi.Notification(timestamp=self._epoch_ns())
        if request.prefix.target:
            notification.prefix.target = request.prefix.target
        if request.encoding == gnmi.Encoding.PROTO:
            for view, selection, value in selected:
                typed = write_value(selection.leaf, value, request.encoding)
                notification.update.add(path=write_path(selection.leaf.path(view)), val=typed)
            return notification
        nodes: dict[str, tuple[Path, list[tuple[PortView, Leaf, Value]]]] = {}
        for view, selection, value in selected:
            node = selection.node(view)
            nodes.setdefault(text_of(node), (node, []))[1].append((view, selection.leaf, value))
        for node, leaves in nodes.values():
            notification.update.add(path=write_path(node), val=write_subtree(len(node), leaves, request.encoding))
        return notification

    def _apply(self, port: int, before: PortConfig, after: PortConfig) -> None:
        """Apply only actual changes: setting hellos again would restart them."""
        said_before, said_after = (config.settings if config.hellos else None for config in (before, after))
        try:
            if said_after != said_before:
                self._switch.set_hello(port, said_after)
            if after.enabled is not before.enabled:
                self._switch.set_admin(port, after.enabled)
        except SwitchError as error:
            raise invalid(str(error)) from error
        with self._lock:
            self._hellos[port] = after.settings
            if self._subscriptions:
                self._changed(self._switch.port_states()[port])

    def _listen(self) -> None:
        """Follow the ports while there are subscriptions."""
        if self._removal is None:
            self._removal = self._switch.add_port_listener(self._changed)
            for state in self._switch.port_states().values():
                view = self._view(state)
                self._views[state.port] = view, _on_change(view)

    def _changed(self, state: PortState) -> None:
        """Notify subscriptions of a port's changes."""
        with self._lock:
            view = self._view(state)
            (old, before), after = self._views[state.port], _on_change(view)
            self._views[state.port] = view, after
            news = {leaf: value for leaf, value in after.items() if before.get(leaf) != value}
            gone = tuple(leaf for leaf in before if leaf not in after)
            if news or gone:
                change = Change(view, news, old, gone, self._epoch_ns())
                for subscription in tuple(self._subscriptions):
                    subscription.notify(change)


def _on_change(view: PortView) -> dict[Leaf, Value]:
    values = ((leaf, leaf.read(view)) for leaf in LEAVES if leaf.on_change)
    return {leaf: value for leaf, value in values if value is not None}


def _present_values(
    selections: Sequence[Selection], views: Sequence[PortView]
) -> Iterator[tuple[PortView, Selection, Value]]:
    for view in views:
        for selection in selections:
            if selection.selects(view) and (value := selection.leaf.read(view)) is not None:
                yield view, selection, value


def _words(config: PortConfig) -> str:
    hellos = f"every {config.settings.interval_ns / 1e6:g} ms" if config.hellos else "none"
    return f"{'in use' if config.enabled else 'out of use'}, hellos: {hellos}"
