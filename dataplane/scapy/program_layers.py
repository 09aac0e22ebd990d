"""Scapy layers for the headers of any P4 program: `packet.show()` explains a frame as the program's parser does.

Unlike the other modules here, this one needs a loaded program. A frame's layers follow one another as the program
extracted them, unparsed bytes are Raw; layers of received and sent frames come from a `PacketTrace`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scapy.fields import BitField, Field, IP6Field, IPField, MACField, StrFixedLenField, XBitField
from scapy.packet import NoPayload, Packet, Raw

from dataplane.program.model import Program
from dataplane.switch.pipeline import Frame
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tracing.explainer import Explainer
from dataplane.switch.tracing.steps import Deparsed, Extracted, HeaderValue, PacketTrace, Sent, Value
from dataplane.switch.tracing.wording import value_text


class ProgramLayers:
    """Makes Scapy packets whose layers are a program's headers; fields have the program's names and widths."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._layers: dict[tuple[str, tuple[int, ...]], type[Packet]] = {}

    def dissect(self, frame: bytes, port: int = 0) -> Packet:
        """Dissect a frame as the program's parser does, with empty tables and value sets."""
        explainer = Explainer(self._program, ForwardingState(self._program))
        return self.received(explainer.explain(Frame(port, frame), 0))

    def received(self, trace: PacketTrace) -> Packet:
        """Return the received frame, with the headers that were extracted first."""
        steps = trace.passages[0].steps if trace.passages else []
        return self._packet([step.header for step in steps if isinstance(step, Extracted)], trace.data)

    def sent(self, trace: PacketTrace) -> list[tuple[int, Packet]]:
        """Return the sent frames, each with its port."""
        packets: list[tuple[int, Packet]] = []
        headers: Sequence[HeaderValue] = ()
        for step in trace.steps():
            if isinstance(step, Deparsed):
                headers = step.headers
            elif isinstance(step, Sent):
                packets.append((step.port, self._packet(headers, step.data)))
        return packets

    def show(self, trace: PacketTrace) -> str:
        """Return Scapy's description of the received frame and of the sent ones."""
        parts = [f"packet {trace.number} by port {trace.port}", _shown(self.received(trace))]
        for port, packet in self.sent(trace):
            parts += [f"sent by port {port}", _shown(packet)]
        parts += [f"dropped: {reason}" for reason in trace.drops()]
        return "\n".join(parts)

    def _packet(self, headers: Sequence[HeaderValue], data: bytes) -> Packet:
        """Return layers for consecutive headers, and Raw for the rest, starting at the first gap."""
        offset = 0
        packet: Packet | None = None
        for header in headers:
            if header.offset != offset or offset + header.length > len(data):
                break
            layer = self._layer(header)(data[offset : offset + header.length])
            packet = layer if packet is None else packet / layer
            offset += header.length
        rest = data[offset:]
        if packet is None:
            return Raw(rest)
        return packet / Raw(rest) if rest else packet

    def _layer(self, header: HeaderValue) -> type[Packet]:
        """Return the layer of a header, one for each length of its varbit."""
        key = header.name, tuple(value.width_bits for value in header.fields)
        if key not in self._layers:
            name = "".join(letter if letter.isalnum() else "_" for letter in header.name)
            members = {
                "name": header.name,
                "fields_desc": [_field(value) for value in header.fields if value.width_bits],
                "default_payload_class": lambda _self, _payload: NoPayload,
            }
            self._layers[key] = type(name, (Packet,), members)
        return self._layers[key]


def _shown(packet: Packet) -> str:
    return (packet.show(dump=True) or "").rstrip("\n")


def _field(value: Value) -> Field[Any, Any]:
    """Return a field of the given width, as an address if `value_text` treats it as one."""
    name, width = value.name, value.width_bits
    if width == 48:
        return MACField(name, None)
    if width == 128:
        return IP6Field(name, "::")
    if width == 32 and value_text(name, width, 0).count(".") == 3:
        return IPField(name, "0.0.0.0")  # noqa: S104 - a default, nothing listens there
    if width % 8 == 0 and width > 128:
        return StrFixedLenField(name, b"", length=width // 8)
    return (XBitField if value_text(name, width, 0).startswith("0x") else BitField)(name, 0, width)
