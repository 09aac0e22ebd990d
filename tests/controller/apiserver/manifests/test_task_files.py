"""Task files: contents reach the task, and every mistake is one line with its position."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.apiserver.manifests.tasks import loads_tasks, numbered, read_tasks
from controller.apiserver.resources.operator_graphs import graph_of, operators_of, traced_operators
from controller.apiserver.resources.predecessors import OnFailure
from controller.apiserver.resources.task import ProgramKind, TaskSpec, UnitChoice
from controller.cluster.operators import Flow, Operator, OperatorGraph
from dataplane.errors import ConfigError
from dataplane.topology.values import DeviceKind

NOW_NS = 1_900_000_000_000_000_000
WHOLE = """\
millrace: 1
name: solve
labels: {team: a}
program: {kind: python, entry: "task:main", file: task.py, arguments: ["3"]}
category: hpc
type: dense-solve
operators:
  - {name: factor, kind: gemm, shape: {m: 8, n: 8, k: 8}, format: fp64, executions: 3000}
  - {name: back, kind: gemv, shape: {m: 8, n: 8}, format: fp64, executions: 1000}
flows: [{src: factor, dst: back}]
centre: c1
unit: cpu
units: [2, 4]
reads: [{host: h1, size: 64 MiB}]
deadline: 2 h
limit: 10 min
"""


HEAD = "millrace: 1\nprogram: {kind: script, text: x}\n"
IN_A_CYCLE = "name: c\ninputs: [{task: b, size: 1 KiB}]"


def test_file_states_all_of_a_task(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("def main(n): ...\n")
    (tmp_path / "tasks.yaml").write_text(WHOLE)
    ((task, is_traced),) = read_tasks(tmp_path / "tasks.yaml", NOW_NS)
    spec = task.spec
    assert not is_traced
    assert (task.metadata.name, task.metadata.labels) == ("solve", {"team": "a"})
    assert (spec.program.kind, spec.program.text) == (ProgramKind.PYTHON, "def main(n): ...\n")
    assert [(operator.name, operator.count, operator.feeds) for operator in spec.operators] == [
        ("factor", 3000, ("back",)),
        ("back", 1000, ()),
    ]
    assert (spec.centre, spec.unit, spec.units, spec.choice) == ("c1", "cpu", (2, 4), UnitChoice.USER)
    assert spec.reads[0].nbytes == 64 << 20
    assert spec.deadline_ns == NOW_NS + 7_200_000_000_000
    assert spec.limit_s == 600


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("millrace: 1\nprogram: {kind: python}\n", r"t:2: program: a program is an `entry`, a `text` or a `file`"),
        ("millrace: 1\nprogram: {kind: sql, entry: x}\n", r"t:2: program: a program of kind sql has a `text`"),
        ("millrace: 1\nprogram: {kind: container, text: x}\n", r"t:2: program.entry: .*an image"),
        ("millrace: 1\nprogram: {kind: script, text: x}\nunits: [0]\n", r"t:3: units\[0\]: .*>= 1"),
        ("millrace: 1\nprogram: {kind: script, text: x}\nunit: cpu\n", r"t:3: unit: a unit belongs to a centre"),
        ("millrace: 1\nprogram: {kind: script, text: x}\nchoice: user\n", r"t:3: choice: the user chooses"),
        (
            "millrace: 1\nprogram: {kind: script, text: x}\ncentr: c\n",
            r"t:3: centr: unknown key; did you mean `centre`",
        ),
        ("millrace: 1\nprogram: {kind: script, text: x}\ntrace: true\n", r"t:3: trace: only programs of kind python"),
        ("millrace: 1\nprogram: {kind: script, file: gone.sh}\n", r"t:2: program.file: gone.sh: No such file"),
        (
            "millrace: 1\nprogram: {kind: script, text: x}\ndeadline: 1999-01-01T00:00:00Z\n",
            r"t:3: deadline: ends before",
        ),
        ("millrace: 1\nprogram: {kind: script, text: x}\ndeadline: 2099-01-01 00:00:00\n", r"without a zone"),
        ("millrace: 1\nprogram: {kind: script, text: x}\ndeadline: soon\n", r"neither a time such as"),
        (
            "millrace: 1\nprogram: {kind: script, text: x}\noperators:\n  - {name: a, kind: gemm, shape: {m: 2}}\n",
            r"t:4: operators\[0\].shape: a: gemm without n, k",
        ),
        (
            "program: {kind: sql, text: x}\nmillrace: 1\noperators: [{name: a, kind: o}]\nflows: [{src: a, dst: b}]\n",
            r"t:4: flows\[0\].dst: operators: there is no operator b",
        ),
        (
            "millrace: 1\nprogram: {kind: script, text: x, tables: {t: a.parquet}}\n",
            r"t:2: program.tables: only SQL reads tables",
        ),
        (
            "millrace: 1\nprogram: {kind: sql, text: x, entry: a.duckdb, tables: {t: a.parquet}}\n",
            r"t:2: program.tables: SQL with tables has no entry or arguments",
        ),
        (
            "millrace: 1\nprogram: {kind: sql, text: x, tables: {t: {file: a.parquet, rows: 0}}}\n",
            r"t:2: program.tables.t.rows: .*>= 1",
        ),
        ("", r"it contains no task"),
        (
            "\n---\n".join(f"{HEAD}{each}" for each in ("name: a\nafter: [c]", "name: b\nafter: [a]", IN_A_CYCLE)),
            r"t:4: after: a cycle: a -> c -> b -> a$",
        ),
        (
            "millrace: 1\nprogram: {kind: script, text: x}\ninputs: [{task: a}]\n",
            r"t:3: inputs\[0\]: state either the `output` that is read or its `size`$",
        ),
        ("millrace: 1\nprogram: {kind: script, text: x}\non_failure: hope\n", r"t:3: on_failure: .*'hope'"),
        ("millrace: 1\nprogram: {kind: script, text: x}\ncentres: 0\n", r"t:3: centres: .*>= 1"),
        ("millrace: 1\nprogram: {kind: script, text: x}\nexpected: {cpu: soon}\n", r"t:3: expected.cpu: "),
    ],
)
def test_invalid_task_file_is_one_line_with_its_position(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        loads_tasks(text, NOW_NS, file="t")
    assert "\n" not in str(caught.value)


def test_tables_of_sql_are_next_to_the_file_and_choose_a_profile(tmp_path: Path) -> None:
    text = """
