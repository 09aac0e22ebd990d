"""A real Ray cluster on this machine: two nodes on loopback addresses, its own token, and a closable proxy."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import pytest

from dataplane.closing import Closing
from tests.free_ports import free_ports
from tests.waiting import HANG_S, wait_until

_HEAD, _OTHER = "127.0.0.2", "127.0.0.3"
"""Not 127.0.0.1, which Ray replaces by the machine's network address."""
_CPUS: Final = 4
_ROOT: Final = Path(__file__).parents[5]


def skip_without_ray() -> Path:
    """Return Ray's command in its own environment; otherwise skip with instructions."""
    program = Path(os.environ.get("MILLRACE_RAY_FOLDER", _ROOT / ".venv-ray")) / "bin" / "ray"
    if not program.exists():
        pytest.skip("a Ray cluster needs an environment of its own: make .venv-ray/.ready")
    return program


class RayCluster(Closing):
    """A head with four CPUs and four `slot`, and an equal second node that comes and goes."""

    def __init__(self, ray: Path) -> None:
        # Ray's sockets are below it, and their paths may have 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
        self._ray = ray
        self.token_file = self.folder / "token"
        self.token_file.write_text(secrets.token_hex(32))
        self.token_file.chmod(0o600)
        self._gcs, self.port = free_ports(2)
        try:
            self._head = self._start(_HEAD, "--head", f"--port={self._gcs}", *self._dashboard())
            wait_until(lambda: len(self.nodes()) == 1, f"Ray's head does not come: {self._log(_HEAD)}")
        except BaseException:
            self.close()
            raise

    _head: subprocess.Popen[bytes] | None = None
    _other: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Return the API's URL."""
        return f"http://127.0.0.1:{self.port}"

    def nodes(self) -> list[str]:
        """Return the addresses of live nodes; none while there is no answer."""
        try:
            headers = {"Authorization": f"Bearer {self.token_file.read_text()}"}
            answer = httpx.get(f"{self.address}/api/v0/nodes?detail=true", timeout=5, trust_env=False, headers=headers)
            told = answer.json()["data"]["result"]["result"]
        except (httpx.HTTPError, ValueError, KeyError):
            return []
        return [node["node_ip"] for node in told if node["state"] == "ALIVE"]

    def queue(self, body: Mapping[str, object]) -> None:
        """Queue a job, as any job can."""
        headers = {"Authorization": f"Bearer {self.token_file.read_text()}"}
        asked = f"{self.address}/api/jobs/"
        httpx.post(asked, json=body, timeout=HANG_S, trust_env=False, headers=headers).raise_for_status()

    def start_other(self) -> None:
        """Start the second node."""
        self._other = self._start(_OTHER, f"--address={_HEAD}:{self._gcs}")
        wait_until(lambda: len(self.nodes()) == 2, f"Ray's second node does not come: {self._log(_OTHER)}")

    def stop_other(self) -> None:
        """End the second node."""
        if self._other is not None:
            _end(self._other)
            self._other = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Pause the dashboard for a while, at any point."""
        processes = self._processes("dashboard/dashboard.py")
        assert processes
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def close(self) -> None:
        """Stop the cluster."""
        self.stop_other()
        if self._head is not None:
            _end(self._head)
        for process in self._processes(""):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _dashboard(self) -> tuple[str, ...]:
        return ("--dashboard-host=127.0.0.1", f"--dashboard-port={self.port}", "--include-dashboard=true")

    def _start(self, address: str, *options: str) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
            "RAY_TMPDIR": str(self.folder),
        }
        common = (
            f"--node-ip-address={address}",
            f"--num-cpus={_CPUS}",
            f'--resources={{"slot": {_CPUS}}}',
            "--object-store-memory=80000000",
            "--min-worker-port=0",
            "--max-worker-port=0",
            "--dashboard-agent-listen-port=0",
            "--disable-usage-stats",
            "--block",
        )
        temp_dir = (f"--temp-dir={self.folder}/tmp",) if "--head" in options else ()
        with (self.folder / f"{address}.log").open("wb") as file:
            return subprocess.Popen(
                (self._ray, "start", *options, *common, *temp_dir),
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def _log(self, address: str) -> str:
        return (self.folder / f"{address}.log").read_text()[-2000:]

    def _processes(self, word: str) -> list[int]:
        """Return processes with the cluster's folder in their command, or in their environment together with a word."""
        pids = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (process / "cmdline").read_bytes().decode(errors="replace")
                mine = f"RAY_TMPDIR={self.folder}" in (process / "environ").read_bytes().decode(errors="replace")
                if (mine or str(self.folder) in command) and word in command and int(process.name) != os.getpid():
                    pids.append(int(process.name))
        return pids


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let `ray start --block` end its processes; kill its group if it does not."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(HANG_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
