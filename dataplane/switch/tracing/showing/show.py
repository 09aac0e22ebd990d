"""A trace in one of its forms."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import get_args

from dataplane.program.model import Source
from dataplane.switch.tracing.showing.formats import TraceFormat
from dataplane.switch.tracing.showing.text import trace_text
from dataplane.switch.tracing.steps import (
    Change,
    HeaderValue,
    KeyPart,
    PacketTrace,
    Passage,
    QueueReading,
    Step,
    Value,
    Verified,
)

# A trace as JSON: one object per packet, with the keys that docs/network/trace.md lists.
#
# Values of fields are hexadecimal strings with as many digits as the field has bits for, so that no reader loses digits
# of a wide one; frames are hexadecimal, too. A source is an object with file, line and text, or null.


_VALUES = (Change, HeaderValue, KeyPart, QueueReading, Source, Value)
_NAMES = {kind: tuple(item.name for item in fields(kind)) for kind in (*get_args(Step), *_VALUES)}
"""The fields of each class in traces, in order."""
VERSION = 1
"""Version of the keys; raised when one changes its meaning or is removed."""


def trace_json(trace: PacketTrace) -> str:
    """Return a trace as one line of JSON."""
    return json.dumps(trace_object(trace), separators=(",", ":"))


def trace_object(trace: PacketTrace) -> dict[str, object]:
    """Return a trace as JSON-ready values."""
    return {
        "version": VERSION,
        "packet": trace.number,
        "program": trace.program,
        "port": trace.port,
        "time_us": trace.time_us,
        "length": len(trace.data),
        "data": trace.data.hex(),
        "passages": [_passage(passage) for passage in trace.passages],
        "sent": [{"port": port, "data": data.hex()} for port, data in trace.sent()],
        "drops": trace.drops(),
        "unknown": list(trace.unknown),
    }


def _passage(passage: Passage) -> dict[str, object]:
    return {
        "copy": passage.copy,
        "pipeline": passage.pipeline,
        "cause": passage.cause,
        "queue": _plain(passage.queue),
        "steps": [{"kind": step.kind} | _fields(step) for step in passage.steps],
    }


def _fields(value: object) -> dict[str, object]:
    """Return the fields of one of our values by name; numbers that are packet fields as hexadecimal strings."""
    values = {name: _plain(getattr(value, name)) for name in _NAMES[type(value)]}
    if isinstance(value, Value | Change | KeyPart | Verified):
        for name in ("value", "before", "computed"):
            if name in values:
                values[name] = _hexadecimal(getattr(value, name), value.width_bits)
    return values


def _plain(value: object) -> object:
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return _fields(value)


def _hexadecimal(value: int, width_bits: int) -> str:
    """Return a number as a string, a negative one as two's complement."""
    digits = max(1, (width_bits + 3) // 4)
    return f"0x{value & ((1 << max(width_bits, value.bit_length())) - 1):0{digits}x}"


def shown(trace: PacketTrace, form: TraceFormat) -> str:
    """Return a trace as text, without a final newline."""
    return trace_json(trace) if form is TraceFormat.JSON else trace_text(trace)
