"""INT headers inside a packet, in every encapsulation: location, contents, and changes to the packet.

After TCP or UDP (INT v2.1, section 5.7.2), GRE (5.7.1), VXLAN-GPE (5.7.3), or as an option of Geneve (5.7.4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dataplane.errors import WireError
from dataplane.wire import geneve, gre, int_md, int_mx, int_shim, int_shim_gre, int_shim_vxlan_gpe, probe_marker
from dataplane.wire import vxlan_gpe as vxlan
from dataplane.wire.checksum import ones_complement_sum
from dataplane.wire.domain_metadata import FABRIC
from dataplane.wire.fields import need
from dataplane.wire.geneve import GeneveOption
from dataplane.wire.int_md import IntMd
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_mx import IntMx
from dataplane.wire.int_shim import IntShim, IntType
from dataplane.wire.int_shim_gre import GreShim
from dataplane.wire.int_shim_vxlan_gpe import VxlanGpeShim
from dataplane.wire.vxlan_gpe import VxlanGpe

Shim = IntShim | GreShim | VxlanGpeShim | GeneveOption

VXLAN_UDP_PORT: Final = 4789
_HAS_NEXT_PROTOCOL: Final = 0x0400


@dataclass(frozen=True, slots=True)
class IntPart:
    """INT headers from byte `start`, marker included, to byte `end` of a packet; hops newest first.

    `source_word` is the last of the source's additional words, in MX the first: our domain's number of the packet.
    `sum_added` is what they add to the enclosing one's complement sum, beyond their own bytes and lengths: changed
    protocol and length fields of the tunnel.
    """

    shim: Shim
    start: int
    end: int
    int_md: IntMd | None = None
    int_mx: IntMx | None = None
    hops: tuple[HopMetadata, ...] = ()
    source_word: bytes = b""
    sum_added: int = 0

    @property
    def size(self) -> int:
        """Number of bytes that INT inserted."""
        return self.end - self.start

    def total_sum(self, data: bytes) -> int:
        """Return INT's contribution to the sum over the packet's L4 payload, lengths excluded."""
        return ones_complement_sum(data[self.start : self.end]) + self.sum_added


def behind_transport(data: bytes, at: int, *, marker: bool = False) -> IntPart:
    """Return the INT headers at `at`, where a TCP or UDP header ends; raise WireError if they are malformed."""
    shim_at = at + (probe_marker.SIZE if marker else 0)
    shim = int_shim.decode(data, shim_at)
    return _part(data, shim, shim.int_type, shim_at + shim.size, start=at, size=4 * shim.length_words)


def behind_gre(data: bytes, at: int, protocol: int) -> IntPart | None:
    """Return the INT headers of the GRE packet at `at`, None if its protocol type is another or it is cut."""
    try:
        header = gre.decode(data, at)
    except WireError:
        return None
    if header.protocol_type != protocol:
        return None
    shim_at = at + header.size
    shim = int_shim_gre.decode(data, shim_at)
    return _part(data, shim, shim.int_type, shim_at + shim.size, start=shim_at, size=4 * shim.length_words)


def behind_vxlan(data: bytes, at: int) -> IntPart | None:
    """Return the INT headers of the VXLAN-GPE packet at `at`, None if it has none or is cut.

    Of several INT headers the first MD or MX one counts; a Destination header after it is skipped.
    """
    try:
        header = vxlan.decode(data, at)
    except WireError:
        return None
    if header.next_protocol != vxlan.NEXT_INT:
        return None
    start = at + header.size
    first = _vxlan_part(data, start, start)
    last = first
    while isinstance(last.shim, VxlanGpeShim) and last.shim.next_protocol == vxlan.NEXT_INT:
        last = _vxlan_part(data, start, last.end)
    told = first if first.int_md or first.int_mx else last
    return replace(told, start=start, end=last.end, sum_added=_vxlan_change(header, last.shim))


def in_geneve(data: bytes, at: int) -> IntPart | None:
    """Return the first INT option of the Geneve packet at `at`, None if it has none or is cut."""
    try:
        header = geneve.decode(data, at)
    except WireError:
        return None
    start = at + geneve.MIN_SIZE
    for option in header.options:
        if option.int_type is not None:
            value_at = start + geneve.OPTION_SIZE
            part = _part(data, option, option.int_type, value_at, start=start, size=len(option.value))
            # The option's words count in the base header's length, bits 2 to 7 of its first half word.
            return replace(part, sum_added=option.size // 4 << 8)
        start += option.size
    return None


def _vxlan_part(data: bytes, start: int, at: int) -> IntPart:
    shim = int_shim_vxlan_gpe.decode(data, at)
    return _part(data, shim, shim.int_type, at + shim.size, start=start, size=4 * shim.length_words)


def _vxlan_change(header: VxlanGpe, last: Shim) -> int:
    """Return INT's change to the VXLAN header's own words: the next protocol, and with G the P bit."""
    assert isinstance(last, VxlanGpeShim)
    if last.was_vxlan:
        return _HAS_NEXT_PROTOCOL + vxlan.NEXT_INT
    return (vxlan.NEXT_INT - last.next_protocol) % 0xFFFF if header.next_protocol is not None else 0


def _part(data: bytes, shim: Shim, kind: IntType, at: int, *, start: int, size: int) -> IntPart:
    """Return the INT header of `size` bytes at `at`; INT's inserted bytes begin at `start`."""
    need(int_shim.HEADER, data, at, size)
    end = at + size
    match kind:
        case IntType.MD:
            header = int_md.decode(data[:end], at)
            stack_at = at + header.size
            hops = _stack(header, data[:end], stack_at)
            return IntPart(shim, start, end, int_md=header, hops=hops, source_word=data[stack_at:end][-4:])
        case IntType.MX:
            mx = int_mx.decode(data[:end], at, size)
            return IntPart(shim, start, end, int_mx=mx, source_word=mx.source_inserted[:4])
        case IntType.DESTINATION:
            return IntPart(shim, start, end)


def _stack(header: IntMd, data: bytes, at: int) -> tuple[HopMetadata, ...]:
    """Return the hops from `at` to the end; our domain's source-only words are told from hops even if HopML is 1."""
    size = len(data) - at
    words = FABRIC.source_words(header.domain_instructions) if header.domain_id == FABRIC.domain_id else 0
    whole = size - 4 * words
    is_valid = words and header.hop_ml and whole >= 0 and whole % (4 * header.hop_ml) == 0
    return int_md.decode_stack(header, data, at, size, source_only_words=words if is_valid else None)
