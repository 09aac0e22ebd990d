"""A real Slurm cluster on this machine: munged, slurmctld and some slurmd with their own key, folder and ports."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from dataplane.closing import Closing
from tests.free_ports import free_ports
from tests.left_processes import kill_those_of
from tests.waiting import HANG_S, wait_until

_PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel", "srun")
_CPUS, _MEMORY_MIB = 4, 4000
NODES: Final = ("n1", "n2", "n3")

_CONFIGURATION: Final = """
ClusterName=millrace
SlurmctldHost=localhost(127.0.0.1)
SlurmctldAddr=127.0.0.1
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
ReturnToService=2
MinJobAge=2
KillWait=2
MessageTimeout=60
SlurmdTimeout=60
GresTypes=npu
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
NodeName=n[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{ports}] CPUs=4 RealMemory=4000 Feature=fast
NodeName=n3 NodeHostname=localhost NodeAddr=127.0.0.1 Port={last_port} CPUs=4 RealMemory=4000 Feature=odd Gres=npu:2
PartitionName=batch Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
PartitionName=accelerated Nodes=n3 MaxTime=60 State=UP
"""


def skip_without_slurm() -> None:
    """Skip and name the missing programs."""
    missing = [name for name in _PROGRAMS if _found(name) is None]
    if os.geteuid() or missing:
        pytest.skip(
            f"a Slurm cluster needs root and {', '.join(missing) or 'its programs'}: "
            "apt install slurmctld slurmd slurm-client munge"
        )


class SlurmCluster(Closing):
    """Three nodes of four CPUs: two in partition batch, one with two npu in partition accelerated."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.configuration = folder, folder / "slurm.conf"
        self._munged: subprocess.Popen[bytes] | None = None
        self.controller: subprocess.Popen[bytes] | None = None
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir()
        (folder / "state").mkdir()
        self._configure()
        try:
            self._start_munged()
            self.start_controller()
            for node in NODES:
                self.start_node(node)
            wait_until(lambda: self.states() == dict.fromkeys(NODES, "idle"), "its nodes do not come")
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment for its commands."""
        return {**os.environ, "SLURM_CONF": str(self.configuration)}

    def run(self, *command: str) -> str:
        """Return a command's output; it must not fail."""
        return subprocess.run(
            command, env=self.environment, check=True, capture_output=True, text=True, timeout=HANG_S, cwd=self.folder
        ).stdout

    def states(self) -> Mapping[str, str]:
        """Return the nodes' states; none while there is no answer."""
        try:
            output = self.run("sinfo", "--noheader", "--Node", "--format=%N %T")
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return {}
        return dict(line.split() for line in output.splitlines())

    def start_controller(self) -> None:
        """Start slurmctld."""
        self.controller = self._start("slurmctld", "slurmctld", "-D")

    def stop_controller(self) -> None:
        """End slurmctld; it keeps its state."""
        assert self.controller is not None
        _end(self.controller)

    def wait_for_controller(self) -> None:
        """Wait until slurmctld and its nodes answer."""
        wait_until(lambda: self.states() == dict.fromkeys(NODES, "idle"), "slurmctld does not come")

    @contextmanager
    def frozen_controller(self) -> Iterator[None]:
        """Pause slurmctld for a while, at any point; requests wait."""
        assert self.controller is not None
        self.controller.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.controller.send_signal(signal.SIGCONT)

    def start_node(self, node: str) -> None:
        """Start a node's slurmd."""
        self.nodes[node] = self._start(f"slurmd-{node}", "slurmd", "-D", "-N", node)

    def close(self) -> None:
        """Stop the cluster, nodes first."""
        for process in self.nodes.values():
            _end(process)
        for other in (self.controller, self._munged):
            if other is not None:
                _end(other)
        kill_those_of(self.folder)  # jobs outlive the nodes' daemons

    def _configure(self) -> None:
        controller, *nodes = free_ports(1 + len(NODES))
        text = _CONFIGURATION.format(
            folder=self.folder, port=controller, ports=",".join(map(str, nodes[:2])), last_port=nodes[2]
        )
        self.configuration.write_text(text)
        (self.folder / "gres.conf").write_text("NodeName=n3 Name=npu Count=2\n")

    def _start_munged(self) -> None:
        munge = self.folder / "munge"
        munge.mkdir(mode=0o700)
        (munge / "key").write_bytes(secrets.token_bytes(128))
        (munge / "key").chmod(0o400)
        files = (f"--key-file={munge}/key", f"--pid-file={munge}/pid", f"--log-file={munge}/log")
        seed = (f"--seed-file={munge}/seed", f"--socket={self.folder}/munge.sock", "--num-threads=1")
        self._munged = self._start("munged", "munged", "--foreground", "--force", *files, *seed)
        wait_until((self.folder / "munge.sock").exists, "munged does not come")

    def _start(self, log: str, program: str, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{log}.out").open("ab") as file:
            return subprocess.Popen(
                (_found(program) or program, *options),
                env={**self.environment, "PATH": _SYSTEM_PATH},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=self.folder,
            )


_SYSTEM_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"


def _found(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a daemon, even a stopped one; kill it if it does not end."""
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


if __name__ == "__main__":
    import sys

    begin = time.monotonic()
    with SlurmCluster(Path(sys.argv[1])) as cluster:
        print(cluster.states(), time.monotonic() - begin)
