"""Names of content."""

from __future__ import annotations

import pytest

from dataplane.store.errors import StoreError
from dataplane.store.names import digest


def test_a_name_has_the_same_128_bits_everywhere() -> None:
    assert f"{digest('/model/layer1/weights'):032x}" == "5aa51fe02eb3c13e9d130c8ae809ee0a"
    assert digest("/model/layer1") != digest("/model/layer2")


@pytest.mark.parametrize("name", ["", "/", "model", "model/layer1", "/model/", "//model", "/model//layer1"])
def test_what_has_no_component_or_an_empty_one_is_no_name(name: str) -> None:
    with pytest.raises(StoreError, match="is not a name"):
        digest(name)
