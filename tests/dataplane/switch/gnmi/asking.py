"""Query a core without a transport: requests as text, answers as values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from finsy.gnmipath import GNMIPath
from finsy.proto import gnmi

from dataplane.switch.gnmi.core import GnmiCore
from dataplane.switch.gnmi.errors import GnmiError
from dataplane.switch.gnmi.paths import read_path, text_of
from dataplane.switch.gnmi.subscriptions import Subscription

PROTO, JSON, IETF = gnmi.Encoding.PROTO, gnmi.Encoding.JSON, gnmi.Encoding.JSON_IETF
STREAM, ONCE, POLL = gnmi.SubscriptionList.STREAM, gnmi.SubscriptionList.ONCE, gnmi.SubscriptionList.POLL
ON_CHANGE, SAMPLE = gnmi.SubscriptionMode.ON_CHANGE, gnmi.SubscriptionMode.SAMPLE
NO_MODE: Any = 9
MS = 1_000_000

Values = dict[str, Any]


def path(text: str) -> gnmi.Path:
    return GNMIPath(text).path


def scalar(value: gnmi.TypedValue) -> Any:
    kind = value.WhichOneof("value")
    assert kind is not None
    result = getattr(value, kind)
    return json.loads(result) if kind.startswith("json") else result


def values(notification: gnmi.Notification) -> Values:
    return {text_of(read_path(update.path)): scalar(update.val) for update in notification.update}


def get(core: GnmiCore, *texts: str, **more: Any) -> list[Values]:
    request = gnmi.GetRequest(path=map(path, texts), **{"encoding": PROTO, **more})
    return [values(notification) for notification in core.get(request).notification]


def put(core: GnmiCore, text: str, value: gnmi.TypedValue) -> gnmi.SetResponse:
    return core.set(gnmi.SetRequest(update=[gnmi.Update(path=path(text), val=value)]))


def ietf(value: object) -> gnmi.TypedValue:
    return gnmi.TypedValue(json_ietf_val=json.dumps(value).encode())


def refusal(code: grpc.StatusCode, call: Callable[[], object]) -> str:
    with pytest.raises(GnmiError) as caught:
        call()
    assert caught.value.code is code
    assert "\n" not in caught.value.message
    return caught.value.message


class Reader:
    """A subscriber in the same process."""

    def __init__(self, core: GnmiCore, *subscriptions: gnmi.Subscription, **more: Any) -> None:
        request = gnmi.SubscriptionList(subscription=subscriptions, **{"encoding": PROTO, **more})
        self.changes: list[gnmi.SubscribeResponse] = []
        self.subscription: Subscription = core.subscribe(request, self.changes.append)

    def initial(self) -> list[Values | None]:
        return [values_of(message) for message in self.subscription.initial()]

    def due(self) -> list[Values | None]:
        return [values_of(message) for message in self.subscription.due()]

    def take(self) -> list[gnmi.Notification]:
        taken, self.changes[:] = [message.update for message in self.changes], []
        return taken


def values_of(message: gnmi.SubscribeResponse) -> Values | None:
    """Return what an update says, None for the end of the first ones."""
    return None if message.sync_response else values(message.update)


def on_change(*texts: str, **more: Any) -> Iterator[gnmi.Subscription]:
    return (gnmi.Subscription(path=path(text), mode=ON_CHANGE, **more) for text in texts)


def sample(text: str, interval_ns: int, **more: Any) -> gnmi.Subscription:
    return gnmi.Subscription(path=path(text), mode=SAMPLE, sample_interval=interval_ns, **more)
