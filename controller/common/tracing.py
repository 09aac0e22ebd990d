"""OpenTelemetry traces of a reroute: from the snapshot that caused it to the writes that carry it out.

`traces_of` returns a sender of OTLP over gRPC, or `UNTRACED`, which does nothing, if no settings ask for traces: code
that records spans need not know which of the two it has. The path server's span travels with a set of routes as W3C
trace context (`traceparent`), so that the controller's spans are its children.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import msgspec

from controller.common.errors import ControllerError
from dataplane.clock import Clock, UtcClock
from dataplane.config import Strict
from dataplane.extras import missing
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.addresses import target_of

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

LOGGER = logging.getLogger("millrace.traces")

Attribute = str | int | float | bool | Sequence[str]
Attributes = Mapping[str, Attribute]

_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_EXPORT_S: Final = 3.0
"""Timeout of the receiver for a batch of spans; also the longest that a daemon waits for it at shutdown."""
_NOT_TAKEN: Final = "the trace receiver at %s does not accept traces: dropping them"


class TraceSettings(Strict, frozen=True):
    """Destination of OpenTelemetry traces."""

    address: str = "127.0.0.1:4317"
    """gRPC address that receives OTLP: 'unix:/path', 'host:port' (by the daemon's `tls`; else loopback) or
    'plain:host:port'.
    """
    ratio: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 1.0
    """Share of traces sent; the path server decides it, and the controller follows."""


class Span(Protocol):
    """A span that has begun."""

    @property
    def traceparent(self) -> str:
        """W3C trace context that makes other spans children of this one; '' if nothing is traced."""
        ...

    def event(self, name: str, attributes: Attributes) -> None:
        """Record an event at this moment."""
        ...

    def end(self, problem: str = "") -> None:
        """End the span now, with an error if there is a problem; further calls do nothing."""
        ...


class Traces(Protocol):
    """Factory of spans."""

    def begin(
        self, name: str, attributes: Attributes, *, parent: str = "", since_ns: int | None = None, is_call: bool = False
    ) -> Span:
        """Begin a span, now or since a moment (ns since 1970), as a child of `parent`, a traceparent.

        An invalid traceparent counts as none, as W3C specifies. `is_call` marks a call to another process.
        """
        ...

    def close(self) -> None:
        """Send the remaining spans, for a few seconds at most."""
        ...


class _NoSpan:
    traceparent = ""

    def event(self, name: str, attributes: Attributes) -> None:
        """Do nothing."""

    def end(self, problem: str = "") -> None:
        """Do nothing."""


class _Untraced:
    def begin(
        self, name: str, attributes: Attributes, *, parent: str = "", since_ns: int | None = None, is_call: bool = False
    ) -> Span:
        del name, attributes, parent, since_ns, is_call
        return NO_SPAN

    def close(self) -> None:
        """Do nothing."""


NO_SPAN: Final[Span] = _NoSpan()
UNTRACED: Final[Traces] = _Untraced()


class _OpenSpan:
    def __init__(self, span: trace.Span, clock: Clock) -> None:
        self._span, self._clock, self._ended = span, clock, False

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def event(self, name: str, attributes: Attributes) -> None:
        self._span.add_event(name, dict(attributes), self._clock.now_ns())

    def end(self, problem: str = "") -> None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415

        if self._ended:
            return
        self._ended = True
        if problem:
            self._span.set_status(Status(StatusCode.ERROR, problem))
        self._span.end(self._clock.now_ns())


class SentTraces:
    """Spans passed to a provider of the SDK, which sends them from its own thread."""

    def __init__(self, provider: TracerProvider, clock: Clock) -> None:
        self._provider, self._clock = provider, clock
        self._tracer = provider.get_tracer("millrace")

    def begin(
        self, name: str, attributes: Attributes, *, parent: str = "", since_ns: int | None = None, is_call: bool = False
    ) -> Span:
        """Begin a span as described in `Traces`."""
        from opentelemetry.trace import SpanKind  # noqa: PLC0415

        begun_ns = self._clock.now_ns() if since_ns is None else since_ns
        kind = SpanKind.CLIENT if is_call else SpanKind.INTERNAL
        span = self._tracer.start_span(name, _context(parent), kind, dict(attributes), start_time=begun_ns)
        return _OpenSpan(span, self._clock)

    def close(self) -> None:
        """Send the remaining spans, for a few seconds at most."""
        self._provider.force_flush(int(_EXPORT_S * 1000))
        self._provider.shutdown()


def _context(parent: str) -> Context:
    """Return the SDK's context of a traceparent; an empty one for an invalid one."""
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.context import Context  # noqa: PLC0415

    match = _TRACEPARENT.fullmatch(parent)
    if match is None:
        return Context()
    trace_id, span_id, flags = (int(part, 16) for part in match.groups())
    context = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
    return trace.set_span_in_context(trace.NonRecordingSpan(context), Context())


def traces_of(settings: TraceSettings | None, daemon: str, tls: TlsSettings | None) -> Traces:
    """Return the sender of a daemon's traces, `UNTRACED` without settings.

    Raises ControllerError for an unusable address or a missing extra `otel`, ConfigError for unusable certificates.
    """
    if settings is None:
        return UNTRACED
    # gRPC takes long to import, and settings name this module for commands that need none.
    from dataplane.rpc.channels import uncallable  # noqa: PLC0415

    problem = uncallable(settings.address, tls)
    if problem is not None:
        raise ControllerError(f"traces.address: {settings.address!r} {problem}")
    try:
        exporter = _exporter(settings, tls)
    except ModuleNotFoundError as error:
        raise ControllerError(f"traces: {missing('sending them', error) or error}") from error
    return sent_traces(exporter, daemon, settings.ratio, UtcClock())


def _exporter(settings: TraceSettings, tls: TlsSettings | None) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    from dataplane.rpc.channels import credentials_of  # noqa: PLC0415

    credentials = credentials_of(settings.address, tls)
    exporter = OTLPSpanExporter(
        endpoint=target_of(settings.address), insecure=credentials is None, credentials=credentials, timeout=_EXPORT_S
    )
    return _watched(exporter, settings.address)


def _watched(exporter: SpanExporter, address: str) -> SpanExporter:
    """Return an exporter that logs once each when export of spans fails and when it recovers, as the SDK does not."""
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: PLC0415

    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    class Watched(SpanExporter):
        is_taken = True

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = exporter.export(spans)
            is_taken = result is SpanExportResult.SUCCESS
            if is_taken is not self.is_taken:
                level = logging.INFO if is_taken else logging.WARNING
                LOGGER.log(level, "the trace receiver at %s accepts traces again" if is_taken else _NOT_TAKEN, address)
            self.is_taken = is_taken
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return Watched()


def sent_traces(exporter: SpanExporter, daemon: str, ratio: float, clock: Clock) -> SentTraces:
    """Return a daemon's traces for an exporter, in batches: at most 2,048 spans wait, more are dropped."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(ratio)),
        resource=Resource.create({"service.name": f"millrace-{daemon}"}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000))
    return SentTraces(provider, clock)
