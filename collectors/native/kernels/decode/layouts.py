"""Layouts of INT and of reports as constants that kernels compile in, taken from the codecs of `dataplane.wire`.

An offset (`_AT`) is from the header's first byte unless its comment says otherwise; a shift is within the big-endian
word, of 32 bits unless the name says 64, in which the field lies.
"""

from __future__ import annotations

from typing import Final

from dataplane.wire import completion, domain_metadata, int_md, int_metadata, int_shim, report_group, report_int
from dataplane.wire import report_individual as individual
from dataplane.wire.completion import Completion
from dataplane.wire.domain_metadata import FABRIC
from dataplane.wire.int_md import IntMd
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_shim import IntShim, IntType, NextProtocol
from dataplane.wire.places import place_of
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import IndividualHeader, InnerType, ReportType
from dataplane.wire.report_int import IntReport

# The group's header, which begins a payload.

GROUP_BYTES: Final = report_group.SIZE
REPORT_VERSION: Final = report_group.VERSION
VERSION_SHIFT: Final = 28
"""All headers begin with four bits of a version or type."""
TYPE_SHIFT: Final = 4
"""The same in the first byte."""
REPORTER_AT: Final = place_of(lambda value: ReportGroup(0, 0, value).encode(), 32).byte

# An individual report, with the main contents of INT.

INDIVIDUAL_BYTES: Final = individual.SIZE
REPORT_BYTES: Final = individual.SIZE + report_int.SIZE
REPORT_OF_IPV4: Final = ReportType.INT << 4 | InnerType.IPV4
REPORT_OF_IPV6: Final = ReportType.INT << 4 | InnerType.IPV6
TO_THE_END: Final = individual.TO_THE_END


def _individual(length_words: int = 0, metadata_words: int = 0, **flags: bool) -> bytes:
    return IndividualHeader(ReportType.INNER_ONLY, InnerType.NONE, length_words, metadata_words, **flags).encode()


def _flag(name: str) -> int:
    return 1 << place_of(lambda value: _individual(**{name: bool(value)}), 1).shift()


_OWN_WORDS = place_of(lambda value: _individual(metadata_words=value), 8)
TYPES_SHIFT: Final = 24
"""Report type and inner type are the first byte."""
REPORT_WORDS_SHIFT: Final = place_of(_individual, 8).shift()
OWN_WORDS_AT: Final = _OWN_WORDS.byte
OWN_WORDS_SHIFT: Final = _OWN_WORDS.shift()
DROPPED: Final = _flag("dropped")
TRACKED: Final = _flag("tracked")
INTERMEDIATE_BIT: Final = _flag("intermediate")
QUEUE_ONLY: Final = _flag("congested")
QUEUE_OR_FLOW: Final = QUEUE_ONLY | TRACKED


def _main(bits: int = 0, domain_id: int = 0, domain_bits: int = 0) -> bytes:
    own = HopMetadata(reserved=(None,) * (bits & int_metadata.RESERVED).bit_count())
    return IntReport(bits, own, domain_id, domain_bits).encode()[: report_int.SIZE]


_OWN_BITS = place_of(_main, 16)
OWN_BITS_AT: Final = _OWN_BITS.byte
"""From the main contents' first byte, as are the shifts of their 64 bits."""
OWN_BITS_SHIFT_64: Final = _OWN_BITS.shift(64)
DOMAIN_SHIFT_64: Final = place_of(lambda value: _main(domain_id=value), 16).shift(64)
_DOMAIN_BITS = place_of(lambda value: _main(domain_bits=value), 16)
DOMAIN_BITS: Final = _DOMAIN_BITS.mask << _DOMAIN_BITS.shift(64)
OUR_DOMAIN: Final = FABRIC.domain_id
COMPLETION_BIT: Final = domain_metadata.COMPLETION << _DOMAIN_BITS.shift(64)
COMPLETION_BYTES: Final = completion.SIZE


def _reserved_in_completion() -> int:
    used = Completion(0xFFFF, 0, 0xFF, 0, 0, 0, leaf=True).encode()
    return ~int.from_bytes(used[:4], "big") & 0xFFFF_FFFF


RESERVED_IN_COMPLETION: Final = _reserved_in_completion()
"""In the first word."""

