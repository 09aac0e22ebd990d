"""Messages that carry the controller's reports of link conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from collectors.feed import links_pb2 as messages
from collectors.feed.columns import Columns
from collectors.feed.keys import links_in, links_out
from collectors.values import LinkStatus
from dataplane.rpc.errors import MessageError
from dataplane.topology.values import LinkKey

MAX_CAUSE: Final = 500
"""Most characters of a dead link's cause."""

_STATUSES: Final = Columns(LinkStatus, messages.LinkStatuses)


def statuses_message(statuses: Mapping[LinkKey, LinkStatus]) -> messages.LinkStatuses:
    """Return links' statuses as a message; causes are cut to `MAX_CAUSE` characters."""
    message = messages.LinkStatuses()
    write_statuses(message, statuses)
    return message


def write_statuses(message: messages.LinkStatuses, statuses: Mapping[LinkKey, LinkStatus]) -> None:
    """Put links' statuses into a message; causes are cut to `MAX_CAUSE` characters."""
    links_out(message.links, statuses)
    _STATUSES.write(message, [replace(status, cause=status.cause[:MAX_CAUSE]) for status in statuses.values()])


def statuses_of(message: messages.LinkStatuses) -> dict[LinkKey, LinkStatus]:
    """Return the links' statuses of a message; raise MessageError."""
    links = links_in(message.links)
    longest = max(map(len, message.cause), default=0)
    if longest > MAX_CAUSE:
        raise MessageError(f"LinkStatuses.cause has {longest} characters; at most {MAX_CAUSE} are accepted")
    return dict(zip(links, _STATUSES.read(message, len(links)), strict=True))
