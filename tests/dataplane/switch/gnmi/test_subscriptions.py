"""The core without a transport: a switch's ports subscribed to, in every way."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from finsy.proto import gnmi

from dataplane.switch.gnmi.core import DROPS, MAX_PATHS, MAX_SUBSCRIPTIONS, GnmiCore
from dataplane.switch.gnmi.paths import read_path, text_of
from dataplane.switch.hellos.frames import discriminator
from dataplane.switch.ports.states import HelloSettings, HelloState, OperStatus, PortCounters
from tests.dataplane.switch.gnmi.asking import (
    MS,
    NO_MODE,
    ONCE,
    POLL,
    Reader,
    on_change,
    path,
    put,
    refusal,
    sample,
    values,
    values_of,
)
from tests.dataplane.switch.gnmi.boards import EPOCH_NS, Board

_BFD = "bfd/interfaces/interface[id=east]/config"
_OPER = "interfaces/interface[name=*]/state/oper-status"
_EAST = "/interfaces/interface[name=east]/state"


def test_once_tells_everything_then_that_this_was_all(core: GnmiCore) -> None:
    reader = Reader(core, gnmi.Subscription(path=path(_OPER)), mode=ONCE)
    assert reader.initial() == [
        {f"{_EAST}/oper-status": "UP"},
        {"/interfaces/interface[name=west]/state/oper-status": "UP"},
        None,
    ]


def test_changes_are_told_with_the_time_they_happened(core: GnmiCore, board: Board) -> None:
    reader = Reader(core, *on_change(_OPER, "interfaces/interface/state/last-change"), prefix=gnmi.Path(target="s1"))
    assert reader.initial()[-1] is None
    board.clock.advance_to(40)
    board.set_oper(1, OperStatus.LOWER_LAYER_DOWN)
    board.set_oper(1, OperStatus.LOWER_LAYER_DOWN)
    (change,) = reader.take()
    assert (change.timestamp, change.prefix.target) == (EPOCH_NS + 40, "s1")
    assert values(change) == {f"{_EAST}/oper-status": "LOWER_LAYER_DOWN", f"{_EAST}/last-change": EPOCH_NS + 40}


def test_other_ports_and_other_leaves_are_not_told(core: GnmiCore, board: Board) -> None:
    reader = Reader(core, *on_change("interfaces/interface[name=west]/state/oper-status"))
    board.set_oper(1, OperStatus.DOWN)
    assert reader.take() == []
    board.set_oper(2, OperStatus.DOWN)
    assert len(reader.take()) == 1


def test_hellos_that_end_are_deleted(core: GnmiCore, board: Board) -> None:
    reader = Reader(core, *on_change("bfd/interfaces/interface/peers/peer/state/session-state"))
    assert reader.initial() == [None]
    board.set_hello(1, HelloSettings())
    board.say(1, HelloState.UP)
    board.set_hello(1, None)
    base = (
        f"/bfd/interfaces/interface[id=east]/peers/peer[local-discriminator={discriminator(1, 1)}]/state/session-state"
    )
    down, up, gone = reader.take()
    assert (values(down), values(up), values(gone)) == ({base: "DOWN"}, {base: "UP"}, {})
    assert [text_of(read_path(path)) for path in gone.delete] == [base]


def test_settings_of_hellos_that_are_off_are_told_too(core: GnmiCore) -> None:
    reader = Reader(core, *on_change("bfd/interfaces/interface/config"))
    put(core, f"{_BFD}/detection-multiplier", gnmi.TypedValue(uint_val=9))
    assert [values(change) for change in reader.take()] == [{f"/{_BFD}/detection-multiplier": 9}]


def test_updates_only_begins_with_the_end(core: GnmiCore) -> None:
    assert Reader(core, *on_change(_OPER), updates_only=True).initial() == [None]


def test_a_poll_tells_everything_again(core: GnmiCore) -> None:
    reader = Reader(core, gnmi.Subscription(path=path(_OPER)), mode=POLL)
    first = reader.initial()
    assert [values_of(message) for message in reader.subscription.poll()] == first
    stream = Reader(core, *on_change(_OPER))
    refusal(grpc.StatusCode.INVALID_ARGUMENT, lambda: next(stream.subscription.poll()))


def test_samples_come_at_their_interval_without_catching_up(core: GnmiCore, board: Board) -> None:
    reader = Reader(core, sample("interfaces/interface[name=east]/state/counters/in-pkts", 100 * MS))
    start_ns = board.clock.now_ns()
    assert reader.subscription.next_due_ns() == start_ns + 100 * MS
    assert reader.due() == []
    board.clock.advance_to(start_ns + 350 * MS)
    assert reader.due() == [{f"{_EAST}/counters/in-pkts": 0}]
    assert reader.subscription.next_due_ns() == start_ns + 400 * MS


def test_redundant_samples_are_spared_but_for_heartbeats(core: GnmiCore, board: Board) -> None:
    counter = "interfaces/interface[name=east]/state/counters/in-pkts"
    reader = Reader(core, sample(counter, 100 * MS, suppress_redundant=True, heartbeat_interval=300 * MS))
    start_ns, rounds = board.clock.now_ns(), []
    for turn in range(1, 5):
        if turn == 2:
            board.counters[1] = PortCounters(7, 0, 0, 0, 0, {})
        board.clock.advance_to(start_ns + turn * 100 * MS)
        rounds.append([value for update in reader.due() if update is not None for value in update.values()])
    assert rounds == [[0], [7], [7], []]


def test_a_heartbeat_repeats_what_does_not_change(core: GnmiCore, board: Board) -> None:
    reader = Reader(core, *on_change("interfaces/interface[name=east]/state/oper-status", heartbeat_interval=200 * MS))
    board.clock.advance_to(board.clock.now_ns() + 200 * MS)
    assert reader.due() == [{f"{_EAST}/oper-status": "UP"}]


def test_target_defined_streams_states_and_samples_counters(core: GnmiCore, board: Board) -> None:
    reader = Reader(core, gnmi.Subscription(path=path("interfaces/interface[name=east]/state")))
    start_ns = board.clock.now_ns()
    board.set_oper(1, OperStatus.DOWN)
    assert len(reader.take()) == 1
    assert reader.subscription.next_due_ns() == start_ns + 10_000 * MS
    board.clock.advance_to(start_ns + 10_000 * MS)
    (update,) = reader.due()
    assert update is not None
    assert all("/counters/" in text for text in update)


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        ({}, grpc.StatusCode.INVALID_ARGUMENT, "without a path"),
        ({"mode": 7, "subscription": [sample(_OPER, 0)]}, grpc.StatusCode.INVALID_ARGUMENT, "unknown mode 7"),
        ({"subscription": [sample(_OPER, MS)]}, grpc.StatusCode.INVALID_ARGUMENT, "below the shortest"),
        (
            {"subscription": [gnmi.Subscription(path=path(_OPER), sample_interval=MS)]},
            grpc.StatusCode.INVALID_ARGUMENT,
            "the target's to choose",
        ),
        (
            {"subscription": list(on_change("interfaces/interface/state/counters"))},
            grpc.StatusCode.INVALID_ARGUMENT,
            "only counted",
        ),
        ({"subscription": list(on_change("interfaces/no"))}, grpc.StatusCode.UNIMPLEMENTED, "no such path"),
        (
            {"subscription": [gnmi.Subscription(mode=NO_MODE)]},
            grpc.StatusCode.INVALID_ARGUMENT,
            "unknown subscription mode 9",
        ),
        (
            {"subscription": list(on_change(_OPER)), "encoding": gnmi.Encoding.BYTES},
            grpc.StatusCode.UNIMPLEMENTED,
            "encoding BYTES",
        ),
        (
            {"subscription": list(on_change(*[_OPER] * (MAX_PATHS + 1)))},
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "more than 1024 paths",
        ),
    ],
)
def test_what_cannot_be_subscribed_to_is_refused(
    core: GnmiCore, request_: dict[str, Any], code: grpc.StatusCode, text: str
) -> None:
    request = gnmi.SubscriptionList(**request_)
    assert text in refusal(code, lambda: core.subscribe(request, lambda _: None))


def test_an_interface_that_is_not_there_is_no_error(core: GnmiCore) -> None:
    assert Reader(core, *on_change("interfaces/interface[name=none]")).initial() == [None]


def test_subscriptions_are_bounded_and_counted(core: GnmiCore) -> None:
    readers = [Reader(core, *on_change(_OPER)) for _ in range(MAX_SUBSCRIPTIONS)]
    refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: Reader(core, *on_change(_OPER)))
    assert core.drops == dict.fromkeys(DROPS, 0) | {"gnmi_subscription_refused": 1}
    core.close(readers[0].subscription)
    Reader(core, *on_change(_OPER))


def test_who_has_closed_is_told_nothing(core: GnmiCore, board: Board) -> None:
    reader = Reader(core, *on_change(_OPER))
    core.close(reader.subscription)
    core.close(reader.subscription)
    board.set_oper(1, OperStatus.DOWN)
    assert reader.take() == []
    again = Reader(core, *on_change(_OPER))
    board.set_oper(1, OperStatus.UP)
    assert len(again.take()) == 1
