"""A trace as text for people: events from top to bottom, with their place in the P4 source on the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from dataplane.program.model import Source
from dataplane.switch.tracing.steps import (
    Called,
    Change,
    Cloned,
    Decided,
    Deparsed,
    DigestSent,
    Dropped,
    Extracted,
    HeaderValue,
    Multicast,
    NotExtracted,
    PacketTrace,
    ParserDone,
    Passage,
    Queued,
    Ran,
    Recirculated,
    Resubmitted,
    Selected,
    Sent,
    StateEntered,
    Step,
    TableApplied,
    Updated,
    Value,
    Verified,
)
from dataplane.switch.tracing.wording import value_text

WIDTH = 100
"""Columns before a source's file and line."""
_HEX_BYTES = 32
_TEXT_CHARACTERS = 60


def trace_text(trace: PacketTrace) -> str:
    """Return a trace as lines of text, without a final newline."""
    head = f"packet {trace.number}: {len(trace.data)} bytes by port {trace.port} at {trace.time_us / 1e6:.6f} s"
    lines = [f"{head}, program {trace.program}"]
    for passage in trace.passages:
        lines.append(f"  {_heading(passage)}")
        lines += _steps(passage.steps)
    lines += [f"  not known exactly: {words}" for words in trace.unknown]
    return "\n".join(lines)


def _heading(passage: Passage) -> str:
    who = f"copy {passage.copy}, " if passage.copy else ""
    queue = passage.queue
    if queue is None:
        return f"{passage.pipeline} ({who}{passage.cause})"
    waited = f"{queue.depth} before it in queue {queue.priority}, waited {queue.waited_us} us"
    return f"{passage.pipeline} ({who}port {queue.port}: {waited})"


def _steps(steps: Sequence[Step]) -> Iterator[str]:
    depth = 0
    for step in steps:
        if not _is_inner(step):
            depth = 0
        for line, source in _lines(step):
            yield _with_source("    " + "  " * depth + line, source)
        if isinstance(step, StateEntered | TableApplied) or (isinstance(step, Called) and step.action is not None):
            depth = 1


def _is_inner(step: Step) -> bool:
    """Return whether a step is shown one level below what it belongs to: a parser's state, or an action."""
    return isinstance(step, Extracted | NotExtracted | Selected | Ran) or (
        isinstance(step, Decided) and step.within != "control"
    )


def _with_source(line: str, source: Source | None) -> str:
    return line if source is None else f"{line:<{WIDTH}} {PurePath(source.file).name}:{source.line}"


def _lines(step: Step) -> Iterator[tuple[str, Source | None]]:  # noqa: C901 - a case a kind of step
    match step:
        case StateEntered(name):
            yield f"state {name}", None
        case Extracted(header):
            yield f"extract {_header(header)}", None
        case NotExtracted(header, left):
            yield f"extract {header}: {left} bytes are left", None
        case Selected(key, following):
            yield f"{_select(key)}-> {following or 'end of the parser'}", None
        case ParserDone(length, error):
            yield f"parsed {length} bytes" + ("" if error == "NoError" else f", error {error}"), None
        case Verified(name, width, value, computed, holds, source):
            wrong = "" if holds else f", but should be {value_text(name, width, computed)}"
            yield (
                f"checksum {name} = {value_text(name, width, value)} {'holds' if holds else 'is wrong'}{wrong}",
                source,
            )
        case Updated(change, source):
            yield f"checksum {_change(change)}", source
        case Decided(_, text, result, source):
            yield f"if {_shorten(text)}: {str(result).lower()}", source
        case TableApplied():
            yield from _table(step)
        case Called(action, arguments, source):
            if action is not None:
                yield f"call {_call(action, arguments)}", source
        case Ran():
            yield from _statement(step)
        case DigestSent(digest, values):
            yield f"digest {digest}: {_values(values)}", None
        case Cloned() | Multicast() | Resubmitted() | Recirculated() | Queued():
            yield _copying(step), None
        case Deparsed(headers, payload):
            names = " / ".join(header.name for header in headers)
            yield f"deparse {names or 'no headers'}, {payload} bytes of payload", None
        case Sent(port, length, data):
            yield f"sent by port {port}, {length} bytes", None
            for start in range(0, len(data), _HEX_BYTES):
                yield f"  {start:04x}  {data[start : start + _HEX_BYTES].hex(' ', -4)}", None
        case Dropped(reason, source):
            why = f", by {_shorten(source.text)}" if source is not None and source.text else ""
            yield f"dropped: {reason}{why}", source


