"""`millrace probe kernels`, on a server in a thread."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.resources import Metadata, ProbeTask
from controller.apiserver.resources.probe_task import ImplementationSpec, KernelUseSpec, ProbeTaskSpec
from dataplane.topology.values import DeviceKind
from tests.controller.apps.cli.conftest import Run

CODE = """
class Counting:
    def __init__(self, n):
        self.n = n

    def run(self, inputs):
        return float(sum(range(self.n)))

    def accuracy(self, output):
        return abs(output - self.n * (self.n - 1) / 2)

def make(sizes, seed):
    return Counting(sizes["n"])

def alone(sizes):
    return Counting(1)

def crashing(sizes, seed):
    raise RuntimeError("boom\\nand more")

def empty(sizes, seed):
    return object()

class Wrong(Counting):
    def accuracy(self, output):
        return 0.5

def wrong(sizes, seed):
    return Wrong(1)

def primes(n):
    found = []
    for number in range(2, n):
        if all(number % prime for prime in found):
            found.append(number)
    return found

word = 3
"""
KERNEL = """
millrace: 1
identifier: counting
category: hpc
operator: counting
sizes: {n: 1000}
tolerance: 0
truth: the sum in closed form
implementations:
  - {device: cpu, library: python, entry: "counting_of_a_user:make"}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counting_of_a_user.py").write_text(CODE, encoding="utf-8")
    path = tmp_path / "counting.yaml"
    path.write_text(KERNEL, encoding="utf-8")
    yield path
    sys.modules.pop("counting_of_a_user", None)


def test_a_users_kernel_is_added_run_changed_and_deleted(run: Run, file: Path) -> None:
    out, err = run(f"probe kernels add {file}")
    assert (out.splitlines()[-1], err) == ("kernel counting.1 is in the store", "")
    assert "already" in run(f"probe kernels add {file}")[1]
    assert run(f"probe kernels change {file}")[0].endswith("kernel counting.2 is in the store\n")
    listed = json.loads(run("probe kernels list -f json")[0])
    assert {row["kernel"]: row["version"] for row in listed}["counting"] == 2
    assert "counting.1" in run("probe kernels show counting.1")[0]
    ran = json.loads(run("probe kernels run counting.1 --size n=10 --repeat 2 -f json")[0])
    assert {"what": "kernel", "value": "counting.1 n=10"} in ran
    assert run("probe kernels delete counting")[1].startswith("millrace: name a version of counting to remove")
    assert run("probe kernels delete counting.1") == ("kernel counting.1 is deleted\n", "")
    assert run("probe kernels show counting.1")[1] == "millrace: no version 1 of kernel counting; known: 2\n"
    assert run("probe kernels delete dgemm.1")[1] == "millrace: kernel dgemm.1 is built in and cannot be removed\n"


def test_output_of_show_is_input_of_add(run: Run, file: Path) -> None:
    run(f"probe kernels add {file}")
    again = file.with_name("again.yaml")
    again.write_text(run("probe kernels show counting -o yaml")[0].replace("version: 1", "version: 2"))
    assert run(f"probe kernels change {again}")[1] == ""
    first, second = (run(f"probe kernels show counting.{version} -o yaml")[0] for version in (1, 2))
    assert first.replace("version: 1", "version: 2") == second


def test_a_kernel_stands_for_a_function_by_its_code(run: Run, file: Path) -> None:
    assert run(f"probe kernels add {file} --stands-for counting_of_a_user:primes")[1] == ""
    assert "(yield i0)" in run("probe kernels show counting -o yaml")[0]
    assert run(f"probe kernels change {file} --stands-for math:sin")[1] == (
        "millrace: kernel counting.2: math:sin has no source to parse\n"
    )
    assert "has no absent" in run(f"probe kernels change {file} --stands-for math:absent")[1]


def test_a_stored_kernel_takes_the_place_of_a_built_in_one(run: Run, file: Path) -> None:
    file.write_text(KERNEL.replace("counting\nc", "dot\nc"), encoding="utf-8")
    assert "already" in run(f"probe kernels add {file}")[1]
    assert run(f"probe kernels add --override {file}")[1] == ""
    assert "the sum in closed form" in run("probe kernels show dot.1")[0]
    run("probe kernels delete dot.1")
    assert "the sum in higher precision" in run("probe kernels show dot.1")[0]


