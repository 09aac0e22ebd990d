"""A whole telemetry report: group header and its individual reports (Telemetry Report v2.0, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire import report_group, report_individual, report_int
from dataplane.wire.fields import need
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import TO_THE_END, IndividualHeader, InnerType, ReportType, ReservedHeader
from dataplane.wire.report_int import IntReport

HEADER: Final = "report"


@dataclass(frozen=True, slots=True)
class Report:
    """One individual report; `main` is None unless `report_type` is INT, `inner` starts as `inner_type` says.

    IOAM's main contents are not specified yet: they stay at the head of `inner`.
    """

    report_type: ReportType
    inner_type: InnerType
    main: IntReport | None
    inner: bytes
    dropped: bool = False
    congested: bool = False
    tracked: bool = False
    intermediate: bool = False

    def encode(self) -> bytes:
        """Encode the report; raise WireError unless it has whole words or is long enough to run to the packet's end."""
        if (self.report_type is ReportType.INT) != (self.main is not None):
            raise WireError(HEADER, "INT reports, and only they, have main contents")
        main = self.main.encode() if self.main else b""
        body = main + self.inner
        words = len(body) // 4
        if len(body) % 4 and words < TO_THE_END:
            raise WireError(HEADER, f"{len(body)} bytes are not whole words")
        header = IndividualHeader(
            self.report_type,
            self.inner_type,
            min(words, TO_THE_END),
            max(len(main) - report_int.SIZE, 0) // 4,
            dropped=self.dropped,
            congested=self.congested,
            tracked=self.tracked,
            intermediate=self.intermediate,
        )
        return header.encode() + body


@dataclass(frozen=True, slots=True)
class ReportPacket:
    """A report's UDP payload: at least one individual report of one node.

    `reserved` counts those of reserved types, which were skipped: `encode` leaves them out.
    """

    group: ReportGroup
    reports: tuple[Report, ...]
    reserved: int = 0

    def encode(self) -> bytes:
        """Return the UDP payload; raise WireError if it has no report, or one after a report that runs to the end."""
        encoded = [report.encode() for report in self.reports]
        if not encoded or any(body[1] == TO_THE_END for body in encoded[:-1]):
            raise WireError(HEADER, "no report, or one behind a report that runs to the end of the packet")
        return self.group.encode() + b"".join(encoded)


def decode(data: bytes, offset: int = 0) -> ReportPacket:
    """Decode the UDP payload from `offset` on; raise WireError if any of its reports is malformed.

    Reports of reserved types are skipped by their length.
    """
    group = report_group.decode(data, offset)
    offset += group.size
    need(HEADER, data, offset, report_individual.SIZE)
    reports: list[Report] = []
    reserved = 0
    while offset < len(data):
        header = report_individual.decode(data, offset)
        start = offset + header.size
        length = len(data) - start if header.length_words == TO_THE_END else 4 * header.length_words
        need(HEADER, data, start, length)
        offset = start + length
        if isinstance(header, ReservedHeader):
            reserved += 1
        else:
            reports.append(_decode_one(header, data, start, offset))
    return ReportPacket(group, tuple(reports), reserved)


def _decode_one(header: IndividualHeader, data: bytes, start: int, end: int) -> Report:
    """Return the individual report with its contents from `start` to `end`."""
    main, inner_at = None, start
    if header.report_type is ReportType.INT:
        main = report_int.decode(data[:end], start, header.metadata_words)
        inner_at = start + report_int.SIZE + 4 * header.metadata_words
    return Report(
        header.report_type,
        header.inner_type,
        main,
        bytes(data[inner_at:end]),
        dropped=header.dropped,
        congested=header.congested,
        tracked=header.tracked,
        intermediate=header.intermediate,
    )
