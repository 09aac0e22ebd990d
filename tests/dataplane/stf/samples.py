"""p4c's own v1model samples that carry a test: found in a source tree, compiled, and run on a target of choice.

Usage: python -m tests.dataplane.stf.samples P4C_SOURCE [--on interpreter|compiled|bmv2] [--out FOLDER] [--only TEXT]

Compiled programs are kept in FOLDER and not compiled again. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dataplane.errors import MillraceError
from dataplane.program.loader import load_program
from dataplane.stf import PipelineName
from dataplane.stf.compare import Difference
from dataplane.stf.parse import parse_stf
from dataplane.stf.pipelines import pipeline_factory
from dataplane.stf.run import run_stf
from tests.dataplane.stf.bmv2_target import run_on_bmv2

COMPILER = "p4c-bm2-ss"
FOLDER = Path("testdata") / "p4_16_samples"
BMV2 = "bmv2"
COMPILE_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Sample:
    """A program and its test."""

    name: str
    program: Path
    test: Path


@dataclass(frozen=True, slots=True)
class Compiled:
    """bmv2 JSON and, where p4c can make one for the program, P4Info."""

    json: Path
    p4info: Path | None


def find_samples(source: Path) -> list[Sample]:
    """Return the v1model samples with a test in a p4c source tree; raise FileNotFoundError if it is none."""
    folder = source / FOLDER
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is missing: {source} is no p4c source tree")
    samples = [Sample(test.stem, test.with_suffix(".p4"), test) for test in sorted(folder.glob("*-bmv2.stf"))]
    return [sample for sample in samples if sample.program.exists() and _is_v1model(sample.program)]


def compile_sample(sample: Sample, out: Path) -> Compiled | str:
    """Return the compiler's output for a sample, or its error in one line."""
    program, info, complaint = (out / f"{sample.name}.{end}" for end in ("json", "p4info.txtpb", "refused"))
    if complaint.exists():
        return complaint.read_text()
    if not program.exists():
        done = _compile(sample, ["-o", program, "--p4runtime-files", info])
        if done.returncode != 0:
            # Some programs have no P4Info, such as those whose tables have two keys of one name.
            info.unlink(missing_ok=True)
            done = _compile(sample, ["-o", program])
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            program.unlink(missing_ok=True)
            complaint.write_text(errors[0] if errors else f"{COMPILER} ended with {done.returncode}")
            return complaint.read_text()
    return Compiled(program, info if info.exists() else None)


def run_sample(sample: Sample, compiled: Compiled, target: str) -> tuple[Difference, ...]:
    """Return the test's differences on a target; raise MillraceError if program or test are refused."""
    statements = parse_stf(sample.test.read_text(), str(sample.test))
    if target == BMV2:
        return run_on_bmv2(compiled.json, compiled.p4info, statements, str(sample.test))
    program = load_program(compiled.json, compiled.p4info)
    factory = pipeline_factory(PipelineName(target))
    return run_stf(program, statements, str(sample.test), factory).differences


def describe(difference: Difference) -> str:
    """Return a difference in one line."""
    text = f"line {difference.line}: {difference.problem}"
    return text if difference.port is None else f"{text} (port {difference.port})"


def main(argv: list[str]) -> int:
    """Run all samples; print one line for each that does not pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--on", default=PipelineName.INTERPRETER.value, choices=[*PipelineName, BMV2])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args(argv)
    if shutil.which(COMPILER) is None:
        parser.error(f"{COMPILER} is not on the PATH")
    out = options.out or Path(tempfile.mkdtemp(prefix="millrace-samples-"))
    out.mkdir(parents=True, exist_ok=True)
    passed, failed, not_compiled = [], {}, {}
    for sample in find_samples(options.source):
        if options.only not in sample.name:
            continue
        compiled = compile_sample(sample, out)
        if isinstance(compiled, str):
            not_compiled[sample.name] = compiled
            continue
        try:
            differences = run_sample(sample, compiled, options.on)
        except MillraceError as error:
            failed[sample.name] = str(error)
        else:
            if differences:
                failed[sample.name] = describe(differences[0])
            else:
                passed.append(sample.name)
    for name, reason in sorted({**failed, **not_compiled}.items()):
        print(f"{name}: {reason}")
    print(json.dumps({"target": options.on, "passed": passed, "failed": failed, "not_compiled": not_compiled}))
    return 1 if failed else 0


def _is_v1model(program: Path) -> bool:
    return "v1model.p4" in program.read_text(errors="replace")


def _compile(sample: Sample, arguments: list[str | Path]) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [COMPILER, sample.program.name, *arguments]
    return subprocess.run(
        command, cwd=sample.program.parent, capture_output=True, text=True, check=False, timeout=COMPILE_LIMIT_S
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
