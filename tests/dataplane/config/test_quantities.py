"""Numbers with units: in names, in settings files, and refusals."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest

from dataplane.config import Strict, loads
from dataplane.config.quantities import unit_of
from dataplane.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("interval_ns", "500ms", 500_000_000),
        ("interval_ns", "1.5 us", 1500),
        ("deadline_s", "500ms", Fraction(1, 2)),
        ("lasts_hours", "2d", 48),
        ("rate_bps", "10G", 10**10),
        ("rate_bps", "9.92 Gbit/s", 9_920_000_000),
        ("rate_mbps", "2Gbps", 2000),
        ("most_bytes", "64KiB", 65_536),
        ("most_bytes", "1.5M", 1_500_000),
        ("memory_mib", "2GiB", 2048),
        ("clock_hz", "2.4GHz", 2_400_000_000),
        ("--deadline-s", "2min", 120),
    ],
)
def test_text_counts_what_the_name_says(name: str, text: str, number: Fraction) -> None:
    unit = unit_of(name)
    assert unit is not None
    assert unit.parse(text) == number


@pytest.mark.parametrize("name", ["ns", "name", "reports_per_s", "read_bytes_per_s", "names", "address"])
def test_names_without_a_unit(name: str) -> None:
    assert unit_of(name) is None


@pytest.mark.parametrize("text", ["", "5", "ms", "-1ms", "5 mz", "nan", "1e3ms", "5ms5", "5GiB"])
def test_what_is_no_time(text: str) -> None:
    unit = unit_of("interval_ns")
    assert unit is not None
    with pytest.raises(ValueError, match="is not a time such as 500ms, nor a number of ns"):
        unit.parse(text)


class _Queue(Strict, frozen=True):
    wait_ns: int = 1
    rate_bps: float | None = None


class _Cat(Strict, frozen=True, tag="cat", tag_field="kind"):
    purr_s: float = 1.0


class _Dog(Strict, frozen=True, tag="dog", tag_field="kind"):
    purr_s: str = ""


class _Settings(Strict, frozen=True):
    queues: tuple[_Queue, ...] = ()
    by_name: dict[str, _Queue] = msgspec.field(default_factory=dict)
    waits_ns: tuple[int, ...] = ()
    pet: _Cat | _Dog | None = None
    hold_s: int | str = 0
    lease: int = msgspec.field(default=0, name="lease_s")


TEXT = """
queues: [{wait_ns: 5ms, rate_bps: 2.5G}, {wait_ns: 7}]
by_name: {a: {wait_ns: 1 s}}
waits_ns: [1us, 2]
pet: {kind: cat, purr_s: 100ms}
hold_s: 5 s
lease_s: 2min
"""


def test_settings_take_units_wherever_a_key_has_one() -> None:
    settings = loads(TEXT, _Settings)
    assert settings.queues == (_Queue(wait_ns=5_000_000, rate_bps=2.5e9), _Queue(wait_ns=7))
    assert settings.by_name == {"a": _Queue(wait_ns=1_000_000_000)}
    assert (settings.waits_ns, settings.pet, settings.lease) == ((1000, 2), _Cat(purr_s=0.1), 120)
    assert settings.hold_s == "5 s"  # text fields get text
    assert loads("pet: {kind: dog, purr_s: 100ms}", _Settings).pet == _Dog(purr_s="100ms")
    assert loads('waits_ns = ["1us"]', _Settings, toml=True).waits_ns == (1000,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queues:\n- wait_ns: 1.5ns\n", "<text>:2: queues[0].wait_ns: '1.5ns' is not a whole number of ns"),
        ("by_name: {a: {wait_ns: 5 mz}}", "<text>:1: by_name.a.wait_ns: '5 mz' is not a time such as 500ms, nor "),
        ("lease_s: soon", "<text>:1: lease_s: 'soon' is not a time such as 500ms, nor a number of s (units: ns, us, "),
    ],
)
def test_what_is_no_quantity_is_refused_at_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, _Settings)
    assert str(caught.value).startswith(message)


def test_an_unknown_key_names_the_nearest_and_all() -> None:
    with pytest.raises(ConfigError) as caught:
        loads("lease: 5", _Settings)
    known = "queues, by_name, waits_ns, pet, hold_s, lease_s"
    assert str(caught.value) == f"<text>:1: lease: unknown key; did you mean `lease_s`? (known: {known})"
