"""Devices and addresses, all in the page's own network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.soak.pages.workspace import Workspace


def _cables(workspace: Workspace) -> None:
    """Lay two cables of veth: veth0 to veth1, veth2 to veth3."""
    for a, b in (("veth0", "veth1"), ("veth2", "veth3")):
        workspace.call(f"ip link add {a} type veth peer name {b} && ip link set {a} up && ip link set {b} up")


def _eth0(workspace: Workspace) -> None:
    """A device like a real machine's, with incoming traffic."""
    workspace.call(
        "ip netns add peer && ip link add eth0 type veth peer name eth0 netns peer "
        "&& ip address add 192.0.2.1/24 dev eth0 && ip link set eth0 up "
        "&& ip -n peer address add 192.0.2.2/24 dev eth0 && ip -n peer link set eth0 up"
    )
    workspace.start("ip netns exec peer ping -i 0.2 192.0.2.1", "bytes from")


SCENES: Final[dict[str, Callable[[Workspace], None]]] = {
    "cables": _cables,
    "eth0": _eth0,
}
