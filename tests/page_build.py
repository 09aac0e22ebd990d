"""Builds the page (controller/web) and checks that the committed build matches its sources.

Users need no Node, since the build is committed. After a change run `python -m tests.page_build --build` (`make web`),
which installs the locked packages, builds, and records in build/page.sha256 the digests of the sources and of every
file of the build. Without an argument it compares, without Node: silent, or one line about what changed on one side.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

WEB = Path(__file__).parents[1] / "controller" / "web"
DIGESTS = "page.sha256"
STATED = "build.json"
REBUILD = "build again: `make web`"
_NOT_BUILT_FROM = {"build", "node_modules", "tests"}


class PageBuildError(Exception):
    """The build does not match, or cannot be made; one line."""


def digest_sources(web: Path = WEB) -> str:
    """Return the SHA-256, in hex, over the paths and bytes of all files that the build is made from."""
    digest = hashlib.sha256()
    for name, path in sorted(_sources(web).items()):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _sources(web: Path) -> dict[str, Path]:
    paths: list[Path] = []
    for path in web.iterdir():
        if path.name not in _NOT_BUILT_FROM:
            paths += [path] if path.is_file() else [inner for inner in path.rglob("*") if inner.is_file()]
    return {path.relative_to(web).as_posix(): path for path in paths}


def install_packages(web: Path = WEB) -> None:
    """Install the packages of package-lock.json, unless they are there; raise PageBuildError."""
    lock, installed = web / "package-lock.json", web / "node_modules" / ".millrace"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    if installed.is_file() and installed.read_text() == wanted:
        return
    _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], web)
    installed.write_text(wanted)


def build_page(out: Path, web: Path = WEB) -> None:
    """Build into a folder, which is replaced, with its digests; raise PageBuildError."""
    sources = digest_sources(web)
    command = [
        "npx",
        "--no-install",
        "vite",
        "build",
        "--outDir",
        str(out.resolve()),
        "--emptyOutDir",
        "--logLevel",
        "warn",
    ]
    _run(command, web, MILLRACE_PAGE=sources)
    (out / STATED).write_text(json.dumps({"build": sources}) + "\n")
    lines = [f"{digest} {name}\n" for name, digest in {"sources": sources, **_outputs(out)}.items()]
    (out / DIGESTS).write_text("".join(lines))


def run_tests(web: Path = WEB) -> None:
    """Check the types, and run the unit tests; raise PageBuildError."""
    _run(["npx", "--no-install", "svelte-check", "--tsconfig", "./tsconfig.json", "--fail-on-warnings"], web)
    _run(["npx", "--no-install", "vitest", "run", "--reporter=dot"], web)


def check_build(web: Path = WEB) -> None:
    """Raise PageBuildError unless sources and build are those that were recorded together."""
    digest_file = web / "build" / DIGESTS
    try:
        lines = digest_file.read_text().splitlines()
    except OSError as error:
        raise PageBuildError(f"{digest_file}: {error.strerror}; {REBUILD}") from error
    recorded = {name: digest for digest, _, name in (line.partition(" ") for line in lines)}
    present = {"sources": digest_sources(web), **_outputs(web / "build")}
    for name in sorted(recorded.keys() | present.keys()):
        if recorded.get(name) != present.get(name):
            path = web if name == "sources" else web / "build" / name
            raise PageBuildError(f"{path}: changed since controller/web/build was recorded; {REBUILD}")


def _outputs(build: Path) -> dict[str, str]:
    paths = sorted(path for path in build.rglob("*") if path.is_file() and path.name != DIGESTS)
    return {path.relative_to(build).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _run(command: list[str], folder: Path, **variables: str) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise PageBuildError(f"{command[0]} is not on the PATH: install Node 20 or later")
    environment = {**os.environ, "NO_COLOR": "1", **variables}
    done = subprocess.run(
        [program, *command[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise PageBuildError(f"{' '.join(command[:3])} ended with {done.returncode}: {said[-1]}")


def main(arguments: list[str] | None = None) -> None:
    """Check the committed build, or make it; exit with one line on stderr and status 1 if it is out of date."""
    parser = argparse.ArgumentParser(prog="python -m tests.page_build", description=check_build.__doc__)
    parser.add_argument("--build", action="store_true", help="build with Node and record the result")
    try:
        if parser.parse_args(arguments).build:
            install_packages()
            build_page(WEB / "build")
        check_build()
    except PageBuildError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
