"""Normalised syntax trees of functions: the code's computation, without its names, types and constants.

Loops over indices, over elements and in comprehensions are the same, `a = a + b` is `a += b`, `b > a` is `a < b`, the
order of sums and products does not depend on names, successive indices are one index. Names are replaced by their role:
indices by the depth of their loop, arrays, other values; functions of Python, math and numpy keep their names.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, Final, NamedTuple

MOST_NODES: Final = 4000
"""Limit of nodes: larger code is a program, not an operator, and gets no tree."""
_KNOWN: Final = frozenset({
    *dir(builtins), *dir(math), "dot", "matmul", "zeros", "empty", "ones", "arange", "conj", "conjugate", "append",
    *("sum", "mean", "sort", "argsort", "get", "items", "values", "keys", "setdefault", "pop", "shape", "size", "T"),
})  # fmt: skip
_ELEMENTARY: Final = frozenset({
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "hypot", "cbrt", "erf", "gamma", "lgamma"),
})  # fmt: skip
_ORDERED: Final = {ast.Gt: "lt", ast.Lt: "lt", ast.GtE: "le", ast.LtE: "le"}
_TURNED: Final = (ast.Gt, ast.GtE)


class Tree(NamedTuple):
    """A label and its children."""

    label: str
    children: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        return self.label if not self.children else f"({self.label} {' '.join(map(str, self.children))})"


def normalised(code: Callable[..., Any] | CodeType | str) -> str:
    """Return the normalised tree of a function (or of the first one in a source text), '' if there is no source.

    In a function with loops, only statements with loops count, because the others take no time.
    """
    source = code if isinstance(code, str) else _source(code)
    name = "" if isinstance(code, str) else getattr(code, "co_name", getattr(code, "__name__", ""))
    try:
        module = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError, RecursionError):
        return ""
    function = _function(module, name)
    if function is None and name not in {"", "<module>"}:
        return ""
    body: Sequence[ast.stmt] = module.body if function is None else function.body
    if sum(1 for _ in ast.walk(module if function is None else function)) > MOST_NODES:
        return ""
    own_name = "" if function is None else function.name
    statements = [
        statement
        for statement in body
        if not _is_text(statement) and not isinstance(statement, ast.FunctionDef | ast.ClassDef)
    ]
    hot = [statement for statement in statements if _repeats(statement, own_name)]
    writer = _Writer(own_name, _bound(function))
    return str(Tree("def", tuple(writer.statements(hot or statements, {}))))


def parsed(text: str) -> Tree:
    """Parse a tree printed by `normalised`; ValueError for other text."""
    tokens = text.replace("(", " ( ").replace(")", " ) ").split()
    stack: list[list[Any]] = [[]]
    for token in tokens:
        if token == "(":  # noqa: S105 - a bracket
            stack.append([])
        elif token == ")":  # noqa: S105
            if len(stack) == 1 or not stack[-1]:
                raise ValueError("brackets do not match")
            label, *children = stack.pop()
            stack[-1].append(Tree(label.label, tuple(children)))
        else:
            stack[-1].append(Tree(token))
    if len(stack) != 1 or len(stack[0]) != 1:
        raise ValueError("brackets do not match")
    tree: Tree = stack[0][0]
    return tree


def _source(code: Callable[..., Any] | CodeType) -> str:
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return ""


def _function(module: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    named = [node for node in functions if node.name == name]
    return next(iter(named or (functions if not name else ())), None)


def _bound(function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> frozenset[str]:
    """Return the names that a function binds: these are not Python's functions."""
    if function is None:
        return frozenset()
    stored = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    arguments = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    return frozenset(stored | arguments)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _repeats(statement: ast.stmt, own_name: str) -> bool:
    """Return whether a statement loops, or calls the enclosing function."""
    loops = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
    return any(
        isinstance(node, loops)
        or (own_name and isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == own_name)
        for node in ast.walk(statement)
    )


Roles = Mapping[str, Tree]
"""Roles of names: indices of loops, elements of arrays."""


