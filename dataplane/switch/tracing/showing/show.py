"""A trace in one of its forms."""

from __future__ import annotations

from dataplane.switch.tracing.showing.export import trace_json
from dataplane.switch.tracing.showing.formats import TraceFormat
from dataplane.switch.tracing.showing.text import trace_text
from dataplane.switch.tracing.steps import PacketTrace


def shown(trace: PacketTrace, form: TraceFormat) -> str:
    """Return a trace as text, without a final newline."""
    return trace_json(trace) if form is TraceFormat.JSON else trace_text(trace)
