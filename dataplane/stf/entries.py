"""Loading of a switch's state from a file of entries, in one of several common formats.

- `.json`: a p4lang/tutorials runtime file (s1-runtime.json): table_entries, multicast_group_entries,
  clone_session_entries.
- `.txtpb`, `.textproto`, `.prototxt`, `.pbtxt`: a P4Runtime WriteRequest as text.
- everything else: commands of p4c's simple test framework; packets and expectations in it are skipped.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from finsy.proto import p4r
from google.protobuf import text_format

from dataplane.errors import ConfigError, EntryError
from dataplane.given import read_given_text
from dataplane.malformed import MALFORMED
from dataplane.program.model import Program
from dataplane.stf.controls import Controls
from dataplane.stf.parse import parse_stf
from dataplane.stf.runtime_files import RuntimeFile, fill_from_runtime
from dataplane.stf.statements import Expect, NoPacket, Packet, Wait
from dataplane.switch.p4runtime import batches
from dataplane.switch.p4runtime.catalog import Catalog
from dataplane.switch.p4runtime.context import Context
from dataplane.switch.p4runtime.errors import P4RuntimeError
from dataplane.switch.switch import Switch
from dataplane.switch.tables import ForwardingState

_PROTOCOL_BUFFERS = {".txtpb", ".textproto", ".prototxt", ".pbtxt"}


def fill_from_file(switch: Switch, file: Path) -> None:
    """Write a file's entries into the running program's state; raise ConfigError naming file and location."""
    try:
        text = read_given_text(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(getattr(error, "strerror", None) or "is not text", file=str(file)) from error
    if file.suffix == ".json":
        _fill_from_json(switch, text, str(file))
    elif file.suffix in _PROTOCOL_BUFFERS:
        _fill_from_request(switch, text, str(file))
    else:
        _fill_from_commands(switch, text, str(file))


def _running(switch: Switch) -> tuple[Program, ForwardingState]:
    assert switch.program is not None
    assert switch.state is not None
    return switch.program, switch.state


def _fill_from_commands(switch: Switch, text: str, file: str) -> None:
    program, state = _running(switch)
    controls = Controls(program, state)
    for statement in parse_stf(text, file):
        if isinstance(statement.command, Packet | Expect | NoPacket | Wait):
            continue
        try:
            controls.carry_out(statement.command)
        except EntryError as error:
            raise ConfigError(str(error), file=file, line=statement.line) from error


def _fill_from_json(switch: Switch, text: str, file: str) -> None:
    program, state = _running(switch)
    try:
        content = msgspec.json.decode(text, type=RuntimeFile)
    except MALFORMED as error:
        raise ConfigError(str(error), file=file) from error
    fill_from_runtime(content, program, state, file)


def _fill_from_request(switch: Switch, text: str, file: str) -> None:
    program, state = _running(switch)
    request = p4r.WriteRequest()
    try:
        text_format.Parse(text, request)
        context = Context.of(Catalog(program), state, switch)
        batches.write(context, request)
    except text_format.ParseError as error:
        _, _, problem = str(error).partition("\n")[0].rpartition(" : ")
        raise ConfigError(problem, file=file, line=error.GetLine()) from error
    except P4RuntimeError as error:
        raise ConfigError(_first_problem(error), file=file) from error


def _first_problem(error: P4RuntimeError) -> str:
    for number, detail in enumerate(error.details):
        if detail.canonical_code:
            return f"updates[{number}]: {detail.message}"
    return error.message
