"""Checks for every Python: all modules import, all kernels compile, the demo runs in virtual time.

`make pythons` runs it under each Python found, in an environment without development tools; it prints one line.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import collectors
import controller
import dataplane
from dataplane.native import Kernel, Module
from dataplane.native.library import compile_object

ROOT = Path(__file__).parents[1]
OPTIONAL = {"opentelemetry", "torch", "mininet", "aetcd", "gymnasium", "pynvml", "scapy", "thrift", "pyspark"}
SETTINGS = """
scenario: {hops_per_s: 1000, warm_up: 500ms, before: 1s, during: 2400ms, after: 1200ms}
"""


def import_all() -> tuple[list[ModuleType], set[str]]:
    """Import every module of the three packages; return them, and the optional packages that others lacked."""
    modules, lacking = list[ModuleType](), set[str]()
    for package in (dataplane, collectors, controller):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith(".__main__"):
                continue
            try:
                modules.append(importlib.import_module(module.name))
            except ModuleNotFoundError as error:
                if error.name not in OPTIONAL:
                    raise
                lacking.add(error.name)
    return modules, lacking


def compile_all(modules: Iterable[ModuleType]) -> int:
    """Compile every kernel that a module defines, not optimised; return how many there are.

    They are not linked: some call compiled P4 programs. The demo links and runs those.
    """
    kernels = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Kernel) and value.__module__ == module.__name__
    }
    together = Module("all")
    for kernel in sorted(kernels, key=lambda kernel: kernel.symbol):
        together.export(kernel)
    compile_object(str(together.ir), optimise=False)
    return len(kernels)


def run_demo(folder: Path) -> dict[str, float]:
    """Run a short demo as a user would; return its figures."""
    (folder / "demo.yaml").write_text(SETTINGS, encoding="utf-8")
    command = [sys.executable, "-m", "controller.apps.cli", "demo", "--settings", f"{folder}/demo.yaml"]
    done = subprocess.run([*command, "--out", str(folder)], capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    figures: dict[str, float] = json.loads((folder / "figures.json").read_text())
    return figures


def main() -> None:
    """Run all three checks, and print a line."""
    began_s = time.monotonic()
    modules, lacking = import_all()
    kernels = compile_all(modules)
    with tempfile.TemporaryDirectory() as folder:
        figures = run_demo(Path(folder))
    if not figures["moves"] or not figures["reports"]:
        sys.exit(f"the demo moved nothing: {figures}")
    without = f" (without {', '.join(sorted(lacking))})" if lacking else ""
    print(
        f"Python {sys.version.split()[0]}: {len(modules)} modules imported{without}, {kernels} kernels compiled, "
        f"the demo moved traffic {figures['moves']} times by {figures['reports']} reports; "
        f"{time.monotonic() - began_s:.0f} s"
    )


if __name__ == "__main__":
    main()
