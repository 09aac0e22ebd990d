"""Reads a test file of p4c's simple test framework: one statement a line, `#` starts a comment.

    packet PORT HEX | expect PORT [HEX] | no_packet | wait | remove all
    add TABLE [PRIORITY] {KEY ':' PATTERN} ACTION '(' [NAME ':' NUMBER {',' ...}] ')' ['=' LABEL]
    setdefault TABLE ACTION '(' ... ')'
    check_counter COUNTER '(' INDEX | $LABEL ')' [packets | bytes ('==' | '!=' | '<' | '<=' | '>' | '>=') NUMBER]
    counter_read NAME INDEX | counter_write NAME INDEX PACKETS BYTES
    register_read NAME INDEX | register_write NAME INDEX VALUE | register_reset NAME
    meter_get_rates NAME INDEX | meter_set_rates NAME INDEX RATE RATE | meter_array_set_rates NAME RATE RATE
    mc_mgrp_create GROUP | mc_node_create RID {PORT} | mc_node_update NODE {PORT} | mc_node_associate GROUP NODE
    mirroring_add SESSION PORT | mirroring_add_mc SESSION GROUP | mirroring_delete SESSION | mirroring_get SESSION

    PATTERN: NUMBER, '*' | NUMBER '/' LENGTH | NUMBER '&&&' NUMBER | NUMBER '->' NUMBER
    RATE: units a microsecond ':' burst in units

Commands may be written in capitals, as p4c's are. Source: p4c `tools/stf`, `backends/bmv2/bmv2stf.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dataplane.errors import ConfigError
from dataplane.stf.lexer import Kind, Token, Tokens, read_digits
from dataplane.stf.statements import (
    Add,
    Anything,
    Call,
    CheckCounter,
    Command,
    CounterRead,
    CounterWrite,
    CountUnit,
    Expect,
    GroupCreate,
    Masked,
    MeterGet,
    MeterSet,
    Mirror,
    MirrorDelete,
    MirrorGet,
    NodeAssociate,
    NodeCreate,
    NodeUpdate,
    NoPacket,
    Number,
    Packet,
    Pattern,
    Prefix,
    Rate,
    RegisterRead,
    RegisterReset,
    RegisterWrite,
    RemoveAll,
    SetDefault,
    Span,
    Statement,
    Wait,
)

_PACKET_COMMANDS = ("packet", "expect")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def parse_stf(text: str, file: str) -> tuple[Statement, ...]:
    """Parse the statements of a test file; raise ConfigError naming file and line for an invalid one."""
    statements = []
    for line, written in enumerate(text.splitlines(), start=1):
        content = written.partition("#")[0].strip()
        if content:
            statements.append(Statement(line, _command(content, file, line)))
    return tuple(statements)


def _command(text: str, file: str, line: int) -> Command:
    word, *rest = text.split(maxsplit=1)
    name, arguments = word.lower(), rest[0] if rest else ""
    if name in _PACKET_COMMANDS:
        return _packet_command(name, arguments, file, line)
    read = _READERS.get(name)
    if read is None:
        raise ConfigError(f"unknown command {word}", file=file, line=line)
    tokens = Tokens(arguments, file, line)
    command = read(tokens)
    tokens.want_end()
    return command


# ---- packets


def _packet_command(name: str, arguments: str, file: str, line: int) -> Packet | Expect:
    port, *rest = arguments.split(maxsplit=1) or [""]
    if not (port.isascii() and port.isdecimal()):
        raise ConfigError(f"{name} needs a port number", file=file, line=line)
    digits = read_digits(rest[0], file, line) if rest else None
    if name == "expect":
        exact = digits is not None and digits.endswith("$")
        return Expect(int(port), digits.removesuffix("$") if digits is not None else None, exact)
    try:
        return Packet(int(port), bytes.fromhex(digits or ""))
    except ValueError as error:
        raise ConfigError("a packet is pairs of hex digits", file=file, line=line) from error


# ---- tables


def _add(tokens: Tokens) -> Add:
    table = _name(tokens)
    priority = tokens.integer() if tokens.peek().kind is Kind.NUMBER else None
    matches: list[tuple[str, Pattern]] = []
    while True:
        name = _name(tokens)
        if not tokens.take_if(":"):
            break
        matches.append((name, _pattern(tokens)))
    call = Call(name, _arguments(tokens))
    label = tokens.name() if tokens.take_if("=") else None
    return Add(table, priority, tuple(matches), call, label)


def _remove(tokens: Tokens) -> RemoveAll:
    if tokens.name().lower() != "all":
        raise tokens.error("only 'remove all' is known")
    return RemoveAll()


def _set_default(tokens: Tokens) -> SetDefault:
    return SetDefault(_name(tokens), Call(_name(tokens), _arguments(tokens)))


def _pattern(tokens: Tokens) -> Pattern:
    if tokens.take_if("*"):
        return Anything()
    first = tokens.number()
    if tokens.take_if("/"):
        return Prefix(_plain(tokens, first), tokens.integer())
    if tokens.take_if("&&&"):
        return Masked(_plain(tokens, first), tokens.integer())
    if tokens.take_if("->"):
        return Span(_plain(tokens, first), tokens.integer())
    return first


def _plain(tokens: Tokens, number: Number) -> int:
    if number.has_wildcards:
        raise tokens.error("a number with the digit * has no prefix length, mask or range")
    return number.value


def _arguments(tokens: Tokens) -> tuple[tuple[str, int], ...]:
    tokens.want("(")
    arguments: list[tuple[str, int]] = []
    if tokens.take_if(")"):
        return ()
    while True:
        name = tokens.name()
        tokens.want(":")
        arguments.append((name, tokens.integer()))
        if not tokens.take_if(","):
            break
    tokens.want(")")
    return tuple(arguments)


def _name(tokens: Tokens) -> str:
    """Consume a dotted name, any part of which may be an array element."""
    parts = []
    while True:
        part = tokens.name()
        if tokens.take_if("["):
            part += f"[{tokens.integer()}]"
            tokens.want("]")
        parts.append(part)
        if not tokens.take_if("."):
            return ".".join(parts)


# ---- counters, registers, meters


def _check_counter(tokens: Tokens) -> CheckCounter:
    counter = _name(tokens)
    tokens.want("(")
    cell = tokens.integer() if tokens.peek().kind is Kind.NUMBER else tokens.name().removeprefix("$")
    tokens.want(")")
    if tokens.peek().kind is Kind.END:
        return CheckCounter(counter, cell, None)
    return CheckCounter(counter, cell, (_unit(tokens), _comparison(tokens), tokens.integer()))


def _unit(tokens: Tokens) -> CountUnit:
    word = tokens.name().lower()
    if word not in list(CountUnit):
        raise tokens.error(f"a counter counts packets or bytes, not {word}")
    return CountUnit(word)


def _comparison(tokens: Tokens) -> str:
    token = tokens.take()
    if token not in [Token(Kind.SIGN, sign) for sign in _COMPARISONS]:
        raise tokens.error(f"'{token.text}' is not a comparison")
    return token.text


def _rates(tokens: Tokens) -> tuple[Rate, Rate]:
    return _rate(tokens), _rate(tokens)


def _rate(tokens: Tokens) -> Rate:
    per_us = tokens.real()
    tokens.want(":")
    return Rate(per_us, tokens.integer())


def _integers(tokens: Tokens) -> tuple[int, ...]:
    numbers = []
    while tokens.peek().kind is not Kind.END:
        numbers.append(tokens.integer())
    return tuple(numbers)


_READERS: Mapping[str, Callable[[Tokens], Command]] = {
    "no_packet": lambda _: NoPacket(),
    "wait": lambda _: Wait(),
    "add": _add,
    "remove": _remove,
    "setdefault": _set_default,
    "check_counter": _check_counter,
    "counter_read": lambda tokens: CounterRead(_name(tokens), tokens.integer()),
    "counter_write": lambda tokens: CounterWrite(_name(tokens), tokens.integer(), tokens.integer(), tokens.integer()),
    "register_read": lambda tokens: RegisterRead(_name(tokens), tokens.integer()),
    "register_write": lambda tokens: RegisterWrite(_name(tokens), tokens.integer(), tokens.integer()),
    "register_reset": lambda tokens: RegisterReset(_name(tokens)),
    "meter_get_rates": lambda tokens: MeterGet(_name(tokens), tokens.integer()),
    "meter_set_rates": lambda tokens: MeterSet(_name(tokens), tokens.integer(), _rates(tokens)),
    "meter_array_set_rates": lambda tokens: MeterSet(_name(tokens), None, _rates(tokens)),
    "mc_mgrp_create": lambda tokens: GroupCreate(tokens.integer()),
    "mc_node_create": lambda tokens: NodeCreate(tokens.integer(), _integers(tokens)),
    "mc_node_update": lambda tokens: NodeUpdate(tokens.integer(), _integers(tokens)),
    "mc_node_associate": lambda tokens: NodeAssociate(tokens.integer(), tokens.integer()),
    "mirroring_add": lambda tokens: Mirror(tokens.integer(), port=tokens.integer()),
    "mirroring_add_mc": lambda tokens: Mirror(tokens.integer(), group=tokens.integer()),
    "mirroring_delete": lambda tokens: MirrorDelete(tokens.integer()),
    "mirroring_get": lambda tokens: MirrorGet(tokens.integer()),
}
