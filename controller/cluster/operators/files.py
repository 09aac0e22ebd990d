"""Files of operator graphs, YAML or JSON: strict, each error with file, line and key; reading and writing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.kinds import work_of
from controller.cluster.operators.values import Flow, Operator, OperatorGraph
from dataplane.config import Document, Strict, load_document, loads_document
from dataplane.topology.values import NumberFormat


class OperatorSpec(Strict, frozen=True):
    """An operator; `shape` are sizes by name, bytes are integers, `code` is a normalised syntax tree."""

    name: str
    kind: str
    shape: dict[str, int] = msgspec.field(default_factory=dict)
    format: NumberFormat | None = None
    executions: int = 1
    input_bytes: int | None = None
    output_bytes: int | None = None
    code: str = ""
    library: str = ""


class FlowSpec(Strict, frozen=True):
    """Output of one operator that another one reads, in bytes per execution of the reader."""

    src: str
    dst: str
    nbytes: int | None = None


class GraphSpec(Strict, frozen=True):
    """A file; `millrace` is the format version."""

    millrace: Literal[1]
    name: str
    operators: list[OperatorSpec]
    flows: list[FlowSpec] = msgspec.field(default_factory=list)
    category: str = ""


def load(path: Path) -> OperatorGraph:
    """Return the graph in a file; raise ConfigError with file, line and key."""
    return _resolve(load_document(path, GraphSpec))


def loads(text: str, *, file: str = "<text>") -> OperatorGraph:
    """Return the graph in YAML or JSON text; raise ConfigError with file, line and key."""
    return _resolve(loads_document(text, GraphSpec, file=file))


def dumps(graph: OperatorGraph, *, as_json: bool = False) -> str:
    """Return the graph as text that `loads` parses into an equal value."""
    document: dict[str, Any] = {"millrace": 1, "name": graph.name}
    if graph.category:
        document["category"] = graph.category
    document["operators"] = [_operator_document(operator) for operator in graph.operators]
    document["flows"] = [_without_none(src=flow.src, dst=flow.dst, nbytes=flow.nbytes) for flow in graph.flows]
    if as_json:
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=4096)


def resolved(name: str, specs: Sequence[OperatorSpec], flows: Sequence[FlowSpec], category: str = "") -> OperatorGraph:
    """Return the graph that specs describe; raise OperatorError with the location of an invalid value."""
    operators = []
    for index, operator in enumerate(specs):
        try:
            value = Operator(
                operator.name,
                operator.kind,
                tuple(sorted(operator.shape.items())),
                operator.format,
                operator.executions,
                operator.input_bytes,
                operator.output_bytes,
                operator.code,
                operator.library,
            )
            work_of(value)
        except OperatorError as error:
            raise OperatorError(error.problem, at=f"operators[{index}].{error.at}") from None
        operators.append(value)
    return OperatorGraph(
        name, tuple(operators), tuple(Flow(flow.src, flow.dst, flow.nbytes) for flow in flows), category
    )


def _resolve(document: Document[GraphSpec]) -> OperatorGraph:
    spec = document.value
    try:
        return resolved(spec.name, spec.operators, spec.flows, spec.category)
    except OperatorError as error:
        raise document.error(error.problem, error.at) from None


def _operator_document(operator: Operator) -> dict[str, Any]:
    return _without_none(
        name=operator.name,
        kind=operator.kind,
        shape=dict(operator.shape) or None,
        format=None if operator.number_format is None else operator.number_format.value,
        executions=operator.executions,
        input_bytes=operator.input_bytes,
        output_bytes=operator.output_bytes,
        code=operator.code or None,
        library=operator.library or None,
    )


def _without_none(**entries: Any) -> dict[str, Any]:  # noqa: ANN401 - a YAML document is any mapping
    return {key: value for key, value in entries.items() if value is not None}
