"""Expressions of interpreted programs."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dataplane.errors import ConfigError
from dataplane.topology.importing.mininet.builtins import format_scalar, method_of, percent
from dataplane.topology.importing.mininet.values import (
    MOST_TEXT,
    SCALARS,
    Bound,
    Budget,
    Class,
    Function,
    Instance,
    Native,
    RefusedError,
    Scope,
    Super,
    Unknown,
    kind_of,
)

_BINARY: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_UNARY: Final[Mapping[type, Callable[[Any], Any]]] = {
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_COMPARISONS: Final[Mapping[type, Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_MOST_POWER: Final = 64
_PYTHON: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of an operation of Python's own, which the program would get, too."""


@dataclass(slots=True, eq=False)
class Frame:
    """A call in progress: its names, and for methods the class and the instance."""

    scope: Scope
    owner: Class | None = None
    instance: Instance | None = None


class Expressions:
    """Evaluates expressions; each that is not of the safe part is refused with its line."""

    def __init__(self, file: str, budget: Budget, builtins: Mapping[str, Any]) -> None:
        self.file, self.budget, self.builtins = file, budget, builtins

    def error(self, node: ast.AST, problem: str) -> ConfigError:
        """Return an error at a node."""
        return ConfigError(problem, file=self.file, line=getattr(node, "lineno", None))

    def call(self, node: ast.AST, function: object, arguments: list[Any], named: dict[str, Any]) -> Any:  # noqa: ANN401 - a program's value
        """Call a function, method or class."""
        raise NotImplementedError

    def value(self, node: ast.expr, frame: Frame) -> Any:  # noqa: ANN401 - a program's value
        """Return an expression's value; raise ConfigError."""
        evaluate = getattr(self, f"_{type(node).__name__.lower()}", None)
        if evaluate is None:
            raise self.error(node, f"this is not interpreted: {ast.unparse(node)[:60]}")
        try:
            self.budget.charge()
            return evaluate(node, frame)
        except RefusedError as error:
            raise self.error(node, str(error)) from None
        except _PYTHON as error:
            raise self.error(node, f"{type(error).__name__}: {str(error)[:100]}") from None

    def _constant(self, node: ast.Constant, _: Frame) -> object:
        if not isinstance(node.value, SCALARS):
            raise RefusedError(f"{type(node.value).__name__} is not interpreted")
        return self.budget.made(node.value)

    def _name(self, node: ast.Name, frame: Frame) -> object:
        try:
            value = frame.scope.find(node.id)
        except KeyError:
            if node.id not in self.builtins:
                raise RefusedError(f"{node.id} is not known here, and is not interpreted") from None
            value = self.builtins[node.id]
        if isinstance(value, Unknown):
            raise RefusedError(f"{node.id} {value.reason}")
        return value

    def _attribute(self, node: ast.Attribute, frame: Frame) -> object:
        value = self.value(node.value, frame)
        if isinstance(value, Instance | Super | Class):
            return self.member(value, node.attr)
        return method_of(value, node.attr, self.budget)

    def member(self, value: Instance | Super | Class, name: str) -> object:
        """Return an attribute of an instance or a class; methods are bound. Raise RefusedError."""
        if isinstance(value, Instance) and name in value.names:
            found = value.names[name]
        else:
            cls = value if isinstance(value, Class) else value.cls
            try:
                found = cls.find(name) if cls is not None else None
            except KeyError:
                raise RefusedError(f".{name} of {kind_of(value)} is not interpreted") from None
            if isinstance(found, Function | Native) and not isinstance(value, Class):
                found = Bound(value if isinstance(value, Instance) else value.instance, found)
        if isinstance(found, Unknown):
            raise RefusedError(f".{name} {found.reason}")
        return found

    def _call(self, node: ast.Call, frame: Frame) -> object:
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            if frame.instance is None or frame.owner is None:
                raise RefusedError("super() is outside a method")
            return Super(frame.instance, frame.owner.base)
        function = self.value(node.func, frame)
        arguments = list(self._elements(node.args, frame))
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.passed(keyword.value, frame)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, dict):
                named.update(value)
            else:
                raise RefusedError(f"{kind_of(value)} after ** is no dictionary")
        return self.call(node, function, arguments, named)

    def _elements(self, nodes: list[ast.expr], frame: Frame) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.budget.items(self.value(node.value, frame))
            else:
                yield self.value(node, frame)

    def _binop(self, node: ast.BinOp, frame: Frame) -> object:
        return self.operate(node.op, self.value(node.left, frame), self.value(node.right, frame))

    def operate(self, kind: ast.operator, a: Any, b: Any) -> object:  # noqa: ANN401 - a program's values
        """Return the result of a binary operator; raise RefusedError before it gets too large."""
        if type(kind) not in _BINARY or not all(isinstance(side, (*SCALARS, list, tuple, dict)) for side in (a, b)):
            raise RefusedError(f"{type(kind).__name__} of {kind_of(a)} and {kind_of(b)} is not interpreted")
        if isinstance(kind, ast.Mod) and isinstance(a, str):
            return self.budget.made(percent(a, b))
        if isinstance(kind, ast.Mult):
            for text, count in ((a, b), (b, a)):
                if isinstance(text, list | tuple | str) and isinstance(count, int):
                    self.budget.charge(len(text) * max(count, 0))
        if isinstance(kind, ast.Pow) and not (isinstance(b, int | float) and abs(b) <= _MOST_POWER):
            raise RefusedError(f"a power above {_MOST_POWER} is not interpreted")
        return self.budget.made(_BINARY[type(kind)](a, b))

    def _unaryop(self, node: ast.UnaryOp, frame: Frame) -> object:
        value = self.value(node.operand, frame)
        if type(node.op) not in _UNARY:
            raise RefusedError("the operator ~ is not interpreted")
        return _UNARY[type(node.op)](value)

    def _boolop(self, node: ast.BoolOp, frame: Frame) -> object:
        stops_at = isinstance(node.op, ast.Or)
        value: object = None
        for each in node.values:
            value = self.value(each, frame)
            if bool(value) is stops_at:
                break
        return value

    def _compare(self, node: ast.Compare, frame: Frame) -> bool:
        left = self.value(node.left, frame)
        for kind, after in zip(node.ops, node.comparators, strict=True):
            right = self.value(after, frame)
            if not isinstance(kind, ast.Is | ast.IsNot):
                self.budget.visit(left)
                self.budget.visit(right)
            if isinstance(right, range) and not isinstance(left, int):
                self.budget.charge(len(right))  # Python goes through all of it
            if not _COMPARISONS[type(kind)](left, right):
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp, frame: Frame) -> object:
        return self.value(node.body if self.value(node.test, frame) else node.orelse, frame)

    def _list(self, node: ast.List, frame: Frame) -> list[Any]:
        return list(self._elements(node.elts, frame))

    def _tuple(self, node: ast.Tuple, frame: Frame) -> tuple[Any, ...]:
        return tuple(self._elements(node.elts, frame))

    def _set(self, node: ast.Set, frame: Frame) -> set[Any]:
        return {self.key(value) for value in self._elements(node.elts, frame)}

    def _dict(self, node: ast.Dict, frame: Frame) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                made.update(self.value(value, frame))
            else:
                made[self.key(self.value(key, frame))] = self.passed(value, frame)
        return made

    def passed(self, node: ast.expr, frame: Frame) -> Any:  # noqa: ANN401 - a program's value
        """Return a value that is passed on, and may be an unknown one: `cls=TCLink`."""
        if isinstance(node, ast.Name):
            try:
                value = frame.scope.find(node.id)
            except KeyError:
                value = None
            if isinstance(value, Unknown):
                return value
        return self.value(node, frame)

    def key(self, value: Any) -> Any:  # noqa: ANN401 - a program's value
        """Return a value that may be a key: hashing one goes through all its parts."""
        self.budget.visit(value)
        return value

    def _subscript(self, node: ast.Subscript, frame: Frame) -> object:
        value = self.value(node.value, frame)
        if not isinstance(value, list | tuple | dict | str | range):
            raise RefusedError(f"{kind_of(value)} has no elements")
        if isinstance(node.slice, ast.Slice):
            given = (node.slice.lower, node.slice.upper, node.slice.step)
            start, stop, step = (None if each is None else self.value(each, frame) for each in given)
            return self.budget.made(value[start:stop:step])
        return value[self.key(self.value(node.slice, frame))]

    def _joinedstr(self, node: ast.JoinedStr, frame: Frame) -> object:
        parts = [self.value(each, frame) for each in node.values]
        return self.budget.made("".join(parts[: MOST_TEXT + 1]))

    def _formattedvalue(self, node: ast.FormattedValue, frame: Frame) -> str:
        form = self.value(node.format_spec, frame) if node.format_spec is not None else ""
        conversion = chr(node.conversion) if node.conversion >= 0 else ""
        return format_scalar(self.value(node.value, frame), form, conversion)

    def _lambda(self, node: ast.Lambda, frame: Frame) -> Function:
        return self.function("lambda", node, frame)

    def function(self, name: str, node: ast.FunctionDef | ast.Lambda, frame: Frame) -> Function:
        """Return a function of the program, with its defaults evaluated."""
        given = node.args
        defaults = tuple(self.value(each, frame) for each in given.defaults)
        pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
        named = {each.arg: self.value(default, frame) for each, default in pairs if default is not None}
        return Function(name, node, frame.scope, defaults, named, frame.owner)

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, frame: Frame) -> list[Any]:
        inner = Frame(Scope(parent=frame.scope), frame.owner, frame.instance)
        return [self.value(node.elt, inner) for _ in self._each(node.generators, inner)]

    _generatorexp = _listcomp

    def _setcomp(self, node: ast.SetComp, frame: Frame) -> set[Any]:
        inner = Frame(Scope(parent=frame.scope), frame.owner, frame.instance)
        return {self.key(self.value(node.elt, inner)) for _ in self._each(node.generators, inner)}

    def _dictcomp(self, node: ast.DictComp, frame: Frame) -> dict[Any, Any]:
        inner = Frame(Scope(parent=frame.scope), frame.owner, frame.instance)
        return {
            self.key(self.value(node.key, inner)): self.value(node.value, inner)
            for _ in self._each(node.generators, inner)
        }

    def _each(self, generators: list[ast.comprehension], frame: Frame) -> Iterator[None]:
        if not generators:
            yield
            return
        first, *others = generators
        for value in self.budget.items(self.value(first.iter, frame)):
            self.assign(first.target, value, frame)
            if all(self.value(test, frame) for test in first.ifs):
                yield from self._each(others, frame)

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:  # noqa: ANN401 - a program's value
        """Bind a value to a name, an attribute, an element, or several of them."""
        match target:
            case ast.Name():
                frame.scope.names[target.id] = value
            case ast.Attribute() if isinstance(owner := self.value(target.value, frame), Instance):
                owner.names[target.attr] = value
            case ast.Subscript() if isinstance(owner := self.value(target.value, frame), list | dict):
                owner[self.key(self.value(target.slice, frame))] = value
            case ast.Tuple() | ast.List():
                values = self.budget.items(value)
                if len(values) != len(target.elts):
                    raise self.error(target, f"{len(values)} values for {len(target.elts)} names")
                for part, each in zip(target.elts, values, strict=True):
                    self.assign(part, each, frame)
            case _:
                raise self.error(target, f"assignment to {ast.unparse(target)[:60]} is not interpreted")