def _table(step: TableApplied) -> Iterator[tuple[str, Source | None]]:
    yield f"table {step.table}", step.source
    for part in step.key:
        wanted = "" if part.match is None else f"  matches {part.match}"
        yield (
            f"  key {part.name} ({part.match_kind}) = {value_text(part.name, part.width_bits, part.value)}{wanted}",
            None,
        )
    outcome = "hit" if step.hit else f"missed, {step.entries} entries, {'no ' if step.action is None else ''}default"
    notes = {"priority": step.priority, "member": step.member, "group": step.group, "colour": step.colour}
    suffix = "".join(f", {name} {number}" for name, number in notes.items() if number is not None)
    suffix += ", const" if step.constant else ""
    called = " action" if step.action is None else f": {_call(step.action, step.arguments)}"
    yield f"  {outcome}{suffix}{called}", None


def _statement(step: Ran) -> Iterator[tuple[str, Source | None]]:
    text = _shorten(step.text or step.primitive)
    if len(step.changes) == 1:
        yield f"{text}  =>  {_change(step.changes[0])}", step.source
    else:
        yield text, step.source
        for change in step.changes:
            yield f"  {_change(change)}", None
    for value in step.used:
        doubt = "" if step.exact else "  (now; other packets change it, too)"
        yield f"  {value.name}: {value.value}{doubt}", None


def _copying(step: Cloned | Multicast | Resubmitted | Recirculated | Queued) -> str:
    match step:
        case Cloned(session, known, ports, longest):
            if not known:
                return f"clone: there is no session {session}"
            cut = "" if longest is None else f", {longest} bytes of it"
            return f"clone by session {session} to {_ports(ports)}{cut}"
        case Multicast(group, ports):
            return f"multicast group {group} to {_ports(ports)}"
        case Resubmitted(kept):
            return f"resubmit{_kept(kept)}"
        case Recirculated(length, kept):
            return f"recirculate {length} bytes{_kept(kept)}"
        case Queued(copy, port, priority, length):
            who = f" copy {copy}," if copy else ""
            return f"queue{who} {length} bytes, for port {port}, priority {priority}"


def _ports(ports: Sequence[int]) -> str:
    return f"port{'s' if len(ports) > 1 else ''} {', '.join(map(str, ports))}" if ports else "no port"


def _kept(kept: Sequence[Value]) -> str:
    return f", keeps {_values(kept)}" if kept else ""


def _header(header: HeaderValue) -> str:
    last = header.offset + header.length - 1
    return f"{header.name} (bytes {header.offset} to {last}): {_values(header.fields)}"


def _select(key: Sequence[Value]) -> str:
    return f"select {_values(key)} " if key else ""


def _values(values: Sequence[Value]) -> str:
    return " ".join(f"{value.name}={value_text(value.name, value.width_bits, value.value)}" for value in values)


def _change(change: Change) -> str:
    value, before = (value_text(change.name, change.width_bits, number) for number in (change.value, change.before))
    return f"{change.name} = {value}" + ("" if change.value == change.before else f" (was {before})")


def _call(action: str, arguments: Sequence[Value]) -> str:
    given = ", ".join(
        f"{argument.name}={value_text(argument.name, argument.width_bits, argument.value)}" for argument in arguments
    )
    return f"{action}({given})"


def _shorten(text: str) -> str:
    return text if len(text) <= _TEXT_CHARACTERS else f"{text[: _TEXT_CHARACTERS - 3].removesuffix(' ')}..."
