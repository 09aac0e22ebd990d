"""Wrappers around the closures that a program is bound to, which report what they do.

A pipeline without a tracer is bound to the bare closures: a packet pays nothing for tracing that is off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from dataplane.program.model import Action, CallNode, Checksum, ConditionNode, ParserState, TableNode
from dataplane.program.objects import ActionCall
from dataplane.switch.interpreter.layout import Fields
from dataplane.switch.tables import TableEntry

Operation: TypeAlias = Callable[[Fields, bytes, int], int]
"""(fields, frame, cursor in bytes) -> cursor."""
Select: TypeAlias = Callable[[Fields, bytes, int], int]
"""Returns the number of the next state; -1 is the end."""
Evaluate: TypeAlias = Callable[[Fields, Sequence[int]], int]
Step: TypeAlias = Callable[[Fields, Sequence[int]], None]
Find: TypeAlias = Callable[[Fields, tuple[int, ...]], tuple[ActionCall | None, TableEntry | None]]
Compute: TypeAlias = Callable[[Fields, bytes], int]


class Tracer(Protocol):
    """Receives each closure when a program is bound, and returns the one to run in its place."""

    def parser_state(
        self, state: ParserState, operations: tuple[Operation, ...], select: Select
    ) -> tuple[tuple[Operation, ...], Select]:
        """Wrap the operations and the select of a parser's state."""
        ...

    def condition(self, node: ConditionNode, evaluate: Evaluate) -> Evaluate:
        """Wrap the condition of a branch."""
        ...

    def table(self, node: TableNode, find: Find) -> Find:
        """Wrap the lookup of a key in a table."""
        ...

    def call(self, node: CallNode, run: Step) -> Step:
        """Wrap an action that is called outside of tables."""
        ...

    def primitive(self, action: Action, index: int, run: Step) -> Step:
        """Wrap a primitive of an action."""
        ...

    def jump(self, action: Action, index: int, evaluate: Evaluate) -> Evaluate:
        """Wrap the condition of a jump in an action."""
        ...

    def verified(self, checksum: Checksum, compute: Compute) -> Compute:
        """Wrap the calculation that a received checksum is compared with."""
        ...

    def updated(self, checksum: Checksum, compute: Compute) -> Compute:
        """Wrap the calculation of an outgoing checksum."""
        ...
