"""One subscription: its selections, initial values, changes, and samples (gNMI, section 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from finsy.proto import gnmi

from dataplane.switch.gnmi.errors import invalid
from dataplane.switch.gnmi.leaves import MODELS
from dataplane.switch.gnmi.matching import Selection, select, within
from dataplane.switch.gnmi.paths import Path, read_path, write_path
from dataplane.switch.gnmi.schema import Leaf, PortView, Value
from dataplane.switch.gnmi.values import check_encoding, write_value

SHORTEST_SAMPLE_NS: Final = 100_000_000
"""The shortest interval of samples and of heartbeats; used for a requested 0."""
CHOSEN_SAMPLE_NS: Final = 10_000_000_000
"""Interval of counters if the target is to choose (TARGET_DEFINED)."""

Send = Callable[[gnmi.SubscribeResponse], None]

SYNC: Final = gnmi.SubscribeResponse(sync_response=True)


@dataclass(frozen=True, slots=True)
class Change:
    """A port's new values, and those that are gone."""

    view: PortView
    news: Mapping[Leaf, Value]
    old: PortView
    gone: Sequence[Leaf]
    """Leaves that the port had in state `old`."""
    time_ns: int


@dataclass(slots=True)
class _Clocked:
    """Selections that are sent periodically."""

    selections: tuple[Selection, ...]
    interval_ns: int
    due_ns: int
    heartbeat_ns: int = 0
    """With `suppress`, interval after which unchanged values are sent anyway; 0: never."""
    suppress: bool = False
    beat_ns: int = 0
    sent: dict[tuple[int, Leaf], Value] = field(default_factory=dict)


