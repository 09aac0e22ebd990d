"""Values of interpreted programs beside Python's own: functions, classes, instances, and what is unknown."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MOST_STEPS: Final = 1_000_000
"""Maximum number of expressions, statements and elements of collections."""
MOST_TEXT: Final = 1000
MOST_INT: Final = 1 << 64
_DEPTH: Final = 32
SCALARS: Final = (str, int, float, type(None))
"""Types without parts; bool is an int."""


class RefusedError(Exception):
    """The program does what is not interpreted; caught where the line is known."""


@dataclass(slots=True)
class Budget:
    """Steps that remain: they bound time and memory, as each new element costs one."""

    left: int = MOST_STEPS

    def charge(self, steps: int = 1) -> None:
        """Use up steps; raise RefusedError if too few remain."""
        self.left -= steps
        if self.left < 0:
            self.left = -1
            raise RefusedError(f"takes more than {MOST_STEPS} steps up to here")

    def visit(self, value: object, depth: int = 0) -> None:
        """Charge all parts of a value: a list that contains itself twice has no end, and one of few has many parts."""
        self.charge()
        if depth > _DEPTH:
            raise RefusedError("nests too deeply")
        if isinstance(value, list | tuple | set | dict):
            for part in value:
                self.visit(part, depth + 1)
            for part in value.values() if isinstance(value, dict) else ():
                self.visit(part, depth + 1)
        elif not isinstance(value, (*SCALARS, range)):
            raise RefusedError(f"{kind_of(value)} is not interpreted here")

    def items(self, value: object) -> list[Any]:
        """Return the elements of an iterable."""
        if isinstance(value, set):
            raise RefusedError("the order of a set is not fixed: use sorted(...)")
        if not isinstance(value, list | tuple | dict | range | str):
            raise RefusedError(f"{kind_of(value)} cannot be iterated over")
        self.charge(len(value))
        return list(value)

    def made(self, value: object) -> object:
        """Return a new value of an operation after checking its size."""
        if isinstance(value, str) and len(value) > MOST_TEXT:
            raise RefusedError(f"a text has more than {MOST_TEXT} characters")
        if isinstance(value, int) and abs(value) > MOST_INT:
            raise RefusedError("a number has more than 64 bits")
        if isinstance(value, list | tuple | set | dict):
            self.charge(len(value))
        return value


@dataclass(slots=True, eq=False)
class Scope:
    """Names of a function, class or module, and the scope around it."""

    names: dict[str, Any] = field(default_factory=dict)
    parent: Scope | None = None

    def find(self, name: str) -> Any:  # noqa: ANN401 - a program's value
        """Return a name's value; raise KeyError."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        raise KeyError(name)


@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """Value that is not known, and why; using it is refused."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Native:
    """Function of ours that the program may call, with evaluated arguments."""

    name: str
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """Function or lambda of the program, with the evaluated defaults and the class that it belongs to."""

    name: str
    node: ast.FunctionDef | ast.Lambda
    scope: Scope
    defaults: tuple[Any, ...]
    keyword_defaults: Mapping[str, Any]
    owner: Class | None = None


@dataclass(slots=True, eq=False)
class Class:
    """Class of the program, or Mininet's Topo, whose members are Native."""

    name: str
    base: Class | None
    names: dict[str, Any]

    def find(self, name: str) -> Any:  # noqa: ANN401 - a program's value
        """Return a member of the class or of those it derives from; raise KeyError."""
        cls: Class | None = self
        while cls is not None:
            if name in cls.names:
                return cls.names[name]
            cls = cls.base
        raise KeyError(name)

    def derives_from(self, other: Class) -> bool:
        """Return whether it is the other class, or derives from it."""
        return self is other or (self.base is not None and self.base.derives_from(other))


@dataclass(slots=True, eq=False)
class Instance:
    """Instance of a class of the program."""

    cls: Class
    names: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A method with its instance."""

    instance: Instance
    function: Function | Native


@dataclass(frozen=True, slots=True, eq=False)
class Super:
    """`super()`: an instance, and the class from which its methods are looked up."""

    instance: Instance
    cls: Class | None


def kind_of(value: object) -> str:
    """Return the name of a value's kind for messages."""
    if isinstance(value, Class | Function | Native):
        return value.name
    if isinstance(value, Unknown):
        return f"a value that {value.reason}"
    return value.cls.name if isinstance(value, Instance) else type(value).__name__
