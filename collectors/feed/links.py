"""Links with what telemetry measures of them as messages.

The columns of `LinkStates` go into a message as they are and come out of it so, and no state of a single link is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from collectors.feed import links_pb2 as messages
from collectors.feed.columns import Columns, Enumeration
from collectors.feed.keys import links_in, links_out
from collectors.state.link_states import LOSS_SOURCES, LinkStates
from collectors.statistics.columns import UNKNOWN, Integers, Numbers
from collectors.statistics.window import SOURCES
from collectors.values import DelaySource, LinkState, LossSource
from dataplane.rpc.errors import MessageError
from dataplane.topology.values import LinkKey

_LINKS: Final = Columns(LinkState, messages.Links, others=("link",))


class _Places:
    """Places of an enumeration's members in columns of `LinkStates`, and their numbers in messages."""

    def __init__(self, enumeration: Enumeration[Any], members: Sequence[Any], *, may_be_none: bool) -> None:
        numbers = [enumeration.numbers[member] for member in members]
        self._enumeration = enumeration
        self._numbers = np.array([*numbers, 0])  # the last, at UNKNOWN, is none
        self._places = {number: place for place, number in enumerate(numbers)}
        if may_be_none:
            self._places[0] = UNKNOWN

    def numbers(self, places: Integers | Numbers) -> list[int]:
        numbers: list[int] = self._numbers[places].tolist()
        return numbers

    def places(self, numbers: Sequence[int]) -> Integers:
        for number in set(numbers) - self._places.keys():
            self._enumeration.member(number)
        return np.array([self._places[number] for number in numbers], np.int64)


_PLACES: Final = {
    "source": _Places(Enumeration(DelaySource, messages.DelaySource.DESCRIPTOR), SOURCES, may_be_none=False),
    "loss_source": _Places(Enumeration(LossSource, messages.LossSource.DESCRIPTOR), LOSS_SOURCES, may_be_none=True),
}


def write_links(message: messages.Links, links: Mapping[LinkKey, LinkState]) -> None:
    """Put links with their states into a message."""
    links_out(message.links, links)
    if isinstance(links, LinkStates):
        numbers: dict[str, list[Any]] = {name: column.tolist() for name, column in links.columns.items()}
        numbers |= {name: places.numbers(links.columns[name]) for name, places in _PLACES.items()}
        _LINKS.write_numbers(message, numbers)
    else:
        _LINKS.write(message, list(links.values()))


def read_links(message: messages.Links) -> LinkStates:
    """Return the links of a message with their states; raise MessageError."""
    places = links_in(message.links)
    numbers = _LINKS.read_numbers(message, len(places))
    return LinkStates(places, {name: _column(name, column) for name, column in numbers.items()})


def _column(name: str, numbers: Sequence[Any]) -> Integers | Numbers:
    if name in _PLACES:
        return _PLACES[name].places(numbers)
    if name in LinkStates.FLOATS:
        return np.array(numbers, np.float64)
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        raise MessageError(f"Links.{name}: an entry is {max(numbers)}") from None