millrace: 1
program:
  kind: sql
  text: SELECT 1
  tables: {near: a.parquet, far: {file: /data/b.parquet, rows: 7, columns: {x: BIGINT}}}
"""
    ((task, _),) = loads_tasks(text, NOW_NS, folder=tmp_path)
    near, far = (task.spec.program.tables[name] for name in ("near", "far"))
    assert (near.file, near.rows, near.columns) == (str(tmp_path / "a.parquet"), None, {})
    assert (far.file, far.rows, far.columns) == ("/data/b.parquet", 7, {"x": "BIGINT"})
    assert task.spec.profile == "accelerated"
    plain = "millrace: 1\nprogram: {kind: sql, text: SELECT 1}\n"
    assert loads_tasks(plain, NOW_NS)[0][0].spec.profile == "measured"
    assert loads_tasks(f"{text}profile: mine\n", NOW_NS)[0][0].spec.profile == "mine"


def test_a_name_twice_is_refused_and_none_is_made_of_the_time() -> None:
    document = "millrace: 1\nname: a\nprogram: {kind: script, text: x}\n"
    with pytest.raises(ConfigError, match="it contains task a twice"):
        loads_tasks(f"{document}---\n{document}", NOW_NS)
    assert numbered("My Script!", NOW_NS) == "my-script-20300317-174640-000000"


def test_a_graph_goes_into_a_task_and_comes_back_the_same() -> None:
    graph = OperatorGraph(
        "g",
        (
            Operator.of("a", "fft", {"n": 64, "batch": 2}, executions=7),
            Operator("own", "python-function", code="(fn)", library="python"),
        ),
        (Flow("a", "own"),),
        "hpc",
    )
    program = loads_tasks("millrace: 1\nprogram: {kind: script, text: x}\n", NOW_NS)[0][0].spec.program
    spec = TaskSpec(program=program, category="hpc", operators=operators_of(graph))
    assert graph_of("g", spec) == graph


def test_unattributed_time_becomes_an_operator_without_kernel() -> None:
    graph = OperatorGraph("g", (Operator.of("a", "fft", {"n": 64}),))
    operators = traced_operators(graph, {"a": 0.75}, 1.0)
    assert [(operator.name, operator.seconds) for operator in operators] == [("a", 0.75), ("rest", 0.25)]


def test_graph_of_a_file_is_submitted_predecessors_first() -> None:
    """Item 13: whatever the order of the documents, each task is created after those that it names."""
    documents = [
        "name: last\ninputs: [{task: mid, output: rows}, {task: other, size: 3 KiB}]\ncentres: 2",
        "name: mid\nafter: [first]\noutputs: [{name: rows, size: 1 MiB}]\nexpected: {cpu: 2 s, gpu: 500 ms}",
        "name: first\non_failure: wait",
    ]
    head = "millrace: 1\nprogram: {kind: script, text: x}\n"
    tasks = [task for task, _ in loads_tasks("\n---\n".join(head + each for each in documents), NOW_NS)]
    assert [task.metadata.name for task in tasks] == ["first", "mid", "last"]
    first, mid, last = (task.spec for task in tasks)
    assert (first.on_failure, mid.after, mid.outputs[0].nbytes) == (OnFailure.WAIT, ("first",), 1 << 20)
    assert mid.expected == {DeviceKind.CPU: 2.0, DeviceKind.GPU: 0.5}
    assert (last.predecessors, last.centres) == (("mid", "other"), 2)
    assert [(data.output, data.nbytes) for data in last.inputs] == [("rows", None), (None, 3072)]
