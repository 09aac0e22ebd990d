"""Names and numbers of a program in human notation: expressions as in P4, fields as addresses."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from dataplane.program.model import VALID, Advance, Extract, ParserOp, ParserSet, Verify
from dataplane.program.objects import KeyField, MatchKind
from dataplane.program.operations import (
    AnyHeaderRef,
    ArgumentRef,
    Binary,
    BinaryOp,
    Choice,
    Constant,
    ElementFieldRef,
    ElementRef,
    Expression,
    FieldRef,
    HeaderRef,
    HeadersEqual,
    LastFieldRef,
    Lookahead,
    StackRef,
    Truth,
    Unary,
    UnaryOp,
    UnionRef,
)
from dataplane.switch.tables.match import FieldMatch, all_ones

_WORDS = {BinaryOp.LOGICAL_AND: "&&", BinaryOp.LOGICAL_OR: "||"}
_ADDRESS_WORDS = ("addr", "ip", "hop", "gateway")
_CODE_WORDS = ("type", "checksum", "csum", "flags", "mask", "id", "cookie")
_IPV4_BITS, _MAC_BITS, _IPV6_BITS = 32, 48, 128
_DECIMAL_BITS = 32


def expression_text(node: Expression | AnyHeaderRef | StackRef | UnionRef | Lookahead) -> str:
    """Return an expression in approximate P4 syntax."""
    match node:
        case Constant(value):
            return str(value) if abs(value) < 1 << 16 else hex(value)
        case Truth(value):
            return str(value).lower()
        case FieldRef(header, field):
            return f"{header}.isValid()" if field == VALID else f"{header}.{field}"
        case LastFieldRef(stack, field):
            return f"{stack}.last.{field}"
        case ArgumentRef(index):
            return f"argument {index}"
        case HeaderRef(name) | StackRef(name) | UnionRef(name):
            return name
        case ElementRef() | ElementFieldRef():
            return _element_text(node)
        case Lookahead(offset, width):
            return f"lookahead<bit<{width}>>()" if offset == 0 else f"lookahead of {width} bits, {offset} on"
        case Unary():
            return _unary_text(node)
    return _compound_text(node)


def _compound_text(node: HeadersEqual | Choice | Binary) -> str:
    match node:
        case HeadersEqual(left, right, negated):
            return f"{expression_text(left)} {'!=' if negated else '=='} {expression_text(right)}"
        case Choice(condition, left, right):
            return f"({expression_text(condition)} ? {expression_text(left)} : {expression_text(right)})"
        case Binary(op, left, right):
            return f"({expression_text(left)} {_WORDS.get(op, op.value)} {expression_text(right)})"


def _element_text(node: ElementRef | ElementFieldRef) -> str:
    if isinstance(node, ElementRef):
        return f"{node.stack}[{expression_text(node.index)}]"
    inner = _element_text(node.element)
    return f"{inner}.isValid()" if node.field == VALID else f"{inner}.{node.field}"


def _unary_text(node: Unary) -> str:
    inner = expression_text(node.operand)
    match node.op:
        case UnaryOp.NOT:
            return f"!{inner}"
        case UnaryOp.COMPLEMENT:
            return f"~{inner}"
        case UnaryOp.VALID:
            return f"{inner}.isValid()"
        case UnaryOp.LAST_STACK_INDEX:
            return f"{inner}.lastIndex"
        case UnaryOp.SIZE_STACK:
            return f"{inner}.nextIndex"
    return inner  # between numbers and truth values, which P4 does not write


def operation_text(operation: ParserOp) -> str:
    """Return a parser operation in approximate P4 syntax."""
    match operation:
        case Extract(target):
            return f"extract({expression_text(target)})"
        case ParserSet(target, value):
            return f"{expression_text(target)} = {expression_text(value)}"
        case Verify(condition):
            return f"verify({expression_text(condition)})"
        case Advance(bits):
            return f"advance({expression_text(bits)})"
    return primitive_name(operation)


def primitive_name(primitive: object) -> str:
    """Return the kind of a primitive as one word: assign, add_header, register_read."""
    name = type(primitive).__name__
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).removeprefix("_")


def value_text(name: str, width_bits: int, value: int) -> str:
    """Return a field's value in human notation: by width and name an address, a code in hexadecimal, or a number."""
    last = name.rpartition(".")[2].lower()
    if width_bits == _MAC_BITS and value >= 0:
        return value.to_bytes(6, "big").hex(":")
    if width_bits == _IPV6_BITS and value >= 0:
        return str(IPv6Address(value))
    if width_bits == _IPV4_BITS and value >= 0 and any(word in last for word in _ADDRESS_WORDS):
        return str(IPv4Address(value))
    is_code = width_bits > _DECIMAL_BITS or (width_bits > 8 and any(word in last for word in _CODE_WORDS))
    return f"{value:#0{2 + (width_bits + 3) // 4}x}" if is_code and value >= 0 else str(value)


def match_text(key: KeyField, match: FieldMatch) -> str:
    """Return an entry's match on a key field as in STF files: VALUE, VALUE/LENGTH, VALUE&&&MASK, LOW->HIGH."""

    def text(value: int) -> str:
        return value_text(key.name, key.width, value)

    match match:
        case None:
            return "*"
        case int(value):
            return text(value)
        case first, second:
            if key.kind is MatchKind.LPM:
                return f"{text(first)}/{second}"
            if key.kind is MatchKind.RANGE:
                return f"{text(first)}->{text(second)}"
            if second in {0, all_ones(key.width)}:
                return text(first) if second else "*"
            return f"{text(first)}&&&{second:#x}"
