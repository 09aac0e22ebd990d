"""Times in settings: keys without a unit, values with one, and the former keys."""

from __future__ import annotations

import itertools
import logging
import math
from fractions import Fraction
from typing import Annotated

import msgspec
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dataplane.config import Settings, document_of, loads, loads_document
from dataplane.config.json_schema import json_schema
from dataplane.config.quantities import read_quantity, time_text, time_unit_of
from dataplane.config.shown import defaults_of
from dataplane.errors import ConfigError

FILES = itertools.count()


class Feed(Settings, frozen=True):
    """A section."""

    interval_ns: Annotated[int, msgspec.Meta(ge=1_000)] = 1_000_000
    """Interval."""
    hold_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Hold time."""
    waits_ns: tuple[int, ...] = ()
    """Waits."""
    by_name_s: dict[str, float] = msgspec.field(default_factory=dict)
    """Times by name."""


class Daemon(Settings, frozen=True):
    """Settings with sections."""

    feed: Feed = Feed()
    """A section."""
    feeds: tuple[Feed, ...] = ()
    """Sections."""
    kept: int = 3
    """Maximum number kept."""
    kept_s: float = msgspec.field(default=60.0, name="kept_age")
    """Maximum age."""
    per_s: float = 1.0
    """A rate with a name that ends like a time's."""


def test_times_have_units_and_keys_none() -> None:
    text = (
        "feed: {interval: 2ms, hold: 1.5 m, waits: [1us, 0], by_name: {a: 1h}}\nfeeds: [{hold: 500ms}]\nkept_age: 2d\n"
    )
    settings = loads(text, Daemon)
    assert settings.feed == Feed(interval_ns=2_000_000, hold_s=90.0, waits_ns=(1000, 0), by_name_s={"a": 3600.0})
    assert (settings.feeds[0].hold_s, settings.kept_s) == (0.5, 172_800.0)
    assert loads('[feed]\ninterval = "100us"\n', Daemon, toml=True).feed.interval_ns == 100_000
    assert loads("feed: {hold: null}", Daemon).feed.hold_s is None
    assert loads("feed: {hold: .inf}", Daemon).feed.hold_s == math.inf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("feed:\n  interval: 5\n", "<text>:2: feed.interval: 5 is a time without a unit: write it as 10s, 500ms or 2m"),
        ("feed: {waits: [1s, 5]}", "<text>:1: feed.waits[1]: 5 is a time without a unit: write it as 10s, 500ms or 2m"),
        (
            "feed: {by_name: {a: 2.5}}",
            "<text>:1: feed.by_name.a: 2.5 is a time without a unit: write it as 10s, 500ms or 2m",
        ),
        (
            "feed: {hold: soon}",
            "<text>:1: feed.hold: 'soon' is not a time such as 500ms (units: ns, us, ms, s, m, min, h, d)",
        ),
        ("feed: {interval: 1.5ns}", "<text>:1: feed.interval: '1.5ns' is not a whole number of ns"),
        ("feed: {interval: 999ns}", "<text>:1: feed.interval: expected a time >= 1us"),
        ("feed: {hold: 0s}", "<text>:1: feed.hold: expected a time > 0s"),
        ("feed: {interval: [1s]}", "<text>:1: feed.interval: expected a time such as 500ms, got `array`"),
        ("feed: {interval: true}", "<text>:1: feed.interval: expected a time such as 500ms, got `bool`"),
        ("feed:\n  interval_ns: 1\n", "<text>:2: feed.interval_ns: expected `int` >= 1000"),
        ("feed:\n  interval_ns: [1]\n", "<text>:2: feed.interval_ns: expected `int`, got `array`"),
        (
            "feed:\n  hold: 5s\n  hold_s: 5\n",
            "<text>:3: feed.hold_s: is the former name of hold, which is given as well",
        ),
        ("per: 1s", "<text>:1: per: unknown key; did you mean `per_s`? (known: feed, feeds, kept, kept_age, per_s)"),
    ],
)
def test_wrong_times_are_refused_at_their_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, Daemon)
    assert str(caught.value) == message


