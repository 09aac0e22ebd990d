"""Interpreter of statements, functions and classes, for a safe part of Python."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dataplane.errors import ConfigError
from dataplane.topology.importing.mininet.builtins import imported
from dataplane.topology.importing.mininet.expressions import Expressions, Frame
from dataplane.topology.importing.mininet.values import (
    Bound,
    Budget,
    Class,
    Function,
    Instance,
    Native,
    RefusedError,
    Scope,
    Unknown,
    kind_of,
)

_MOST_CALLS: Final = 30
"""Maximum number of calls within each other: each takes several of Python's own."""
_OUTSIDE: Final = "return, break or continue is outside its function or loop"


class _JumpError(Exception):
    """The end of a function or of a loop's round."""


class _ReturnError(_JumpError):
    def __init__(self, value: object) -> None:
        self.value = value


class _BreakError(_JumpError):
    pass


class _ContinueError(_JumpError):
    pass


class Interpreter(Expressions):
    """Runs statements; each that is not of the safe part is refused with its line."""

    def __init__(
        self, file: str, budget: Budget, builtins: Mapping[str, Any], known: Mapping[tuple[str, str], Any]
    ) -> None:
        """Start; `known` are the imported names that are interpreted, by module and name."""
        super().__init__(file, budget, builtins)
        self._known, self._depth = known, 0

    def run_tolerantly(self, statements: Iterable[ast.stmt], frame: Frame) -> None:
        """Run a module's or class's statements; what one that is refused might change becomes unknown."""
        for statement in statements:
            try:
                self.run([statement], frame)
            except ConfigError as error:
                self._forget(statement, frame, f"is not known: line {error.line}: {error.problem}")
            except _JumpError:  # ast.parse does not notice
                raise self.error(statement, _OUTSIDE) from None

    def _forget(self, statement: ast.stmt, frame: Frame, reason: str) -> None:
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names = {statement.name}  # its body has not run
        scopes = [frame.scope, *([frame.scope.parent] if frame.scope.parent else [])]
        values = {name: value for scope in scopes for name, value in scope.names.items()}
        if any(isinstance(values.get(name), _CHANGEABLE) for name in names):
            # It may have changed any of these through another's name.
            names |= {name for name, value in values.items() if isinstance(value, list | dict | set)}
        for scope in scopes:
            known = names & scope.names.keys() if scope is not frame.scope else names
            scope.names.update(dict.fromkeys(known, Unknown(reason)))

    def run(self, statements: Iterable[ast.stmt], frame: Frame) -> None:
        """Run statements in order; raise ConfigError."""
        for statement in statements:
            execute = getattr(self, f"_run_{type(statement).__name__.lower()}", None)
            if execute is None:
                what = ast.unparse(statement).splitlines()[0][:60]
                raise self.error(statement, f"this is not interpreted: {what}")
            try:
                self.budget.charge()
                execute(statement, frame)
            except RefusedError as error:
                raise self.error(statement, str(error)) from None
            except (LookupError, TypeError, ValueError) as error:  # of an assignment
                raise self.error(statement, f"{type(error).__name__}: {str(error)[:100]}") from None

    def _run_pass(self, _: ast.Pass, __: Frame) -> None:
        pass

    def _run_expr(self, statement: ast.Expr, frame: Frame) -> None:
        if not isinstance(statement.value, ast.Constant):  # a docstring
            self.value(statement.value, frame)

    def _run_assign(self, statement: ast.Assign, frame: Frame) -> None:
        value = self.value(statement.value, frame)
        for target in statement.targets:
            self.assign(target, value, frame)

    def _run_annassign(self, statement: ast.AnnAssign, frame: Frame) -> None:
        if statement.value is not None:
            self.assign(statement.target, self.value(statement.value, frame), frame)

    def _run_augassign(self, statement: ast.AugAssign, frame: Frame) -> None:
        value, added = self.value(statement.target, frame), self.value(statement.value, frame)
        if isinstance(value, list) and isinstance(statement.op, ast.Add):
            value.extend(self.budget.items(added))  # in place: others may hold the list
        else:
            self.assign(statement.target, self.operate(statement.op, value, added), frame)

    def _run_if(self, statement: ast.If, frame: Frame) -> None:
        self.run(statement.body if self.value(statement.test, frame) else statement.orelse, frame)

    def _run_for(self, statement: ast.For, frame: Frame) -> None:
        for value in self.budget.items(self.value(statement.iter, frame)):
            self.assign(statement.target, value, frame)
            try:
                self.run(statement.body, frame)
            except _ContinueError:
                continue
            except _BreakError:
                return
        self.run(statement.orelse, frame)

    def _run_while(self, statement: ast.While, frame: Frame) -> None:
        while self.value(statement.test, frame):
            try:
                self.run(statement.body, frame)
            except _ContinueError:
                continue
            except _BreakError:
                return
        self.run(statement.orelse, frame)

    def _run_break(self, _: ast.Break, __: Frame) -> None:
        raise _BreakError

    def _run_continue(self, _: ast.Continue, __: Frame) -> None:
        raise _ContinueError

    def _run_return(self, statement: ast.Return, frame: Frame) -> None:
        raise _ReturnError(None if statement.value is None else self.value(statement.value, frame))

    def _run_import(self, statement: ast.Import, frame: Frame) -> None:
        for alias in statement.names:
            name = alias.asname or alias.name.partition(".")[0]
            frame.scope.names[name] = Unknown("is an imported module, which is not read")

    def _run_importfrom(self, statement: ast.ImportFrom, frame: Frame) -> None:
        module = statement.module or "."
        for alias in statement.names:
            if alias.name == "*":
                every = {name: value for (known, name), value in self._known.items() if known == module}
                frame.scope.names.update(every)
                continue
            value = self._known.get((module, alias.name)) or imported(module, alias.name, self.builtins)
            unread = Unknown(f"is imported from {module}, which is not read")
            frame.scope.names[alias.asname or alias.name] = value or unread

    def _run_functiondef(self, statement: ast.FunctionDef, frame: Frame) -> None:
        if statement.decorator_list:
            raise RefusedError("decorators are not interpreted")
        frame.scope.names[statement.name] = self.function(statement.name, statement, frame)

    def _run_classdef(self, statement: ast.ClassDef, frame: Frame) -> None:
        if statement.decorator_list or statement.keywords or len(statement.bases) > 1:
            raise RefusedError("decorators, metaclasses and several bases are not interpreted")
        bases = [each for each in statement.bases if not (isinstance(each, ast.Name) and each.id == "object")]
        base = self.value(bases[0], frame) if bases else None
        if base is not None and not isinstance(base, Class):
            raise RefusedError(f"{kind_of(base)} is no class")
        cls = Class(statement.name, base, {})
        # Methods do not see the names of their class, but the body does.
        body = Frame(Scope(cls.names, frame.scope), cls)
        self.run_tolerantly(statement.body, body)
        frame.scope.names[statement.name] = cls

    def call(self, node: ast.AST, function: object, arguments: list[Any], named: dict[str, Any]) -> Any:  # noqa: ANN401 - a program's value
        """Call a function, method or class of the program, or one of ours."""
        match function:
            case Native():
                return function.call(*arguments, **named)
            case Bound():
                return self.call(node, function.function, [function.instance, *arguments], named)
            case Class():
                made = Instance(function)
                try:
                    start = function.find("__init__")
                except KeyError:
                    if arguments or named:
                        raise RefusedError(f"{function.name} takes no arguments") from None
                else:
                    self.call(node, start, [made, *arguments], named)
                return made
            case Function():
                return self._call_function(function, arguments, named)
        raise RefusedError(f"{kind_of(function)} cannot be called")

    def _call_function(self, function: Function, arguments: list[Any], named: dict[str, Any]) -> object:
        if self._depth >= _MOST_CALLS:
            raise RefusedError(f"more than {_MOST_CALLS} calls are within each other")
        around = function.scope
        if function.owner is not None and around.names is function.owner.names:
            assert around.parent is not None
            around = around.parent
        frame = Frame(Scope(_bound(function, arguments, named), around), function.owner)
        if arguments and isinstance(arguments[0], Instance):
            frame.instance = arguments[0]
        self._depth += 1
        try:
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body, frame)
            self.run(function.node.body, frame)
        except _ReturnError as ended:
            return ended.value
        except _JumpError:
            raise RefusedError(_OUTSIDE) from None
        finally:
            self._depth -= 1
        return None


