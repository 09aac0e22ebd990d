"""Probes of Python: packages of the base and of extras are imported; machine code is generated and called."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from controller.apps.cli.doctor.values import Finding, Purpose
from dataplane.extras import EXTRA_OF

BASE: Final = Purpose("Python packages", "all commands", "pip install --force-reinstall millrace-net", is_required=True)
NATIVE: Final = Purpose(
    "native code", "compiled switches and collectors", "allow executable memory (SELinux, seccomp)", is_required=True
)
_PACKAGES: Final = (
    *("cryptography", "finsy", "google.protobuf", "grpc", "grpc_health.v1.health", "grpc_reflection.v1alpha"),
    *("llvmlite.binding", "msgspec", "numpy", "prometheus_client", "rich", "typer", "yaml"),
    *(("pyroute2",) if sys.platform == "linux" else ()),
)
USES: Final = {
    "history": "the collector's history, SQL",
    "schedulers": "API server, schedulers, nodes, centres, ALTO, traffic engineering",
    "train": "training with PyTorch, learning schedulers, kernels on GPUs",
    "demo": "the demo's pictures",
    "scapy": "Scapy's layers, `trace --format scapy`",
    "etcd": "storage of the API server that machines share",
    "nvml": "reading NVIDIA's devices",
    "gym": "Gymnasium's interface to the schedulers' environment",
    "thrift": "bmv2's runtime API",
    "otel": "traces of reroutes; metrics by OTLP",
    "mininet": "topologies under Mininet",
    "spark": "SQL on Apache Spark",
}
_WITHIN: Final = {"opentelemetry": "opentelemetry.exporter.otlp.proto.grpc"}
"""Modules to import for packages whose name others share."""
_IMPORTING: Final = """
import importlib, json, sys
problems = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        problems[name] = f"no {error.name}"
    except BaseException as error:
        problems[name] = f"{type(error).__name__}: {error}"
print(json.dumps(problems))
"""
_CALLING = """
import ctypes
from llvmlite import binding
binding.initialize_native_target()
binding.initialize_native_asmprinter()
module = binding.parse_assembly("define i32 @answer() { ret i32 42 }")
machine = binding.Target.from_default_triple().create_target_machine()
with binding.create_mcjit_compiler(module, machine) as engine:
    engine.finalize_object()
    print(ctypes.CFUNCTYPE(ctypes.c_int32)(engine.get_function_address("answer"))())
"""


def probe() -> Iterator[Finding]:
    """Yield the findings."""
    base = import_problems(_PACKAGES)
    yield BASE.missing(_joined(base)) if base else BASE.ok(f"imported {len(_PACKAGES)}")
    yield _native()
    problems = import_problems([_WITHIN.get(name, name) for name in EXTRA_OF])
    for extra, use in USES.items():
        packages = [_WITHIN.get(name, name) for name, its in EXTRA_OF.items() if its == extra]
        purpose = Purpose(f"extra {extra}", use, f"pip install 'millrace-net[{extra}]'")
        absent = {name: problems[name] for name in packages if name in problems}
        yield purpose.missing(_joined(absent)) if absent else purpose.ok(f"imported {', '.join(packages)}")


def import_problems(names: Sequence[str]) -> Mapping[str, str]:
    """Return why packages cannot be imported, by name; another process tries, as one may crash."""
    done = _python(_IMPORTING, *names)
    try:
        problems: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        if len(names) > 1:  # one of them has crashed, or has ended the process
            return {name: problem for each in names for name, problem in import_problems([each]).items()}
        return {names[0]: f"Python ended with status {done.returncode} while importing it"}
    return problems


def _native() -> Finding:
    done = _python(_CALLING)
    if done.stdout.strip() == "42":
        return NATIVE.ok("generated and called a function")
    lines = done.stderr.strip().splitlines()
    return NATIVE.missing(lines[-1] if lines else f"Python ended with status {done.returncode}")


def _python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603


def _joined(problems: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {problem}" for name, problem in problems.items())
