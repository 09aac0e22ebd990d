"""Calls commands, each in its own process without network and with write access to one folder only.

Run as `unshare --net --mount [--map-root-user] python -m tests.controller.apps.cli.hostile.sandbox CALLS FOLDER`: CALLS
is a file with a JSON list of command lines; a line of JSON for each call is printed. Everything is loaded once, and
each call is a fork.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import resource
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from typer.main import get_command

import collectors
import controller
import dataplane
from controller.apps.cli import app
from tests.controller.apps.cli.hostile.calls import STAYS

ROOT = Path(__file__).parents[5]
CALL_S = 20.0
STAY_S = 3.0
_PACKAGES = (dataplane, collectors, controller)
_OTHERS = ("typer.rich_utils", "typer._completion_shared", "scipy.optimize")
_MOUNT_SETATTR, _AT_RECURSIVE, _RDONLY, _AT_FDCWD = 442, 0x8000, 1, -100
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18


def close_off(folder: Path) -> None:
    """Make everything read-only but a folder in memory; needs a mount namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = (ctypes.c_uint64 * 4)(_RDONLY, 0, 0, 0)
    done = (
        libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
        or libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, 32)
        or libc.mount(b"none", os.fsencode(folder), b"tmpfs", 0, b"size=256m")
    )
    if done:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def furnish(folder: Path) -> None:
    """Write the files that calls name: a program, settings, and hostile files."""
    own = ROOT / "docs" / "examples" / "own_program"
    for name in ("forwarder.json", "forwarder.p4info.txtpb"):
        shutil.copy(own / name, folder)
    (folder / "test.stf").write_text("packet 1 00\n")
    (folder / "settings.yaml").write_text("{}\n")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "bytes").write_bytes(bytes(range(256)) * 16)
    (folder / "empty").touch()
    (folder / "deep.json").write_text("[" * 100_000)
    with (folder / "large").open("wb") as file:
        file.truncate(1 << 40)  # sparse


def load_all() -> None:
    """Import once what each call would otherwise import."""
    for package in _PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda _: None):
            if module.name.rpartition(".")[2] != "__main__":
                with suppress(ImportError):  # missing optional packages
                    importlib.import_module(module.name)
    for name in _OTHERS:
        importlib.import_module(name)


def called(words: list[str], folder: Path) -> dict[str, Any]:
    """Return a call's result: status, whether it was stopped, error output, seconds, memory."""
    output, began_s = folder.parent / "errors", time.monotonic()
    child = os.fork()
    if not child:
        _run(words, folder, output)
    limit_s = STAY_S if set(words[:4]) & STAYS else CALL_S
    stopped = False
    while (ended := os.wait4(child, os.WNOHANG))[0] == 0:
        if not stopped and time.monotonic() - began_s > limit_s:
            stopped = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.002)
    _, status, usage = ended
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # its leftover processes
    return {
        "words": words,
        "status": os.waitstatus_to_exitcode(status),
        "stopped": stopped,
        "stays": limit_s == STAY_S,
        "said": output.read_text("utf-8", "replace")[:4000],
        "seconds": time.monotonic() - began_s,
        "memory_mb": usage.ru_maxrss // 1024,
    }


def _run(words: list[str], folder: Path, output: Path) -> None:
    """Run a call in this process; never returns."""
    status = 99
    try:
        os.setsid()
        os.chdir(folder)
        os.umask(0o077)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nothing, errors = os.open(os.devnull, os.O_RDWR), os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for number, target in enumerate((nothing, nothing, errors)):
            os.dup2(target, number)
        sys.argv = ["millrace", *words]
        from controller.apps import cli  # noqa: PLC0415

        cli.main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001 - what is looked for
        import traceback  # noqa: PLC0415

        traceback.print_exc()
        status = 98
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    calls, work_folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    close_off(work_folder)
    os.environ.setdefault("MILLRACE_CACHE_DIR", str(Path.home() / ".cache" / "millrace"))
    own = dict.fromkeys(("HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"), str(work_folder))
    os.environ |= {**own, "COLUMNS": "200", "NO_COLOR": "1"}
    load_all()
    app.app = get_command(app.app)  # type: ignore[assignment]  # what each call would make of it
    gc.collect()
    gc.freeze()  # children then copy fewer pages
    for number, words in enumerate(calls):
        folder = work_folder / f"here{number}"  # a new folder: leftover processes of a call may still write to theirs
        folder.mkdir()
        furnish(folder)
        print(json.dumps(called(words, folder)), flush=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
