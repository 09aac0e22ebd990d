"""Faults of a traced program: it raises, crashes, hangs, forks, or does not exist; one line each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.cluster.operators import Operator, OperatorError
from controller.cluster.operators.tracing import Traced, trace_callable, trace_script, trace_target

SCRIPT = """
import os
import subprocess
import sys
import time
import numpy as np

def product(n, name="text"):
    a = np.ones((n, 20))
    b = a.T @ a
    return b if name == "text" else name

if __name__ == "__main__":
    out = product(int(sys.argv[1]))
    print("shape", out.shape, __name__, os.path.basename(sys.path[0]), flush=True)
    match sys.argv[2]:
        case "raise":
            raise ValueError("no\\nway")
        case "exit":
            sys.exit(3)
        case "kill":
            os.kill(os.getpid(), 11)
        case "fork":
            if os.fork() == 0:
                out @ out
            else:
                os.wait()
        case "start":
            subprocess.run([sys.executable, "-c", "pass"], check=True)
        case "loop":
            while True:
                out = out @ out % 7
        case "stuck":
            time.sleep(1000)
"""
GEMM = ("gemm fp64 k=50 m=20 n=20", 1)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    return path


def operators_of(traced: Traced) -> list[tuple[str, int]]:
    return [(operator.signature, operator.executions) for operator in traced.graph.operators]


@pytest.mark.parametrize(
    ("ending", "problems"),
    [
        ("raise", ("it ended with ValueError: no way (program.py:18)",)),
        ("exit", ("it exited with status 3",)),
        ("fork", ("it started other processes, which are not in the graph",)),
    ],
)
def test_script_is_traced_up_to_any_end(script: Path, ending: str, problems: tuple[str, ...], tmp_path: Path) -> None:
    with (tmp_path / "out").open("w+") as output:
        traced = trace_script(script, ["50", ending], output=output, category="hpc")
        output.seek(0)
        assert output.read() == f"shape (20, 20) __main__ {tmp_path.name}\n"
    assert operators_of(traced) == [GEMM]
    assert traced.problems == problems
    assert (traced.graph.name, traced.graph.category) == ("program", "hpc")
    assert traced.places["gemm-1"] == "program.py:10"


def test_script_runs_on_one_core_and_reports_its_cpu_time(tmp_path: Path) -> None:
    path, written = tmp_path / "cores.py", tmp_path / "written"
    path.write_text(
        "import os\nimport numpy as np\nout = np.ones((300, 300)) @ np.ones((300, 300))\n"
        f"open({str(written)!r}, 'w').write(str(len(os.sched_getaffinity(0))))\n"
    )
    traced = trace_script(path)
    assert written.read_text() == "1"
    assert traced.cpu_time_s > 0
    assert len(os.sched_getaffinity(0)) == len(os.sched_getaffinity(os.getppid()))


def test_a_script_that_crashes_leaves_a_line(script: Path) -> None:
    traced = trace_script(script, ["50", "kill"])
    assert traced.graph.operators == ()
    assert traced.problems == ("it was ended by signal 11 (SIGSEGV)",)


@pytest.mark.parametrize(
    ("ending", "problem"), [("loop", "it was stopped after 0.5 s: the rest"), ("stuck", "in a call")]
)
def test_a_script_that_never_ends_is_stopped(script: Path, ending: str, problem: str) -> None:
    traced = trace_script(script, ["50", ending], deadline_s=0.5)
    assert GEMM in operators_of(traced)
    assert len(traced.problems) == 1
    assert problem in traced.problems[0]


def test_functions_are_named_by_file_or_module(script: Path) -> None:
    # An argument that is not a literal is a string.
    assert operators_of(trace_target(f"{script}:product", ["50", "abc"])) == [GEMM]
    missing = trace_target("json:nothing")
    assert missing.problems[0] == "it ended with AttributeError: module 'json' has no attribute 'nothing'"
    with pytest.raises(OperatorError, match=r"nowhere\.py: no such script"):
        trace_script("nowhere.py")


def test_callable_that_raises_or_hangs_gives_a_partial_graph() -> None:
    def fails(*, for_ever: bool) -> None:
        array = np.ones((5, 5))
        array @ array
        while for_ever:
            array = array @ array % 3
        raise KeyError("gone")

    raised = trace_callable(fails, keywords={"for_ever": False})
    assert operators_of(raised) == [("gemm fp64 k=5 m=5 n=5", 1)]
    assert raised.problems[0].startswith("it ended with KeyError: 'gone' (test_faults.py:")
    stopped = trace_callable(fails, keywords={"for_ever": True}, deadline_s=0.2)
    assert stopped.problems == ("it was stopped after 0.2 s: the rest is not in the graph",)
    assert [operator.kind for operator in stopped.graph.operators] == ["gemm", "gemm", "elementwise"]


@pytest.mark.parametrize("deadline_s", [0.02, 0.05])
def test_program_that_swallows_interrupts_is_stopped(deadline_s: float) -> None:
    caught: list[BaseException] = []

    def holds_on() -> None:
        while len(caught) < 3:
            try:
                while True:
                    np.ones(5) + 1
            except BaseException as error:  # noqa: BLE001 - what Python does to an exception in a destructor
                caught.append(error)
        raise caught[-1]

    stopped = trace_callable(holds_on, deadline_s=deadline_s)
    assert stopped.problems[0].startswith(f"it was stopped after {deadline_s} s")
    # Nothing arrives afterwards.
    assert trace_callable(lambda: np.ones(5) + 1).problems == ()


def test_memory_that_was_freed_is_no_longer_its_writers() -> None:
    def reuses() -> None:
        ones = np.ones((64, 64))
        for _ in range(50):
            product = ones @ ones
            del product
            # It usually gets the product's memory, of the same size: its content is not an operator's result.
            np.add(np.ndarray((64, 64)), ones)

    assert not trace_callable(reuses).graph.flows


def test_program_without_computation_is_reported() -> None:
    traced = trace_callable(lambda: None)
    assert traced.graph.operators == ()
    assert traced.problems == ("no operator was recorded: it uses nothing that is traced",)


def test_one_trace_at_a_time() -> None:
    def nested() -> None:
        trace_callable(lambda: None)

    traced = trace_callable(nested)
    assert traced.problems[0].startswith("it ended with OperatorError: another program is being traced")


def test_threads_of_a_program_are_traced_too() -> None:
    def both() -> None:
        array = np.ones((30, 30))
        threads = [threading.Thread(target=lambda: array @ array) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert operators_of(trace_callable(both)) == [("gemm fp64 k=30 m=30 n=30", 4)]


def test_types_without_a_format_are_kinds_of_their_own() -> None:
    def strange() -> None:
        np.array([object(), object()] * 4, dtype=object).copy()
        np.array(["a", "b"] * 4).copy()
        np.ones((9, 9), complex) @ np.ones((9, 9), complex)
        np.ones(9, np.longdouble) * 2

    kinds = [operator.kind for operator in trace_callable(strange).graph.operators]
    assert kinds[0] == "object-copy"
    assert "complex-gemm" in kinds
    assert all(Operator("x", kind).kind == kind for kind in kinds)


def multiply(a: Any, b: Any, c: Any) -> None:
    for i in range(len(a)):
        for j in range(len(a)):
            for k in range(len(a)):
                c[i, j] += a[i, k] * b[k, j]


def relax(n: int) -> Any:
    """Multiply by hand, and use the product."""
    a, b, c = np.ones((n, n)), np.ones((n, n)), np.zeros((n, n))
    multiply(a, b, c)
    return np.linalg.solve(c + n * np.eye(n), b)


def test_plain_python_functions_are_operators_with_code_trees() -> None:
    traced = trace_callable(relax, (40,))
    own, *others = traced.graph.operators
    assert own.kind == "python"
    assert own.library == "python"
    assert dict(own.shape) == {f"arg{index}_{axis}": 40 for index in range(3) for axis in range(2)}
    assert own.code == ("(def (loop (loop (loop (into-add (index a i0 i1) (mult (index a i0 i2) (index a i2 i1)))))))")
    assert traced.places["python-1"].startswith("multiply (test_faults.py:")
    assert [operator.kind for operator in others] == ["elementwise", "elementwise", "solve"]
    # The next operator reads what was written number by number.
    assert ("python-1", "elementwise-2") in {(flow.src, flow.dst) for flow in traced.graph.flows}
    assert np.array_equal(traced.result, relax(40))


def glue(n: int) -> Any:
    array = np.ones(n)
    for _ in range(50):
        array = array + 1
    return array


@pytest.mark.parametrize("program", [glue])
def test_functions_that_only_call_libraries_are_no_operators(program: Callable[..., Any]) -> None:
    assert {operator.kind for operator in trace_callable(program, (10,)).graph.operators} == {"elementwise"}


def triple(a: Any, b: Any) -> Any:
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def test_comprehensions_are_parts_of_their_function() -> None:
    values = [[float(i + j) for j in range(30)] for i in range(30)]
    traced = trace_callable(triple, (values, values))
    [own] = traced.graph.operators
    assert (own.kind, own.executions) == ("python", 1)
    assert dict(own.shape) == {"arg0_0": 30, "arg0_1": 30, "arg1_0": 30, "arg1_1": 30}
    assert own.code == (
        "(def (loop (yield (loop (yield (loop (into-add v (mult (index a i0 i2) (index a i1 i2)))))))))"
    )
