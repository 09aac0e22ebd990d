"""Python files with Mininet's custom topologies: the choice among them, and its graph."""

from __future__ import annotations

import ast
import warnings
from typing import Any, Final

from dataplane.errors import ConfigError
from dataplane.topology.importing.graph import Graph
from dataplane.topology.importing.mininet.builtins import functions
from dataplane.topology.importing.mininet.expressions import Frame
from dataplane.topology.importing.mininet.interpreter import Interpreter
from dataplane.topology.importing.mininet.topo import Topo
from dataplane.topology.importing.mininet.values import Budget, Class, Instance, RefusedError, Scope, Unknown

_MOST_BYTES: Final = 1 << 20


def read_mininet(data: bytes, file: str, choice: str | None = None) -> Graph:
    """Return the graph of a file's topology, by default its only one; raise ConfigError with the line.

    `choice` is a name in `topos`, or that of a class.
    """
    if len(data) > _MOST_BYTES:
        raise ConfigError("is larger than 1 MiB, the most that is read of a program", file=file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(data)
        return _Reader(file).graph_of_module(tree, choice)
    except SyntaxError as error:
        raise ConfigError(f"is not Python 3: {error.msg}", file=file, line=error.lineno) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise ConfigError(f"is not Python 3: {error}", file=file) from None
    except (MemoryError, RecursionError):
        raise ConfigError("nests too deeply", file=file) from None


class _Reader:
    def __init__(self, file: str) -> None:
        self._file, self._budget = file, Budget()
        self._topo = Topo(self._build)
        known = {("mininet.topo", "Topo"): self._topo.cls}
        builtins = {**functions(self._budget), "__name__": "topology"}
        self._interpreter = Interpreter(file, self._budget, builtins, known)
        self._line: ast.AST = ast.Pass(lineno=1)

    def graph_of_module(self, tree: ast.Module, choice: str | None) -> Graph:
        module = Frame(Scope())
        self._interpreter.run_tolerantly(tree.body, module)
        name, made = self._chosen(module.scope.names, choice)
        self._line = next((each for each in tree.body if getattr(each, "name", "") == name), self._line)
        instance = made if isinstance(made, Instance) else self._call(made)
        if not isinstance(instance, Instance) or not instance.cls.derives_from(self._topo.cls):
            raise ConfigError(f"topology {name} is not an instance of a class derived from Topo", file=self._file)
        try:
            return self._topo.graph_of(instance)
        except RefusedError as error:
            raise ConfigError(f"topology {name}: {error}", file=self._file) from None

    def _call(self, made: object) -> object:
        try:
            return self._interpreter.call(self._line, made, [], {})
        except RefusedError as error:
            raise self._interpreter.error(self._line, str(error)) from None

    def _build(self, instance: Instance, arguments: list[Any], named: dict[str, Any]) -> object:
        build = instance.cls.find("build")
        return self._interpreter.call(self._line, build, [instance, *arguments], named)

    def _chosen(self, names: dict[str, Any], choice: str | None) -> tuple[str, object]:
        """Return the topology's name, and what makes it."""
        topos = names.get("topos")
        if isinstance(topos, Unknown):
            raise ConfigError(f"topos {topos.reason}", file=self._file)
        listed = (
            {name: made for name, made in topos.items() if isinstance(name, str)} if isinstance(topos, dict) else {}
        )
        classes = {
            name: value
            for name, value in names.items()
            if isinstance(value, Class) and value is not self._topo.cls and value.derives_from(self._topo.cls)
        }
        if choice is not None:
            if choice not in {**classes, **listed}:
                have = ", ".join({**listed, **classes}) or "none"
                raise ConfigError(f"has no topology {choice[:40]!r}; it has: {have}", file=self._file)
            return choice, {**classes, **listed}[choice]
        candidates: dict[str, Any] = listed or classes
        if not candidates:
            lost = next(
                (value for value in names.values() if isinstance(value, Unknown) and "Topo" in value.reason), None
            )
            raise ConfigError(
                "has no class derived from mininet.topo.Topo" + (f": one {lost.reason}" if lost else ""),
                file=self._file,
            )
        if len(candidates) > 1:
            some = ", ".join(candidates)
            raise ConfigError(f"has the topologies {some}: choose one by {self._file}:NAME", file=self._file)
        return next(iter(candidates.items()))