class Subscription:
    """A subscription as its list requests it; its owner writes out what its methods yield, in that order.

    `notify` may be called from any thread; the other methods belong to one.
    """

    def __init__(
        self,
        request: gnmi.SubscriptionList,
        views: Callable[[], Sequence[PortView]],
        send: Send,
        *,
        now_ns: Callable[[], int],
        epoch_ns: Callable[[], int],
    ) -> None:
        """Raise GnmiError for what cannot be subscribed to."""
        check_encoding(request.encoding)
        models = models_of(request.use_models)
        if request.mode not in gnmi.SubscriptionList.Mode.values():
            raise invalid(f"unknown mode {request.mode}")
        if not request.subscription:
            raise invalid("a Subscribe without a path")
        self.mode = request.mode
        # A request without an encoding also reads as JSON: finsy and others want native values then, as
        # Stratum sends them, and finsy's `Switch` follows ports by itself.
        is_unsaid = request.encoding == gnmi.Encoding.JSON
        self._encoding = gnmi.Encoding.PROTO if is_unsaid else request.encoding
        self._target = request.prefix.target
        self._updates_only = request.updates_only
        self._views, self._send, self._now_ns, self._epoch_ns = views, send, now_ns, epoch_ns
        self._all: dict[Selection, None] = {}
        self._on_change: dict[Leaf, list[Selection]] = {}
        self._clocked: list[_Clocked] = []
        for subscription in request.subscription:
            selections = within(select(read_path(subscription.path, request.prefix)), models)
            self._all.update(dict.fromkeys(selections))
            if self.mode == gnmi.SubscriptionList.STREAM:
                self._add(subscription, selections)

    def initial(self) -> Iterator[gnmi.SubscribeResponse]:
        """Yield the current values, then a sync response."""
        if not self._updates_only:
            yield from self._values(self._all)
        yield SYNC

    def poll(self) -> Iterator[gnmi.SubscribeResponse]:
        """Yield the current values, then a sync response; raise GnmiError unless the mode is POLL."""
        if self.mode != gnmi.SubscriptionList.POLL:
            raise invalid("Poll on a subscription that is not in mode POLL")
        yield from self._values(self._all)
        yield SYNC

    def notify(self, change: Change) -> None:
        """Send the subscribed part of a change."""
        news = [(leaf, value) for leaf, value in change.news.items() if self._follows(leaf, change.view)]
        gone = [leaf.path(change.old) for leaf in change.gone if self._follows(leaf, change.old)]
        if news or gone:
            self._send(self._response(change.view, news, change.time_ns, gone))

    def next_due_ns(self) -> int | None:
        """Return the time of `due`'s next messages, on the switch's clock; None: never."""
        return min((clocked.due_ns for clocked in self._clocked), default=None)

    def due(self) -> Iterator[gnmi.SubscribeResponse]:
        """Yield the samples and heartbeats due by now; missed ones are not made up for."""
        now_ns = self._now_ns()
        for clocked in self._clocked:
            if clocked.due_ns > now_ns:
                continue
            missed = (now_ns - clocked.due_ns) // clocked.interval_ns
            clocked.due_ns += (missed + 1) * clocked.interval_ns
            yield from self._values(dict.fromkeys(clocked.selections), _novelty(clocked, now_ns))

    def _add(self, subscription: gnmi.Subscription, selections: tuple[Selection, ...]) -> None:
        changing = tuple(selection for selection in selections if selection.leaf.on_change)
        counting = tuple(selection for selection in selections if not selection.leaf.on_change)
        match subscription.mode:
            case gnmi.SubscriptionMode.ON_CHANGE:
                if not changing:
                    raise invalid("ON_CHANGE: the selected leaves are only counted; subscribe with SAMPLE")
                self._follow(changing, subscription.heartbeat_interval)
            case gnmi.SubscriptionMode.SAMPLE:
                interval_ns = _interval(subscription.sample_interval, "sample_interval")
                heartbeat_ns = (
                    _interval(subscription.heartbeat_interval, "heartbeat_interval")
                    if subscription.heartbeat_interval
                    else 0
                )
                self._sample(selections, interval_ns, heartbeat_ns, suppress=subscription.suppress_redundant)
            case gnmi.SubscriptionMode.TARGET_DEFINED:
                if subscription.sample_interval:
                    raise invalid("TARGET_DEFINED: the sample_interval is the target's to choose")
                self._follow(changing, subscription.heartbeat_interval)
                if counting:
                    self._sample(counting, CHOSEN_SAMPLE_NS)
            case _:
                raise invalid(f"unknown subscription mode {subscription.mode}")

    def _follow(self, selections: Iterable[Selection], heartbeat_ns: int) -> None:
        chosen = tuple(selections)
        for selection in chosen:
            self._on_change.setdefault(selection.leaf, []).append(selection)
        if heartbeat_ns:
            self._sample(chosen, _interval(heartbeat_ns, "heartbeat_interval"))

    def _sample(
        self, selections: tuple[Selection, ...], interval_ns: int, heartbeat_ns: int = 0, *, suppress: bool = False
    ) -> None:
        now_ns = self._now_ns()
        beat_ns = now_ns + heartbeat_ns
        self._clocked.append(_Clocked(selections, interval_ns, now_ns + interval_ns, heartbeat_ns, suppress, beat_ns))

    def _follows(self, leaf: Leaf, view: PortView) -> bool:
        return any(selection.selects(view) for selection in self._on_change.get(leaf, ()))

    def _values(
        self,
        selections: Iterable[Selection],
        is_wanted: Callable[[PortView, Leaf, Value], bool] = lambda *_: True,
    ) -> Iterator[gnmi.SubscribeResponse]:
        """Yield one message per port with its selected values; a leaf selected by several paths comes once."""
        chosen = tuple(selections)
        for view in self._views():
            time_ns = self._epoch_ns()
            leaves = dict.fromkeys(selection.leaf for selection in chosen if selection.selects(view))
            values = ((leaf, leaf.read(view)) for leaf in leaves)
            wanted = [(leaf, value) for leaf, value in values if value is not None and is_wanted(view, leaf, value)]
            if wanted:
                yield self._response(view, wanted, time_ns)

    def _response(
        self, view: PortView, news: Iterable[tuple[Leaf, Value]], time_ns: int, gone: Iterable[Path] = ()
    ) -> gnmi.SubscribeResponse:
        notification = gnmi.Notification(timestamp=time_ns)
        if self._target:
            notification.prefix.target = self._target
        for leaf, value in news:
            notification.update.add(path=write_path(leaf.path(view)), val=write_value(leaf, value, self._encoding))
        notification.delete.extend(map(write_path, gone))
        return gnmi.SubscribeResponse(update=notification)


def models_of(models: Iterable[gnmi.ModelData]) -> frozenset[str]:
    """Return the modules that a client requests leaves of, all if it names none; raise GnmiError for unserved ones."""
    served = frozenset(name for name, _, _ in MODELS)
    wanted = frozenset(model.name for model in models)
    for name in sorted(wanted - served):
        raise invalid(f"model {name[:64]!r} is not served")
    return wanted or served


def _interval(interval_ns: int, name: str) -> int:
    """Return the sending interval; 0 means as often as possible."""
    if 0 < interval_ns < SHORTEST_SAMPLE_NS:
        raise invalid(f"{name}: {interval_ns} ns is below the shortest, {SHORTEST_SAMPLE_NS} ns")
    return interval_ns or SHORTEST_SAMPLE_NS


def _novelty(clocked: _Clocked, now_ns: int) -> Callable[[PortView, Leaf, Value], bool]:
    """Return a filter of a round's values: all of them, or with `suppress` those that changed."""
    is_beat = bool(clocked.heartbeat_ns) and now_ns >= clocked.beat_ns
    if is_beat:
        clocked.beat_ns = now_ns + clocked.heartbeat_ns

    def is_wanted(view: PortView, leaf: Leaf, value: Value) -> bool:
        if not clocked.suppress:
            return True
        key = (view.state.port, leaf)
        is_new = clocked.sent.get(key) != value
        clocked.sent[key] = value
        return is_new or is_beat

    return is_wanted
