"""Every decoder of what comes from outside: golden bytes both ways, cut anywhere, with one byte changed, and any bytes.

A decoder either takes bytes or refuses them in one line; nothing else may come of them. What it takes of damaged bytes,
written again, is read as the same. MILLRACE_EXAMPLES sets how many drawn damages each meets; then every bit is tried.
"""

from __future__ import annotations

import os
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataplane.wire
from dataplane.errors import MillraceError
from tests.decoders.decoding import Decoder, places, with_one_byte_changed
from tests.decoders.files import FILES
from tests.decoders.headers import HEADERS
from tests.decoders.messages import MESSAGES
from tests.examples import examples

DECODERS = (*HEADERS, *MESSAGES, *FILES)
ALL_BITS = range(8) if "MILLRACE_EXAMPLES" in os.environ else None

every_decoder = pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)


def reads_as_written(decoder: Decoder, data: bytes) -> bool:
    """Return whether bytes are refused, or say what they say once more when what they say is written."""
    value = decoder.outcome(data)
    if value is None or decoder.write is None:
        return True
    try:
        again = decoder.write(value)
    except MillraceError:
        return True  # a value that the sender's side would not send
    return bool(decoder.read(again) == value)


@every_decoder
def test_golden_bytes_are_taken_and_written_as_they_were(decoder: Decoder) -> None:
    assert decoder.goldens
    for golden in decoder.goldens:
        value = decoder.read(golden)
        assert value is not None
        assert decoder.write is None or decoder.write(value) == golden


@every_decoder
def test_of_cut_bytes_nothing_is_made_up(decoder: Decoder) -> None:
    for golden in decoder.goldens:
        for size in places(len(golden)):
            said = decoder.outcome(golden[:size])
            assert said is None or decoder.may_be_cut, f"{decoder.name}: {size} of {len(golden)} bytes"


@every_decoder
def test_one_changed_byte_is_read_or_refused(decoder: Decoder) -> None:
    for golden in decoder.goldens:
        for changed in with_one_byte_changed(golden, ALL_BITS):
            assert reads_as_written(decoder, changed), changed.hex()


@every_decoder
@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_bytes_are_read_or_refused(decoder: Decoder, data: st.DataObject) -> None:
    golden = data.draw(st.sampled_from((b"", *decoder.goldens)))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(golden)))
        end = data.draw(st.integers(start, min(len(golden), start + 40)))
        golden = golden[:start] + data.draw(st.binary(max_size=40)) + golden[end:]
    assert reads_as_written(decoder, golden), golden.hex()


def test_every_header_of_the_wire_is_here() -> None:
    wanted = {
        f"{module.__name__}.{name}"
        for found in pkgutil.iter_modules(dataplane.wire.__path__)
        for module in [import_module(f"dataplane.wire.{found.name}")]
        for name in re.findall(r"^def (decode\w*)\(", Path(str(module.__file__)).read_text(), re.MULTILINE)
    }
    assert wanted <= {decoder.name for decoder in DECODERS}
