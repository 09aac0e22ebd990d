"""A warm process: it has imported what is slow to import, and forks a runner of probes on each request.

    python -m controller.probing.running.warm SOCKET torch numpy

Importing torch takes a second, more than most probes. A probe stays an ordinary process of its centre: it starts, finds
the socket that `MILLRACE_WARM` names, and hands over its command line, folder, environment and standard streams. The
fork joins the client's control groups, keeps to its cores, passes its exit code to the client, and dies with it. Only
processes of the same user are served, through a socket that only that user can reach. Memory that the libraries take is
the warm process's, not the probe's.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from controller.probing.running.warming.handing import MAX_BYTES, REFUSED
from controller.probing.running.warming.imports import import_timed
from dataplane.cgroups import group_of

MOST_RUNS: Final = 64
_PATIENCE_S: Final = 5.0
_STREAMS: Final = 3
_PEER: Final = struct.Struct("3i")
_DESCRIPTORS: Final = 4096
_LIMITS: Final = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
_CLONE_NEWNET: Final = 0x40000000


@dataclass(slots=True)
class _Run:
    """A fork and its client."""

    child: int
    asking: socket.socket
    watched: int
    """A descriptor that is readable once the child has ended."""


class Warm:
    """The server: one loop; runs are forks."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(path))
        path.chmod(0o600)
        self._listening.listen(MOST_RUNS)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ, None)
        self._runs = 0

    def serve(self) -> NoReturn:
        """Serve until killed."""
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._accept()
                else:
                    self._end(key.data, has_ended=key.fileobj == key.data.watched)

    def _accept(self) -> None:
        asking, _ = self._listening.accept()
        asking.settimeout(_PATIENCE_S)
        process, user, _ = _PEER.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        streams: list[int] = []
        try:
            content, streams, _, _ = socket.recv_fds(asking, MAX_BYTES, _STREAMS)
            if user != os.geteuid() or len(streams) != _STREAMS or self._runs >= MOST_RUNS:
                asking.close()
                return
            order = json.loads(content)
            # Before the fork: a client that has given up waiting runs the probe itself, and it must not run twice.
            asking.send(b"taken")
            child = os.fork()
            if child == 0:
                _be_runner(process, order, streams)
            run = _Run(child, asking, os.pidfd_open(child))
            self._selector.register(run.watched, selectors.EVENT_READ, run)
            self._selector.register(asking, selectors.EVENT_READ, run)
            self._runs += 1
        except (OSError, ValueError):
            asking.close()
        finally:
            for stream in streams:
                os.close(stream)

    def _end(self, run: _Run, *, has_ended: bool) -> None:
        """Tell the client how the child ended; kill the child and its children if the client is gone."""
        if self._selector.get_map().get(run.watched) is None:
            return  # both events came at the same time
        if not has_ended:
            with suppress(ProcessLookupError):
                os.killpg(run.child, signal.SIGKILL)
        _, status = os.waitpid(run.child, 0)
        with suppress(OSError):
            run.asking.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
        self._selector.unregister(run.watched)
        self._selector.unregister(run.asking)
        os.close(run.watched)
        run.asking.close()
        self._runs -= 1


def _be_runner(process: int, order: dict[str, Any], streams: Sequence[int]) -> NoReturn:
    """Become the runner requested by a process; does not return."""
    code = REFUSED
    try:
        os.setpgid(0, 0)
        _take_place(process)
        for descriptor, stream in enumerate(streams):
            os.dup2(stream, descriptor)
        os.closerange(_STREAMS, _DESCRIPTORS)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        sys.path[:0] = [part for part in order["path"] if part not in sys.path]
        from controller.probing.running.command import main  # noqa: PLC0415 - warm where it was imported

        code = main(order["arguments"], order["started_s"])
    except BaseException as error:  # noqa: BLE001 - of a fork nothing may escape into the server's loop
        sys.stderr.write(f"probe: the warm process could not run it: {error}\n")
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _take_place(process: int) -> None:
    """Take over another process's limits: control groups, cores, resource limits, priority, network."""
    for folder in set(group_of(process=str(process)).folders.values()):
        (folder / "cgroup.procs").write_text(str(os.getpid()))
    os.sched_setaffinity(0, os.sched_getaffinity(process))
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, process))
    for kind in _LIMITS:
        resource.setrlimit(kind, resource.prlimit(process, kind))
    with Path(f"/proc/{process}/ns/net").open("rb") as theirs, Path("/proc/self/ns/net").open("rb") as ours:
        if os.path.sameopenfile(theirs.fileno(), ours.fileno()):
            return
        if ctypes.CDLL(None, use_errno=True).setns(theirs.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "cannot join the client's network namespace")


def main(arguments: Sequence[str]) -> NoReturn:
    """Import what the command line names and serve at its socket."""
    began_s = time.monotonic()
    path, *modules = arguments
    for library in ("numpy", *modules):
        import_timed(library)
    for module in ("controller.probing.running.work", "controller.probing.running.command"):
        importlib.import_module(module)
    # Freeze objects, so that garbage collection in forks does not touch, and so copy, shared memory.
    gc.collect()
    gc.freeze()
    server = Warm(Path(path))
    sys.stdout.write(f"warm after {time.monotonic() - began_s:.2f} s: {path}\n")
    sys.stdout.flush()
    server.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
