"""Events and drops as messages of the feed: every value survives, damage is a clear error."""

from __future__ import annotations

from dataclasses import fields

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.errors import FeedError
from collectors.feed import event_codec
from collectors.feed.messages import VERSION
from collectors.values import ChildKey, DropRecord, Event, Evidence, FlowKey, JobKey, Phase, ReporterKey, Subject
from dataplane.topology.values import LinkKey

NUMBER = st.integers(0, 2**63 - 1)
SMALL = st.integers(0, 65535)
MAYBE = st.none() | NUMBER
NAME = st.text(max_size=6)
FLOWS = st.builds(FlowKey, st.ip_addresses(), st.ip_addresses(), st.integers(0, 255), SMALL, SMALL)
LINKS_AND_REPORTERS = st.builds(LinkKey, NAME, NAME) | st.builds(ReporterKey, NUMBER, SMALL)
JOBS = st.builds(JobKey, SMALL, NAME) | st.builds(ChildKey, SMALL, NAME, SMALL, NAME)
SUBJECTS: st.SearchStrategy[Subject] = LINKS_AND_REPORTERS | FLOWS | JOBS
VALUE = st.floats(allow_nan=False)
EVIDENCE = st.lists(st.builds(Evidence, NUMBER, NAME, VALUE), max_size=3).map(tuple)
EVENTS = st.builds(Event, NUMBER, NAME, SUBJECTS, NAME, VALUE, VALUE, st.sampled_from(Phase), EVIDENCE)
DROPS = st.builds(DropRecord, *[NUMBER] * 4, *[MAYBE] * 3, st.integers(0, 255), st.none() | FLOWS, MAYBE, st.booleans())


@given(st.lists(EVENTS, max_size=4))
def test_events_survive(events: list[Event]) -> None:
    assert event_codec.decode_events(event_codec.encode_events(events)) == tuple(events)


@given(st.lists(DROPS, max_size=4))
def test_drops_survive(drops: list[DropRecord]) -> None:
    assert event_codec.decode_drops(event_codec.encode_drops(drops)) == tuple(drops)


def test_every_field_of_a_value_is_in_its_message() -> None:
    for value, row in ((Event, event_codec._Event), (DropRecord, event_codec._Drop), (Evidence, event_codec._Evidence)):
        assert [field.name for field in fields(value)] == list(row.__struct_fields__)


def test_an_unknown_kind_of_subject_is_a_clear_error() -> None:
    row: tuple[object, ...] = (0, "rule", ("planet", 1, 2), "loss", 1.0, 1.0, "raised", [])
    with pytest.raises(FeedError, match="planet"):
        event_codec.decode_events(msgspec.msgpack.encode((VERSION, [row])))


@given(junk=st.binary(max_size=60), at=st.integers(0, 200), flip=st.integers(1, 255))
def test_any_bytes_decode_or_raise_feed_error(junk: bytes, at: int, flip: int) -> None:
    event = Event(1, "r", ReporterKey(1, 2), "lost", 3.0, 2.0, Phase.RAISED, (Evidence(1, "lost", 3.0),))
    damaged = bytearray(event_codec.encode_events([event]))
    damaged[at % len(damaged)] ^= flip
    for message in (junk, bytes(damaged)):
        for decode in (event_codec.decode_events, event_codec.decode_drops):
            try:
                decode(message)
            except FeedError:
                continue
