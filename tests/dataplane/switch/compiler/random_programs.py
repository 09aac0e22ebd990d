"""Expressions and primitives drawn at random over the headers of `synthetic`, evenly over all kinds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from dataplane.program.calculations import CRCS
from dataplane.program.operations import (
    AddHeader,
    ArgumentRef,
    Assign,
    AssignHeader,
    AssignStack,
    AssignVariable,
    Binary,
    BinaryOp,
    Calculation,
    Check,
    Choice,
    Clone,
    Constant,
    Count,
    ElementFieldRef,
    ElementRef,
    ExecuteMeter,
    Exit,
    FieldRef,
    GenerateDigest,
    Hash,
    HeaderRef,
    HeadersEqual,
    Jump,
    JumpIfZero,
    LastFieldRef,
    LogMessage,
    MarkToDrop,
    NoOp,
    Payload,
    Pop,
    Primitive,
    Push,
    Random,
    Recirculate,
    RegisterRead,
    RegisterWrite,
    RemoveHeader,
    Resubmit,
    SizedConstant,
    StackRef,
    Truncate,
    Truth,
    Unary,
    UnaryOp,
)
from tests.dataplane.switch.compiler.synthetic import METADATA, WIDE

_STACK = StackRef("stack")
_PLAIN = [FieldRef(header, spec.name) for header in ("wide", "own", "other") for spec in WIDE.fields]
_TARGETS = [FieldRef("own", spec.name) for spec in METADATA.fields] + [
    FieldRef("wide", spec.name) for spec in WIDE.fields
]
_MODULAR = [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR]
_COMPARISONS = [BinaryOp.EQ, BinaryOp.NE, BinaryOp.GT, BinaryOp.GE, BinaryOp.LT, BinaryOp.LE]
_CASTS = [BinaryOp.TWO_COMP_MOD, BinaryOp.USAT_CAST, BinaryOp.SAT_CAST]
_MASKS = [(1 << width) - 1 for width in (1, 8, 16, 31, 64, 100)] + [0xF0, 0]
_WHOLE = ["wide", "other", "options", "spare", "stack[0]", "stack[1]", "stack[2]"]
_INPUTS: list[Any] = [
    *_PLAIN,
    *map(HeaderRef, _WHOLE),
    SizedConstant(0x5A, 7),
    SizedConstant(0xABCDEF, 24),
    SizedConstant((1 << 80) - 5, 80),
]


class Drawer:
    """Draws from one random generator; `arguments` is how many the action has."""

    def __init__(self, seed: int, *, arguments: int = 0) -> None:
        self.rng, self.arguments = random.Random(seed), arguments

    # ---- expressions

    def constant(self) -> Constant:
        rng = self.rng
        return Constant(
            rng.choice([rng.randint(-9, 9), rng.randint(0, 130), rng.randint(-(1 << 66), 1 << 130), 1 << 32])
        )

    def leaf(self) -> Any:
        rng = self.rng
        leaves: list[Callable[[], Any]] = [
            lambda: rng.choice(_PLAIN),
            lambda: rng.choice(_PLAIN),
            self.constant,
            lambda: LastFieldRef("stack", "b"),
            lambda: Unary(rng.choice([UnaryOp.SIZE_STACK, UnaryOp.LAST_STACK_INDEX]), _STACK),
        ]
        if self.arguments:
            leaves.append(lambda: ArgumentRef(rng.randrange(self.arguments)))
        return rng.choice(leaves)()

    def data(self, depth: int) -> Any:
        rng = self.rng
        if depth == 0 or rng.random() < 0.1:
            return self.leaf()
        match rng.randrange(12):
            case 0 | 1 | 2:
                return Binary(rng.choice(_MODULAR), self.data(depth - 1), self.data(depth - 1))
            case 3:
                return Binary(BinaryOp.AND, self.data(depth - 1), Constant(rng.choice(_MASKS)))
            case 4 | 5:
                op = rng.choice([BinaryOp.SHIFT_LEFT, BinaryOp.SHIFT_RIGHT])
                near, far = Constant(rng.randint(-1, 70)), rng.choice(_PLAIN)
                return Binary(op, self.data(depth - 1), near if rng.random() < 0.6 else far)
            case 6:
                op = rng.choice([BinaryOp.DIV, BinaryOp.MOD])
                return Binary(op, self.data(depth - 1), self.data(depth - 1))
            case 7 | 8:
                return Binary(rng.choice(_CASTS), self.data(depth - 1), Constant(rng.randint(1, 70)))
            case 9:
                return Unary(UnaryOp.COMPLEMENT, self.data(depth - 1))
            case 10:
                return Unary(UnaryOp.BOOL_TO_DATA, self.truth(depth - 1))
        if rng.random() < 0.2:
            return ElementFieldRef(ElementRef("stack", self.data(depth - 1)), rng.choice(["a", "b"]))
        return Choice(self.truth(depth - 1), self.data(depth - 1), self.data(depth - 1))

    def truth(self, depth: int) -> Any:
        rng = self.rng
        if depth == 0:
            return rng.choice([Truth(rng.random() < 0.5), Unary(UnaryOp.VALID, self.fixed_header())])
        match rng.randrange(8):
            case 0 | 1 | 2:
                return Binary(rng.choice(_COMPARISONS), self.data(depth - 1), self.data(depth - 1))
            case 3:
                op = rng.choice([BinaryOp.EQ, BinaryOp.NE])
                return Binary(op, self.truth(depth - 1), self.truth(depth - 1))
            case 4:
                op = rng.choice([BinaryOp.LOGICAL_AND, BinaryOp.LOGICAL_OR])
                return Binary(op, self.truth(depth - 1), self.truth(depth - 1))
            case 5:
                return Unary(UnaryOp.NOT, self.truth(depth - 1))
            case 6:
                return Unary(UnaryOp.DATA_TO_BOOL, self.data(depth - 1))
        pair = rng.choice([("wide", "other"), ("stack[0]", "stack[1]"), ("options", "spare")])
        return HeadersEqual(HeaderRef(pair[0]), HeaderRef(pair[1]), negated=rng.random() < 0.5)

    def target(self) -> FieldRef:
        return FieldRef("own", "big") if self.rng.random() < 0.3 else self.rng.choice(_TARGETS)

    # ---- primitives

    def fixed_header(self) -> HeaderRef:
        return HeaderRef(self.rng.choice(_WHOLE))

    def element(self) -> Any:
        index: Any = self.rng.choice([Constant(0), Constant(2), FieldRef("wide", "u17"), Constant(3)])
        return self.rng.choice([HeaderRef(f"stack[{self.rng.randrange(3)}]"), ElementRef("stack", index)])

    def lvalue(self) -> Any:
        chosen = self.rng.random()
        if chosen < 0.1:
            return LastFieldRef("stack", "b")
        if chosen < 0.2:
            return ElementFieldRef(ElementRef("stack", Constant(self.rng.randrange(3))), "a")
        return self.rng.choice(_TARGETS)

    def number(self) -> Any:
        chosen = self.rng.random()
        return Constant(self.rng.randint(0, 9)) if chosen < 0.6 else self.data(1) if chosen < 0.8 else self.leaf()

    def calculation(self) -> Calculation:
        name = self.rng.choice([*CRCS, "csum16", "identity", "xor16", "xor32"])
        inputs = [self.rng.choice(_INPUTS) for _ in range(self.rng.randint(0, 5))]
        if self.rng.random() < 0.3:  # the whole of a header but for one field, as checksums have it
            left_out = self.rng.randrange(len(WIDE.fields))
            inputs = [ref for number, ref in enumerate(_PLAIN[: len(WIDE.fields)]) if number != left_out]
            inputs += self.rng.choice([[], [FieldRef("options", "v")]])
        tail = (Payload(),) if self.rng.random() < 0.3 else ()
        return Calculation("sum", name, (*inputs, *tail), CRCS.get(name))

    def primitive(self) -> Primitive:
        rng = self.rng
        return rng.choice([self._on_headers, self._on_headers, self._on_state, self._on_state, self._request])()

    def _on_headers(self) -> Primitive:
        rng = self.rng
        makers: list[Callable[[], Primitive]] = [
            lambda: Assign(self.lvalue(), self.data(2)),
            lambda: AssignHeader(self.element(), self.element()),
            lambda: AssignHeader(HeaderRef("other"), HeaderRef("wide")),
            lambda: AssignHeader(HeaderRef("spare"), HeaderRef("options")),
            lambda: AssignVariable(FieldRef("spare", "v"), FieldRef("options", "v")),
            lambda: AssignStack(_STACK, _STACK),
            lambda: AddHeader(rng.choice([self.fixed_header(), self.element()])),
            lambda: RemoveHeader(rng.choice([self.fixed_header(), self.element()])),
            lambda: Push(_STACK, rng.randint(0, 4)),
            lambda: Pop(_STACK, rng.randint(0, 4)),
        ]
        return rng.choice(makers)()

    def _on_state(self) -> Primitive:
        rng = self.rng
        register = rng.choice(["r", "odd"])
        makers: list[Callable[[], Primitive]] = [
            lambda: Count("c", self.number()),
            lambda: RegisterRead(self.lvalue(), register, self.number()),
            lambda: RegisterWrite(register, self.number(), self.data(2)),
            lambda: ExecuteMeter("m", self.number(), self.lvalue()),
            lambda: Hash(self.lvalue(), self.number(), self.calculation(), self.number()),
            lambda: Hash(self.lvalue(), Constant(0), self.calculation(), Constant(1 << 63)),
            lambda: Random(self.lvalue(), self.number(), self.number()),
        ]
        return rng.choice(makers)()

    def _request(self) -> Primitive:
        rng = self.rng
        condition = Unary(UnaryOp.BOOL_TO_DATA, Binary(BinaryOp.NE, self.number(), self.number()))
        makers: list[Callable[[], Primitive]] = [
            lambda: Clone(self.number(), rng.choice([0, 7])),
            lambda: Truncate(rng.choice([self.number(), Constant(rng.randint(0, 200))])),
            lambda: LogMessage(("", " and ", ""), (self.number(), self.data(1))),
            lambda: MarkToDrop("standard_metadata"),
            lambda: GenerateDigest("d"),
            lambda: Resubmit(7),
            lambda: Recirculate(0),
            NoOp,
            Exit,
            lambda: Check(condition, assume=rng.random() < 0.5),
        ]
        return rng.choice(makers)()

    def action(self, *, jumps: bool = True) -> list[Primitive]:
        """Return some primitives, with jumps to anywhere among them."""
        rng = self.rng
        steps = [self.primitive() for _ in range(rng.randint(0, 7))]
        size = len(steps) + (rng.randint(0, 2) if jumps else 0)
        while len(steps) < size:
            target = rng.randint(0, size)
            jump = JumpIfZero(self.number(), target) if rng.random() < 0.7 else Jump(target)
            steps.insert(rng.randint(0, len(steps)), jump)
        return steps