# The shim and the INT header behind it. MD and MX have the domain's fields in common.

SHIM_BYTES: Final = int_shim.SIZE
INT_MD: Final = int(IntType.MD)
INT_MX: Final = int(IntType.MX)
INT_VERSION: Final = int_md.VERSION
INT_BYTES: Final = int_md.SIZE
STACK_AT: Final = SHIM_BYTES + INT_BYTES
"""From the shim's first byte, as are all offsets below."""
KEEPS_PORT: Final = int(NextProtocol.UDP_PAYLOAD)


def _shim_with(length_words: int = 0, kind: NextProtocol = NextProtocol.UNCHANGED, port: int = 0) -> bytes:
    return IntShim(IntType.MD, length_words, kind, original_udp_port=port).encode()


INT_WORDS_AT: Final = place_of(_shim_with, 8).byte
NEXT_SHIFT: Final = place_of(lambda value: _shim_with(kind=NextProtocol(value)), 1).shift()
"""The next protocol's values fill two bits, of which `NextProtocol` has no name for both set."""
NEXT_MASK: Final = 3
OLD_PORT: Final = place_of(lambda value: _shim_with(kind=NextProtocol.UDP_PAYLOAD, port=value), 16)
OLD_PORT_AT: Final = OLD_PORT.byte
OLD_PORT_MASK: Final = OLD_PORT.mask << OLD_PORT.shift()

_HOP_WORDS = place_of(lambda value: IntMd(value, 0, 0).encode(), 5)
HOP_WORDS_AT: Final = SHIM_BYTES + _HOP_WORDS.byte
HOP_WORDS_SHIFT: Final = _HOP_WORDS.shift()
HOP_WORDS_MASK: Final = _HOP_WORDS.mask
HOPS_EXCEEDED = place_of(lambda value: IntMd(0, 0, 0, hop_count_exceeded=bool(value)).encode(), 1)
MTU_EXCEEDED = place_of(lambda value: IntMd(0, 0, 0, mtu_exceeded=bool(value)).encode(), 1)
EXCEEDED: Final = 1 << HOPS_EXCEEDED.shift() | 1 << MTU_EXCEEDED.shift()
"""Bits of the INT header's first word: some hops on the way added nothing."""
INSTRUCTIONS_AT: Final = SHIM_BYTES + place_of(lambda value: IntMd(0, 0, value).encode(), 16).byte
DOMAIN_AT: Final = SHIM_BYTES + place_of(lambda value: IntMd(0, 0, 0, value).encode(), 16).byte
DOMAIN_INSTRUCTIONS_AT: Final = SHIM_BYTES + place_of(lambda value: IntMd(0, 0, 0, 0, value).encode(), 16).byte
SEQUENCE: Final = domain_metadata.SEQUENCE

# A hop's metadata: words in the order of the bitmap, each value that is asked for in its own.

READ_BITS: Final = len(int_metadata.LAYOUT)
"""Bits of the bitmap whose values are read, from the first on."""
DOUBLE_WORDS: Final = sum(bit for bit, group in int_metadata.LAYOUT if sum(bits for _, bits in group) == 64)
"""Bits of the bitmap that ask for two words."""


def words_of(bit: int) -> int:
    """Return the words of a bit of the bitmap among those of all read bits: a bit for each, the first the lowest."""
    first = sum(2 if DOUBLE_WORDS & before else 1 for before, _ in int_metadata.LAYOUT if before > bit)
    return (3 if DOUBLE_WORDS & bit else 1) << first


ARRIVED: Final = words_of(int_metadata.INGRESS_TIMESTAMP)
LEFT: Final = words_of(int_metadata.EGRESS_TIMESTAMP)
BUFFER: Final = words_of(int_metadata.BUFFER)
BEFORE_ARRIVED: Final = (ARRIVED & -ARRIVED) - 1
LAST: Final = int_metadata.LAST


def _drop(reason: int) -> bytes:
    return HopMetadata(drop_reason=reason).encode(LAST, report=True)


REASON_BEFORE_END: Final = len(_drop(0)) - place_of(_drop, 8).byte
"""Bytes from a drop's reason to the end of the metadata that a bitmap asks for."""