class _Writer:
    def __init__(self, own_name: str, bound: frozenset[str]) -> None:
        self._own_name, self._bound = own_name, bound

    def statements(self, body: Sequence[ast.stmt], roles: Roles, depth: int = 0) -> Iterator[Tree]:
        for statement in body:
            if not _is_text(statement):
                yield from self._statement(statement, roles, depth)

    def _statement(self, node: ast.stmt, roles: Roles, depth: int) -> Iterator[Tree]:  # noqa: C901 - one case a kind
        match node:
            case ast.For() | ast.AsyncFor():
                inner = {**roles, **self._loop_roles(node.target, node.iter, roles, depth)}
                yield Tree("loop", tuple(self.statements(node.body, inner, depth + 1)))
            case ast.While():
                yield Tree("while", (self._value(node.test, roles, depth), *self.statements(node.body, roles, depth)))
            case ast.If():
                branches = [Tree("then", tuple(self.statements(node.body, roles, depth)))]
                if node.orelse:
                    branches.append(Tree("else", tuple(self.statements(node.orelse, roles, depth))))
                yield Tree("if", (self._value(node.test, roles, depth), *branches))
            case ast.Assign():
                for target in node.targets:
                    yield from self._assignments(target, node.value, roles, depth)
            case ast.AnnAssign(value=ast.expr() as value):
                yield from self._assignments(node.target, value, roles, depth)
            case ast.AugAssign():
                destination = self._value(node.target, roles, depth)
                yield Tree(f"into-{_word(node.op)}", (destination, self._value(node.value, roles, depth)))
            case ast.Return(value=ast.expr() as value):
                yield self._value(value, roles, depth)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append"), args=[element])):
                # A list that grows in each turn matches a comprehension.
                yield Tree("yield", (self._value(element, roles, depth),))
            case ast.Expr():
                yield self._value(node.value, roles, depth)
            case ast.With() | ast.AsyncWith() | ast.Try():
                yield from self.statements(node.body, roles, depth)
            case ast.Break() | ast.Continue() | ast.Raise():
                yield Tree(type(node).__name__.lower())

    def _assignments(self, target: ast.expr, value: ast.expr, roles: Roles, depth: int) -> Iterator[Tree]:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for element, part in zip(target.elts, value.elts, strict=True):
                yield from self._assignments(element, part, roles, depth)
            return
        destination = self._value(target, roles, depth)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Mult | ast.Sub):
            sides = [value.left] if isinstance(value.op, ast.Sub) else [value.left, value.right]
            for side in sides:
                if ast.dump(side) == ast.dump(target).replace("ctx=Store()", "ctx=Load()"):
                    rest = value.right if side is value.left else value.left
                    yield Tree(f"into-{_word(value.op)}", (destination, self._value(rest, roles, depth)))
                    return
        yield Tree("set", (destination, self._value(value, roles, depth)))

    def _loop_roles(self, target: ast.expr, over: ast.expr, roles: Roles, depth: int) -> dict[str, Tree]:
        """Return the roles of a loop's variables: its index, or elements at its index."""
        index = Tree(f"i{depth}")
        iterator = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
        arguments = over.args if isinstance(over, ast.Call) else []
        if iterator == "range" or not isinstance(target, ast.Name | ast.Tuple):
            return dict.fromkeys(_names(target), index)
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        if iterator == "enumerate" and len(parts) == 2 and arguments:
            return {**dict.fromkeys(_names(parts[0]), index), **self._elements(parts[1], arguments[0], roles, depth)}
        if iterator == "zip" and len(parts) == len(arguments):
            element_roles: dict[str, Tree] = {}
            for part, argument in zip(parts, arguments, strict=True):
                element_roles |= self._elements(part, argument, roles, depth)
            return element_roles
        return self._elements(target, over, roles, depth)

    def _elements(self, target: ast.expr, over: ast.expr, roles: Roles, depth: int) -> dict[str, Tree]:
        element = _indexed(self._value(over, roles, depth), [Tree(f"i{depth}")])
        return dict.fromkeys(_names(target), element)

    def _value(self, node: ast.expr, roles: Roles, depth: int) -> Tree:  # noqa: C901 - one case a kind of expression
        def of(child: ast.expr) -> Tree:
            return self._value(child, roles, depth)

        match node:
            case ast.Name():
                return roles.get(node.id, Tree("v"))
            case ast.Constant():
                return Tree("c" if isinstance(node.value, int | float | complex) else "text")
            case ast.Subscript():
                return self._index(node, roles, depth)
            case ast.BinOp(op=ast.Add() | ast.Mult()):
                parts = sorted(map(of, _chain(node, type(node.op))), key=str)
                return Tree(_word(node.op), tuple(parts))
            case ast.BinOp():
                return Tree(_word(node.op), (of(node.left), of(node.right)))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
                return Tree("c")
            case ast.UnaryOp():
                return Tree(_word(node.op), (of(node.operand),))
            case ast.BoolOp():
                return Tree(_word(node.op), tuple(sorted(map(of, node.values), key=str)))
            case ast.Compare():
                return self._comparison(node, roles, depth)
            case ast.Call():
                return self._call(node, roles, depth)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._comprehension(node.generators, node.elt, "yield", roles, depth)
            case ast.DictComp():
                return self._comprehension(node.generators, node.value, "yield", roles, depth)
            case ast.IfExp():
                return Tree("if", (of(node.test), Tree("then", (of(node.body),)), Tree("else", (of(node.orelse),))))
            case ast.Attribute():
                return Tree(node.attr if node.attr in _KNOWN else "attribute", (of(node.value),))
            case ast.Lambda():
                return Tree("lambda", (of(node.body),))
            case ast.Slice():
                return Tree(
                    "slice", tuple(of(bound) for bound in (node.lower, node.upper, node.step) if bound is not None)
                )
            case ast.NamedExpr():
                return Tree("set", (of(node.target), of(node.value)))
            case ast.Starred() | ast.Await():
                return of(node.value)
        parts = [of(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return Tree(type(node).__name__.lower(), tuple(parts))

    def _index(self, node: ast.Subscript, roles: Roles, depth: int) -> Tree:
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return _indexed(self._value(node.value, roles, depth), [self._value(key, roles, depth) for key in keys])

    def _comparison(self, node: ast.Compare, roles: Roles, depth: int) -> Tree:
        sides = [self._value(side, roles, depth) for side in (node.left, *node.comparators)]
        comparisons = []
        for operator, left, right in zip(node.ops, sides, sides[1:], strict=False):
            # `a > b` and `b < a` must read alike, and so must both orders of ==.
            pair = (right, left) if isinstance(operator, _TURNED) else (left, right)
            if isinstance(operator, ast.Eq | ast.NotEq):
                pair = (min(pair, key=str), max(pair, key=str))
            comparisons.append(Tree(_ORDERED.get(type(operator), _word(operator)), pair))
        return comparisons[0] if len(comparisons) == 1 else Tree("and", tuple(sorted(comparisons, key=str)))

    def _call(self, node: ast.Call, roles: Roles, depth: int) -> Tree:
        arguments = [self._value(argument, roles, depth) for argument in node.args]
        match node.func:
            case ast.Name(id="sum") if node.args and isinstance(node.args[0], ast.GeneratorExp | ast.ListComp):
                inner = node.args[0]
                return self._comprehension(inner.generators, inner.elt, "into-add", roles, depth)
            case ast.Name(id=name) if name == self._own_name:
                return Tree("self", tuple(arguments))
            case ast.Name(id=name):
                is_known = name in _KNOWN and name not in self._bound
                return Tree(_called(name) if is_known else "call", tuple(arguments))
            case ast.Attribute(attr=name, value=value):
                label = _called(name) if name in _KNOWN else "call"
                # A module is no operand of its functions; a method's object is one.
                owner = [] if isinstance(value, ast.Name) and value.id not in self._bound else [value]
                return Tree(label, (*(self._value(operand, roles, depth) for operand in owner), *arguments))
        return Tree("call", (self._value(node.func, roles, depth), *arguments))

    def _comprehension(
        self, generators: Sequence[ast.comprehension], element: ast.expr, label: str, roles: Roles, depth: int
    ) -> Tree:
        """Return nested loops, with what each turn yields, or adds to a sum, in the innermost."""
        if not generators:
            value = self._value(element, roles, depth)
            return Tree(label, (Tree("v"), value) if label != "yield" else (value,))
        first, *rest = generators
        inner = {**roles, **self._loop_roles(first.target, first.iter, roles, depth)}
        body = self._comprehension(rest, element, label, inner, depth + 1)
        for test in first.ifs:
            body = Tree("if", (self._value(test, inner, depth + 1), Tree("then", (body,))))
        return Tree("loop", (body,))


def _called(name: str) -> str:
    """Return the class of a known function's call: sines, exponentials and the like take about the same time."""
    return "call-elementary" if name in _ELEMENTARY else f"call-{name}"


def _indexed(base: Tree, keys: Sequence[Tree]) -> Tree:
    """Return an element; nested elements have all their indices in one row."""
    if base.label == "index":
        return Tree("index", (*base.children, *keys))
    return Tree("index", (Tree("a") if base.label == "v" else base, *keys))


def _chain(node: ast.expr, operator: type[ast.operator]) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, operator):
        yield from _chain(node.left, operator)
        yield from _chain(node.right, operator)
    else:
        yield node


def _names(target: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _word(operator: ast.AST) -> str:
    return type(operator).__name__.lower()
