"""Messages of links' windows: sums that readers merge with those of other collectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from google.protobuf.message import Message

from collectors.feed.keys import link_places_out, links_in
from collectors.feed.packed import pack_integers, unpack_integers
from collectors.feed.windows import windows_pb2 as messages
from collectors.statistics.link_windows import BucketRows, LinkWindows, Readings, SlotRows, problem
from collectors.statistics.sketch import BUCKETS
from collectors.statistics.window import SOURCES
from dataplane.rpc.errors import MessageError
from dataplane.topology.values import LinkKey

_MOST: Final = {"source": len(SOURCES) - 1, "bucket": BUCKETS - 1}


@dataclass(frozen=True, slots=True, eq=False)
class NamedWindows:
    """Windows, and the place of each link in them."""

    places: Mapping[LinkKey, int]
    windows: LinkWindows


def windows_message(places: Mapping[LinkKey, int], windows: LinkWindows) -> messages.LinkWindows:
    """Return windows as a message; `places` must not change afterwards."""
    message = messages.LinkWindows(window_ns=windows.window_ns, tx_window_ns=windows.tx_window_ns)
    link_places_out(message.links, places)
    for part in ("slots", "buckets", "readings"):
        _write(getattr(message, part), getattr(windows, part))
    return message


def windows_of(message: messages.LinkWindows) -> NamedWindows:
    """Return the windows of a message; raise MessageError for columns that do not fit and impossible figures."""
    places = links_in(message.links)
    if message.window_ns <= 0 or message.tx_window_ns <= 0:
        raise MessageError("LinkWindows has windows without length")
    windows = LinkWindows(
        len(places),
        message.window_ns,
        message.tx_window_ns,
        _read(SlotRows, message.slots, len(places)),
        _read(BucketRows, message.buckets, len(places)),
        _read(Readings, message.readings, len(places)),
    )
    wrong = problem(windows)
    if wrong is not None:
        raise MessageError(f"LinkWindows: {wrong}")
    return NamedWindows(places, windows)


def _write(message: Message, rows: Any) -> None:  # noqa: ANN401 - any of the three kinds of rows
    message.rows = len(rows.link)  # type: ignore[attr-defined]  # all three have it
    for field in fields(rows):
        setattr(message, field.name, pack_integers(getattr(rows, field.name)))


def _read(kind: type[Any], message: Message, links: int) -> Any:  # noqa: ANN401 - as above
    name, rows = message.DESCRIPTOR.name, message.rows  # type: ignore[attr-defined]  # all three have it
    most = _MOST | {"link": links - 1}
    return kind(
        *(
            unpack_integers(f"{name}.{field.name}", getattr(message, field.name), rows, most=most.get(field.name))
            for field in fields(kind)
        )
    )
