"""Coverage-guided fuzzing: python -m tests.fuzzing.run [TARGET...] --seconds N; without a TARGET all, a process each.

What it finds interesting stays in .pytest_cache/fuzzing/TARGET/corpus, and the next run goes on from there. An input
that crashes is in .pytest_cache/fuzzing/TARGET/crash-*, and the exit status is not 0: put the input into
tests/fuzzing/corpus/TARGET, where `make test` tries it for ever.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
FOUND = ROOT / ".pytest_cache" / "fuzzing"
_IMAGES = ["controller.workloads.nodes.runtimes", "beneath", "copying", "measuring", "renaming"]
COVERED = {
    "images": _IMAGES,
    "archives": [*_IMAGES, "tarfile"],
    "bundles": _IMAGES,
    "results": ["controller.probing.running"],
    "programs": ["dataplane.program", "dataplane.switch.interpreter", "dataplane.switch.p4runtime"],
    "entries": ["dataplane.switch.p4runtime", "dataplane.switch.tables"],
    "reports": ["collectors.decode", "collectors.reference", "collectors.state", "dataplane.wire"],
    "captures": ["collectors.ingest", "dataplane.nic.capture", "dataplane.wire"],
}
"""Modules whose coverage guides each target: instrumenting all takes a minute."""
NAMES = tuple(COVERED)
SLOWEST_S, MOST_MEMORY_MIB, LONGEST_BYTES = 30, 4096, 1 << 16


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one target in this process, which then ends."""
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: PLC0415 - `make test` has none

    with atheris.instrument_imports(include=COVERED[name]):
        from tests.fuzzing.mutating import mutated  # noqa: PLC0415 - after the instruments
        from tests.fuzzing.targets import TARGETS  # noqa: PLC0415

        target = TARGETS[name]
        for path in target.corpus():  # some modules are loaded when they are first used
            target.run(path.read_bytes())
    folder = FOUND / name
    (folder / "corpus").mkdir(parents=True, exist_ok=True)

    def mutate(data: bytes, most_bytes: int, seed: int) -> bytes:
        rng = Random(seed)
        changed: bytes = mutated(target, data, rng) if rng.random() < 0.5 else atheris.Mutate(data, most_bytes)
        return changed[:most_bytes]

    options = {
        "max_total_time": seconds,
        "timeout": SLOWEST_S,
        "rss_limit_mb": MOST_MEMORY_MIB,
        "max_len": LONGEST_BYTES,
        "artifact_prefix": f"{folder}/",
        "print_final_stats": 1,
        "verbosity": int(sys.stderr.isatty()),
    }
    words = [f"-{key}={value}" for key, value in options.items()]
    inputs = [str(folder / "corpus"), str(ROOT / "tests" / "fuzzing" / "corpus" / name)]
    atheris.Setup([sys.argv[0], *words, *inputs], target.run, custom_mutator=mutate)
    atheris.Fuzz()


def fuzz_apart(name: str, seconds: int) -> int:
    """Fuzz one target in its own process; return the exit status."""
    log = FOUND / name / "log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzzing.run", name, "--seconds", str(seconds)]
    with log.open("wb") as file:
        done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, check=False)
    lines = log.read_text(errors="replace").splitlines()
    units = [line.split()[-1] for line in lines if line.startswith("stat::number_of_executed_units")]
    print(
        f"{name}: {units[0] if units else 'unknown'} inputs, {'no crash' if not done.returncode else f'see {log}'}",
        flush=True,
    )
    return done.returncode


def main() -> int:
    """Fuzz the targets of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing.run")
    parser.add_argument("targets", nargs="*", choices=[*NAMES, []], metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=3600, help="for each target")
    given = parser.parse_args()
    if len(given.targets) == 1:
        fuzz(given.targets[0], given.seconds)
        return 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as together:
        codes = list(together.map(lambda name: fuzz_apart(name, given.seconds), given.targets or NAMES))
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
