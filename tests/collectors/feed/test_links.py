"""Links as messages: states and conditions survive, as columns and one by one; what makes no sense is refused."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.collector import Collector
from collectors.feed import links_pb2 as messages
from collectors.feed.snapshots import read_links, write_links
from collectors.feed.statuses import MAX_CAUSE, statuses_message, statuses_of
from collectors.state.link_states import LinkStates
from collectors.values import DelaySource, LinkCondition, LinkState, LinkStatus
from dataplane.clock import VirtualClock
from dataplane.rpc.errors import MessageError
from dataplane.topology.values import LinkKey
from tests.collectors.feed.drawn import LINKS, STATUSES
from tests.collectors.reports import Reporter, build_topology, long_way

KEYS = LinkKey("s1", "s2"), LinkKey("s2", "s1")


def state(key: LinkKey) -> LinkState:
    return LinkState(key, 10**9, 5000, 5000, 6000, 0.5, 0.25, 75 * 10**7, 0.0, 3, 4, DelaySource.STAMPS)


def sent(links: Mapping[LinkKey, LinkState]) -> messages.Links:
    """Return links as they arrive."""
    message = messages.Links()
    write_links(message, links)
    return messages.Links.FromString(message.SerializeToString())


@given(st.lists(LINKS, max_size=4))
def test_links_survive(links: list[LinkState]) -> None:
    wanted = {link.link: link for link in links}
    got = read_links(sent(wanted))
    assert got == wanted
    assert list(got) == list(wanted)
    # What came goes on as it is.
    assert read_links(sent(got)) == wanted


def test_collector_columns_are_sent_without_single_link_states() -> None:
    collector, reporter = Collector(build_topology(), VirtualClock()), Reporter()
    collector.receive(reporter.stacked(long_way()))
    links = collector.snapshot().links
    assert isinstance(links, LinkStates)
    message = sent(links)
    assert links._all is None
    assert message == sent(dict(links))
    assert read_links(message) == links


def test_equal_messages_have_the_same_keys() -> None:
    links = {key: state(key) for key in KEYS}
    first, second = read_links(sent(links)), read_links(sent(links))
    assert all(message is other for message, other in zip(first, second, strict=True))


def test_a_figure_that_is_known_of_no_link_takes_no_room() -> None:
    message = sent({key: state(key) for key in KEYS})
    assert not message.delay_max_ns
    assert not message.buffer_occupancy_frames
    assert message.loss == struct.pack("<2d", 0.0, 0.0)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"rate_bps": b"\1"}, "Links.rate_bps has 1 bytes for 2 rows"),
        ({"rate_bps": b""}, "Links.rate_bps has 0 bytes for 2 rows"),
        ({"rate_bps": bytes(6)}, "Links.rate_bps has 6 bytes for 2 rows"),
        ({"rate_bps": bytes(32)}, "Links.rate_bps has 32 bytes for 2 rows"),
        ({"loss": struct.pack("<d", 0.5)}, "Links.loss has 8 bytes for 2 rows"),
        ({"samples": struct.pack("<2q", 1, -(2**63))}, f"Links.samples: an entry is {-(2**63)}"),
        ({"age_ns": b"\1\xfe"}, "Links.age_ns: an entry is -2"),
        ({"utilisation": struct.pack("<2d", 0.5, math.nan)}, "Links.utilisation: an entry is NaN"),
        ({"source": b"\1\6"}, "this version does not know DelaySource 6"),
        ({"source": b"\1\0"}, "this version does not know DelaySource 0"),
        ({"loss_source": b"\1\4"}, "this version does not know LossSource 4"),
    ],
)
def test_columns_that_make_no_sense_are_refused(columns: dict[str, bytes], problem: str) -> None:
    message = sent({key: state(key) for key in KEYS})
    for name, data in columns.items():
        setattr(message, name, data)
    with pytest.raises(MessageError, match=f"^{problem}$"):
        read_links(message)


@pytest.mark.parametrize(
    ("src", "dst", "problem"),
    [
        ([0], [0, 1], "LinkKeys has 1 entries in src and 2 in dst"),
        ([0, 2], [1, 0], "LinkKeys.src: index 2 is not below 2"),
        ([0, 0], [1, 1], "a link appears twice in one message"),
    ],
)
def test_names_that_make_no_sense_are_refused(src: list[int], dst: list[int], problem: str) -> None:
    message = sent({key: state(key) for key in KEYS})
    del message.links.src[:], message.links.dst[:]
    message.links.src.extend(src)
    message.links.dst.extend(dst)
    with pytest.raises(MessageError, match=f"^{problem}$"):
        read_links(message)


@given(STATUSES)
def test_statuses_survive(statuses: dict[LinkKey, LinkStatus]) -> None:
    data = statuses_message(statuses).SerializeToString()
    assert statuses_of(messages.LinkStatuses.FromString(data)) == statuses


def test_a_cause_is_cut_where_a_message_would_grow_without_bound() -> None:
    message = statuses_message({KEYS[0]: LinkStatus(LinkCondition.DOWN, 0, 10_000 * "x")})
    assert len(statuses_of(message)[KEYS[0]].cause) == MAX_CAUSE
    message.cause[0] += "x"
    with pytest.raises(MessageError, match=r"LinkStatuses\.cause has 501 characters; at most 500 are accepted"):
        statuses_of(message)