def test_former_keys_load_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    file = f"daemon{next(FILES)}.yaml"
    text = "feed:\n  interval_ns: 5000\nfeeds:\n- hold_s: 5\n- hold_s: 100ms\nkept_s: 7\n"
    for _ in range(2):
        document = loads_document(text, Daemon, file=file)
    settings = document.value
    assert (settings.feed.interval_ns, [feed.hold_s for feed in settings.feeds], settings.kept_s) == (
        5000,
        [5.0, 0.1],
        7.0,
    )
    keys = (
        "feed.interval_ns (now feed.interval), feeds[0].hold_s (now feeds[0].hold), feeds[1].hold_s (now feeds[1].hold)"
    )
    warning = f"{file}: renamed settings, whose old names load for this version only: {keys}, kept_s (now kept_age)"
    assert caplog.messages == [warning]
    assert str(document.error("too short", "feed.interval")) == f"{file}:2: feed.interval: too short"
    loads("feed: {interval: 2ms}", Daemon, file=f"daemon{next(FILES)}.yaml")
    assert len(caplog.messages) == 1


def test_a_mapping_under_two_names_is_read_for_both() -> None:
    settings = loads("feed: &one {interval: 5us, hold: 1s}\nfeeds: [*one, *one]\n", Daemon)
    assert settings.feeds == (settings.feed, settings.feed) == (Feed(interval_ns=5000, hold_s=1.0),) * 2


@given(
    st.builds(
        Feed,
        interval_ns=st.integers(1000, 10**17),
        hold_s=st.none() | st.floats(1e-6, 1e8) | st.just(math.inf),
        waits_ns=st.lists(st.integers(0, 10**12), max_size=4).map(tuple),
        by_name_s=st.dictionaries(st.text("abc", max_size=4), st.floats(0, 1e6), max_size=4),
    )
)
@example(Feed(hold_s=524288.9555059411))
def test_documents_load_as_what_they_were_made_of(feed: Feed) -> None:
    feed = replace(feed, by_name_s={name: round(time_s, 6) for name, time_s in feed.by_name_s.items()})
    settings = Daemon(feed=feed, feeds=(feed, Feed()))
    assert loads(yaml.safe_dump(document_of(settings)), Daemon) == settings


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("a_ns", 1_500_000_000, "1500ms"),
        ("a_ns", 90_000_000_000, "90s"),
        ("a_s", 3600.0, "1h"),
        ("a_s", 0.1, "100ms"),
        ("a_us", 10_000, "10ms"),
        ("a_s", 0, "0s"),
        ("a_s", math.inf, math.inf),
    ],
)
def test_times_are_written_in_their_largest_unit(name: str, number: float, text: object) -> None:
    unit = time_unit_of(name)
    assert unit is not None
    assert time_text(number, unit) == text


def test_fractions_of_a_nanosecond_are_written_as_such() -> None:
    unit = time_unit_of("a_s")
    assert unit is not None
    assert read_quantity(str(time_text(1e-12, unit)), unit.kind.units) == Fraction(1, 10**12)


def test_schemas_and_lists_of_settings_show_texts() -> None:
    properties = json_schema(Daemon)["$defs"]["Feed"]["properties"]
    assert properties["interval"] | {"pattern": ""} == {
        "type": "string",
        "pattern": "",
        "examples": ["500ms"],
        "default": "1ms",
        "description": "Interval.",
    }
    assert properties["hold"]["anyOf"][1] == {"type": "null"}
    assert properties["waits"]["items"]["type"] == "string"
    assert properties["by_name"]["additionalProperties"]["type"] == "string"
    shown = {setting.key: setting.value for setting in defaults_of(Daemon)}
    assert (shown["feed.interval"], shown["kept_age"], shown["kept"], shown["per_s"]) == ("1ms", "1m", 3, 1.0)
