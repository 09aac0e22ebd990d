"""Errors in an environment without some package: one line that names the extra; a worker needs none of them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dataplane.extras import EXTRA_OF, missing

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED_AS = {
    "grpcio": {"grpc"},
    "grpcio-health-checking": {"grpc_health"},
    "grpcio-reflection": {"grpc_reflection"},
    "nvidia-ml-py": {"pynvml"},
    "opentelemetry-exporter-otlp-proto-grpc": {"opentelemetry"},
    "opentelemetry-sdk": {"opentelemetry"},
    "prometheus-client": {"prometheus_client"},
    "protobuf": {"google"},
    "pyjwt": {"jwt"},
    "pyyaml": {"yaml"},
}
_BESIDE = {"killing", "lease_file", "beneath", "copying", "measuring", "renaming"}
"""Besides the guard of containers and the reader of images, which start as files."""
OWN = {"dataplane", "collectors", "controller", *_BESIDE}
BROUGHT = {"h11": "uvicorn's", "_typeshed": "for type checkers", "typing_extensions": "for type checkers, and gRPC's"}
_IMPORT = re.compile(r"^ *(?:import (\w+)(?:\.\w+)*(?: as \w+)?(?:  #.*)?$|from (\w+)[\w.]* import )", re.MULTILINE)
HIDING = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
"""


def extra(name: str) -> set[str]:
    """Return the import names of an extra's packages."""
    modules = set[str]()
    for requirement in map(Requirement, PROJECT["optional-dependencies"][name]):
        if requirement.name == PROJECT["name"]:
            modules |= {module for inner in requirement.extras for module in extra(inner)}
        else:
            modules |= IMPORTED_AS.get(requirement.name, {requirement.name})
    return modules


def run_without(hidden: set[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python without some packages."""
    command = [sys.executable, "-c", HIDING.format(hidden=hidden) + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_each_package_is_in_the_extra_that_is_named_for_it() -> None:
    assert {name: name in extra(of) for name, of in EXTRA_OF.items()} == dict.fromkeys(EXTRA_OF, True)
    own = {name: extra(name) for name in EXTRA_OF.values()}
    assert {name: of for name, of in EXTRA_OF.items() if any(name in own[o] and own[o] < own[of] for o in own)} == {}
    assert {"train", "schedulers", "all"} <= PROJECT["optional-dependencies"].keys()


def imported(text: str) -> set[str]:
    """Return the top-level names that a module imports, anywhere in it."""
    return {first or second for first, second in _IMPORT.findall(text)}


def test_every_imported_package_is_in_the_base_or_an_extra() -> None:
    names = [Requirement(line).name for line in PROJECT["dependencies"]]
    base = {module for name in names for module in IMPORTED_AS.get(name, {name})}
    known = {*base, *EXTRA_OF, *OWN, *BROUGHT, *sys.stdlib_module_names}
    files = [path for package in ("dataplane", "collectors", "controller") for path in (ROOT / package).rglob("*.py")]
    others = {name: path for path in files for name in imported(path.read_text(encoding="utf-8")) - known}
    assert others == {}


def test_a_worker_imports_what_every_part_needs() -> None:
    pytest.importorskip("torch")
    done = run_without(
        {*EXTRA_OF} - {"torch", "pynvml"},
        "import dataplane.allreduce.torch, dataplane.allreduce.client, dataplane.allreduce.next_hop",
    )
    assert done.returncode == 0, done.stderr


def test_the_base_runs_switch_collector_controller_and_paths() -> None:
    modules = "collectors.process, controller.network.process, controller.network.paths.service.process"
    done = run_without({*EXTRA_OF}, f"import controller.apps.cli.app, dataplane.switch.process, {modules}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("hidden", "arguments", "line"),
    [
        ({"matplotlib"}, ["demo"], "millrace demo needs matplotlib: pip install 'millrace-net[demo]'"),
        (
            {"httpx"},
            ["--log-level", "info", "get", "nodes"],
            "millrace get needs httpx: pip install 'millrace-net[schedulers]'",
        ),
    ],
)
def test_a_command_without_its_extra_is_one_line(hidden: set[str], arguments: list[str], line: str) -> None:
    code = f"from controller.apps.cli import main; sys.argv = ['millrace', *{arguments!r}]; main()"
    done = run_without(hidden, code)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{line}\n")


def test_scapy_s_layers_without_scapy_are_one_line() -> None:
    done = run_without({"scapy"}, "import dataplane.scapy.int_telemetry")
    last = "ModuleNotFoundError: dataplane.scapy needs scapy (GPL-2.0): pip install 'millrace-net[scapy]'"
    assert done.stderr.splitlines()[-1] == last
    assert "During handling" not in done.stderr


def test_what_no_extra_brings_is_left_to_its_own_words() -> None:
    assert missing("millrace demo", ModuleNotFoundError("No module named 'dataplan'", name="dataplan")) is None
    assert missing("millrace demo", ModuleNotFoundError("?")) is None
