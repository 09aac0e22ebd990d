"""Checks that p4/build matches p4/: its digest file names the sources and outputs that belong together.

Users need no p4c, since the compiler's output is committed. After a change to p4/ run `python -m
dataplane.program.build_check --compile` (`make p4`), which runs in the repository's root

    p4c-bm2-ss --arch v1model --p4runtime-files p4/build/fabric.p4info.txtpb -o p4/build/fabric.json p4/fabric.p4

and the same for each of `PROGRAMS` (relative, because the paths end up in the JSON), and records the digests. The
output of p4c's --p4runtime-entries-files stays next to them if a program has entries of its own. Without an argument it
compares: silent, or one line about what changed on one side only.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dataplane.errors import ProgramError
from dataplane.program.files.entries import read_entries

P4_DIRECTORY = Path(__file__).resolve().parents[2] / "p4"
DIGESTS = "fabric.sha256"
PROGRAMS = ("fabric", "fabric_aggregation")
OUTPUTS = tuple(f"{program}.{kind}" for program in PROGRAMS for kind in ("json", "p4info.txtpb"))
COMPILER = "p4c-bm2-ss"
RECOMPILE = "compile again: `make p4`"


def digest_sources(p4_directory: Path = P4_DIRECTORY) -> str:
    """Return the SHA-256, in hex, over the paths and bytes of all P4 files below the directory."""
    digest = hashlib.sha256()
    for path in sorted(p4_directory.rglob("*.p4")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(p4_directory).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def compile_programs(p4_directory: Path = P4_DIRECTORY, programs: Sequence[str] = PROGRAMS) -> None:
    """Compile programs into build/; raise `ProgramError` with p4c's message if one fails."""
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise ProgramError(f"{COMPILER} is not on the PATH: install p4c (p4.org)", file=str(p4_directory))
    (p4_directory / "build").mkdir(exist_ok=True)
    with ThreadPoolExecutor() as threads:  # each waits for a process
        list(threads.map(lambda name: _compile(compiler, p4_directory, name), programs))


def _compile(compiler: str, p4_directory: Path, name: str) -> None:
    program, build = Path(p4_directory.name) / f"{name}.p4", Path(p4_directory.name) / "build"
    entries = build / f"{name}.entries.txtpb"
    outputs = ["--p4runtime-files", str(build / f"{name}.p4info.txtpb"), "-o", str(build / f"{name}.json")]
    outputs += ["--p4runtime-entries-files", str(entries)]
    done = subprocess.run(  # noqa: S603 - the compiler that was found, no shell
        [compiler, "--arch", "v1model", *outputs, str(program)],
        cwd=p4_directory.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ProgramError(done.stderr.strip() or f"{COMPILER} ended with {done.returncode}", file=str(program))
    written = p4_directory.parent / entries
    if not read_entries(written.read_bytes(), str(written)).updates:
        written.unlink()


def record_build(p4_directory: Path = P4_DIRECTORY) -> None:
    """Write the digest file for the current sources and outputs; call it right after compiling."""
    lines = [f"{digest} {name}\n" for name, digest in _digest_all(p4_directory).items()]
    (p4_directory / "build" / DIGESTS).write_text("".join(lines))


def check_build(p4_directory: Path = P4_DIRECTORY) -> None:
    """Raise `ProgramError` unless sources and outputs are those that were recorded together."""
    digest_file = p4_directory / "build" / DIGESTS
    try:
        lines = digest_file.read_text().splitlines()
    except OSError as error:
        raise ProgramError(f"{error.strerror}; {RECOMPILE}", file=str(digest_file)) from error
    recorded = {name: digest for digest, _, name in (line.partition(" ") for line in lines)}
    present = _digest_all(p4_directory)
    for name in sorted(recorded.keys() | present.keys()):
        if recorded.get(name) != present.get(name):
            raise ProgramError(f"changed since p4/build was recorded; {RECOMPILE}", file=str(p4_directory / name))


def _digest_all(p4_directory: Path) -> dict[str, str]:
    """Return digests by name relative to the directory; `*.p4` stands for all sources."""
    digests = {"*.p4": digest_sources(p4_directory)}
    entries = sorted(path.name for path in (p4_directory / "build").glob("*.entries.txtpb"))
    for name in (*OUTPUTS, *entries):
        path = p4_directory / "build" / name
        try:
            digests[f"build/{name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise ProgramError(f"{error.strerror}; {RECOMPILE}", file=str(path)) from error
    return digests


def main(arguments: list[str] | None = None) -> None:
    """Check the committed build, or compile it; exit with one line on stderr and status 1 if it is out of date."""
    parser = argparse.ArgumentParser(prog="python -m dataplane.program.build_check", description=check_build.__doc__)
    parser.add_argument("--compile", action="store_true", help=f"compile with {COMPILER} and record the result")
    parser.add_argument("--p4", type=Path, default=P4_DIRECTORY, help="the folder of the P4 sources")
    options = parser.parse_args(arguments)
    try:
        if options.compile:
            compile_programs(options.p4)
            record_build(options.p4)
        else:
            check_build(options.p4)
    except ProgramError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
