"""The core without a transport: a switch's ports read and set, in every encoding."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from finsy.proto import gnmi

from dataplane.switch.gnmi import core as core_module
from dataplane.switch.gnmi.core import MAX_PATHS, GnmiCore
from dataplane.switch.gnmi.edits import MAX_OPERATIONS
from dataplane.switch.gnmi.paths import read_path, text_of
from dataplane.switch.hellos.frames import discriminator
from dataplane.switch.ports.states import Diagnostic, HelloSettings, HelloState, PortCounters
from tests.dataplane.switch.gnmi.asking import IETF, JSON, MS, PROTO, get, ietf, path, put, refusal
from tests.dataplane.switch.gnmi.boards import EPOCH_NS, Board

# capabilities and get


def test_capabilities_name_models_and_encodings(core: GnmiCore) -> None:
    answer = core.capabilities()
    assert answer.gNMI_version == "0.10.0"
    assert list(answer.supported_encodings) == [JSON, IETF, PROTO]
    assert "openconfig-bfd" in [model.name for model in answer.supported_models]


def test_a_port_is_read_leaf_by_leaf(core: GnmiCore, board: Board) -> None:
    board.counters[1] = PortCounters(3, 300, 2, 200, 0, {"queue_full": 5, "oversize": 1, "port_down": 2})
    (values,) = get(core, "interfaces/interface[name=east]")
    base = "/interfaces/interface[name=east]"
    assert values == {
        f"{base}/name": "east",
        f"{base}/config/name": "east",
        f"{base}/state/name": "east",
        f"{base}/config/enabled": True,
        f"{base}/state/enabled": True,
        f"{base}/config/type": "iana-if-type:ethernetCsmacd",
        f"{base}/state/type": "iana-if-type:ethernetCsmacd",
        f"{base}/state/id": 1,
        f"{base}/state/ifindex": 1,
        f"{base}/state/admin-status": "UP",
        f"{base}/state/oper-status": "UP",
        f"{base}/state/last-change": EPOCH_NS + 5,
        f"{base}/state/counters/in-pkts": 3,
        f"{base}/state/counters/in-octets": 300,
        f"{base}/state/counters/in-discards": 1,
        f"{base}/state/counters/out-pkts": 2,
        f"{base}/state/counters/out-octets": 200,
        f"{base}/state/counters/out-discards": 7,
        f"{base}/ethernet/state/port-speed": "openconfig-if-ethernet:SPEED_10GB",
    }


def test_why_segments_are_not_joined_is_read_once_it_is_known(core: GnmiCore, board: Board) -> None:
    leaf = "interfaces/interface[name=*]/state/not-joined"
    assert get(core, leaf) == [{}]
    board.board.set_not_joined(1, "")
    board.board.set_not_joined(2, "somebody reads")
    reasons = {"east": "", "west": "somebody reads"}
    assert get(core, leaf) == [
        {f"/interfaces/interface[name={name}]/state/not-joined": why for name, why in reasons.items()}
    ]


def test_hellos_are_read_as_bfd(core: GnmiCore, board: Board) -> None:
    board.set_hello(2, HelloSettings(10 * MS, 5))
    board.clock.advance_to(70)
    board.say(2, HelloState.UP, was_up=True, remote_state=HelloState.UP, sent=4, received=3)
    board.clock.advance_to(90)
    board.say(2, HelloState.DOWN, diagnostic=Diagnostic.CONTROL_DETECTION_EXPIRED, remote_state=HelloState.DOWN)
    (values,) = get(core, "bfd/interfaces/interface[id=west]/peers")
    base = f"/bfd/interfaces/interface[id=west]/peers/peer[local-discriminator={discriminator(1, 2)}]"
    assert values == {
        f"{base}/local-discriminator": str(discriminator(1, 2)),
        f"{base}/state/local-discriminator": str(discriminator(1, 2)),
        f"{base}/state/remote-discriminator": "0",
        f"{base}/state/session-state": "DOWN",
        f"{base}/state/remote-session-state": "DOWN",
        f"{base}/state/local-diagnostic-code": "DETECTION_TIMEOUT",
        f"{base}/state/remote-diagnostic-code": "NO_DIAGNOSTIC",
        f"{base}/state/last-change": EPOCH_NS + 90,
        f"{base}/state/was-up": True,
        f"{base}/state/async/transmitted-packets": 4,
        f"{base}/state/async/received-packets": 3,
    }
    (config,) = get(core, "bfd/interfaces/interface[id=west]/config")
    assert sorted(config.values(), key=str) == [10_000, 5, True, "west"]


def test_wildcards_read_every_port_with_a_notification_per_path(core: GnmiCore) -> None:
    values = get(core, "interfaces/interface[name=*]/state/oper-status", "interfaces/interface/ethernet/state")
    assert [list(update.values()) for update in values] == [
        ["UP", "UP"],
        ["openconfig-if-ethernet:SPEED_10GB", "openconfig-if-ethernet:SPEED_UNKNOWN"],
    ]


def test_a_wildcard_that_finds_nothing_is_no_error(core: GnmiCore) -> None:
    assert get(core, "bfd/interfaces/interface/peers", "bfd/interfaces/interface[id=*]/peers/peer/state") == [{}, {}]


def test_switch_without_ports_has_nothing_under_a_wildcard() -> None:
    portless = GnmiCore(Board(ports=0))
    assert get(portless, "interfaces/interface[name=*]/state/ifindex", "") == [{}, {}]
    nobody = gnmi.GetRequest(path=[path("interfaces/interface[name=no]/state/ifindex")])
    assert "no such node" in refusal(grpc.StatusCode.NOT_FOUND, lambda: portless.get(nobody))


@pytest.mark.parametrize(
    ("kind", "leaves"),
    [
        (gnmi.GetRequest.CONFIG, {"config/enabled"}),
        (gnmi.GetRequest.STATE, {"state/enabled", "state/oper-status"}),
        (gnmi.GetRequest.OPERATIONAL, {"state/oper-status"}),
        (gnmi.GetRequest.ALL, {"config/enabled", "state/enabled", "state/oper-status"}),
    ],
)
def test_only_the_kind_that_is_asked_for_is_read(core: GnmiCore, kind: Any, leaves: set[str]) -> None:
    base = "interfaces/interface[name=east]"
    (answer,) = get(core, base, type=kind)
    told = {text.removeprefix(f"/{base}/") for text in answer}
    assert told & {"config/enabled", "state/enabled", "state/oper-status"} == leaves


def test_json_is_one_object_a_node(core: GnmiCore) -> None:
    (values,) = get(core, "interfaces/interface[name=east]/state", encoding=JSON)
    (state,) = values.values()
    assert list(values) == ["/interfaces/interface[name=east]/state"]
    assert (state["id"], state["oper-status"], state["counters"]["in-pkts"]) == (1, "UP", 0)
    assert state["type"] == "ethernetCsmacd"


def test_json_ietf_names_modules_and_writes_64_bits_as_text(core: GnmiCore) -> None:
    (values,) = get(core, "interfaces", encoding=IETF)
    first, second = values["/interfaces"]["openconfig-interfaces:interface"]
    assert (first["name"], second["name"]) == ("east", "west")
    assert first["state"]["last-change"] == str(EPOCH_NS + 5)
    assert first["state"]["openconfig-p4rt:id"] == 1
    assert first["state"]["counters"]["in-pkts"] == "0"
    speed = first["openconfig-if-ethernet:ethernet"]["state"]["port-speed"]
    assert speed == "openconfig-if-ethernet:SPEED_10GB"
    (leaf,) = get(core, "interfaces/interface[name=east]/state/oper-status", encoding=IETF)
    assert list(leaf.values()) == ["UP"]


def test_the_root_is_one_object(core: GnmiCore) -> None:
    (values,) = get(core, "", encoding=IETF)
    assert values["/"].keys() == {"openconfig-interfaces:interfaces", "openconfig-bfd:bfd"}
    assert [interface["id"] for interface in values["/"]["openconfig-bfd:bfd"]["interfaces"]["interface"]] == [
        "east",
        "west",
    ]


def test_models_restrict_what_is_read(core: GnmiCore) -> None:
    (values,) = get(core, "", use_models=[gnmi.ModelData(name="openconfig-p4rt")])
    assert set(values.values()) == {1, 2}
    message = refusal(
        grpc.StatusCode.INVALID_ARGUMENT, lambda: get(core, "", use_models=[gnmi.ModelData(name="openconfig-bgp")])
    )
    assert message == "model 'openconfig-bgp' is not served"


def test_the_target_is_told_back(core: GnmiCore) -> None:
    request = gnmi.GetRequest(prefix=gnmi.Path(target="s1"), path=[path("interfaces")], encoding=PROTO)
    assert core.get(request).notification[0].prefix.target == "s1"


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        ({"path": []}, grpc.StatusCode.INVALID_ARGUMENT, "without a path"),
        ({"encoding": gnmi.Encoding.ASCII}, grpc.StatusCode.UNIMPLEMENTED, "encoding ASCII"),
        ({"path": [path("interfaces/interface[name=no]")]}, grpc.StatusCode.NOT_FOUND, r"[name=no]: no such node"),
        ({"path": [path("bfd/interfaces/interface[id=east]/peers")]}, grpc.StatusCode.NOT_FOUND, "no such node"),
        ({"path": [path("interfaces/interface/state/mtu")]}, grpc.StatusCode.UNIMPLEMENTED, "no such path"),
        ({"path": [path("")] * (MAX_PATHS + 1)}, grpc.StatusCode.RESOURCE_EXHAUSTED, "more than 1024 paths"),
    ],
)
def test_a_get_that_cannot_be_answered_is_refused(
    core: GnmiCore, more: dict[str, Any], code: grpc.StatusCode, text: str
) -> None:
    request = gnmi.GetRequest(**{"path": [path("interfaces")], "encoding": PROTO, **more})
    assert text in refusal(code, lambda: core.get(request))


def test_an_answer_is_bounded(core: GnmiCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "MAX_ANSWER_LEAVES", 2 * 19)
    assert sum(map(len, get(core, "interfaces"))) == 2 * 19
    text = refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: get(core, "interfaces", "interfaces/interface/name"))
    assert text == "more than 38 leaves in one Get: subscribe once"


# set


def test_a_port_is_taken_out_of_use_and_back(core: GnmiCore, board: Board) -> None:
    base = "interfaces/interface[name=east]"
    answer = put(core, f"{base}/config/enabled", gnmi.TypedValue(bool_val=False))
    assert answer.timestamp == EPOCH_NS + 5
    assert [(result.op, text_of(read_path(result.path))) for result in answer.response] == [
        (gnmi.UpdateResult.UPDATE, f"/{base}/config/enabled")
    ]
    assert get(core, f"{base}/state/admin-status") == [{f"/{base}/state/admin-status": "DOWN"}]
    put(core, f"{base}/config", ietf({"openconfig-interfaces:enabled": True, "name": "east"}))
    assert board.calls == ["admin 1 False", "admin 1 True"]


def test_hellos_are_set_by_a_container_only_if_they_change(core: GnmiCore, board: Board) -> None:
    config = {"id": "west", "enabled": True, "desired-minimum-tx-interval": 20_000, "detection-multiplier": 4}
    for _ in range(2):
        put(core, "bfd/interfaces/interface[id=west]/config", ietf(config))
    assert board.calls == [f"hello 2 {HelloSettings(20 * MS, 4)}"]
    put(core, "bfd/interfaces/interface[id=west]/config/enabled", gnmi.TypedValue(bool_val=False))
    assert board.calls[1:] == ["hello 2 None"]
    assert get(core, "bfd/interfaces/interface[id=west]/config/desired-minimum-tx-interval")[0].popitem()[1] == 20_000
    put(core, "bfd/interfaces/interface[id=west]/config/enabled", gnmi.TypedValue(bool_val=True))
    assert board.calls[2:] == [f"hello 2 {HelloSettings(20 * MS, 4)}"]


def test_replace_and_delete_leave_defaults(core: GnmiCore, board: Board) -> None:
    base = "bfd/interfaces/interface[id=east]"
    put(core, f"{base}/config", ietf({"enabled": True, "desired-minimum-tx-interval": 20_000}))
    replacement = gnmi.Update(path=path(base), val=ietf({"config": {"enabled": True}}))
    core.set(gnmi.SetRequest(replace=[replacement]))
    assert board.calls[1:] == [f"hello 1 {HelloSettings()}"]
    put(core, "interfaces/interface[name=west]/config/enabled", gnmi.TypedValue(bool_val=False))
    core.set(gnmi.SetRequest(delete=[path("bfd"), path("interfaces/interface[name=*]/config")]))
    assert board.calls[2:] == ["admin 2 False", "hello 1 None", "admin 2 True"]
    core.set(gnmi.SetRequest(delete=[path("interfaces/interface[name=none]/config/enabled")]))


_ENABLED = "interfaces/interface[name=east]/config/enabled"
_BFD = "bfd/interfaces/interface[id=east]/config"
TRUE = gnmi.TypedValue(bool_val=True)


@pytest.mark.parametrize(
    ("text", "value", "code", "message"),
    [
        ("interfaces/interface[name=no]/config/enabled", TRUE, grpc.StatusCode.NOT_FOUND, "there is no such interface"),
        ("interfaces/interface[name=east]/mtu", TRUE, grpc.StatusCode.NOT_FOUND, "no such path"),
        ("interfaces/interface[name=*]/config/enabled", TRUE, grpc.StatusCode.INVALID_ARGUMENT, "only a delete"),
        ("interfaces/interface/config/enabled", TRUE, grpc.StatusCode.UNIMPLEMENTED, "one interface at a time"),
        (
            "interfaces/interface[name=east]/state/admin-status",
            gnmi.TypedValue(string_val="DOWN"),
            grpc.StatusCode.INVALID_ARGUMENT,
            "read-only",
        ),
        (_ENABLED, gnmi.TypedValue(string_val="x"), grpc.StatusCode.INVALID_ARGUMENT, "enabled: must be true or false"),
        (_ENABLED, gnmi.TypedValue(), grpc.StatusCode.INVALID_ARGUMENT, "without a value"),
        (_ENABLED, gnmi.TypedValue(ascii_val="true"), grpc.StatusCode.UNIMPLEMENTED, "a value as ascii_val"),
        (_ENABLED, gnmi.TypedValue(json_val=b"{"), grpc.StatusCode.INVALID_ARGUMENT, "not JSON"),
        (_ENABLED, gnmi.TypedValue(json_val=b"[" * 4_000), grpc.StatusCode.INVALID_ARGUMENT, "not JSON"),
        (_ENABLED, gnmi.TypedValue(json_val=b"1" * 5_000), grpc.StatusCode.INVALID_ARGUMENT, "at most 4096"),
        (_ENABLED, gnmi.TypedValue(json_val=b"[]"), grpc.StatusCode.INVALID_ARGUMENT, "neither text"),
        (_ENABLED, ietf({}), grpc.StatusCode.INVALID_ARGUMENT, "a leaf is set by a scalar"),
        (_BFD, TRUE, grpc.StatusCode.INVALID_ARGUMENT, "a container by a JSON object"),
        (_BFD, ietf({"enabled": True, "mtu": 3}), grpc.StatusCode.INVALID_ARGUMENT, "mtu cannot be set there"),
        (_BFD, ietf({"id": "west"}), grpc.StatusCode.INVALID_ARGUMENT, "id is east and cannot be set"),
        (_BFD, ietf({"detection-multiplier": 0}), grpc.StatusCode.INVALID_ARGUMENT, "a multiplier of 0 is not 1 to"),
        (_BFD, ietf({"detection-multiplier": 256}), grpc.StatusCode.INVALID_ARGUMENT, "a multiplier of 256"),
        (_BFD, ietf({"detection-multiplier": True}), grpc.StatusCode.INVALID_ARGUMENT, "a 32-bit number"),
        (_BFD, ietf({"desired-minimum-tx-interval": 999}), grpc.StatusCode.INVALID_ARGUMENT, "is not 1 ms to"),
        (_BFD, ietf({"desired-minimum-tx-interval": 1 << 32}), grpc.StatusCode.INVALID_ARGUMENT, "32-bit"),
        (_BFD, ietf({"enabled": [True]}), grpc.StatusCode.INVALID_ARGUMENT, "neither a scalar nor an object"),
    ],
)
def test_what_cannot_be_set_changes_nothing(
    core: GnmiCore, board: Board, text: str, value: gnmi.TypedValue, code: grpc.StatusCode, message: str
) -> None:
    good = gnmi.Update(path=path("interfaces/interface[name=west]/config/enabled"), val=gnmi.TypedValue(bool_val=False))
    request = gnmi.SetRequest(update=[good, gnmi.Update(path=path(text), val=value)])
    assert message in refusal(code, lambda: core.set(request))
    assert board.calls == []


def test_a_set_is_bounded(core: GnmiCore) -> None:
    request = gnmi.SetRequest(delete=[path(_ENABLED)] * (MAX_OPERATIONS + 1))
    refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: core.set(request))
    union = gnmi.SetRequest(union_replace=[gnmi.Update(path=path(_ENABLED), val=TRUE)])
    refusal(grpc.StatusCode.UNIMPLEMENTED, lambda: core.set(union))
