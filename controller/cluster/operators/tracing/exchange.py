"""Request to a traced process and its answer, as JSON in a shared folder."""

from __future__ import annotations

from pathlib import Path

import msgspec

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.files import dumps, loads
from controller.cluster.operators.tracing.values import Traced
from controller.cluster.operators.values import Flow
from dataplane.malformed import MALFORMED

REQUEST, ANSWER = "request.json", "answer.json"
_MOST_BYTES = 64 << 20


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A script, or a function of a script or module, with its arguments as strings."""

    script: str
    module: str
    function: str
    arguments: tuple[str, ...]
    name: str
    category: str
    deadline_s: float
    pythonpath: str | None
    is_watched: bool


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A trace, with the graph in its file format."""

    graph: str
    run_time_s: float
    problems: tuple[str, ...]
    seconds: dict[str, float]
    places: dict[str, str]
    carried: tuple[tuple[str, str, int | None], ...]
    cpu_time_s: float


def write_request(folder: Path, request: Request) -> None:
    """Write the request."""
    (folder / REQUEST).write_bytes(msgspec.json.encode(request))


def read_request(folder: Path) -> Request:
    """Return the request."""
    return msgspec.json.decode((folder / REQUEST).read_bytes(), type=Request)


def write_answer(folder: Path, traced: Traced) -> None:
    """Write a trace atomically."""
    carried = tuple((flow.src, flow.dst, flow.nbytes) for flow in traced.carried)
    graph = dumps(traced.graph, as_json=True)
    answer = Answer(
        graph, traced.run_time_s, traced.problems, dict(traced.seconds), dict(traced.places), carried, traced.cpu_time_s
    )
    partial = folder / f"{ANSWER}.partial"
    partial.write_bytes(msgspec.json.encode(answer))
    partial.replace(folder / ANSWER)


def read_answer(folder: Path) -> Traced | None:
    """Return the trace, None if none was written; OperatorError for an invalid one."""
    path = folder / ANSWER
    if not path.is_file():
        return None
    if path.stat().st_size > _MOST_BYTES:
        raise OperatorError(f"the trace is larger than {_MOST_BYTES >> 20} MiB")
    try:
        answer = msgspec.json.decode(path.read_bytes(), type=Answer)
    except MALFORMED as error:
        raise OperatorError(f"the traced program overwrote its trace: {error}") from None
    graph = loads(answer.graph, file="<trace>")
    carried = tuple(Flow(*flow) for flow in answer.carried)
    return Traced(
        graph,
        answer.run_time_s,
        answer.problems,
        answer.seconds,
        answer.places,
        carried,
        cpu_time_s=answer.cpu_time_s,
    )
