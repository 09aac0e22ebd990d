"""Every decoder of what comes from outside: golden bytes both ways, cut anywhere, with one byte changed, and any bytes.

A decoder either takes bytes or refuses them in one line; nothing else may come of them. What it takes of damaged bytes,
written again, is read as the same. MILLRACE_EXAMPLES sets how many drawn damages each meets; then every bit is tried.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import collectors
import controller
import dataplane
from dataplane.errors import MillraceError
from tests.decoders.decoding import DEEP, DEEP_KEY, NO_TEXT, Decoder, places, with_one_byte_changed
from tests.decoders.files import FILES
from tests.decoders.headers import HEADERS
from tests.decoders.messages import MESSAGES
from tests.decoders.others import OTHERS
from tests.examples import examples

DECODERS = (*HEADERS, *MESSAGES, *FILES, *OTHERS)
FIRST_ARE_BYTES = re.compile(r"^class (\w+)|^( *)def (\w+)\(\s*(?:self,\s*|cls,\s*)?\w+: bytes\b", re.MULTILINE)
READERS = re.compile(
    r"^(decode|feed|find_probe|from_bytes|parse|read|thaw)|^[a-z].*(_of|_in|_from_bytes|_of_pem|_of_der)$"
)
"""Names of functions that decode bytes; the private ones have a caller here."""
ELSEWHERE = {
    "collectors.decode.sources.node_id_of": "collectors/test_report_sources.py",
    "collectors.feed.keys.address_in": "collectors/feed/test_records.py",
    "collectors.report_reader.ReportReader.read": "collectors/test_collector.py",
    "controller.acceleration.spark.events.decode": "controller/acceleration/spark/test_hostile_logs.py",
    "dataplane.rpc.access.authority.pair_of": "controller/apps/cli/test_certs.py",
    "dataplane.rpc.access.names.principal_of_der": "dataplane/rpc/access/test_guard.py",
    "dataplane.rpc.access.names.principal_of_pem": "dataplane/rpc/access/test_guard.py",
    "dataplane.store.layout.hash_of": "dataplane/store/test_layout.py",
    "dataplane.switch.p4runtime.bytestrings.decode_signed": "dataplane/switch/p4runtime/test_bytestrings.py",
    "dataplane.switch.p4runtime.strings.StringMap.decode": "dataplane/switch/p4runtime/test_strings.py",
    "dataplane.switch.runtime_api.values.from_bytes": "dataplane/switch/runtime_api/test_fuzz.py",
}
"""Functions that take any bytes, are called by a decoder here, or have their protocol's suite: their tests."""
ALL_BITS = range(8) if "MILLRACE_EXAMPLES" in os.environ else None

every_decoder = pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)


def reads_as_written(decoder: Decoder, data: bytes) -> bool:
    """Return whether bytes are refused, or their value survives encoding and decoding."""
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
            outcome = decoder.outcome(golden[:size])
            assert outcome is None or decoder.may_be_cut, f"{decoder.name}: {size} of {len(golden)} bytes"


@every_decoder
def test_one_changed_byte_is_read_or_refused(decoder: Decoder) -> None:
    for golden in decoder.goldens:
        for changed in with_one_byte_changed(golden, ALL_BITS):
            assert reads_as_written(decoder, changed), changed.hex()


@every_decoder
def test_what_nests_too_deep_or_is_no_text_is_refused_in_a_line(decoder: Decoder) -> None:
    for data in (DEEP, DEEP_KEY, NO_TEXT, *decoder.harmful):
        decoder.outcome(data)


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


def test_every_function_that_reads_bytes_is_here() -> None:
    readers = {name for package in (dataplane, collectors, controller) for name in _readers(Path(package.__path__[0]))}
    assert {name for name in readers if name.startswith("dataplane.wire.")} >= {"dataplane.wire.geneve.decode"}
    named = {decoder.name for decoder in DECODERS}
    assert readers - named == ELSEWHERE.keys()
    for tests in ELSEWHERE.values():
        assert (Path(__file__).parents[1] / tests).is_file(), tests


def _readers(package: Path) -> Iterator[str]:
    """Yield the functions of a package that are named like readers and take bytes first."""
    for path in package.rglob("*.py"):
        owner = ""
        module = ".".join((package.name, *path.relative_to(package).with_suffix("").parts))
        for name, indent, function in FIRST_ARE_BYTES.findall(path.read_text(encoding="utf-8")):
            owner = f".{name}" if name else owner
            if READERS.search(function):
                yield f"{module}{owner if indent else ''}.{function}"
