"""Refusals as messages: canonical codes, numbers of our own, and trailers that a client can take (section 10)."""

from __future__ import annotations

import pytest
from finsy.proto import p4r

from dataplane.errors import EntryError, EntryFault
from dataplane.switch.p4runtime import Code, P4RuntimeError
from dataplane.switch.p4runtime.errors import ERROR_SPACE, from_entry_error, invalid


@pytest.mark.parametrize("fault", EntryFault)
def test_faults_in_the_tables_have_numbers_of_their_own(fault: EntryFault) -> None:
    error = from_entry_error(EntryError(fault, "problem", where="place")).to_error()
    assert Code(error.canonical_code) is not Code.UNKNOWN
    assert error.space == ERROR_SPACE
    assert error.code == 101 + list(EntryFault).index(fault)
    assert error.message == "place: problem"


def test_other_refusals_have_the_canonical_number() -> None:
    error = invalid("problem").to_error()
    assert (error.canonical_code, error.code) == (Code.INVALID_ARGUMENT, Code.INVALID_ARGUMENT)


@pytest.mark.parametrize(("number", "kept"), [(3, True), (150, False)])
def test_a_trailer_that_is_too_long_keeps_the_codes(number: int, kept: bool) -> None:
    error = P4RuntimeError(Code.UNKNOWN, "first problem", [invalid("a problem").to_error()] * number)
    status = error.to_status()
    assert status.message == "first problem"
    details = [p4r.Error() for _ in status.details]
    for detail, packed in zip(details, status.details, strict=True):
        assert packed.Unpack(detail)
    assert [detail.canonical_code for detail in details] == [Code.INVALID_ARGUMENT] * number
    assert bool(details[0].message) is kept


def test_overlong_trailer_is_reduced_to_the_message() -> None:
    status = P4RuntimeError(Code.UNKNOWN, "1000 failed (0-999)", [invalid("a problem").to_error()] * 1_000).to_status()
    assert (status.code, status.message, len(status.details)) == (Code.UNKNOWN, "1000 failed (0-999)", 0)
