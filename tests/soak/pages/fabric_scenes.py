"""Networks that exist when a reader reaches a block: fabrics, switches, devices, p4lang's tutorials."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.soak.pages.workspace import LackingError, Workspace
from tests.soak.tutorials import lacking


def _all_on(workspace: Workspace, topology: str, settings: str = "") -> None:
    """Run `millrace up` on a topology in virtual time or as its settings say, until the page ends."""
    workspace.write("up.yaml", f"topology: {topology}\n{settings}")
    workspace.call("millrace up --settings up.yaml --detach")


def _abilene_up(workspace: Workspace) -> None:
    """Everything at once on Abilene, with its own rates: hosts send nothing."""
    _all_on(workspace, "abilene", "fabric: {rate_divisor: 1, peak_utilisation: 0}\n")


def _racks_up(workspace: Workspace) -> None:
    """Everything on the page's racks between namespaces, unshaped: the cable's first figures exist."""
    _all_on(workspace, "racks.yaml", "time: kernel\nfabric: {rate_divisor: 1, peak_utilisation: 0.1}\n")
    workspace.call("until millrace telemetry links --format csv | grep -q '^s2,s1,.*stamps'; do sleep 1; done")


def _folder_of_a_user(workspace: Workspace) -> None:
    """The user's own folder for sockets, which a login makes."""
    del workspace
    user = Path(f"/run/user/{os.getuid()}")
    user.mkdir(parents=True)
    user.chmod(0o700)


def _killed_fabric(workspace: Workspace) -> None:
    """Leftovers of a fabric whose process was killed."""
    workspace.start("millrace fabric up leaf-spine", ready="millrace fabric: ready")
    (process,) = workspace.call("pgrep -f 'millrace fabric up leaf-spine$'").split()
    os.kill(int(process), signal.SIGKILL)


def _device_eth0(workspace: Workspace) -> None:
    """A network device with the most common name."""
    workspace.call("ip link add eth0 type veth peer name lan && ip link set eth0 up && ip link set lan up")


def _virtual_machine(workspace: Workspace) -> None:
    """A machine without the features that most virtual ones lack."""
    del workspace
    for what in ("/sys/devices/system/cpu/cpufreq/policy0", "/proc/driver/nvidia"):
        if Path(what).exists():
            raise LackingError(f"a machine without {what}")


def _tutorials(workspace: Workspace) -> None:
    """p4lang's tutorials in a folder next to the checkout's others, and their prerequisites."""
    missing = lacking()
    if missing is not None:
        raise LackingError(missing)
    leave = shutil.ignore_patterns("build", "logs", "pcaps")
    for part in ("utils", "exercises"):
        shutil.copytree(
            Path(os.environ["MILLRACE_TUTORIALS"]) / part, workspace.folder / "tutorials" / part, ignore=leave
        )
    own = os.environ.get("MILLRACE_TUTORIALS_BIN")
    if own is not None:
        sandbox, rest = workspace.environment["PATH"].split(":", 1)
        workspace.environment["PATH"] = f"{sandbox}:{own}:{rest}"


SCENES: Final[dict[str, Callable[[Workspace], None]]] = {
    "Abilene is up": _abilene_up,
    "racks are up": _racks_up,
    "folder of a user": _folder_of_a_user,
    "killed fabric": _killed_fabric,
    "device eth0": _device_eth0,
    "virtual machine": _virtual_machine,
    "tutorials": _tutorials,
}
