"""Builds shim.c for the installed DPDK, caches the builds, and loads it."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from dataplane.errors import PortError
from dataplane.native import cache

KEPT_BUILDS = 4
"""The oldest are removed when there are more."""
_PATIENCE_S = 120.0
_MISSING = "ports of kind DPDK need DPDK and a C compiler: apt install libdpdk-dev gcc pkg-config"
_FLAGS = ("-O2", "-fPIC", "-shared", "-Wall")


_PORT, _COUNT, _FLAG = ctypes.c_uint16, ctypes.c_uint16, ctypes.c_int
_TEXT, _NUMBER, _POINTERS = ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_void_p)
_ARGUMENTS = {
    "start": (ctypes.c_int, ctypes.POINTER(_TEXT), ctypes.c_int),
    "attach": (_TEXT, _TEXT, _TEXT, *[ctypes.POINTER(_PORT)] * 3),
    "make_queue": (_TEXT, _PORT, _COUNT, ctypes.c_uint32, ctypes.c_uint16, _FLAG, _POINTERS),
    "begin": (_PORT, _POINTERS, _COUNT, ctypes.c_uint16, ctypes.c_uint16, _FLAG),
    "end": (_PORT, _TEXT, _TEXT, _POINTERS, _COUNT),
    "count_drops": (_PORT, _NUMBER, _NUMBER),
}


@functools.cache
def load_shim() -> ctypes.CDLL:
    """Return the shim, built if need be; raise PortError where DPDK or a compiler is missing."""
    pkg_config, compiler = _tool("pkg-config"), _tool("cc")
    version = _output(pkg_config, "--modversion", "libdpdk")
    if version is None:
        raise PortError(_MISSING)
    source = resources.files("dataplane.nic.dpdk").joinpath("shim.c").read_bytes()
    flags = _output(pkg_config, "--cflags", "--libs", "libdpdk") or ""
    whole = (b"dpdk shim", source, version, flags, *_FLAGS, _output(compiler, "--version") or compiler)
    path = cache.default_dir() / f"dpdk-{cache.digest(whole, ())}.so"
    if not _is_ours(path):
        _build(compiler, source, flags.split(), path)
    try:
        return _declare(ctypes.CDLL(str(path)))
    except OSError as error:
        raise PortError(f"DPDK {version} cannot be loaded: {error}") from error


def _declare(shim: ctypes.CDLL) -> ctypes.CDLL:
    for name, arguments in _ARGUMENTS.items():
        getattr(shim, f"millrace_{name}").argtypes = arguments
    return shim


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise PortError(_MISSING)
    return path


def _output(*command: str) -> str | None:
    """Return a program's output, or None if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None


def _is_ours(path: Path) -> bool:
    """Return whether this user, and no other, wrote the file, since its code will run."""
    try:
        status = path.stat()
        os.utime(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _build(compiler: str, source: bytes, flags: list[str], path: Path) -> None:
    """Compile to a temporary file, then move it into place in one step."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-", suffix=".so")
        os.close(handle)
    except OSError as error:
        raise PortError(f"{path.parent}: the shim for DPDK cannot be stored there: {error.strerror}") from error
    new = Path(name)
    command = (compiler, *_FLAGS, "-x", "c", "-", "-o", name, *flags)
    done = subprocess.run(command, input=source, capture_output=True, timeout=_PATIENCE_S, check=False)  # noqa: S603
    if done.returncode != 0:
        new.unlink()
        first = (done.stderr.decode(errors="replace").splitlines() or ["no reason given"])[0]
        raise PortError(f"the C code for DPDK does not compile: {first}")
    new.chmod(0o700)
    new.replace(path)
    kept = sorted(path.parent.glob("dpdk-*.so"), key=lambda each: each.stat().st_mtime_ns)
    for old in kept[:-KEPT_BUILDS]:
        old.unlink(missing_ok=True)
