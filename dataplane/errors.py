"""Every error that Millrace raises on purpose.

MillraceError
├── ConfigError            a settings, topology or matrix file: file, line and key
├── WireError              bytes that violate a header's specification
├── ProgramError           an invalid or unsupported bmv2 JSON or P4Info file
├── SwitchError            the switch cannot do what was requested
│   ├── PortError          a port is missing, busy, or not permitted
│   ├── EntryError         a table, group, counter or register entry cannot be written or read
│   └── P4RuntimeError     a P4Runtime request is refused, with its gRPC code (dataplane/switch/p4runtime/errors.py)
├── ClassifierError        a flow rule is refused
├── AllReduceError         an all-reduce cannot be carried out (dataplane/allreduce/errors.py)
├── NativeError            a kernel breaks the rules of its language (dataplane/native/errors.py)
├── StoreError             named content: a name, a value or a state file is invalid (dataplane/store/errors.py)
├── AccessError            a caller of one of our services shows no valid credentials
└── FabricError            a fabric cannot be built, run or torn down
collectors/errors.py and controller/common/errors.py add their own branches below MillraceError.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

# Controls except tabs and line ends, and characters that change the text direction, making it read differently.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Return a text with its control characters escaped, except tabs and line ends."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def in_one_line(text: str) -> str:
    """Return a text safe for a terminal: line ends, escapes and undecodable bytes are escaped."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text.strip()
    )


def is_text(text: str) -> bool:
    """Return whether a command-line word is UTF-8: undecodable bytes arrive as surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


class MillraceError(Exception):
    """The root: its text is one line that a user can act on."""

    def __str__(self) -> str:
        """Return the text in one line, whatever it quotes: names in foreign files may contain line ends."""
        return in_one_line(super().__str__())


class ConfigError(MillraceError):
    """A user's file is invalid; the text names file, line and key."""

    def __init__(self, problem: str, *, file: str, line: int | None = None, key: str | None = None) -> None:
        self.problem, self.file, self.line, self.key = problem, file, line, key
        where = file if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {key}: {problem}" if key else f"{where}: {problem}")


class WireError(MillraceError):
    """Bytes do not decode; the text names the header and the offset in bytes."""

    def __init__(self, header: str, problem: str, *, offset: int = 0) -> None:
        self.header, self.problem, self.offset = header, problem, offset
        super().__init__(f"{header} at byte {offset}: {problem}")


class ProgramError(MillraceError):
    """A compiled P4 program is malformed or uses unsupported features; names file and construct."""

    def __init__(self, problem: str, *, file: str = "<memory>", construct: str | None = None) -> None:
        self.problem, self.file, self.construct = problem, file, construct
        super().__init__(f"{file}: {construct}: {problem}" if construct else f"{file}: {problem}")


class SwitchError(MillraceError):
    """The switch cannot do what was requested."""


class PortError(SwitchError):
    """A switch port is missing, busy, or may not be opened."""


class EntryFault(Enum):
    """Reason for refusing an entry; the P4Runtime service maps each to its canonical code."""

    INVALID = "invalid"
    NOT_FOUND = "not found"
    EXISTS = "exists already"
    FULL = "full"
    OUT_OF_RANGE = "out of range"
    CONST = "const"
    IN_USE = "in use"


class EntryError(SwitchError):
    """An entry of a table, profile, counter, register or group is refused; the text names the object."""

    def __init__(self, fault: EntryFault, problem: str, *, where: str) -> None:
        self.fault, self.problem, self.where = fault, problem, where
        super().__init__(f"{where}: {problem}")


class ClassifierError(MillraceError):
    """A flow rule is refused; the text names the rule, and the field if it is about one."""

    def __init__(self, problem: str, *, rule: str, field: str | None = None) -> None:
        self.problem, self.rule, self.field = problem, rule, field
        super().__init__(f"rule {rule}: {field}: {problem}" if field else f"rule {rule}: {problem}")


class AllReduceError(MillraceError):
    """An all-reduce cannot be carried out; the text says which item waited for what, and for how long."""


class FabricError(MillraceError):
    """A fabric cannot be built, run or torn down."""


class AccessError(MillraceError):
    """A caller of one of our services shows no valid token or certificate."""