def test_code_that_does_not_do_is_one_line_and_not_stored(run: Run, file: Path) -> None:
    for old, new, message in (
        (":make", ":alone", "counting_of_a_user:alone takes (sizes), not (sizes, seed)"),
        (":make", ":crashing", "make: RuntimeError: boom"),
        (":make", ":empty", "counting_of_a_user:empty returned object, which has no run"),
        (":make", ":wrong", "cpu, python: its error is 0.5, above 0"),
        (":make", ":word", "module counting_of_a_user has a word that is not callable"),
        (":make", ":absent", "module counting_of_a_user has no absent"),
        ("counting_of_a_user:make", "no_module:make", "no module no_module"),
        ("counting_of_a_user:make", "nothing", "invalid entry point 'nothing': write module:function"),
        ("{n: 1000}", "{m: 1000}", "make: KeyError: 'n'"),
    ):
        file.write_text(KERNEL.replace(old, new), encoding="utf-8")
        assert run(f"probe kernels add {file}")[1] == f"millrace: kernel counting.1: {message}\n"
    assert run("get probekernels")[0].count("counting") == 0
    assert run(f"probe kernels add {file} --unchecked")[1] == ""


def test_files_that_are_wrong_are_one_line_with_the_place(run: Run, file: Path) -> None:
    for old, new, message in (
        ("tolerance", "tolerence", "counting.yaml:7: tolerence: unknown key; did you mean `tolerance`?"),
        ("counting\ncategory", "Counting\ncategory", "counting.yaml:3: identifier: "),
        ("device: cpu", "device: cpi", "'cpi' is not one of"),
        ("tolerance: 0", "splits: q", "kernel counting: splits q, which is not one of its sizes"),
    ):
        file.write_text(KERNEL.replace(old, new), encoding="utf-8")
        err = run(f"probe kernels add {file}")[1]
        assert message in err
        assert err.count("\n") == 1


def test_wrong_words_of_the_command_line_are_one_line(run: Run) -> None:
    for line, message in (
        ("run dgem", "no kernel dgem; did you mean dgemm or dgemv?"),
        ("run dgemm.x", "invalid kernel name 'dgemm.x': write IDENTIFIER or IDENTIFIER.VERSION"),
        ("run dgemm --size q=1", "kernel dgemm has no size q; known: k, m, n"),
        ("run dgemm --size n=-1", "--size n=-1: expected NAME=N, N a whole number"),
        ("run dgemm --size n=0", "kernel dgemm.1: n is 0, at least 1 needed"),
        ("run dgemm --device fpga", "kernel dgemm has no implementation for fpga"),
        ("run dgemm --device cpi", "--device cpi: expected cpu"),
        ("run dgemm --size n=10000000 --size m=10000000", "kernel dgemm.1 at k=1024 m=10000000 n=10000000 needs"),
    ):
        err = run(f"probe kernels {line}")[1]
        assert err.startswith(f"millrace: {message}"), err
        assert err.count("\n") == 1


def test_a_kernel_that_probe_tasks_are_made_of_stays(run: Run, served: Place, file: Path) -> None:
    run(f"probe kernels add {file}")
    code = ImplementationSpec(device=DeviceKind.CPU, library="python", entry="counting_of_a_user:make")
    use = KernelUseSpec(name="a", kernel="counting", version=1, implementation=code, tolerance=0.0, sizes={"n": 1})
    with SyncApiClient(served) as client:
        client.of(ProbeTask).create(
            ProbeTask(metadata=Metadata(name="counts"), spec=ProbeTaskSpec(category="hpc", uses=(use,)))
        )
    refused = "millrace: ProbeKernel counting.1 is used by ProbeTask counts\n"
    assert run("probe kernels delete counting.1")[1] == refused
    assert run("delete probekernel counting.1")[1] == refused
    run("delete probetask counts")
    assert run("probe kernels delete counting.1")[0] == "kernel counting.1 is deleted\n"


def test_without_an_api_the_built_in_kernels_are_there(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MILLRACE_API")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    out, err = run("probe kernels list -f csv")
    assert "dgemm,1,hpc,gemm,fp64" in out
    assert err == "no API server at the default socket: using the built-in kernels\n"