_CHANGEABLE: Final = (list, dict, set, Function, Class, Instance)


def _bound(function: Function, arguments: list[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments by parameter; raise RefusedError if they do not fit."""
    given, names = function.node.args, dict[str, Any]()
    positional = [each.arg for each in (*given.posonlyargs, *given.args)]
    others = dict(named)
    names.update(zip(positional, arguments, strict=False))
    if given.vararg is not None:
        names[given.vararg.arg] = tuple(arguments[len(positional) :])
    elif len(arguments) > len(positional):
        raise RefusedError(f"{function.name} takes {len(positional)} arguments, not {len(arguments)}")
    defaults = dict(zip(positional[len(positional) - len(function.defaults) :], function.defaults, strict=True))
    defaults.update(function.keyword_defaults)
    for name in (*positional, *(each.arg for each in given.kwonlyargs)):
        if name in others:
            if name in names:
                raise RefusedError(f"{function.name} gets {name} twice")
            names[name] = others.pop(name)
        elif name not in names:
            if name not in defaults:
                raise RefusedError(f"{function.name} needs a value for {name}")
            names[name] = defaults[name]
    if given.kwarg is not None:
        names[given.kwarg.arg] = others
    elif others:
        raise RefusedError(f"{function.name} has no parameter {next(iter(others))}")
    return names
