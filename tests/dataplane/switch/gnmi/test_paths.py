"""Paths: reading, refusals, and selected leaves."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from finsy.gnmipath import GNMIPath
from finsy.proto import gnmi
from hypothesis import given
from hypothesis import strategies as st

from dataplane.switch.gnmi.core import NO_COUNTERS
from dataplane.switch.gnmi.errors import GnmiError
from dataplane.switch.gnmi.leaves import LEAVES
from dataplane.switch.gnmi.matching import Selection, select
from dataplane.switch.gnmi.paths import Path, Step, read_path, text_of, write_path
from dataplane.switch.gnmi.schema import PortView
from dataplane.switch.ports.states import HelloSettings, PortState

STATE = "interfaces/interface/state"


def path(text: str) -> Path:
    return read_path(GNMIPath(text).path)


def names(text: str) -> set[str]:
    return {selection.leaf.name for selection in select(path(text))}


def refusal(call: Any) -> GnmiError:
    with pytest.raises(GnmiError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return caught.value


def view(name: str) -> PortView:
    return PortView(name, PortState(4, name), HelloSettings(), 0, 0, NO_COUNTERS)


def test_prefix_and_path_are_one_path_and_it_is_written_back() -> None:
    path = read_path(GNMIPath("state/oper-status").path, GNMIPath("interfaces/interface[name=a/b]").path)
    assert text_of(path) == "/interfaces/interface[name=a/b]/state/oper-status"
    assert read_path(write_path(path)) == path


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        (gnmi.Path(element=["interfaces"]), grpc.StatusCode.UNIMPLEMENTED, "a path of strings"),
        (gnmi.Path(origin="cli"), grpc.StatusCode.UNIMPLEMENTED, "origin 'cli'"),
        (gnmi.Path(target="s1"), grpc.StatusCode.INVALID_ARGUMENT, "a target goes into the prefix"),
        (gnmi.Path(elem=[gnmi.PathElem()]), grpc.StatusCode.INVALID_ARGUMENT, "without a name"),
        (
            gnmi.Path(elem=[gnmi.PathElem(name="a\nb")]),
            grpc.StatusCode.INVALID_ARGUMENT,
            r"'a\nb', which is not a valid name",
        ),
        (gnmi.Path(elem=[gnmi.PathElem(name="x" * 300)]), grpc.StatusCode.INVALID_ARGUMENT, "x" * 32 + "..."),
        (gnmi.Path(elem=[gnmi.PathElem(name="x")] * 33), grpc.StatusCode.INVALID_ARGUMENT, "33 elements"),
        (
            gnmi.Path(elem=[gnmi.PathElem(name="x", key={str(key): "" for key in range(5)})]),
            grpc.StatusCode.INVALID_ARGUMENT,
            "5 keys",
        ),
    ],
)
def test_what_is_no_path_is_refused(message: gnmi.Path, code: grpc.StatusCode, text: str) -> None:
    error = refusal(lambda: read_path(message))
    assert error.code is code
    assert text in error.message


def test_the_origin_may_be_named() -> None:
    assert read_path(GNMIPath("bfd", origin="openconfig").path) == (Step("bfd"),)


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        (f"{STATE}/oper-status", {f"{STATE}/oper-status"}),
        ("interfaces/interface[name=*]/state/oper-status", {f"{STATE}/oper-status"}),
        ("interfaces/*/state/admin-status", {f"{STATE}/admin-status"}),
        (".../session-state", {"bfd/interfaces/interface/peers/peer/state/session-state"}),
        ("interfaces/.../oper-status", {f"{STATE}/oper-status"}),
        ("interfaces/interface/state/counters/.../in-pkts", {f"{STATE}/counters/in-pkts"}),
        (".../.../.../in-pkts", {f"{STATE}/counters/in-pkts"}),
        ("*/*/*/enabled", {"interfaces/interface/config/enabled", f"{STATE}/enabled"}),
        ("*/*/*/config/enabled", {"bfd/interfaces/interface/config/enabled"}),
        ("", {leaf.name for leaf in LEAVES}),
        ("...", {leaf.name for leaf in LEAVES}),
        ("bfd", {leaf.name for leaf in LEAVES if leaf.name.startswith("bfd/")}),
    ],
)
def test_patterns_select_leaves(text: str, leaves: set[str]) -> None:
    assert names(text) == leaves


def test_a_key_selects_one_port() -> None:
    (selection,) = select(path("interfaces/interface[name=a]/state/oper-status"))
    assert selection.selects(view("a"))
    assert not selection.selects(view("b"))
    assert text_of(selection.node(view("a"))) == "/interfaces/interface[name=a]/state/oper-status"


def test_of_several_ways_the_largest_subtree_is_meant() -> None:
    assert {selection.depth for selection in select(path("..."))} == {0}
    assert {selection.depth for selection in select(path("interfaces/..."))} == {1}


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("interfaces/interface/state/mtu", grpc.StatusCode.UNIMPLEMENTED, "no such path is served here"),
        ("interfaces/interface/state/oper-status/more", grpc.StatusCode.UNIMPLEMENTED, "no such path"),
        ("interfaces/interface[id=a]", grpc.StatusCode.INVALID_ARGUMENT, "interface has no such key"),
        ("interfaces[name=a]", grpc.StatusCode.INVALID_ARGUMENT, "interfaces has no such key"),
        ("interfaces/*[name=a]", grpc.StatusCode.INVALID_ARGUMENT, "keys after a wildcard"),
    ],
)
def test_what_can_never_select_anything_is_refused(text: str, code: grpc.StatusCode, message: str) -> None:
    error = refusal(lambda: select(path(text)))
    assert error.code is code
    assert message in error.message


def answer(message: gnmi.Path) -> tuple[tuple[Selection, ...], GnmiError | None]:
    try:
        return select(read_path(message)), None
    except GnmiError as error:
        return (), error


_WORDS = ["interfaces", "interface", "state", "config", "bfd", "peers", "peer", "*", "...", "enabled", "x"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(_WORDS),
            st.dictionaries(st.sampled_from(["name", "id", "y"]), st.text(max_size=3), max_size=2),
        ),
        max_size=32,
    )
)
def test_any_path_is_answered_or_refused(steps: list[tuple[str, dict[str, str]]]) -> None:
    message = gnmi.Path(elem=[gnmi.PathElem(name=name, key=keys) for name, keys in steps])
    matches, refused = answer(message)
    if refused is None:
        assert len({(match.leaf.name, match.keys) for match in matches}) == len(matches) > 0
    else:
        assert refused.code in {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED}
        assert len(str(refused)) < 1_000
