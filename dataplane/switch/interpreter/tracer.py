"""What may stand around the closures that a program is bound to, so that what they do can be told.

A pipeline without a tracer is bound to the closures alone: not being traced costs a packet nothing.
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
    """Is given each closure when a program is bound, and returns the one that runs in its place."""

    def parser_state(
        self, state: ParserState, operations: tuple[Operation, ...], select: Select
    ) -> tuple[tuple[Operation, ...], Select]:
        """Stand around the operations and the select of a parser's state."""
        ...

    def condition(self, node: ConditionNode, evaluate: Evaluate) -> Evaluate:
        """Stand around the condition of a branch."""
        ...

    def table(self, node: TableNode, find: Find) -> Find:
        """Stand around the lookup of a key in a table."""
        ...

    def call(self, node: CallNode, run: Step) -> Step:
        """Stand around an action that is called outside of tables."""
        ...

    def primitive(self, action: Action, index: int, run: Step) -> Step:
        """Stand around a primitive of an action."""
        ...

    def jump(self, action: Action, index: int, evaluate: Evaluate) -> Evaluate:
        """Stand around the condition of a jump in an action."""
        ...

    def verified(self, checksum: Checksum, compute: Compute) -> Compute:
        """Stand around the calculation that a received checksum is compared with."""
        ...

    def updated(self, checksum: Checksum, compute: Compute) -> Compute:
        """Stand around the calculation of a checksum that is to be sent."""
        ...
