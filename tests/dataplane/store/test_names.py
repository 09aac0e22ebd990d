"""Names of content."""

from __future__ import annotations

import pytest

from dataplane.store.errors import StoreError
from dataplane.store.names import Prefix, digest, prefix_of, route_of


def test_a_name_has_the_same_128_bits_everywhere() -> None:
    assert f"{digest('/model/layer1/weights'):032x}" == "5aa51fe02eb3c13e9d130c8ae809ee0a"
    assert digest("/model/layer1") != digest("/model/layer2")


@pytest.mark.parametrize("name", ["", "/", "model", "model/layer1", "/model/", "//model", "/model//layer1"])
def test_what_has_no_component_or_an_empty_one_is_no_name(name: str) -> None:
    with pytest.raises(StoreError, match="is not a name"):
        digest(name)


def test_routes_of_a_name_match_its_prefixes_alone() -> None:
    route = route_of("/model/round-7/weights")
    assert prefix_of("/") == Prefix()
    assert prefix_of("/model") == Prefix(route.first)
    assert prefix_of("/model/round-7") == route
    assert route_of("/model/round-8").first_two != route.first_two
    assert route_of("/model").first == route.first
    assert all(route_of(name).first and route_of(name).first_two for name in ("/a", "/a/b", "/a/b/c"))
    assert Prefix.of_number(route.number) == route


@pytest.mark.parametrize("text", ["", "model", "/model/", "/model/round-7/weights"])
def test_what_is_no_prefix_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match=r"is not a name|is too long for a prefix"):
        prefix_of(text)
